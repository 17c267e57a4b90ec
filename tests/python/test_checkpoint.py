"""torch.utils.checkpoint: the same gradients in less memory; torch is the oracle."""

import contextlib
import gc

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

BOTH_KINDS = pytest.mark.parametrize("use_reentrant", [False, True])


def live_bytes():
    return sl._C.eager_memory_stats()["current_bytes"]


def block(lib, width=16):
    return lib.nn.Sequential(lib.nn.Linear(width, width), lib.nn.Tanh(), lib.nn.Linear(width, width), lib.nn.ReLU())


def pair(make):
    torch.manual_seed(1)
    theirs, ours = make(torch), make(sl)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    return ours, theirs


@BOTH_KINDS
@pytest.mark.parametrize("preserve", [True, False])
def test_gradients_equal_those_without(use_reentrant, preserve):
    ours, theirs = pair(lambda lib: lib.nn.Sequential(block(lib), block(lib)))
    x = torch.randn(4, 16)

    def run(lib, net, x):
        x = x.requires_grad_(True)
        y = lib.utils.checkpoint.checkpoint(net[0], x, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        lib.utils.checkpoint.checkpoint(lambda a, b: net[1](a) * b, y, 3, use_reentrant=use_reentrant).square().sum().backward()
        return [x.grad, *(p.grad for p in net.parameters())]

    for a, b in zip(run(sl, ours, to_sl(x)), run(torch, theirs, x.clone()), strict=True):
        assert_same(a, b)


@BOTH_KINDS
def test_it_saves_memory_for_real(use_reentrant):
    sl.manual_seed(0)
    layers = [sl.nn.Sequential(*block(sl, 32), *block(sl, 32)) for _ in range(8)]
    x = sl.randn(256, 32, requires_grad=True)

    def kept(run):
        gc.collect()
        before, y = live_bytes(), x
        for layer in layers:
            y = run(layer, y)
        return live_bytes() - before, y.sum()

    plain, loss = kept(lambda layer, y: layer(y))
    loss.backward()
    expected = [p.grad.tolist() for layer in layers for p in layer.parameters()]
    del loss
    for layer in layers:
        layer.zero_grad()
    less, loss = kept(lambda layer, y: sl.utils.checkpoint.checkpoint(layer, y, use_reentrant=use_reentrant))
    assert less <= 0.35 * plain, (less, plain)  # of 4 activations a layer, one is kept, and a generator's state
    loss.backward()
    assert [p.grad.tolist() for layer in layers for p in layer.parameters()] == expected


def test_nested_regions_keep_less_still():
    layers = [block(sl, 32) for _ in range(8)]
    check = sl.utils.checkpoint.checkpoint

    def halves(part):
        def run(y):
            for layer in part:
                y = check(layer, y, use_reentrant=False)
            return y

        return run

    def run(nested):
        gc.collect()
        x = sl.ones(256, 32, requires_grad=True)
        before = live_bytes()
        if nested:
            y = check(halves(layers[4:]), check(halves(layers[:4]), x, use_reentrant=False), use_reentrant=False)
        else:
            y = halves(layers)(x)
        kept, loss = live_bytes() - before, y.sum()
        del y
        loss.backward()
        return kept, x.grad.tolist()

    flat, expected = run(False)
    less, found = run(True)
    assert less < 0.5 * flat and found == expected


@BOTH_KINDS
def test_random_numbers_are_those_of_the_first_time(use_reentrant):
    seen = []

    def noisy(x):
        y = sl.nn.functional.dropout(x, 0.5) * sl.rand(64)
        seen.append(y.tolist())
        return y.exp()

    x = sl.ones(64, requires_grad=True)
    sl.manual_seed(3)
    y = sl.utils.checkpoint.checkpoint(noisy, x, use_reentrant=use_reentrant, early_stop=False)
    following = sl.rand(4).tolist()
    sl.manual_seed(3)
    sl.rand(2)
    state = sl.default_generator.get_state()
    y.sum().backward()
    assert seen[0] == seen[1]
    assert sl.default_generator.get_state().equal(state)  # as if nothing had been drawn
    sl.manual_seed(3)
    noisy(sl.ones(64))
    assert sl.rand(4).tolist() == following


def test_what_passes_may_ask_of_a_region():
    def run(lib):
        x = lib.tensor([0.5, -1.0], dtype=lib.float64, requires_grad=True)
        w = lib.tensor([2.0, 3.0], dtype=lib.float64, requires_grad=True)
        unused = lib.ones(1, requires_grad=True)

        def f(x, *, scale):
            return {"y": (x * w).sin() * scale, "n": 3}

        made = lib.utils.checkpoint.checkpoint(f, x, scale=w, use_reentrant=False)
        assert made["n"] == 3
        y = made["y"].sum()
        g = lib.autograd.grad(y, (x, w, unused), create_graph=True, allow_unused=True)
        assert g[2] is None
        second = lib.autograd.grad(g[0].sum(), (x, w), retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
        return [*g[:2], *second, x.grad, w.grad]

    for a, b in zip(run(sl), run(torch), strict=True):
        assert_same(a, b, 1e-9)


def test_only_parameters_require_gradients():
    net = block(sl)
    x = sl.ones(2, 16)
    y = sl.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not sl.utils.checkpoint.checkpoint(net, x, use_reentrant=True).requires_grad
    with sl.no_grad():
        assert not sl.utils.checkpoint.checkpoint(net, x.requires_grad_(True), use_reentrant=False).requires_grad


def test_it_stops_as_soon_as_it_has_what_is_read():
    calls = []

    def f(x):
        y = x.exp()
        calls.append("after exp")
        return y + 1

    for early_stop, setting, expected in ((True, None, 1), (False, None, 2), (True, False, 2)):
        calls.clear()
        x = sl.ones(3, requires_grad=True)
        with sl.utils.checkpoint.set_checkpoint_early_stop(setting):
            sl.utils.checkpoint.checkpoint(f, x, use_reentrant=False, early_stop=early_stop).sum().backward()
        assert len(calls) == expected and x.grad.allclose(x.exp())


def test_contexts_run_around_both():
    seen = []

    @contextlib.contextmanager
    def note(name):
        seen.append(name)
        yield
        seen.append("end of " + name)

    x = sl.ones(3, requires_grad=True)
    y = sl.utils.checkpoint.checkpoint(lambda x: x.exp() * 2, x, use_reentrant=False, context_fn=lambda: (note("first"), note("again")))
    y.sum().backward()
    assert seen == ["first", "end of first", "again"] or seen == ["first", "end of first", "again", "end of again"]


def test_a_function_that_does_something_else_is_refused():
    def changing(second):
        calls = []

        def f(x):
            calls.append(1)
            return x.exp() if len(calls) == 1 else second(x)

        return f

    def run(lib, second, **options):
        x = lib.ones(3, requires_grad=True)
        y = lib.utils.checkpoint.checkpoint(changing(second), x, use_reentrant=False, **options)
        y.sum().backward()

    for lib in (sl, torch):
        with pytest.raises(lib.utils.checkpoint.CheckpointError, match="different number of tensors"):
            run(lib, lambda x: x + 1)
        with pytest.raises(lib.utils.checkpoint.CheckpointError, match="different metadata"):
            run(lib, lambda x: x[:2].exp())
        with pytest.raises(KeyError, match="lost"):
            run(lib, lambda x: {}["lost"])
    with sl.utils.checkpoint.set_checkpoint_debug_enabled(True):
        with pytest.raises(RuntimeError, match=r"(?s)saved: \['float32\[3\] on cpu:0'\].*recomputed: \[\]"):
            run(sl, lambda x: x + 1)
    with pytest.raises(RuntimeError, match="unpack gave"):
        run(sl, lambda x: x[:2].exp(), determinism_check="none")
    with pytest.raises(sl.utils.checkpoint.CheckpointError, match="saved float32.3. on cpu:0, recomputed float32.. on cpu:0"):
        run(sl, lambda x: x * 2 + 1)


def test_arguments_written_since_are_refused():
    x = sl.ones(3, requires_grad=True)
    a = x * 1
    y = sl.utils.checkpoint.checkpoint(lambda a: a.exp(), a, use_reentrant=False)
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_misuse_is_refused():
    x = sl.ones(3, requires_grad=True)
    check = sl.utils.checkpoint.checkpoint
    with pytest.raises(ValueError, match="Unexpected keyword arguments: scale"):
        check(lambda x, scale: x, x, scale=3, use_reentrant=True)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        check(lambda x: x, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        check(lambda x: x, x, determinism_check="some")
    y = check(lambda x: x.exp(), x, use_reentrant=True)
    for ask in (lambda: sl.autograd.grad(y.sum(), x, retain_graph=True), lambda: y.sum().backward(inputs=[x], retain_graph=True)):
        with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
            ask()
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        check(lambda x: x.detach() * 2, x, use_reentrant=True).sum().backward()
    with pytest.raises(RuntimeError, match="Only tuple of tensors"):
        sl.utils.checkpoint.detach_variable([x])


@BOTH_KINDS
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequences_equal_torch(use_reentrant, segments):
    ours, theirs = pair(lambda lib: lib.nn.Sequential(*(lib.nn.Linear(4, 4) for _ in range(5))))
    x = torch.randn(3, 4)

    def run(lib, net, x):
        x = x.requires_grad_(True)
        y = lib.utils.checkpoint.checkpoint_sequential(net, segments, x, use_reentrant=use_reentrant)
        (y * y).sum().backward()
        return [y, x.grad, *(p.grad for p in net.parameters())]

    for a, b in zip(run(sl, ours, to_sl(x)), run(torch, theirs, x.clone()), strict=True):
        assert_same(a, b)
    with pytest.raises(ValueError, match="segments is 9"):
        sl.utils.checkpoint.checkpoint_sequential(ours, 9, to_sl(x))
    with pytest.raises(ValueError, match="Unexpected keyword arguments: other"):
        sl.utils.checkpoint.checkpoint_sequential(ours, 2, to_sl(x), other=1)


@BOTH_KINDS
def test_in_a_graph_gradients_are_torchs(use_reentrant):
    ours, theirs = pair(block)
    x = torch.randn(3, 16)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = ours

        def build(self, x):
            x = (x * 1).requires_grad_(True)
            y = sl.utils.checkpoint.checkpoint(self.net, x, use_reentrant=use_reentrant)
            return y, *sl.autograd.grad(y.square().sum(), x)

    y, g = Train()(to_sl(x))
    x.requires_grad_(True)
    expected = theirs(x)
    assert_same(y, expected)
    assert_same(g, torch.autograd.grad(expected.square().sum(), x)[0])


def tower(depth=12, width=64):
    return sl.nn.Sequential(*[block(sl, width) for _ in range(depth)])


def rich():
    """Random numbers, statistics that a step changes, a tensor that two layers read, and regions within regions."""
    class Residual(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = sl.nn.Sequential(sl.nn.Linear(64, 64), sl.nn.BatchNorm1d(64), sl.nn.GELU(), sl.nn.Dropout(0.3))
            self.outer = sl.nn.Linear(64, 64)
            self.inner.config.activation_checkpointing = True

        def forward(self, x):
            h = self.inner(x)
            return x + self.outer(h).tanh() * h

    return sl.nn.Sequential(*[Residual() for _ in range(4)])


def train(net, config=lambda c: None, steps=3, rows=1024):
    """Losses, parameters and buffers after some steps, and the graph."""
    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

        def build(self, x):
            loss = self.net(x).square().mean()
            loss.backward()
            return loss

    graph = Train()
    config(graph.config)
    sl.manual_seed(3)
    x = sl.randn(rows, 64)
    losses = [graph(x).tolist() for _ in range(steps)]
    return losses, [t.tolist() for t in net.state_dict().values()], graph


@pytest.mark.parametrize("make", [tower, rich])
@pytest.mark.parametrize("config", [
    lambda c: None, lambda c: c.set_granularity("op"), lambda c: c.set_gradient_accumulation_steps(4), lambda c: c.set_device("sim:0"),
    lambda c: c.disable_pass("fuse_elementwise"), lambda c: c.enable_amp()], ids=["plain", "op", "micro-batches", "sim", "unfused", "amp"])
def test_a_graph_computes_again_and_keeps_less(make, config, request):  # NG-29
    if make is rich and "sim" in request.node.name:
        make = tower  # the default generator is on one device, where other graphs may use it
    results = []
    for on in (False, True):
        sl.manual_seed(5)
        net = make()
        for module in net.modules():
            module.config.activation_checkpointing = False
        for layer in net:
            layer.config.activation_checkpointing = on
        losses, state, graph = train(net, config)
        results.append((losses, state))
        kernels = [k for k in graph.plan["kernels"] if k.get("role") == "recompute"]
        temp = graph.memory()["temp"]
        if not on:
            assert not kernels
            plain = temp
    assert results[0] == results[1]  # bit by bit
    assert kernels and temp <= 0.7 * plain, (temp, plain)


def test_regions_within_regions_give_the_same_bits():
    results = []
    for inner, outer in ((False, False), (True, False), (True, True)):
        sl.manual_seed(5)
        net = rich()
        for layer in net:
            layer.inner.config.activation_checkpointing, layer.config.activation_checkpointing = inner, outer
        losses, state, graph = train(net)
        results.append((losses, state))
    assert results[0] == results[1] == results[2]


def test_what_two_gradients_need_is_computed_once():
    net = block(sl, 64)
    net.config.activation_checkpointing = True
    net[1].config.activation_checkpointing = False
    graph = train(net)[2]
    again = [k["op"] for k in graph.plan["kernels"] if k.get("role") == "recompute"]
    assert len(again) == len(set(again)) or again.count("tanh") == 1


def test_a_saved_bundle_keeps_it(tmp_path):
    net = tower(4)
    for layer in net:
        layer.config.activation_checkpointing = True
    graph = train(net)[2]
    sl.save(graph, tmp_path / "bundle")
    text = (tmp_path / "bundle" / "graph.txt").read_text()
    assert "region 4" in text and "region 5" not in text
    loaded = sl.load_graph(tmp_path / "bundle")
    assert loaded.memory()["temp"] == graph.memory()["temp"]


def test_only_bools_are_taken():
    with pytest.raises(ValueError, match="activation_checkpointing: got 1; must be True or False"):
        sl.nn.Linear(1, 1).config.activation_checkpointing = 1


class Policied(sl.nn.Graph):
    def __init__(self, net, policy):
        super().__init__(name="policied")
        self.net, self.policy = net, policy
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

    def build(self, x):
        for layer in self.net:
            x = layer(x) if self.policy is None else sl.utils.checkpoint.checkpoint(layer, x, policy=self.policy)
        loss = x.square().mean()
        loss.backward()
        return loss


POLICIES = (None, "everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable")


def test_policies_say_what_a_graph_keeps():  # JAX-09
    results, again, temp = {}, {}, {}
    x = sl.randn(4, 32, 32)
    for policy in POLICIES:
        sl.manual_seed(1)
        net = sl.nn.Sequential(*[sl.nn.TransformerEncoderLayer(32, 4, 128, dropout=0.1, batch_first=True) for _ in range(3)])
        graph = Policied(net, policy)
        results[policy] = [graph(x).item() for _ in range(3)] + [p.tolist() for p in net.parameters()]
        again[policy] = [k["op"] for k in graph.plan["kernels"] if k.get("role") == "recompute"]
        temp[policy] = graph.memory()["temp"]
        graph.close()
    assert all(result == results[None] for result in results.values())  # bit by bit
    products = {"linear", "matmul"}
    assert not again[None] and not again["everything_saveable"]
    assert again["dots_saveable"] and products.isdisjoint(again["dots_saveable"])
    assert "linear" not in again["dots_with_no_batch_dims_saveable"]
    assert products & set(again["nothing_saveable"])
    assert temp[None] == temp["everything_saveable"] > temp["dots_saveable"] > temp["nothing_saveable"], temp


class Products(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = sl.nn.Parameter(sl.ones(8, 8))

    def forward(self, x):
        y = (x @ self.weight).tanh()
        return (y @ y.transpose(1, 2)).tanh().exp()


def test_products_of_many_matrices_are_told_apart():  # JAX-09
    counts = {}
    for policy in POLICIES[1:]:
        graph = Policied(sl.nn.ModuleList([Products()]), policy)
        graph.compile(sl.randn(3, 4, 8))
        counts[policy] = sum(k["op"] == "matmul" for k in graph.plan["kernels"] if k.get("role") == "recompute")
    assert counts == {"everything_saveable": 0, "dots_saveable": 0, "dots_with_no_batch_dims_saveable": 1, "nothing_saveable": 2}


def test_a_policy_is_part_of_a_bundle(tmp_path):
    graph = Policied(sl.nn.ModuleList([Products()]), "dots_saveable")
    graph.compile(sl.randn(3, 4, 8))
    sl.save(graph, tmp_path / "bundle")
    assert "kept" in (tmp_path / "bundle" / "graph.txt").read_text()
    assert sl.load_graph(tmp_path / "bundle").memory()["temp"] == graph.memory()["temp"]


def test_policies_are_checked():
    with pytest.raises(ValueError, match="checkpoint: policy 'dots'; must be one of nothing_saveable, dots_saveable, "):
        sl.utils.checkpoint.checkpoint(sl.exp, sl.ones(2), policy="dots")
    with pytest.raises(NotImplementedError, match="checkpoint: policy 'dots_saveable' outside of a graph"):
        sl.utils.checkpoint.checkpoint(sl.exp, sl.ones(2), policy="dots_saveable")
    x = sl.ones(2, requires_grad=True)
    sl.utils.checkpoint.checkpoint(sl.exp, x, policy="nothing_saveable", use_reentrant=False).sum().backward()
    assert_same(x.grad, torch.ones(2).exp())
