"""Gradients that are zero everywhere are there, and parts by a tensor."""

import pytest
import torch

import sluice as sl


@pytest.mark.parametrize("by", [[1, 3], [], [-1], [9], 3, 1])
def test_tensor_split_by_a_tensor(by):
    parts = [[p.tolist() for p in form(t.arange(14).reshape(2, 7), t.tensor(by, dtype=t.int64))]
             for t in (torch, sl) for form in (lambda x, b: x.tensor_split(b, dim=1), lambda x, b: x.tensor_split(b, 1))]
    assert all(p == parts[0] for p in parts)
    x = sl.arange(6.0)
    x.tensor_split(sl.tensor([2]))[0].zero_()  # a view
    assert x.tolist() == [0, 0, 2, 3, 4, 5]
    with pytest.raises(RuntimeError, match="tensor_split: tensor_indices_or_sections is float32.*; must be an int64 tensor"):
        x.tensor_split(sl.tensor([2.0]))


def nearest(t, x, grid, align_corners=False, **options):
    return t.nn.functional.grid_sample(x, grid, mode="nearest", align_corners=align_corners, **options)


ZEROS = {
    "copysign": lambda t, a, b: t.copysign(a, b),
    "nextafter": lambda t, a, b: t.nextafter(a, b),
    "sign": lambda t, a, b: a.sign(),
    "round": lambda t, a, b: a.round(),
    "floor": lambda t, a, b: a.floor(),
    "trunc": lambda t, a, b: a.trunc(),
    "div": lambda t, a, b: t.div(a, b, rounding_mode="floor"),
    "fmod": lambda t, a, b: t.fmod(a, b),
    "remainder": lambda t, a, b: t.remainder(a, b),
    "pow": lambda t, a, b: a**0,
    "masked_fill": lambda t, a, b: a.masked_fill(a < 9, 0.0),
    "clamp": lambda t, a, b: t.clamp(a, b, b + 1),
    "where": lambda t, a, b: t.where(a > 9, a, b),
    "grid_sample": lambda t, a, b: nearest(t, a.reshape(1, 1, 2, 2), b.reshape(1, 1, 2, 2)),
    "grid_sample of volumes": lambda t, a, b: nearest(
        t, t.cat([a, a]).reshape(1, 1, 2, 2, 2), t.cat([b, b, b]).reshape(1, 1, 2, 2, 3)),
    "grid_sample beyond the border": lambda t, a, b: nearest(
        t, a.reshape(1, 1, 2, 2), 3 * b.reshape(1, 1, 2, 2), padding_mode="border", align_corners=True),
}


@pytest.mark.parametrize("what", ZEROS)
def test_gradients_of_zeros_are_there(what):
    """A gradient that is zero everywhere is a tensor of zeros where torch has one, and no None."""
    grads = []
    for t in (torch, sl):
        a, b = (t.tensor(v, requires_grad=True) for v in ([0.3, -1.2, 2.2, -0.7], [1.3, -2.2, -0.6, 0.9]))
        ZEROS[what](t, a, b).sum().backward()
        grads.append([None if x.grad is None else x.grad.tolist() for x in (a, b)])
    assert grads[0] == grads[1]
