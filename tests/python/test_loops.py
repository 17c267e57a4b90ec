"""scan(): eager programs, Python's loops and torch are the oracles of plans."""

import json
import subprocess
import sys

import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")
from looping import Calls, close, collatz, numbers


def same(a, b):
    assert a.numpy().tobytes() == b.numpy().tobytes() and a.shape == b.shape


def decay(state, x):
    total = state["sum"] * 0.5 + x
    return {"sum": total, "n": state["n"] + 1}, (total.tanh(), x.sum())


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_in_a_plan_is_the_eager_loop(reverse):
    def function(init, xs):
        return sl.scan(decay, {"sum": init, "n": sl.tensor(3)}, xs, reverse=reverse)

    init, xs = numbers(4), numbers(7, 4, seed=1)
    expected, got = function(init, xs), Calls(function)(init, xs)
    assert got[0]["n"].item() == 10
    same(got[0]["sum"], expected[0]["sum"])
    same(got[1][0], expected[1][0])
    same(got[1][1], expected[1][1])


def test_states_may_change_places_and_stay():
    def step(state, _):
        a, b, c, d = state
        return (b, a.t(), c, d * 2), (a, d)

    def function(a, b, c, d):
        return sl.scan(step, (a, b, c, d), length=5)

    inputs = [numbers(3, 3, seed=i) for i in range(4)]
    expected, got = function(*inputs), Calls(function)(*inputs)
    for mine, theirs in zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True):
        same(mine, theirs)


def test_no_steps():
    def function(init, xs):
        return sl.scan(lambda s, x: (s + x, s * x), init, xs)

    for got in (function(numbers(3), sl.zeros(0, 3)), Calls(function)(numbers(3), sl.zeros(0, 3))):
        same(got[0], numbers(3))
        assert got[1].shape == (0, 3)


def test_loops_within_loops_and_branches():
    def inner(state, x):
        return sl.cond(x.sum() > 0, lambda s: s * 0.5 + x, lambda s: s - x, (state,)), None

    def outer(state, row):
        state, _ = sl.scan(inner, state, row)
        return state, state.sum()

    def function(p, init, xs):
        return sl.cond(p, lambda: sl.scan(outer, init, xs), lambda: (init, xs.sum((1, 2))))

    init, xs = numbers(2), numbers(3, 4, 2, seed=1)
    graph = Calls(function)
    for p in (True, False):
        expected, got = function(p, init, xs), graph(sl.tensor(p), init, xs)
        close(got[0], expected[0])
        close(got[1], expected[1])


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.input = nn.Linear(size, size)
        self.state = nn.Linear(size, size, bias=False)
        self.unused = nn.Linear(size, size)

    def forward(self, h, x):
        h = (self.input(x) + self.state(h)).tanh()
        return h, h * 2


def trained(make_outputs, *modules):
    """Losses and parameters after some steps of a graph that trains."""
    optimizer = sl.optim.SGD([p for m in modules for p in m.parameters()], lr=0.1)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleList(modules)
            self.add_optimizer(optimizer)

        def build(self, *inputs):
            loss = make_outputs(*inputs)
            loss.backward()
            return loss

    return Train()


def python_scan(f, state, xs, reverse=False):
    ys = [None] * len(xs)
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        state, ys[i] = f(state, xs[i])
    return state, sl.stack(ys)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_those_of_the_unrolled_net(reverse, checkpointed):  # JAX-07
    results = []
    for scan in (sl.scan, python_scan):
        sl.manual_seed(0)
        cell, scale = Cell(5), nn.Parameter(numbers(5, seed=3))
        params = nn.ParameterList([scale])
        step = cell
        if checkpointed:
            step = lambda h, x: sl.utils.checkpoint.checkpoint(cell, h, x, use_reentrant=False)

        def loss(init, xs, target):
            last, ys = scan(step, init * scale, xs * scale, reverse=reverse)
            return ((ys - target) ** 2).mean() + last.sum()

        graph = trained(loss, cell, params)
        inputs = numbers(2, 5), numbers(6, 2, 5, seed=1), numbers(6, 2, 5, seed=2)
        losses = [graph(*inputs) for _ in range(3)]
        results.append(losses + [p.detach() for m in (cell, params) for p in m.parameters()])
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)


def test_an_lstm_by_scan_has_torchs_gradients():  # JAX-07
    """And a plan that is as large for any length."""
    cell, theirs = nn.LSTMCell(6, 5), torch.nn.LSTM(6, 5)
    for name, p in cell.named_parameters():
        getattr(theirs, f"{name}_l0").data = torch.from_numpy(p.detach().numpy().copy())

    class Gradients(nn.Graph):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def build(self, xs, h, c):
            def step(state, x):
                state = self.cell(x, state)
                return state, state[0]

            (last, _), ys = sl.scan(step, (h, c), xs.requires_grad_())
            return sl.autograd.grad(ys.square().sum() + last.sum(), [xs, *self.cell.parameters()])

    plans = []
    for length in (7, 70):
        graph, given = Gradients(), [numbers(length, 2, 6, seed=length), numbers(2, 5, seed=1), numbers(2, 5, seed=2)]
        x, h, c = (torch.from_numpy(t.numpy()) for t in given)
        ys, (last, _) = theirs(x.requires_grad_(), (h[None], c[None]))
        expected = torch.autograd.grad(ys.square().sum() + last.sum(), [x, *theirs.parameters()])
        for ours, grad in zip(graph(*given), expected, strict=True):
            close(ours, grad)
        plans.append(graph.plan)
    short, long = plans
    assert [k["op"] for k in short["kernels"]] == [k["op"] for k in long["kernels"]]
    assert len(short["actors"]) == len(long["actors"]) and len(short["buffers"]) == len(long["buffers"])


def test_torch_agrees_on_gradients():
    cell = Cell(3)
    theirs = {name: torch.nn.Parameter(torch.from_numpy(p.detach().numpy().copy())) for name, p in cell.named_parameters()}
    init, xs = numbers(2, 3), numbers(5, 2, 3, seed=1)

    class Gradients(nn.Graph):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def build(self, init, xs):
            init, xs = init.requires_grad_(), xs.requires_grad_()
            last, ys = sl.scan(self.cell, init, xs)
            loss = (last * ys).sum()
            used = [p for n, p in self.cell.named_parameters() if not n.startswith("unused")]
            return sl.autograd.grad(loss, [init, xs, *used])

    h, x = torch.from_numpy(init.numpy()).requires_grad_(), torch.from_numpy(xs.numpy()).requires_grad_()
    state, ys = h, []
    for row in x:
        state = torch.tanh(row @ theirs["input.weight"].T + theirs["input.bias"] + state @ theirs["state.weight"].T)
        ys.append(state * 2)
    loss = (state * torch.stack(ys)).sum()
    used = [p for n, p in theirs.items() if not n.startswith("unused")]
    expected = torch.autograd.grad(loss, [h, x, *used])
    for ours, grad in zip(Gradients()(init, xs), expected, strict=True):
        close(ours, grad)


def test_what_blocks_gradients_blocks_them_in_a_plan():
    class Halved(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad / 4

    w = nn.Parameter(numbers(3))

    def step(state, x):
        with sl.no_grad():
            frozen = (state * w).tanh()
        state = Halved.apply(state * w) + frozen + x.detach()
        return state, (state.detach() * w).sum()

    def grads(scan):
        class Gradients(nn.Graph):
            def __init__(self):
                super().__init__()
                self.w = w

            def build(self, init, xs):
                last, ys = scan(step, init, xs.requires_grad_())
                return sl.autograd.grad(last.sum() + ys.sum(), [self.w, xs], allow_unused=True)

        got = Gradients()(numbers(3, seed=1), numbers(4, 3, seed=2))
        return got[0], got[1]

    (ours, ours_xs), (theirs, theirs_xs) = grads(sl.scan), grads(python_scan)
    close(ours, theirs)
    assert theirs_xs is None or not theirs_xs.numpy().any()
    assert ours_xs is None or not ours_xs.numpy().any()


def test_second_gradients_name_the_way_out():
    w = nn.Parameter(numbers(3))

    class Twice(nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = w

        def build(self, xs):
            last, _ = sl.scan(lambda s, x: ((s * self.w + x).tanh(), None), sl.zeros(3), xs)
            (grad,) = sl.autograd.grad(last.sum(), self.w, create_graph=True)
            return sl.autograd.grad(grad.square().sum(), self.w)

    with pytest.raises(NotImplementedError, match="gradients of its gradients are not in a plan; loop in Python"):
        Twice()(numbers(4, 3))


def test_integers_are_states_and_rows():
    def step(state, x):
        position, table = state
        return (position + 1, table.index_copy(0, position.reshape(1), x.reshape(1))), table[position]

    def function(xs):
        return sl.scan(step, (sl.tensor(0), sl.zeros(6, dtype=sl.int64)), xs)

    xs = sl.arange(6) * 3
    got, expected = Calls(function)(xs), function(xs)
    assert got[0][1].tolist() == expected[0][1].tolist() == xs.tolist()
    assert got[1].tolist() == expected[1].tolist()


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.net = getattr(nn, kind)(6, 5, **options)

    def forward(self, x):
        y, state = self.net(x)
        return y.square().mean() + sum(s.sum() for s in (state if isinstance(state, tuple) else (state,)))


@pytest.mark.parametrize("kind, options", [("LSTM", {"num_layers": 2}), ("LSTM", {"bidirectional": True, "proj_size": 3}),
                                           ("GRU", {"bias": False}), ("RNN", {"nonlinearity": "relu", "batch_first": True})])
def test_recurrent_nets_are_loops_of_the_plan(kind, options):  # NG-35
    """As large for any number of turns, and trained as an eager net is."""
    plans = []
    for steps in (50, 500):
        net = Recurrent(kind, **options)
        x = numbers(steps, 2, 6) if "batch_first" not in options else numbers(2, steps, 6)
        eager = Recurrent(kind, **options)
        eager.load_state_dict(net.state_dict())
        graph = trained(net, net)
        loss = graph(x)
        expected = eager(x)
        expected.backward()
        close(loss, expected)
        for mine, theirs in zip(net.parameters(), eager.parameters(), strict=True):
            close(mine, theirs - 0.1 * theirs.grad, 1e-4)
        plans.append(graph.plan)
    short, long = plans
    assert [k["op"] for k in short["kernels"]] == [k["op"] for k in long["kernels"]]
    assert "loop" in [k["op"] for k in long["kernels"]]
    for part in ("actors", "registers", "buffers", "certificate"):
        assert len(short[part]) == len(long[part])
    assert len(json.dumps(long)) < 1.02 * len(json.dumps(short))  # longer numbers


def test_what_a_checkpointed_turn_makes_is_not_kept():  # JAX-07
    """Memory grows by the state alone with the number of turns."""
    width, batch = 64, 16

    def loss_of(cell, checkpointed):
        def step(h, _):
            if checkpointed:
                return sl.utils.checkpoint.checkpoint(cell, h, use_reentrant=False), None
            return cell(h), None

        return lambda h, steps: sl.scan(step, h, length=steps)[0].square().sum()

    def bytes_of(steps, checkpointed):
        cell = nn.Sequential(nn.Linear(width, 4 * width), nn.Tanh(), nn.Linear(4 * width, width), nn.Tanh())
        loss = loss_of(cell, checkpointed)
        graph = trained(lambda h: loss(h, steps), cell)
        graph(numbers(batch, width))
        return sum(arena["bytes"] for arena in graph.plan["arenas"])

    state = batch * width * 4
    few, many = bytes_of(50, True), bytes_of(150, True)
    assert many - few <= 100 * state + 4096
    assert bytes_of(150, False) - bytes_of(50, False) >= 100 * 5 * state


@pytest.mark.parametrize("body, error, message", [
    (lambda s, x: (s.double(), None), TypeError, "changes the type of its state 'init': from .*float32"),
    (lambda s, x: (s[:1], None), TypeError, "changes the type of its state"),
    (lambda s, x: ((s, s), None), TypeError, "changes the structure of its state"),
    (lambda s, x: s, TypeError, "must give a tuple of the next state and y"),
    (lambda s, x: (s + sl.rand(2), None), NotImplementedError, "its body calls uniform|its body calls rand"),
    (lambda s, x: (s.add_(OUTSIDE.add_(1)), None), NotImplementedError, "writes in place to a tensor from outside"),
    (lambda s, x: (LEAKED.append(s) or s, None), RuntimeError, "a value of one turn of a loop was used outside"),
])
def test_errors_say_what_to_do(body, error, message):
    LEAKED.clear()

    def function(x):
        global OUTSIDE
        OUTSIDE = x + 1
        last, _ = sl.scan(body, x, length=3)
        return last + sum(LEAKED)

    with pytest.raises(error, match=message):
        Calls(function)(numbers(2))


LEAKED = []


@pytest.mark.parametrize("arguments, message", [
    (((), {}), "neither xs nor length"),
    (((sl.zeros(3), ), {"length": 4}), "xs: 3, length: 4"),
    ((((sl.zeros(3), sl.zeros(2)), ), {}), "xs.0: 3, xs.1: 2"),
    (((sl.tensor(1.0), ), {}), "is a scalar"),
])
def test_numbers_of_steps_must_agree(arguments, message):
    with pytest.raises(ValueError, match=message):
        sl.scan(lambda s, x: (s, x), sl.zeros(2), *arguments[0], **arguments[1])


SAVED = """
import sys, numpy as np, sluice as sl
graph = sl.load_graph(sys.argv[1])
for n in (27, 6):
    outputs = graph(sl.tensor(n), sl.from_numpy(np.arange(12, dtype=np.float32).reshape(4, 3)))
    print([t.tolist() for t in outputs])
"""


def test_a_file_alone_is_enough_for_another_process(tmp_path):  # PS-01
    def function(n, xs):
        n, steps = collatz(n, sl.tensor(0))
        last, rows = sl.scan(lambda s, x: (s.flip(0) * 0.5 + x.reshape(3, 1).t()[0], s.sum()), sl.ones(3), xs)
        return sl.cond(steps > 50, lambda: last, lambda: last * 2), rows, steps

    class Graph(nn.Graph):
        def build(self, n, xs):
            return function(n, xs)

    graph = Graph()
    expected = [[t.tolist() for t in graph(sl.tensor(n), sl.arange(12, dtype=sl.float32).reshape(4, 3))] for n in (27, 6)]
    sl.save(graph, str(tmp_path / "bundle"))
    ran = subprocess.run([sys.executable, "-c", SAVED, str(tmp_path / "bundle")], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(line) for line in ran.stdout.strip().splitlines()] == expected
