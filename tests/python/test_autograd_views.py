"""Gradients, and gradients of them, through views and in-place writes; torch is the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

X = torch.tensor([[0.5, -1.0, 2.0, 0.3], [1.5, 0.7, -0.2, 1.1], [0.9, -0.4, 0.6, -1.3]], dtype=torch.float64)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def row_scaled(lib, x):
    y = x * 2
    y[1].mul_(3)
    return y


@case
def row_of_a_transpose(lib, x):
    y = x * 2
    y.t()[0].add_(x[:, 1])
    return y


@case
def copied_to_itself(lib, x):
    y = x * 2
    y.copy_(y)
    return y.tanh()


@case
def written_through_a_detached_view(lib, x):
    y = (x * 2) ** 1
    y.select(1, 0).detach().mul_(2)
    return y * y.detach()


@case
def element_written_under_a_view(lib, x):
    y = x * 2
    v = y.view(4, 3)
    y[0, 0] = 5.0
    return v * y.reshape(4, 3)


@case
def slice_of_a_slice(lib, x):
    y = x * 1
    v = y[:2]
    v[1].exp_()
    return v.sum() + y


@case
def detached_alias(lib, x):
    y = x * 1
    y.detach().mul_(2)
    return y


@case
def saved_and_then_written(lib, x):
    y = x * 1
    z = y * y
    y[0].mul_(2)
    return z


@case
def written_and_then_saved(lib, x):
    y = x * 1
    z = y.exp()
    y[0].mul_(2)
    return z * y


@case
def constant_written_by_what_requires(lib, x):
    y = lib.zeros(3, 4, dtype=lib.float64)
    y[1] = x[0]
    y[:, 2].add_(x[:, 0])
    return y * x


@case
def without_gradients(lib, x):
    y = x * 1
    v = y[0]
    with lib.no_grad():
        v.add_(1)
        y.mul_(3)
    return v * y * x


@case
def copied_into_a_view(lib, x):
    y = x * 1
    y.transpose(0, 1).unsqueeze(0).squeeze(0).copy_(x.t().exp())
    return y


@case
def zeroed(lib, x):
    y = x.clone()
    y.zero_()
    return y + x


@case
def data_written(lib, x):
    y = x * 1
    y.data.mul_(2)
    return y * y


@case
def chain_that_overwrites_what_is_read(lib, x):
    y = x * 1
    y += x
    y *= y
    y -= 1
    y /= 2
    return y


@case
def expanded_and_written(lib, x):
    y = (x * 1).expand(2, 3, 4)
    y.mul_(2)
    return y


@case
def view_of_what_is_written(lib, x):
    y = x * 1
    v = y[0]
    y.mul_(2)
    return v * 3


@case
def masked(lib, x):
    y = x * 1
    y[y > 0] = 0.0
    return y * x + (x * 2).masked_fill_(x > 0, 7.0)


@case
def indexed(lib, x):
    y = x * 1
    y[[0, 0]] = x[1] * 2
    y.index_add_(0, lib.tensor([0, 0, 2]), x)
    return y[lib.tensor([0, 2])] * y[:, lib.tensor([1, 1, 0, 3])][lib.tensor([0, 2])]


@case
def clamped(lib, x):
    y = x * 1
    y.clamp_(min=0.1).sqrt_()
    return y


REFUSED = {"saved_and_then_written", "chain_that_overwrites_what_is_read", "expanded_and_written"}


def run(lib, name, x):
    """The result, its gradient and the gradient of that; "refused" where in-place writes forbid one."""
    try:
        y = CASES[name](lib, x)
        (g,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error) or "single memory location" in str(error)
        return "refused"
    return [y, g, *(lib.autograd.grad((g * g).sum(), x) if g.requires_grad else ())]


@pytest.mark.parametrize("name", CASES)
def test_views_and_in_place_writes_equal_torch(name):
    ours, theirs = run(sl, name, to_sl(X).requires_grad_(True)), run(torch, name, X.clone().requires_grad_(True))
    assert (ours == "refused") == (theirs == "refused") == (name in REFUSED)
    for a, b in zip(ours, theirs, strict=True) if name not in REFUSED else ():
        assert_same(a, b, 1e-10)


@pytest.mark.parametrize("name", sorted(set(CASES) - REFUSED - {"data_written", "masked"}))
def test_in_a_graph(name):
    theirs = run(torch, name, X.clone().requires_grad_(True))

    class Derive(sl.nn.Graph):
        def build(self, x):
            return run(sl, name, (x * 1).detach().requires_grad_(True))

    for a, b in zip(Derive()(to_sl(X)), theirs, strict=True):
        assert_same(a, b, 1e-10)
