"""Weights of graphs that do not change them lie packed, and follow whoever changes them."""

import json
import subprocess
import threading

import numpy as np
import pytest

import sluice as sl
from conftest import AVX512
from sluice import nn
from sluice._base.tools import find_tool


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.second(self.first(x).relu()).relu().mean(dim=(2, 3)))


class Inference(nn.Graph):
    def __init__(self, model, pack=True):
        super().__init__()
        self.model = model
        self.config.enable_pack_weights(pack)

    def build(self, x):
        return self.model(x)


class Training(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def packed(graph):
    return [copy["name"] for copy in graph.plan.get("packed", [])]


@pytest.fixture
def x():
    return sl.randn(2, 3, 8, 8)


def eager(model, x):
    with sl.no_grad():
        return model(x).numpy()


def test_equal_bits_with_and_without():
    for shape in [(1, 3, 8, 8), (4, 3, 9, 7)]:
        x, model = sl.randn(*shape), Net()
        with sl.no_grad():
            graph, plain = Inference(model), Inference(model, pack=False)
            assert np.array_equal(graph(x).numpy(), plain(x).numpy())
        assert packed(graph) and not packed(plain)
        assert graph.memory()["packed"] > 0 and plain.memory()["packed"] == 0


def changes():
    def in_place(model):
        with sl.no_grad():
            model.second.weight.mul_(-1)

    def part(model):
        with sl.no_grad():
            model.second.weight[3, 2:5, 1] += 7

    def state(model):
        model.load_state_dict(Net().state_dict())

    def data(model):
        model.first.weight.data.add_(1)

    def array(model):
        model.second.weight.detach().numpy()[...] *= 2

    def dlpack(model):
        np.from_dlpack(model.second.weight.detach())[...] += 1

    def buffer(model):
        memory = memoryview(model.second.weight.detach()).cast("B").cast("f")
        memory[5] += 30.0

    def eager_step(model):
        optimizer = sl.optim.SGD(model.parameters(), lr=0.5)
        model(sl.ones(1, 3, 8, 8)).sum().backward()
        optimizer.step()

    def graph_step(model):
        Training(model)(sl.ones(2, 3, 8, 8))

    return [in_place, part, state, data, array, dlpack, buffer, eager_step, graph_step]


@pytest.mark.parametrize("change", changes(), ids=lambda f: f.__name__)
def test_changes_between_calls_are_seen(change, x):
    model = Net()
    with sl.no_grad():
        graph = Inference(model)
        before = graph(x).numpy()
    assert packed(graph)
    for _ in range(3):
        change(model)
        after = graph(x).numpy()
        np.testing.assert_allclose(after, eager(model, x), rtol=1e-4, atol=1e-5)
        assert not np.allclose(after, before, rtol=1e-3)
        before = after


def test_memory_that_stays_lent_is_read_anew(x):
    model = Net()
    with sl.no_grad():
        graph = Inference(model)
        graph(x)
    array = model.second.weight.detach().numpy()  # held while it is written, call after call
    for i in range(3):
        array[...] = i
        np.testing.assert_allclose(graph(x).numpy(), eager(model, x), rtol=1e-4, atol=1e-5)


def test_training_and_inference_by_turns(x):
    model = Net()
    train = Training(model)
    with sl.no_grad():
        graph = Inference(model)
    for _ in range(6):
        train(x)
        np.testing.assert_allclose(graph(x).numpy(), eager(model, x), rtol=1e-4, atol=1e-5)
    assert packed(graph) and not packed(train)


def test_calls_of_threads(x):
    model = Net()
    with sl.no_grad():
        graphs = [Inference(model), Inference(model)]
        expected = [g(x).numpy() for g in graphs][0]
    wrong = []

    def call(graph):
        for _ in range(30):
            if not np.array_equal(graph(x).numpy(), expected):
                wrong.append(1)

    for _ in range(3):
        with sl.no_grad():
            model.first.weight.add_(0.5)
        expected = eager_graph(model, x)
        threads = [threading.Thread(target=call, args=(g,)) for g in graphs * 2]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def eager_graph(model, x):
    with sl.no_grad():
        return Inference(model, pack=False)(x).numpy()


def test_graphs_of_one_model_share_copies(x):
    model = Net()
    with sl.no_grad():
        first = Inference(model)
        first(x)
        before = sl._C.memory_stats("host")["current_bytes"]
        second = Inference(model)
        second(x)
    grown = sl._C.memory_stats("host")["current_bytes"] - before
    memory = second.memory()
    assert memory["packed"] > 0 and grown == memory["argument"] + memory["output"] + memory["temp"]


def test_a_bundle_packs_where_it_is_loaded(x, tmp_path, without_digest):
    model = Net()
    with sl.no_grad():
        graph = Inference(model)
        expected = graph(x).numpy()
    sl.save(graph, tmp_path / "bundle")
    without_digest(tmp_path / "bundle")
    file = tmp_path / "bundle" / "plan.json"
    plan = json.loads(file.read_text())
    for copy in plan["packed"]:  # as on a machine that packs otherwise
        copy.update(format="of elsewhere, " + copy["name"], bytes=64)
    file.write_text(json.dumps(plan))
    loaded = sl.load_graph(tmp_path / "bundle")
    assert np.array_equal(loaded(x).numpy(), expected)
    weights = np.fromfile(tmp_path / "bundle" / "weights.safetensors", np.uint8).size
    assert weights < sum(p.numel() for p in model.parameters()) * 4 + 2000  # plain ones alone


def test_plan_viz_says_what_is_packed_and_why(x, tmp_path):
    with sl.no_grad():
        graph = Inference(Net())
        graph(x)
    graph.save_plan(tmp_path / "plan.json")

    def run(*arguments):
        return subprocess.run([find_tool("plan-viz"), *arguments, str(tmp_path / "plan.json")], capture_output=True, text=True,
                              check=True).stdout

    mem = json.loads(run("mem", "--json"))
    lines = {line["name"]: line for line in mem["lines"]}
    name = packed(graph)[0]
    assert lines[name]["kind"] == "packed" and "reads it" in lines[name]["note"] and "blocks" in lines[name]["note"]
    assert lines[name.removesuffix("/packed")]["note"] == "kernels read it packed only"
    assert sum(line["bytes"] for line in mem["lines"] if line["kind"] == "packed") == mem["packed_total"]
    assert "packed only" in run("mem", "--all")


class Square(nn.Module):
    """A layer whose weight is read in both of its directions."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(sl.randn(64, 64))

    def forward(self, x):
        return nn.functional.linear(sl.relu(x @ self.weight), self.weight)


@pytest.mark.skipif(not AVX512, reason="without AVX-512, products read matrices as they lie")
def test_products_read_packed_matrices_and_have_the_same_bits():
    for model, x, copies in [(nn.Linear(100, 60), sl.randn(3, 100), 1), (Square(), sl.randn(5, 64), 2),
                             (nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)), sl.randn(2, 7, 32), 2)]:
        with sl.no_grad():
            graph, plain = Inference(model), Inference(model, pack=False)
            for _ in range(2):
                assert np.array_equal(graph(x).numpy(), plain(x).numpy())
                assert np.array_equal(graph(x).numpy(), eager(model, x))
                next(iter(model.parameters())).mul_(-0.5)
        assert len(packed(graph)) == copies


def test_products_that_are_trained_from_outside_are_not_packed():
    model, x = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)), sl.randn(8, 32)

    class Gradients(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, x):
            self.model(x).sum().backward()
            return [p.grad for p in self.model.parameters()]

    graph = Gradients()
    graph(x)
    assert not packed(graph)
    compiled = sl.compile(model)
    compiled(x).sum().backward()
    with sl.no_grad():
        compiled(x)
    copies = {program.run is not None: packed(program._graph) for program in compiled._region.all_programs()}
    assert copies[True] == [] and len(copies[False]) == 2 * AVX512
