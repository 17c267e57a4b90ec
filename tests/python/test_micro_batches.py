"""Steps of several micro-batches: gradient accumulation, inputs and results, refusals."""

import json

import numpy as np
import pytest

import sluice as sl
from sluice import nn


def net(*layers):
    sl.manual_seed(0)
    return nn.Sequential(*(layers or (nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))))


class Train(nn.Graph):
    def __init__(self, n=1, model=None, optimizer=lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9), schedule=None):
        super().__init__(name="train")
        self.model = model or net()
        self.optimizer = optimizer(self.model.parameters())
        self.add_optimizer(self.optimizer, lr_sch=schedule and schedule(self.optimizer))
        if n > 1:
            self.config.set_gradient_accumulation_steps(n)

    def build(self, x, y):
        scores = self.model(x)
        loss = nn.functional.mse_loss(scores, y)
        loss.backward()
        return loss, scores


def batches(rows=8, steps=4):
    rng = np.random.default_rng(0)
    return [[sl.tensor(rng.normal(size=(rows, n)).astype(np.float32)) for n in (6, 3)] for _ in range(steps)]


def weights(graph):
    return [p.detach().numpy().copy() for p in graph.model.parameters()]


OPTIMIZERS = {
    "sgd": lambda p: sl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: sl.optim.AdamW(p, lr=0.01),
    "clipped": lambda p: sl.optim.SGD([{"params": list(p), "clip_grad_max_norm": 0.1}], lr=0.5),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_n_micro_batches_equal_a_batch_of_n_times_the_size(n, optimizer):  # NG-28, CFG-16
    whole, parts = Train(optimizer=OPTIMIZERS[optimizer]), Train(n, optimizer=OPTIMIZERS[optimizer])
    for x, y in batches():
        loss, scores = whole(x, y)
        losses, same = parts(x, y)
        assert losses.shape == (n,) and same.shape == scores.shape
        np.testing.assert_allclose(losses.numpy().mean(), loss.item(), rtol=1e-5)
        np.testing.assert_allclose(same.numpy(), scores.numpy(), atol=1e-5)
    for a, b in zip(weights(whole), weights(parts)):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_gradients_that_are_constants():
    class Mean(Train):
        def build(self, x, y):
            scores = self.model(x)
            loss = scores.mean()  # the gradient of the last bias depends on nothing
            loss.backward()
            return loss, scores

    whole, parts = Mean(), Mean(4)
    unfolded = Mean(4)
    unfolded.config.disable_pass("fold_constants")
    for x, y in batches():
        whole(x, y), parts(x, y), unfolded(x, y)
    for a, b, c in zip(weights(whole), weights(parts), weights(unfolded)):
        np.testing.assert_allclose(a, b, atol=1e-5)
        np.testing.assert_allclose(a, c, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("clip", ["max_norm", "norm", "value", "by hand"])
def test_gradients_that_are_constants_are_clipped(n, clip):
    class Mean(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = net(nn.Linear(6, 3))
            options = {"clip_grad_max_norm": 0.25} if clip == "max_norm" else {}
            self.optimizer = sl.optim.SGD([{"params": list(self.model.parameters()), **options}], lr=0.5)
            self.add_optimizer(self.optimizer)
            self.config.set_gradient_accumulation_steps(n)

        def build(self, x):
            return backward_of_mean(self.model, x, clip)

    def backward_of_mean(model, x, clip):
        model(x).mean().backward()  # the gradient of the bias depends on nothing
        clip_by_hand(model, clip)
        return x.sum()

    def clip_by_hand(model, clip):
        with sl.no_grad():
            norm = sl.stack([p.grad.abs().max() for p in model.parameters()]).max()
            if clip == "norm":
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            elif clip == "value":
                nn.utils.clip_grad_value_(model.parameters(), 0.125)
            elif clip == "by hand":
                for p in model.parameters():
                    p.grad.mul_(0.5 / (1 + norm))
                    p.grad[0] += norm

    graph, model = Mean(), net(nn.Linear(6, 3))
    optimizer = sl.optim.SGD(model.parameters(), lr=0.5)
    for step in range(2):
        x = sl.tensor(np.random.RandomState(step).uniform(-1, 1, (2 * n, 6)).astype(np.float32))
        graph(x)
        sums = [sl.zeros(*p.shape) for p in model.parameters()]
        for part in x.chunk(n):
            optimizer.zero_grad()
            backward_of_mean(model, part, clip)
            sums = [s + p.grad / n for s, p in zip(sums, model.parameters())]
        for p, grad in zip(model.parameters(), sums):
            p.grad = grad
        if clip == "max_norm":
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
    for a, b in zip(weights(graph), [p.detach().numpy() for p in model.parameters()]):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_update_fires_once_per_n_micro_batches():  # CFG-16
    graph = Train(4)
    graph.compile(*batches()[0])
    graph.set_trace()
    for x, y in batches(steps=3):
        graph(x, y)
    graph.synchronize()
    ran = [e["name"] for e in json.loads(graph._call.session.take_trace())["traceEvents"] if e.get("cat") == "kernel"]
    assert ran.count("model.0/linear") == 12
    assert sum("sgd_momentum_update" in name for name in ran) == 3 * 4
    firings = graph.stats()["firings"]
    assert firings["inputs"] == 12 and firings["outputs"] == 3
    assert graph.stats()["finished"] == 3
    assert [a.get("starts") for a in graph.plan["actors"] if a["role"] == "feed"] == [4]


def test_gradients_wait_in_one_slot_not_in_n():
    graph = Train(8)
    graph.compile(*batches()[0])
    sums = [r for r in graph.plan["registers"] if "accumulate" in r["name"]]
    assert len(sums) == 4 and {r["quota"] for r in sums} == {1} and {r["emit_every"] for r in sums} == {8}


def test_fewer_slots_than_results_are_refused():
    graph = Train(4)
    graph.compile(*batches()[0])
    waiting = next(e["reg"] for e in graph.plan["edges"] if e["take"] == 4)
    name = graph.plan["registers"][waiting]["name"]
    tight = Train(4)
    tight.config.set_quota(name, 2)
    with pytest.raises(ValueError, match=f"quota of register '{name}': 2; its rates and initial tokens need at least 4"):
        tight(*batches()[0])


class Two(nn.Graph):
    def __init__(self, n):
        super().__init__()
        self.config.set_gradient_accumulation_steps(n)

    def build(self, x, scale):
        assert x.shape == (2, 3) and scale.shape == ()
        y = x * scale
        return {"rows": y, "sum": y.sum(), "given": x}


def test_inputs_are_cut_along_axis_0_and_results_put_together_again():
    x = sl.tensor(np.arange(24, dtype=np.float32).reshape(3, 8).T.copy().T[:, :8].reshape(8, 3))
    for t in (x, sl.tensor(np.arange(24, dtype=np.float32).reshape(3, 8)).t()):  # strides too
        result = Two(4)(t, sl.tensor(2.0))
        np.testing.assert_array_equal(result["rows"].numpy(), 2 * t.numpy())
        np.testing.assert_array_equal(result["given"].numpy(), t.numpy())
        np.testing.assert_array_equal(result["sum"].numpy(), (2 * t.numpy()).reshape(4, -1).sum(1))


def test_results_that_no_micro_batch_changes():
    class Constants(nn.Graph):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(1, 2)
            self.config.set_gradient_accumulation_steps(3)

        def build(self, x):
            return sl.ones(2, 2), sl.tensor(5), self.fc.bias, x

    graph = Constants()
    ones, five, bias, x = graph(sl.zeros(3, 1))
    assert ones.shape == (6, 2) and five.tolist() == [5, 5, 5] and x.shape == (3, 1)
    assert bias.tolist() == graph.fc.bias.tolist() * 3


def test_many_calls_in_flight_keep_their_order():
    graph = Two(4)
    graph.config.set_outputs_buffer_size(3)
    results = [graph(sl.full((8, 3), float(i)), sl.tensor(1.0)) for i in range(50)]
    for i, result in enumerate(results):
        assert result["sum"].numpy().tolist() == [6.0 * i] * 4


def test_what_a_micro_batch_updates_is_updated_in_each():
    model = net(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    eager = net(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    graph = Train(4, model=model)
    (x, y), = batches(rows=16, steps=1)
    graph(x, y)
    for k in range(4):
        eager(x[4 * k:4 * k + 4])
    assert model[1].num_batches_tracked.item() == 4
    np.testing.assert_allclose(model[1].running_mean.numpy(), eager[1].running_mean.numpy(), rtol=1e-5)


def test_every_micro_batch_draws_its_own_numbers():
    class Drop(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_gradient_accumulation_steps(4)

        def build(self, x):
            return nn.functional.dropout(x, 0.5)

    masks = Drop()(sl.ones(4, 64)).numpy()
    assert len({row.tobytes() for row in masks}) == 4


def test_schedules_step_once_per_call():
    schedule = lambda o: sl.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.5)  # noqa: E731
    whole, parts = Train(schedule=schedule), Train(4, schedule=schedule)
    for x, y in batches():
        whole(x, y), parts(x, y)
    for a, b in zip(weights(whole), weights(parts)):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_optimizer_that_build_steps_itself():
    class Own(Train):
        def build(self, x, y):
            result = super().build(x, y)
            self.optimizer.step()
            return result

    ours, theirs = Train(4), Own(4)
    for x, y in batches():
        ours(x, y), theirs(x, y)
    for a, b in zip(weights(ours), weights(theirs)):
        np.testing.assert_array_equal(a, b)


def test_a_failing_micro_batch_is_named_and_nothing_is_updated():
    class Words(nn.Graph):
        def __init__(self, n):
            super().__init__(name="words")
            self.table = nn.Embedding(10, 4)
            self.add_optimizer(sl.optim.SGD(self.table.parameters(), lr=0.1))
            self.config.set_gradient_accumulation_steps(n)

        def build(self, i):
            loss = self.table(i).sum()
            loss.backward()
            return loss

    graph = Words(4)
    graph(sl.tensor([1, 2, 3, 4])).numpy()
    before = graph.table.weight.detach().numpy().copy()
    for k in range(4):
        bad = [1, 2, 3, 4]
        bad[k] = 99
        with pytest.raises(IndexError, match=f"step {k + 1}, micro-batch {k} of 4"):
            graph(sl.tensor(bad)).numpy()
        np.testing.assert_array_equal(graph.table.weight.detach().numpy(), before)
    graph(sl.tensor([1, 1, 1, 1])).numpy()
    moved = before.copy()
    moved[1] -= 0.1
    np.testing.assert_allclose(graph.table.weight.detach().numpy(), moved, atol=1e-6)


def test_a_saved_graph_takes_whole_batches(tmp_path):
    graph = Train(4)
    graph.compile(*batches()[0])
    sl.save(graph, str(tmp_path / "bundle"))
    again = sl.load_graph(str(tmp_path / "bundle"))
    for x, y in batches():
        assert graph(x, y)[0].numpy().tobytes() == again(x, y)[0].numpy().tobytes()


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "4", 1 << 20])
def test_a_number_that_is_none(n):
    with pytest.raises(ValueError, match="set_gradient_accumulation_steps: got .*; must be an int in 1 to 4096"):
        nn.Graph().config.set_gradient_accumulation_steps(n)


def test_without_a_graph_there_is_one_value():
    x = sl.tensor([1.0, 2.0])
    assert sl.ops.accumulate(x, n=1).tolist() == sl.ops.pack(x, n=1).tolist() == [1, 2]
    for op in (sl.ops.accumulate, sl.ops.pack):
        with pytest.raises(ValueError, match=r"n is 4; without micro-batches \(nn.Graph\) there is one value, so it must be 1"):
            op(x, n=4)


def test_rows_that_do_not_divide():
    with pytest.raises(ValueError, match=r"argument 'x' has 8 rows; must be a multiple of 3, the micro-batches of a step"):
        Train(3)(*batches()[0])
    graph = Train(4)
    graph(*batches()[0])
    with pytest.raises(ValueError, match=r"argument 'x' has shape \(12, 6\); expected \(8, 6\)"):
        graph(*batches(rows=12)[0])


def test_a_micro_batch_cannot_read_what_comes_of_all_of_them():
    class Late(Train):
        def build(self, x, y):
            super().build(x, y)
            self.optimizer.step()
            return self.model(x)

    with pytest.raises(ValueError, match=r"what a micro-batch reads cannot come of all of them  \(test_micro_batches.py:\d+\)"):
        Late(4)(*batches()[0])


def test_a_module_may_have_a_config_of_its_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = {"width": 3}

        def forward(self, x):
            return x * self.config["width"]

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.own = Own()

        def build(self, x):
            return self.own(x)

    assert Graph()(sl.ones(2)).numpy().tolist() == [3.0, 3.0]


def test_a_graph_that_reads_no_argument_takes_its_micro_batches_all_the_same():
    class Program(sl.nn.Graph):
        def __init__(self, program):
            super().__init__()
            self.program = program
            self.w = sl.nn.Linear(2, 2)
            self.config.set_gradient_accumulation_steps(2)

        def build(self, x):
            return self.program(self, x)

    x = sl.arange(4.0)
    assert Program(lambda g, x: None)(x) is None
    assert Program(lambda g, x: g.w.bias * 0)(x).tolist() == [0, 0, 0, 0]
    assert Program(lambda g, x: sl.ones(1))(x).tolist() == [1, 1]


def test_a_parameter_that_build_writes_and_an_optimizer_updates_is_refused_by_name_of_the_reason():
    class Program(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = sl.nn.Linear(2, 2)
            self.add_optimizer(sl.optim.SGD(self.w.parameters(), lr=0.1))
            self.config.set_gradient_accumulation_steps(2)

        def build(self, x):
            with sl.no_grad():
                self.w.weight.relu_()
            loss = self.w(x).sum()
            loss.backward()
            return loss

    with pytest.raises(NotImplementedError, match=r"build\(\) writes to a parameter that the optimizer updates, too: .*\(2, 2\)\. .* write to it 2 times a step"):
        Program()(sl.ones(4, 2))
