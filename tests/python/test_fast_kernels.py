"""Kernels with a way of their own for many elements: exact, or as near as torch's, also where that way does not lead."""

import numpy as np
import pytest
import torch
from conftest import to_sl

import sluice as sl

RANDOM = np.random.default_rng(0)
EDGES = np.float32([0, -0.0, 1, -1, 0.5, 3, -3, 1e-45, -1e-45, 1e-38, 3e38, -3e38, np.inf, -np.inf, np.nan, 2**24, 2**24 - 1,
                    2**22, 7.5e22])


def floats(n):
    """Random numbers of every size."""
    return RANDOM.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)


def pairs():
    a, b = (g.ravel() for g in np.meshgrid(EDGES, EDGES))
    near = np.float32(RANDOM.normal(0, 100, 4000)), np.float32(RANDOM.normal(0, 3, 4000))
    whole = np.float32(RANDOM.integers(-2**24, 2**24, 4000)), np.float32(RANDOM.integers(1, 50, 4000))
    return {"edges": (a, b), "near": near, "whole": whole, "any": (floats(4000), floats(4000)),
            "multiples": (np.float32(RANDOM.integers(-1000, 1000, 4000)) * np.float32(0.1), np.full(4000, 0.1, np.float32))}


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.parametrize("kind", pairs())
def test_remainders_are_exact(name, kind):
    a, b = pairs()[kind]
    ours = getattr(sl, name)(sl.tensor(a), sl.tensor(b)).numpy()
    if name == "floor_divide":
        return np.testing.assert_array_equal(ours, torch.floor_divide(torch.from_numpy(a), torch.from_numpy(b)).numpy())
    with np.errstate(all="ignore"):  # C's: torch gives NaN where quotients are large
        exact = np.fmod(a, b)
        if name == "remainder":
            exact = np.where((exact != 0) & ((b < 0) != (exact < 0)), exact + b, exact)
    np.testing.assert_array_equal(ours, exact)
    known = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(ours)[known], np.signbit(exact)[known])


@pytest.mark.parametrize("kind", pairs())
def test_powers_are_the_nearest_floats(kind):
    a, b = pairs()[kind]
    if kind == "any":
        a, b = np.abs(a), np.float32(RANDOM.normal(0, 2, 4000))
    with np.errstate(all="ignore"):
        exact = np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    ours = sl.pow(sl.tensor(a), sl.tensor(b)).numpy()
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(exact))
    known = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(ours)[known], np.signbit(exact)[known])
    steps = np.abs(ours[known].view(np.int32).astype(np.int64) - exact[known].view(np.int32).astype(np.int64))
    assert steps.max() <= 1


SORTED = {
    "few": lambda: RANDOM.integers(-5, 5, (3, 500)), "int64": lambda: RANDOM.integers(-2**63, 2**63 - 1, (2, 1000)),
    "int16": lambda: RANDOM.integers(-2**15, 2**15, (2, 3000)).astype(np.int16),
    "uint8": lambda: RANDOM.integers(0, 256, 5000).astype(np.uint8),
    "floats": lambda: np.concatenate([floats(3000), EDGES, EDGES]), "doubles": lambda: RANDOM.normal(size=(300, 4)).T,
    "equal": lambda: np.full(1000, 2.5), "short": lambda: RANDOM.integers(0, 9, (4, 20)),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", SORTED)
def test_sorts_are_stable(name, descending):
    x = SORTED[name]()
    ours = sl.sort(sl.tensor(x), dim=-1, descending=descending, stable=True)
    theirs = torch.sort(torch.tensor(x), dim=-1, descending=descending, stable=True)
    np.testing.assert_array_equal(ours[0].numpy(), theirs[0].numpy())
    np.testing.assert_array_equal(ours[1].numpy(), theirs[1].numpy())


def test_distinct_elements_of_many():
    x = RANDOM.integers(-400, 600, 30000)
    for ours, theirs in zip(sl.unique(sl.tensor(x), return_inverse=True, return_counts=True),
                            torch.unique(torch.tensor(x), return_inverse=True, return_counts=True)):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extrema_are_the_first(name):
    x = np.float32(RANDOM.integers(-3, 4, (70, 3, 1100)))
    x[30, 1, 5], x[50, 1, 5], x[:, 2, 7], x[4, 0, :] = np.nan, np.nan, -np.inf, np.inf
    for values in (x, x.astype(np.float64), np.nan_to_num(x).astype(np.int64)):
        for axis in (0, 1, 2):
            ours = getattr(sl, name)(sl.tensor(values), dim=axis).numpy()
            np.testing.assert_array_equal(ours, getattr(np, name)(values, axis=axis))
            ours = getattr(sl, name)(sl.tensor(values.T), dim=axis).numpy()
            np.testing.assert_array_equal(ours, getattr(np, name)(values.T, axis=axis))


def test_indices_into_several_dims():
    x = torch.arange(60.0).reshape(3, 4, 5)
    i, j = torch.tensor([0, -1, 2, -3]), torch.tensor([[3], [-4]])
    y = to_sl(x)
    assert y[to_sl(i), to_sl(j)].tolist() == x[i, j].tolist()
    assert y[to_sl(i), :, to_sl(j)].tolist() == x[i, :, j].tolist()
    assert y[..., to_sl(i), to_sl(i)].tolist() == x[..., i, i].tolist()
    for index in ((3, 0), (-4, 0), (0, 4), (0, -5)):
        with pytest.raises(IndexError, match="is out of bounds for dimension"):
            y[tuple(sl.tensor([0, k]) for k in index)]
    theirs, ours = x.clone(), to_sl(x).clone()
    theirs[i, j[0]] = -1.0
    ours[to_sl(i), to_sl(j[0])] = -1.0
    assert ours.tolist() == theirs.tolist()
    ours = sl.index_put(y, (to_sl(i), to_sl(j)), sl.ones(1), True)
    assert ours.tolist() == torch.index_put(x, (i, j), torch.ones(1), True).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_norms_of_any_axes(dtype):
    x = torch.randn(17, 33, 600).to(getattr(torch, dtype)).requires_grad_()
    y = sl.tensor(x.detach().float().numpy()).to(getattr(sl, dtype)).detach().requires_grad_()
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    if dtype == "float64":
        y = to_sl(x)
    for dim in (None, 0, 1, 2, (0, 2)):
        for f in (lambda v, d: v.norm(dim=d), lambda v, d: v.norm(dim=d, keepdim=True)):
            ours, theirs = f(y, dim), f(x, dim)
            np.testing.assert_allclose(ours.detach().double().numpy(), theirs.detach().double().numpy(), rtol=tolerance)
            (a,), (b,) = sl.autograd.grad(ours.sum(), y), torch.autograd.grad(theirs.sum(), x)
            np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), atol=tolerance)
