"""Global tensors: one program over several devices trains as on one."""

import json
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool

P2, P4 = sl.placement("sim", [0, 1]), sl.placement("sim", [0, 1, 2, 3])
B, P, S = sl.sbp.broadcast, sl.sbp.partial_sum, sl.sbp.split


def digits():
    """1,024 images of 8x8 in ten classes, as far apart as digits are."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(10, 64)).astype(np.float32)
    labels = rng.integers(0, 10, 1024)
    images = centers[labels] + 0.8 * rng.normal(size=(1024, 64)).astype(np.float32)
    return images, labels


def mlp(seed=1):
    sl.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))


class Train(nn.Graph):
    def __init__(self, net, optimizer):
        super().__init__()
        self.net, self.loss = net, nn.CrossEntropyLoss()
        self.add_optimizer(optimizer)

    def build(self, x, y):
        loss = self.loss(self.net(x), y)
        loss.backward()
        return loss


class Infer(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


def optimizer_of(net, kind):
    if kind == "sgd":
        return sl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return sl.optim.Adam(net.parameters(), lr=5e-3)


def train(net, optimizer, lay=lambda t: t, batch=64):
    images, labels = digits()
    images = images.astype(net[0].weight.dtype.name)
    graph = Train(net, optimizer)
    losses = []
    for i in range(0, len(images), batch):
        losses.append(graph(lay(sl.tensor(images[i:i + batch])), lay(sl.tensor(labels[i:i + batch]))))
    return graph, np.array([loss.item() for loss in losses])


def boxings(graph):
    """Kinds of the conversions between devices that kernels of the plan belong to, in order."""
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
    seen = []
    for kernel in graph.plan["kernels"]:
        for part in kernel["name"].split("/"):
            where = kernel["name"].partition(part)[0] + part
            if part in kinds and where not in seen:
                seen.append(where)
    return seen


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("placement", [P2, P4], ids=["2", "4"])
def test_data_parallel_training_equals_one_device(placement, kind):
    one, several = mlp(), mlp()
    if kind == "adam":  # which makes the last bits of small gradients large
        one.double(), several.double()
    _, expected = train(one, optimizer_of(one, kind))
    several.to_global(placement, B)
    graph, got = train(several, optimizer_of(several, kind), lambda t: t.to_global(placement, S(0)))
    assert expected[-1] < 0.9 * expected[0]
    np.testing.assert_allclose(got, expected, rtol=1e-9 if kind == "adam" else 1e-5, atol=1e-6)
    for a, b in zip(one.parameters(), several.parameters()):
        np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), atol=1e-8 if kind == "adam" else 2e-6)
    assert {where.rpartition("/")[2] for where in boxings(graph)} == {"all_reduce"}


def test_data_parallel_training_repeats_bitwise():
    def run():
        net = mlp().to_global(P4, B)
        _, losses = train(net, optimizer_of(net, "sgd"), lambda t: t.to_global(P4, S(0)))
        return losses, [p.detach().numpy().copy() for p in net.parameters()]

    (losses, parameters), (again, others) = run(), run()
    assert (losses == again).all()
    assert all((a == b).all() for a, b in zip(parameters, others))


def test_the_same_script_but_for_the_creation_of_tensors():
    net = mlp().to_global(P2, B)
    graph = Infer(net)
    x = sl.tensor(digits()[0][:6])
    expected = Infer(mlp())(x).numpy()
    np.testing.assert_allclose(graph(x.to_global(P2, S(0))).numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(graph(x).numpy(), expected, atol=1e-5)  # a local one is the same logical tensor


def test_state_dict_holds_wholes_and_loads():
    net = mlp().to_global(P2, S(0))
    train(net, optimizer_of(net, "sgd"), lambda t: t.to_global(P2, B))
    state = net.state_dict()
    assert state["0.weight"].shape == (48, 64)
    local = mlp(seed=2)
    local.load_state_dict({name: t.to_local() for name, t in state.items()})
    x = sl.tensor(digits()[0][:8])
    np.testing.assert_allclose(Infer(local)(x).numpy(), Infer(net)(x).numpy(), atol=1e-5)
    net.load_state_dict(mlp(seed=3).state_dict())
    np.testing.assert_allclose(Infer(net)(x).numpy(), Infer(mlp(seed=3))(x).numpy(), atol=1e-5)
    assert net[0].weight.is_global


def test_parameters_may_be_laid_inside_build():
    class Inside(nn.Graph):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 10)

        def build(self, x):
            w, b = self.fc.weight.to_global(P2, S(0)), self.fc.bias.to_global(P2, S(0))
            y = nn.functional.linear(x.to_global(P2, B), w, b)
            assert y._traced and w.is_global and w.sbp == (S(0),) and w.placement == P2
            return y

    sl.manual_seed(4)
    graph = Inside()
    x = sl.tensor(digits()[0][:8])
    expected = graph.fc(x)
    np.testing.assert_allclose(graph(x).numpy(), expected.detach().numpy(), atol=1e-5)


def test_attributes_and_printing():
    x = sl.tensor([[1.0, 2.0], [3.0, 4.0]])
    g = x.to_global(placement=P2, sbp=[S(-1)])
    assert not x.is_global and g.is_global
    assert g.placement == P2 and g.sbp == (S(1),) and g.shape == (2, 2) and g.placement.ranks == (0, 1)
    assert repr(g) == ("tensor([[1., 2.],\n        [3., 4.]],\n       placement=sluice.placement(type='sim', ranks=[0, 1]), "
                       "sbp=(sluice.sbp.split(dim=1),))")
    assert repr(P2) == "sluice.placement(type='sim', ranks=[0, 1])"
    assert [repr(s) for s in (S(0), B, P)] == ["sluice.sbp.split(dim=0)", "sluice.sbp.broadcast", "sluice.sbp.partial_sum"]
    assert g.to_global(sbp=B).sbp == (B,) and g.to_global(sbp=B).placement == P2
    assert (g.to_local() + 1).tolist() == [[2, 3], [4, 5]] and g.tolist() == [[1, 2], [3, 4]]
    assert {P2: 1}[sl.placement(type="sim", ranks=[0, 1])] == 1 and P2 != P4


@pytest.mark.parametrize("use, error, text", [
    (lambda x: x.to_global(P2, S(0)) + 1, NotImplementedError,
     "add: a is a global tensor: S(0) on sim:0-1; eager ops do not run on several devices: call it inside nn.Graph, or on "
     ".to_local()"),
    (lambda x: x.to_global(P4, S(1)), ValueError,
     "to_global: sbp: S(1) of float32(4, 3) over 4 devices: axis 1 has 3 elements; each device must get at least one"),
    (lambda x: x.to_global(P2, S(2)), IndexError,
     "sbp: split(dim=2) of a tensor of 2 dims; dim must be in [-2, 2)"),
    (lambda x: x.to_global(P2, "S"), TypeError,
     "sbp: got 'S'; must be sluice.sbp.split(dim), broadcast or partial_sum, one for the one axis of a placement"),
    (lambda x: x.to_global(P2, [B, B]), TypeError, None),
    (lambda x: x.to_global("sim", B), TypeError, "to_global: placement is 'sim'; must be a sluice.placement"),
    (lambda x: x.to_global(P2), ValueError, "to_global: a local tensor needs both placement= and sbp="),
    (lambda x: x.to_local(), RuntimeError, "to_local: the tensor is local already"),
    (lambda x: x.placement, RuntimeError, "placement: the tensor is local; only global tensors have one (see to_global)"),
    (lambda x: sl.placement("GPU", [0]), ValueError,
     "device: bad kind: 'GPU'; must be a name of at most 16 of a-z, 0-9 and '_' that begins with a letter, as in 'cpu' or 'sim:0'"),
    (lambda x: sl.placement("sim", [0, 0]), ValueError,
     "placement: device given twice: sim:0; each may appear once"),
    (lambda x: sl.placement("sim", []), ValueError, None),
    (lambda x: S("0"), TypeError, "sbp.split: dim is '0'; must be an int"),
])
def test_bad_uses_are_named(use, error, text):
    with pytest.raises(error) as caught:
        use(sl.ones(4, 3))
    if text:
        assert str(caught.value).startswith(text)


def graph_of(function):
    class G(nn.Graph):
        def build(self, x):
            return function(x)

    return G()


def test_mismatched_placements_name_the_line():
    graph = graph_of(lambda x: x.to_global(P2, S(0)) + x.to_global(sl.placement("sim", [2, 3]), S(0)))
    with pytest.raises(ValueError) as caught:
        graph(sl.ones(4, 3))
    text = str(caught.value)
    assert "add: operands lie on different placements: a on sim:0-1, b on sim:2-3; move one with to_global(placement=...)" in text
    assert "test_global.py:" in text


def test_unknown_devices_are_named():
    graph = graph_of(lambda x: x.to_global(sl.placement("cuda", [0, 1]), B) + 1)
    with pytest.raises(Exception, match="cuda:0"):
        graph(sl.ones(4, 3))


def test_to_local_inside_a_graph_says_what_to_do():
    with pytest.raises(NotImplementedError, match="to_local: a value inside nn.Graph lies on several devices at once"):
        graph_of(lambda x: x.to_global(P2, B).to_local())(sl.ones(4, 3))


class Block(nn.Module):
    """A GPT block: causal attention and a perceptron, each behind a norm and added to its input."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape

        def split(t):
            return t.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)

        h = self.norm1(x)
        a = nn.functional.scaled_dot_product_attention(split(self.q(h)), split(self.k(h)), split(self.v(h)), is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(n, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    def tensor_parallel(self, placement):
        """Columns of the first layer of each pair, rows of the second; the rest everywhere."""
        self.to_global(placement, B)
        for column in (self.q, self.k, self.v, self.up):
            column.to_global(placement, S(0))
        for row in (self.out, self.down):
            row.weight.data = row.weight.data.to_global(placement, S(1))
        return self


class Gpt(nn.Module):
    def __init__(self, vocabulary=20, length=8, width=16, layers=2):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(sl.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class TrainGpt(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=1e-2))

    def build(self, ids, targets):
        logits = self.net(ids)
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        return loss


def gpt_losses(lay, sbp=None, placement=None, steps=8):
    sl.manual_seed(5)
    net = Gpt().double()  # Adam makes the last bits of small gradients large
    lay(net)
    graph = TrainGpt(net)
    rng = np.random.default_rng(1)
    losses = []
    for _ in range(steps):
        start = rng.integers(0, 20, (4, 1))
        sequence = (start + 3 * np.arange(9)) % 20
        ids, targets = sl.tensor(sequence[:, :-1].copy()), sl.tensor(sequence[:, 1:].copy())
        if placement is not None:
            ids, targets = ids.to_global(placement, sbp), targets.to_global(placement, sbp)
        losses.append(graph(ids, targets))
    return graph, np.array([loss.item() for loss in losses])


def tensor_parallel(placement):
    def lay(net):
        net.to_global(placement, B)
        for block in net.blocks:
            block.tensor_parallel(placement)

    return lay


@pytest.mark.parametrize("placement", [P2, P4], ids=["2", "4"])
def test_tensor_parallel_gpt_equals_one_device(placement):
    _, expected = gpt_losses(lambda net: None)
    _, got = gpt_losses(tensor_parallel(placement), B, placement)
    assert expected[-1] < 0.8 * expected[0]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_data_parallel_gpt_equals_one_device():
    _, expected = gpt_losses(lambda net: None)
    graph, got = gpt_losses(lambda net: net.to_global(P2, B), S(0), P2)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert {where.rpartition("/")[2] for where in boxings(graph)} == {"all_reduce"}


@pytest.mark.parametrize("placement", [P2, P4], ids=["2", "4"])
def test_a_column_and_a_row_cost_one_all_reduce(placement):
    sl.manual_seed(5)
    block, one = Block(), Block()
    one.load_state_dict(block.state_dict())
    x = sl.randn(2, 8, 16)
    expected = Infer(one)(x).numpy()
    graph = Infer(nn.Sequential(block.tensor_parallel(placement), nn.LayerNorm(16).to_global(placement, B)))
    np.testing.assert_allclose(graph(x.to_global(placement, B)).numpy(),
                               Infer(nn.LayerNorm(16))(sl.tensor(expected)).numpy(), atol=2e-5)
    assert boxings(graph) == ["net.0.norm2/all_reduce", "net.1/all_reduce"]


def test_two_stages_equal_one_device():
    first, second = sl.placement("sim", [0]), sl.placement("sim", [1])

    class Stages(nn.Graph):
        def __init__(self, net, where):
            super().__init__()
            self.net, self.where = net, where
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.05, momentum=0.9))

        def build(self, x, y):
            for i, layer in enumerate(self.net):
                if i in self.where:
                    x = x.to_global(self.where[i], B)
                x = layer(x)
            loss = nn.functional.cross_entropy(x, y)
            loss.backward()
            return loss

    def run(where):
        net = mlp()
        for i, layer in enumerate(net):
            if where:
                layer.to_global(where[0] if i < 2 else where[2], B)
        graph = Stages(net, where)
        images, labels = digits()
        losses = [graph(sl.tensor(images[i:i + 64]), sl.tensor(labels[i:i + 64])) for i in range(0, 1024, 64)]
        return graph, [loss.item() for loss in losses], [p.detach().numpy().copy() for p in net.parameters()]

    _, expected, parameters = run({})
    graph, got, others = run({0: first, 2: second})
    assert got == expected and all((a == b).all() for a, b in zip(parameters, others))
    dot = graph.dot()
    assert all(name in dot for name in ("sim:0/compute0", "sim:1/compute0"))
    copies = {s["name"] for s in graph.plan["streams"] if "copy" in s["name"]}
    assert {"sim:0/copy_out0", "sim:1/copy_in0", "sim:1/copy_out0", "sim:0/copy_in0"} <= copies


@pytest.mark.parametrize("sbp", [S(0), B])
def test_a_saved_graph_goes_on_with_the_same_plan(tmp_path, sbp):
    """In Python, and where there is no compiler: the plan's variables are cut from the bundle's."""
    net = mlp()
    for layer in (net[0], net[2]):
        layer.to_global(P2, sbp)
    graph, _ = train(net, optimizer_of(net, "adam"))
    sl.save(graph, tmp_path / "bundle")
    images, labels = digits()
    batches = [(sl.tensor(images[i:i + 64]), sl.tensor(labels[i:i + 64])) for i in range(0, 640, 64)]
    expected = [graph(*batch).item() for batch in batches]
    loaded = sl.load_graph(tmp_path / "bundle")
    assert [loaded(*batch).item() for batch in batches] == expected
    session = sl._C.Engine().load(str(tmp_path / "bundle"))
    assert [session.run(list(batch))[0].item() for batch in batches] == expected
    sl.save(loaded, tmp_path / "again")
    assert [(tmp_path / f / "plan.json").read_bytes() for f in ("bundle", "again")] == [graph._call.session.plan_json().encode()] * 2
    again = sl.load_graph(tmp_path / "again")
    assert [again(*batch).item() for batch in batches] == [graph(*batch).item() for batch in batches]


def test_a_forecast_takes_the_links_of_another_machine(tmp_path):
    net = mlp().to_global(P4, B)
    graph = Train(net, sl.optim.SGD(net.parameters(), lr=0.1))
    images, labels = digits()
    graph(sl.tensor(images[:64]).to_global(P4, S(0)), sl.tensor(labels[:64]).to_global(P4, S(0))).item()
    plan, links = tmp_path / "plan.json", tmp_path / "links.json"
    graph.save_plan(plan)

    def view(*words):
        done = subprocess.run([find_tool("plan-viz"), *words, "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def forecast(bytes_per_s):
        links.write_text(json.dumps({"links": [{"between": ["*", "*"], "latency_ns": 1000, "bytes_per_s": bytes_per_s}]}))
        return view("simulate", plan, "--links", links)

    slow, fast = forecast(1e7), forecast(1e12)
    assert slow["period_ns"] > 3 * fast["period_ns"]
    for devices in (slow["devices"], fast["devices"]):
        assert [d["device"] for d in devices] == ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]
        assert all(d["compute"] + d["exposed"] + d["bubble"] == pytest.approx(1) for d in devices)
        assert sum(d["bytes"] for d in devices) == view("mem", plan)["total"]
    assert all(s["exposed"] > f["exposed"] for s, f in zip(slow["devices"][1:], fast["devices"][1:]))
