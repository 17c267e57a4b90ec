"""What the tests of linalg share: matrices, and torch's answers beside ours."""

import math

import numpy as np
import torch
from conftest import assert_same

import sluice as sl

inf = math.inf


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def symmetric(shape, seed=0, dtype=np.float64):
    a = draw(shape, seed, dtype)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1], dtype=dtype)


def both(*arrays, grad=False):
    return ([sl.from_numpy(a.copy()).requires_grad_(grad) for a in arrays],
            [torch.from_numpy(a.copy()).requires_grad_(grad) for a in arrays])


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def plain(t):
    return torch.from_numpy(t.detach().numpy(force=True).copy())  # torch has zeros without memory


def check(f, g, *arrays, tolerance=1e-9, twice=True, constant=()):
    """Values, gradients and gradients of gradients of f are those of g: the same function of sluice's and torch's. The results
    `constant` have no gradient here, and zeros in torch."""
    ours, theirs = both(*arrays, grad=True)
    got, want = as_list(f(*ours)), as_list(g(*theirs))
    assert len(got) == len(want)
    weights = []
    for i, (a, b) in enumerate(zip(got, want)):
        assert_same(a, b, tolerance)
        assert a.requires_grad == (b.requires_grad and i not in constant)
        weights.append(draw(tuple(b.shape), 70 + i))
    chosen = [i for i, a in enumerate(got) if a.requires_grad]
    if not chosen:
        return
    total = sum((got[i] * sl.from_numpy(weights[i])).sum() for i in chosen)
    expected = sum((want[i] * torch.from_numpy(weights[i])).sum() for i in chosen)
    got = sl.autograd.grad(total, ours, create_graph=twice, allow_unused=True)
    want = torch.autograd.grad(expected, theirs, create_graph=twice, allow_unused=True)
    for a, b in zip(got, want):
        assert (a is None) == (b is None)
        if b is not None:
            assert_same(a, plain(b), 10 * tolerance)
    if not twice:
        return
    total = sum((a * a).sum() for a in got if a is not None)
    expected = sum((b * b).sum() for b in want if b is not None)
    if not expected.requires_grad:
        return
    got = sl.autograd.grad(total, ours, allow_unused=True) if total.requires_grad else [None] * len(ours)
    want = torch.autograd.grad(expected, theirs, allow_unused=True)
    for a, b in zip(got, want):
        if b is not None and a is not None:
            assert_same(a, plain(b), 1e4 * tolerance)
        else:  # a zero that one of both leaves out
            rest = a if b is None else b
            assert rest is None or float(abs(rest).max() if rest.numel() else 0) < 1e-9


def same_call(name, *arguments, module="linalg", **options):
    """The functions of that name, as check() wants them."""
    return (lambda *x: getattr(getattr(sl, module), name)(*x, *arguments, **options),
            lambda *x: getattr(getattr(torch, module), name)(*x, *arguments, **options))


def top(name, *arguments, **options):
    return (lambda *x: getattr(sl, name)(*x, *arguments, **options), lambda *x: getattr(torch, name)(*x, *arguments, **options))
