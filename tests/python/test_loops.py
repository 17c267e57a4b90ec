"""scan() and while_loop(): eager programs, Python's loops and torch are the oracles of plans."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")


class Calls(nn.Graph):
    """A graph of a function of tensors."""

    def __init__(self, function, *modules):
        super().__init__(name="calls")
        self.function = function
        self.inner = nn.ModuleList(modules)

    def build(self, *inputs):
        return self.function(*inputs)


def numbers(*shape, seed=0):
    return sl.from_numpy(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def same(a, b):
    assert a.numpy().tobytes() == b.numpy().tobytes() and a.shape == b.shape


def close(a, b, tolerance=1e-5):
    a, b = (t.detach().numpy() for t in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0))))


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


def collatz(n, steps):
    def odd_or_even(n):
        return sl.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,))

    return sl.while_loop(lambda n, steps: n > 1, lambda n, steps: (odd_or_even(n), steps + 1), (n, steps))


def test_values_decide_how_long_a_loop_runs():  # MS-01
    graph = Calls(lambda n: collatz(n, sl.tensor(0)))
    for n, steps in ((27, 111), (1, 0), (97, 118), (6, 8)):
        got = graph(sl.tensor(n))
        assert (got[0].item(), got[1].item()) == (1, steps)
        assert [t.item() for t in collatz(sl.tensor(n), sl.tensor(0))] == [1, steps]
    assert [k["op"] for k in graph.plan["kernels"]].count("loop") == 1


def test_the_body_of_a_while_loop_may_write_to_its_states():
    def body(n, x):
        n += 1
        x.mul_(2)[0] = 5
        return n, x

    graph = Calls(lambda n, x: sl.while_loop(lambda n, x: n < 4, body, (n, x)))
    assert [t.tolist() for t in graph(sl.tensor(1), sl.ones(2))] == [4, [5, 8]]


@pytest.mark.parametrize("granularity", ["program", "op"])
def test_loops_branches_and_scans_are_actors_kernels(granularity):  # MS-01
    def function(p, x, xs):
        def search(x):
            return sl.while_loop(lambda x, n: (x.abs().max() > 1) & (n < 50), lambda x, n: (x * 0.7, n + 1), (x, sl.tensor(0)))

        def walk(x):
            return sl.scan(lambda s, row: (s * 0.5 + row, None), x, xs)[0], xs.sum().long()

        y, n = sl.cond(p, search, walk, (x,))
        return y + 1, n

    graph = Calls(function)
    graph.config.set_granularity(granularity)
    for i, p in enumerate((True, False, True, True, False)):
        x, xs = numbers(4, seed=i) * 9, numbers(3, 4, seed=i + 9)
        got, expected = graph(sl.tensor(p), x, xs), function(p, x, xs)
        close(got[0], expected[0])
        assert got[1].item() == expected[1].item()


def test_the_interpreter_of_plans_agrees(tmp_path):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
    import plan_interpreter
    import plan_loops  # adds the op

    assert "loop" in plan_interpreter.OPS and plan_loops

    def function(n, xs):
        step = lambda s, x: ((s.t() * 0.5 + x).neg(), s - x[0])
        last, rows = sl.scan(step, xs[0], xs, reverse=True)
        return last, rows, collatz(n, sl.tensor(0))[1]

    graph = Calls(function)
    inputs = [(sl.tensor(n), numbers(4, 2, 2, seed=n)) for n in (6, 1, 7)]
    expected = [[t.numpy() for t in graph(*i)] for i in inputs]
    sl.save(graph, str(tmp_path))
    machine = plan_interpreter.open_bundle(str(tmp_path))
    names = [i["name"] for i in machine.plan["inputs"]]
    for ours, theirs in zip(machine.run([dict(zip(names, (t.numpy() for t in i))) for i in inputs]), expected, strict=True):
        for mine, engine in zip(ours.values(), theirs, strict=True):
            assert mine.tobytes() == engine.tobytes()


def test_branches_in_a_loop_run_one_at_a_time():
    """A branch that is not taken would fail: an index that is out of range."""
    table = sl.arange(4).float()

    def step(state, i):
        inside = lambda: table.index_select(0, i.reshape(1)).reshape(())
        return state + sl.cond(i < 4, inside, lambda: sl.zeros(())), None

    graph = Calls(lambda xs: sl.scan(step, sl.zeros(()), xs)[0])
    assert graph(sl.tensor([3, 9, 1, 7, 2])).item() == 6


def test_a_while_loop_has_no_gradient():
    w = nn.Parameter(numbers(3))

    class Graph(nn.Graph):
        def __init__(self):
            super().__init__()
            self.w = w

        def build(self, x):
            (y,) = sl.while_loop(lambda x: x.sum() < 9, lambda x: (x + self.w.square() + 1,), (x,))
            y.sum().backward()
            return y

    with pytest.raises(NotImplementedError, match="decides how often it runs.*need scan"):
        Graph()(numbers(3))


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


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def parts(self, x):
        batch, length, width = x.shape
        return [t.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).chunk(3, 2)]

    def join(self, x, attended):
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.join(x, nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def step(self, x, cache, position, seen):
        """One token: `cache` has the keys and values of those before."""
        q, k, v = self.parts(x)
        keys, values = (c.index_copy(2, position.reshape(1), new) for c, new in zip(cache, (k, v)))
        return self.join(x, nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)), (keys, values)


class CharGPT(nn.Module):
    def __init__(self, vocabulary=27, width=32, heads=4, layers=2, longest=256):
        super().__init__()
        self.longest, self.heads, self.width = longest, heads, width
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def step(self, token, position, caches):
        x = (self.tokens(token) + self.positions(position)).unsqueeze(1)
        seen = sl.arange(self.longest) <= position
        made = []
        for block, cache in zip(self.blocks, caches):
            x, cache = block.step(x, cache, position, seen)
            made.append(cache)
        return self.head(x)[:, 0], tuple(made)

    def caches(self, batch):
        shape = batch, self.heads, self.longest, self.width // self.heads
        return tuple((sl.zeros(shape), sl.zeros(shape)) for _ in self.blocks)


class Generate(nn.Graph):
    """Continues a prompt by so many tokens, as one step of one plan."""

    def __init__(self, model, count):
        super().__init__()
        self.model, self.count = model, count

    def build(self, prompt):
        model, batch = self.model, prompt.shape[0]

        def read(state, token):
            position, caches, _ = state
            logits, caches = model.step(token, position, caches)
            return (position + 1, caches, logits), None

        def write(state, _):
            position, caches, logits = state
            token = logits.argmax(1)
            return read((position, caches, logits), token)[0], (token, logits)

        with sl.no_grad():
            state = sl.tensor(0), model.caches(batch), sl.zeros(batch, model.head.out_features)
            state, _ = sl.scan(read, state, prompt.t())
            _, (tokens, logits) = sl.scan(write, state, length=self.count)
        return tokens.t(), logits


def test_a_plan_generates_text_with_caches(count=200):  # MLX-08
    sl.manual_seed(1)
    model = CharGPT()
    for p in model.parameters():
        p.data.mul_(2)  # so that what comes next depends on more than the last token
    prompt = sl.from_numpy(np.random.RandomState(0).randint(0, 27, (2, 7)))
    graph = Generate(model, count)
    tokens, logits = graph(prompt)
    assert tokens.shape == (2, count) and len({tuple(row) for row in tokens.tolist()}) == 2
    with sl.no_grad():
        everything = model(sl.cat([prompt, tokens], 1))[:, 6:-1]  # each token again from all before it
        close(logits.transpose(0, 1), everything, 1e-4)
        assert everything.argmax(2).tolist() == tokens.tolist()
        sequence = prompt
        for i in range(20):
            sequence = sl.cat([sequence, model(sequence)[:, -1].argmax(1, keepdim=True)], 1)
        assert sequence[:, 7:].tolist() == tokens[:, :20].tolist()

    caches = 2 * 2 * 2 * 256 * 32 * 4
    loops = [k for k in graph.plan["kernels"] if k["op"] == "loop"]
    assert len(loops) == 2
    for loop in loops:  # the caches are written in place: a turn has room for less than one of them
        assert graph.plan["buffers"][loop["workspace"]]["bytes"] < caches / 4


def test_generation_ends_where_the_text_does():
    """The number of tokens is data: a loop that stops behind token 0, with its text in a state."""
    sl.manual_seed(3)
    model, longest = CharGPT(), 64

    class Until(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, token, stop):
            def step(token, position, text, caches):
                logits, caches = self.model.step(token, position, caches)
                token = logits.argmax(1)
                return token, position + 1, text.index_copy(0, position.reshape(1), token), caches

            go_on = lambda token, position, text, caches: (token[0] != stop) & (position < longest)
            with sl.no_grad():
                state = token, sl.tensor(0), sl.zeros(longest, dtype=sl.int64), self.model.caches(1)
                return sl.while_loop(go_on, step, state)[:3]

    graph = Until()
    _, count, text = graph(sl.tensor([5]), sl.tensor(-1))
    assert count.item() == longest
    stop = text[10].item()
    expected = text.tolist()[:text.tolist().index(stop) + 1]
    _, count, text = graph(sl.tensor([5]), sl.tensor(stop))
    assert count.item() == len(expected) and text.tolist()[:len(expected)] == expected
    assert not any(text.tolist()[len(expected):])
