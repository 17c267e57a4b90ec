"""Loops whose bodies branch, branches that loop, and both within each other, with gradients. A program in plain Python on
torch is the oracle: random nests, and the smallest ones."""

import random

import pytest
import torch

import sluice as sl
import sluice.nn as nn

TURNS = 3


class Plain:
    """Python's own if, for and while."""

    lib = torch

    @staticmethod
    def cond(p, true_fn, false_fn, args):
        return true_fn(*args) if p else false_fn(*args)

    @staticmethod
    def scan(f, init, xs):
        ys = []
        for i in range(len(xs[0])):
            init, y = f(init, tuple(x[i] for x in xs))
            ys.append(y)
        return init, torch.stack(ys)

    @staticmethod
    def while_loop(go_on, body, carried):
        while go_on(*carried):
            carried = body(*carried)
        return carried

    @staticmethod
    def checkpoint(f, *args):
        return f(*args)


class Ours:
    lib = sl
    cond, while_loop = staticmethod(sl.cond), staticmethod(sl.while_loop)
    scan = staticmethod(lambda f, init, xs: sl.scan(f, init, xs))
    checkpoint = staticmethod(lambda f, *args: sl.utils.checkpoint.checkpoint(f, *args, use_reentrant=False))


UNARY = ("tanh", "sin", "square", "gate", "sort", "take", "clone", "view", "norm", "where")
BINARY = ("mul", "add", "sub", "div", "dot")


def unary(name, v):
    return {"tanh": lambda: v.tanh(), "sin": lambda: v.sin(), "square": lambda: v * v, "gate": lambda: v * v.sigmoid(),
            "sort": lambda: v.sort(descending=True)[0] * 0.9, "take": lambda: v[v.argmax()] + v, "clone": lambda: v.clone(),
            "view": lambda: v.view(1, 3).expand(2, 3).sum(0), "norm": lambda: v / (v.norm() + 1), "where": lambda: (v > 0.3) * v}[name]()


def binary(name, a, b):
    return {"mul": lambda: a * b, "add": lambda: a + b, "sub": lambda: a - b, "div": lambda: a / (b * b + 1), "dot": lambda: (a @ b) * a}[name]()


def drawn(rng, depth, in_while=False):
    """A nest, as tuples: what it does with a state v, a row x, a flag p and the weight w of the outside."""
    kinds = ["unary", "binary", "weight", "row"] + (["cond", "cond", "scan", "chain", "chain", "while", "checkpoint"] if depth else [])
    if in_while:
        kinds = [k for k in kinds if k != "checkpoint"]
    kind = rng.choice(kinds)
    inner = lambda: drawn(rng, depth - 1, in_while or kind == "while")
    if kind == "unary":
        return kind, rng.choice(UNARY)
    if kind in ("binary", "weight", "row"):
        return kind, rng.choice(BINARY)
    if kind == "cond":
        return kind, rng.choice(("flag", "value", "row")), rng.choice((-0.2, 0.1, 0.5)), inner(), inner()
    if kind == "chain":
        return kind, inner(), inner()
    return kind, inner()


def bounded(v):
    return v / (v.norm() + 1)


def play(how, nest, v, x, p, w):
    kind, *rest = nest
    if kind == "unary":
        return unary(rest[0], v)
    if kind == "binary":
        return binary(rest[0], v, v.flip(0))
    if kind == "weight":
        return binary(rest[0], v, w)
    if kind == "row":
        return binary(rest[0], v, x)
    if kind == "chain":
        return play(how, rest[1], play(how, rest[0], v, x, p, w), x, p, w)
    if kind == "checkpoint":
        return how.checkpoint(lambda v, x: play(how, rest[0], v, x, p, w), v, x)
    if kind == "cond":
        chosen = {"flag": lambda: p, "value": lambda: v.sum() > rest[1], "row": lambda: x[0] > rest[1]}[rest[0]]()
        return how.cond(chosen, lambda v, x: play(how, rest[2], v, x, p, w) * 1.25, lambda v, x: play(how, rest[3], v, x, p, w), (v, x))
    if kind == "scan":
        xs = how.lib.stack([x * (i - 1) for i in range(TURNS)])
        ps = how.lib.stack([p, ~p, x[1] > 0.2])

        def turn(state, row):
            new = bounded(play(how, rest[0], state, row[0], row[1], w))
            return new, new * row[0]

        last, ys = how.scan(turn, v, (xs, ps))
        return last * 0.5 + ys.mean(0)
    # A while loop has no gradient: what it gives is a constant.
    n, u = how.while_loop(lambda n, u: n < 2, lambda n, u: (n + 1, bounded(play(how, rest[0], u, x.detach(), p, w.detach()))),
                          (how.lib.zeros((), dtype=how.lib.int64), v.detach()))
    return v + u


def whole(how, nest):
    def f(v, xs, ps, w):
        def turn(state, row):
            new = bounded(play(how, nest, state, row[0], row[1], w))
            return new, (new * new).sum()

        last, ys = how.scan(turn, v, (xs, ps))
        return (last * how.lib.arange(1, 4, dtype=how.lib.float64)).sum() + ys.sum()

    return f


class Gradients(nn.Graph):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def build(self, v, xs, ps, w):
        y = self.f(v, xs, ps, w)
        if not y.requires_grad:
            return y.detach(), None, None, None
        return y.detach(), *sl.autograd.grad(y, (v, xs, w), allow_unused=True)


def arguments(lib, seed, flags):
    rng = random.Random(seed)
    make = lambda *shape: lib.tensor([rng.uniform(-1, 1) for _ in range(3 * (shape[0] if shape else 1))], dtype=lib.float64).reshape(*shape, 3)
    v, xs, w = make(), make(TURNS), make()
    return v.requires_grad_(), xs.requires_grad_(), lib.tensor(flags), w.requires_grad_()


def numbers(t):
    return [] if t is None else t.detach().reshape(-1).tolist()


def check(nest, seed):
    graph = Gradients(whole(Ours, nest))
    for flags in ([True, False, True], [False, False, True]):
        v, xs, ps, w = arguments(torch, seed, flags)
        y = whole(Plain, nest)(v, xs, ps, w)
        expected = [y, *(torch.autograd.grad(y, (v, xs, w), allow_unused=True) if y.requires_grad else (None,) * 3)]
        got = graph(*arguments(sl, seed, flags))
        for mine, theirs in zip(map(numbers, got), map(numbers, expected)):
            mine, theirs = mine or [0.0] * len(theirs), theirs or [0.0] * len(mine)
            assert all(abs(a - b) <= 1e-9 * max(1, abs(b)) for a, b in zip(mine, theirs, strict=True)), (nest, seed, flags, mine, theirs)
    graph.close()


def kinds_in(nest):
    return {nest[0]} | {k for part in nest[1:] if isinstance(part, tuple) for k in kinds_in(part)}


@pytest.mark.soak
def test_random_nests_are_plain_python(repetitions, count):
    seen, nests = {}, repetitions(25, 1500)
    for seed in range(nests):
        nest = drawn(random.Random(seed), 3)
        check(nest, seed)
        for kind in kinds_in(nest):
            seen[kind] = seen.get(kind, 0) + 1
    assert {"cond", "scan", "while", "checkpoint"} <= set(seen)
    count("loops and branches", nests, f"random nests, with gradients: {seen}")


SQUARE, ONE = ("unary", "square"), ("unary", "clone")
NESTS = {
    "cond": ("cond", "flag", 0.0, SQUARE, ONE),
    "cond in cond": ("cond", "flag", 0.0, ("cond", "value", 0.1, SQUARE, ("weight", "mul")), ONE),
    "cond in cond whose predicate a branch makes": ("cond", "flag", 0.0, ("chain", SQUARE, ("cond", "value", 0.1, ("unary", "gate"), SQUARE)), SQUARE),
    "scan in cond": ("cond", "flag", 0.0, ("scan", ("chain", SQUARE, ("weight", "mul"))), ("unary", "tanh")),
    "cond in scan": ("scan", ("cond", "row", 0.1, SQUARE, ("unary", "tanh"))),
    "cond in scan in cond": ("cond", "value", 0.1, ("scan", ("cond", "flag", 0.1, SQUARE, ("unary", "tanh"))), SQUARE),
    "while in cond": ("cond", "flag", 0.0, ("chain", SQUARE, ("while", ("cond", "value", 0.1, SQUARE, ONE))), ONE),
    "indices": ("cond", "flag", 0.0, ("unary", "take"), ("unary", "sort")),
    "a view": ("cond", "flag", 0.0, ("chain", ("unary", "view"), SQUARE), ("chain", SQUARE, ("unary", "view"))),
    "checkpointed": ("cond", "flag", 0.0, ("checkpoint", ("chain", SQUARE, ("unary", "tanh"))), ONE),
    "in a checkpoint": ("checkpoint", ("cond", "flag", 0.0, ("chain", SQUARE, ("unary", "tanh")), ("weight", "mul"))),
}


@pytest.mark.parametrize("name", NESTS)
def test_branches_in_the_body_of_a_scan(name):
    check(NESTS[name], 5)


def test_the_branch_not_taken_saves_something():
    class Graph(nn.Graph):
        def build(self, x, on):
            y, _ = sl.scan(lambda v, go: (sl.cond(go, lambda v: v * v, lambda v: v * 1, (v,)), None), x, on)
            return sl.autograd.grad(y, x)[0]

    assert Graph()(sl.tensor(3.0, requires_grad=True), sl.tensor([True, False])).item() == 6


def test_devices_without_branches_compute_the_same():
    f = whole(Ours, NESTS["cond in cond whose predicate a branch makes"])

    def placed(*inputs):
        with sl.device("sim:0"):
            return f(*inputs)

    for flags in ([True, False, True], [False, True, False]):
        expected, got = (Gradients(how)(*arguments(sl, 3, flags)) for how in (f, placed))
        for mine, theirs in zip(got, expected):
            assert numbers(mine) == pytest.approx(numbers(theirs), rel=1e-12)


def test_gradients_of_gradients_are_right_or_refused():
    def of(lib, how, nest, v, xs, ps, w):
        y = whole(how, nest)(v, xs, ps, w)
        (g,) = lib.autograd.grad(y, v, create_graph=True)
        return lib.autograd.grad((g * g).sum(), (v, w), allow_unused=True)

    class Second(nn.Graph):
        def __init__(self, nest):
            super().__init__()
            self.nest = nest

        def build(self, v, xs, ps, w):
            return of(sl, Ours, self.nest, v, xs, ps, w)

    right = 0
    for name in ("cond", "cond in cond", "indices"):
        for flags in ([True, False, True], [False, True, False]):
            expected = of(torch, Plain, NESTS[name], *arguments(torch, 5, flags))
            try:
                got = Second(NESTS[name])(*arguments(sl, 5, flags))
            except NotImplementedError as error:
                assert "gradients of its gradients are not in a plan; loop in Python" in str(error)
                continue
            right += 1
            for mine, theirs in zip(map(numbers, got), map(numbers, expected)):
                assert (mine or [0.0] * 3) == pytest.approx(theirs or [0.0] * 3, rel=1e-9)
    print(f"count: gradients of gradients of scans with branches: {right} right, the others refused")
