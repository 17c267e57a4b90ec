"""Views made with gradients off and written with gradients on: torch refuses where that could matter, and so do we, in
every way of running a program. The sweep takes all views, writes, ways of switching gradients off, and kinds of bases."""

import itertools
import random

import pytest
import torch

import sluice as sl
import sluice.nn as nn

VIEWS = {
    "select": lambda x: x[0], "slice": lambda x: x[0:1], "ellipsis": lambda x: x[..., 1:], "narrow": lambda x: x.narrow(1, 1, 2),
    "view": lambda x: x.view(4, 3), "reshape": lambda x: x.reshape(-1), "view_as": lambda x: x.view_as(x), "t": lambda x: x.t(),
    "T": lambda x: x.T, "mT": lambda x: x.mT, "transpose": lambda x: x.transpose(0, 1), "permute": lambda x: x.permute(1, 0),
    "swapaxes": lambda x: x.swapaxes(0, 1), "movedim": lambda x: x.movedim(0, 1), "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.view(3, 1, 4).squeeze(1), "flatten": lambda x: x.flatten(), "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "diagonal": lambda x: x.diagonal(), "unbind": lambda x: x.unbind(0)[1], "split": lambda x: x.split(2, 1)[0],
    "chunk": lambda x: x.chunk(2, 1)[1], "unfold": lambda x: x.unfold(1, 2, 2), "expand": lambda x: x.expand(1, 3, 4),
    "detach": lambda x: x.detach(), "detached select": lambda x: x[0].detach(), "data": lambda x: x.data[0],
}
WRITES = {
    "mul_": lambda v, w: v.mul_(2), "mul_ by one with a gradient": lambda v, w: v.mul_(w), "add_": lambda v, w: v.add_(w),
    "exp_": lambda v, w: v.exp_(), "copy_": lambda v, w: v.copy_(w.expand(v.shape)), "fill_": lambda v, w: v.fill_(3.0),
    "zero_": lambda v, w: v.zero_(), "clamp_": lambda v, w: v.clamp_(max=0.8), "masked_fill_": lambda v, w: v.masked_fill_(v > 1, 0.5),
    "item": lambda v, w: v.__setitem__(0, 3.0), "item of one with a gradient": lambda v, w: v.__setitem__(0, w),
    "iadd": lambda v, w: v.__iadd__(w), "through a view of it": lambda v, w: v[0].mul_(w),
}
BASES = {"leaf": lambda r: r, "result": lambda r: r * 1.5, "constant": lambda r: r.detach() * 1}


def by_set_grad_enabled(lib, function, x):
    lib.set_grad_enabled(False)
    try:
        return function(x)
    finally:
        lib.set_grad_enabled(True)


def by_context(name, *args):
    def way(lib, function, x):
        with getattr(lib, name)(*args):
            return function(x)

    return way


WAYS = {
    "no_grad": by_context("no_grad"), "set_grad_enabled": by_set_grad_enabled, "set_grad_enabled as a context": by_context("set_grad_enabled", False),
    "inference_mode": by_context("inference_mode"), "a decorated helper": lambda lib, function, x: lib.no_grad()(function)(x),
    "a view with gradients of it": lambda lib, function, x: by_context("no_grad")(lib, function, x).view_as(function(x)),
    "of a view with gradients": lambda lib, function, x: by_context("no_grad")(lib, function, x.view_as(x)),
}
CASES = list(itertools.product(VIEWS, WRITES, WAYS, BASES))


def program(lib, view, write, way, base):
    """f(r, w): a number that depends on what was written."""

    def f(r, w):
        x = BASES[base](r)
        v = WAYS[way](lib, VIEWS[view], x)
        WRITES[write](v, w)
        return (x * x).sum() + (v * 0.5).sum()

    return f


def arguments(lib):
    r = (lib.arange(12, dtype=lib.float64).reshape(3, 4) / 12 + 0.2).requires_grad_()
    return r, lib.tensor(0.7, dtype=lib.float64, requires_grad=True)


def outcome(lib, run, *case):
    """The value and the gradients, or "refused"."""
    r, w = arguments(lib)
    try:
        return [None if t is None else t.tolist() for t in run(program(lib, *case), r, w)]
    except RuntimeError as error:
        assert "created in" in str(error) or "leaf Variable" in str(error), (case, error)
        return "refused"


def eager(lib):
    def run(f, r, w):
        y = f(r, w)
        if not y.requires_grad:
            return y, None, None
        y.backward()
        return y.detach(), r.grad, w.grad

    return run


def compiled(f, r, w):
    return eager(sl)(sl.compile(f), r, w)


def graphed(f, r, w):
    class Graph(nn.Graph):
        def build(self, r, w):
            y = f(r, w)
            if not y.requires_grad:
                return y.detach(), None, None
            return y.detach(), *sl.autograd.grad(y, (r, w), allow_unused=True)

    return Graph()(r, w)


def transformed(f, r, w):
    (gr, gw), y = sl.func.grad_and_value(f, argnums=(0, 1))(r.detach(), w.detach())
    return y, gr, gw


def alike(got, expected):
    """Gradients of zeros and none are the same here: a transform gives zeros."""
    if "refused" in (got, expected):
        return got == expected
    flat = lambda x: [0.0] * 12 if x is None else [x] if isinstance(x, float) else sum(map(flat, x), [])
    pairs = [(a, b) for mine, theirs in zip(got, expected) for a, b in zip(flat(mine), flat(theirs))]
    return all(abs(a - b) <= 1e-12 * max(1, abs(b)) for a, b in pairs)


def swept(run, cases):
    outcomes = {case: (outcome(sl, run, *case), outcome(torch, eager(torch), *case)) for case in cases}
    different = {case: pair for case, pair in outcomes.items() if not alike(*pair)}
    assert not different, f"{len(different)} of {len(cases)}: {next(iter(different.items()))}"
    return sum(expected == "refused" for _, expected in outcomes.values())


def test_every_view_write_and_way_is_torchs(count):
    refused = swept(eager(sl), CASES)
    assert 0.5 * len(CASES) < refused < 0.9 * len(CASES)
    count("views without gradients", len(CASES), f"writes to them, eager, of which torch refuses {refused}")


@pytest.mark.parametrize("run", [compiled, graphed, transformed])
@pytest.mark.soak
def test_graphs_and_transforms_are_eager(run, repetitions, count):
    cases = random.Random(7).sample(CASES, repetitions(40, len(CASES)))
    refused = swept(run, cases)
    assert 0 < refused < len(cases)
    count("views without gradients", len(cases), f"writes to them, {run.__name__}, of which torch refuses {refused}")


def test_the_error_says_what_to_do():
    x = sl.ones(2, 2, requires_grad=True) * 1
    with sl.no_grad():
        v = x[0]
    with pytest.raises(RuntimeError, match=r"in-place: a view was created in no_grad or inference mode and is being modified inplace with "
                                           r"grad mode enabled: float32\(2,\); make the view where gradients are recorded, or write "
                                           r"under no_grad\(\) as well"):
        v.mul_(2)
    assert v.tolist() == [1, 1]  # nothing was written
    with sl.no_grad():
        v.mul_(2)  # as it is meant
    x.mul_(2)
    with pytest.raises(RuntimeError, match="and its base, or another view of it, has been modified inplace with grad mode enabled"):
        v * 3


def flattening(lib, clones):
    class Flat(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 2 if clones else x).view(-1)

        @staticmethod
        def backward(ctx, grad):
            return grad.view(2, 2) * 20

    return Flat.apply


def test_a_functions_view_of_its_argument_is_not_written():
    x = sl.ones(2, 2, requires_grad=True) * 1
    y = flattening(sl, False)(x)
    for target in (y, y[1:]):
        with pytest.raises(RuntimeError, match="what a custom Function gives is a view of its argument"):
            target.mul_(3)
    x = torch.ones(2, 2, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        flattening(torch, False)(x).mul_(3)


def test_what_a_function_made_may_be_written():
    x = sl.ones(2, 2, requires_grad=True)
    y = flattening(sl, True)(x)
    y.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [[60, 60], [60, 60]]
