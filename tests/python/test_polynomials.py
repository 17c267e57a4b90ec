"""Orthogonal polynomials and Airy's function of sluice.special, beside torch's."""

import numpy as np
import pytest
import torch

import sluice as sl
from conftest import assert_same, to_sl

NAMES = [f"{p}chebyshev_polynomial_{k}" for p in ("", "shifted_") for k in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


def points(dtype, low=-1.0, high=1.0, n=41):
    return torch.linspace(low, high, n, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_polynomials(name, dtype):
    f, g = getattr(sl.special, name), getattr(torch.special, name)
    tolerance = 2e-4 if dtype is torch.float32 else 1e-9
    low = 0.0 if "shifted" in name else -1.0
    for n in (-2, 0, 1, 2, 5, 6, 7, 8, 19):
        assert_same(f(to_sl(points(dtype, low)), n), g(points(dtype, low), n), tolerance)
    for n in (0, 1, 3, 7, 9):
        wide = points(dtype, -3.0, 3.0)
        ours, theirs = f(to_sl(wide), n).numpy(), g(wide, n).numpy()
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())
    degrees = torch.tensor([-1, 0, 1, 4, 8, 12])
    x = points(dtype, low, 0.9).unsqueeze(1)
    assert_same(f(to_sl(x), to_sl(degrees)), g(x, degrees), tolerance)
    assert_same(f(0.3, to_sl(degrees)), g(0.3, degrees), 1e-4)
    assert_same(f(to_sl(points(dtype, low)), 2.7), g(points(dtype, low), 2.7), tolerance)
    assert f(sl.zeros(0, 3), 4).shape == (0, 3)
    assert sl.isnan(f(sl.tensor([float("nan"), 0.5]), 3)).tolist() == [True, False]
    into = sl.zeros(41)
    assert f(to_sl(points(torch.float32, low)), 3, out=into) is into
    assert_same(into, g(points(torch.float32, low), 3))


@pytest.mark.parametrize("name", NAMES)
def test_polynomials_of_whole_numbers_and_at_the_ends(name):
    f, g = getattr(sl.special, name), getattr(torch.special, name)
    ends = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    for n in (1, 2, 3, 9, 10):
        if not name.startswith("shifted") or n < 9:
            assert_same(f(to_sl(ends), n), g(ends, n), 1e-3)
    assert_same(f(sl.tensor([0, 1]), 3), g(torch.tensor([0, 1]), 3))


def test_polynomials_of_what_they_do_not_take():
    with pytest.raises(TypeError, match="one must be a Tensor"):
        sl.special.hermite_polynomial_h(0.5, 2)
    with pytest.raises(NotImplementedError, match="not implemented for .*float16"):
        sl.special.hermite_polynomial_h(sl.ones(2, dtype=sl.float16), 2)
    with pytest.raises(ValueError, match="do not broadcast"):
        sl.special.legendre_polynomial_p(sl.ones(2), sl.tensor([1, 2, 3]))
    assert not sl.special.legendre_polynomial_p(sl.ones(2, requires_grad=True), 2).requires_grad  # as torch's
    assert not torch.special.legendre_polynomial_p(torch.ones(2, requires_grad=True), 2).requires_grad


def test_polynomials_in_a_graph():
    class Net(sl.nn.Graph):
        def build(self, x):
            return [getattr(sl.special, name)(x, n) for name in NAMES for n in (3, 8)] + [sl.special.airy_ai(x)]

    x = points(torch.float64, 0.05, 0.95)
    ours = Net()(to_sl(x))
    for y, z in zip(ours, [getattr(torch.special, name)(x, n) for name in NAMES for n in (3, 8)] + [torch.special.airy_ai(x)]):
        assert_same(y, z, 1e-9)

    class Degrees(sl.nn.Graph):
        def build(self, x, n):
            return sl.special.legendre_polynomial_p(x, n)

    with pytest.raises(Exception, match="n is a tensor that the graph computes"):
        Degrees()(sl.ones(2), sl.tensor([1, 2]))


@pytest.mark.parametrize("low, high", [(-60, -20), (-20, -2), (-3, 3), (2, 9), (9, 60)])
def test_airys_function(low, high):
    x = points(torch.float64, low, high, 201)
    ours, theirs = sl.special.airy_ai(to_sl(x)), torch.special.airy_ai(x)
    # Torch's own are off by as much as 3e-6 between -7 and -2.
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-5 if low < 0 else 0)
    assert_same(sl.special.airy_ai(to_sl(x.float())), torch.special.airy_ai(x.float()), 2e-4)


def test_airys_function_solves_its_equation():
    """y'' = x y, by differences of 8th order, over where one way of computing it takes over from another."""
    h = 0.05
    x = np.arange(-12, 6, h)
    y = sl.special.airy_ai(sl.tensor(x)).numpy()
    weights = np.array([-1 / 560, 8 / 315, -1 / 5, 8 / 5, -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560])
    second = np.convolve(y, weights, "valid") / h**2
    np.testing.assert_allclose(second, (x * y)[4:-4], atol=2e-7)
    known = {-5: 0.3507610090241142, -2: 0.22740742820168557, 0: 0.3550280538878172, 1: 0.13529241631288141,
             5: 1.0834442813607441e-4}
    ours = sl.special.airy_ai(sl.tensor(list(map(float, known)), dtype=sl.float64)).numpy()
    np.testing.assert_allclose(ours, list(known.values()), rtol=1e-12)


def test_airys_function_at_the_edges():
    x = torch.tensor([0.0, float("nan"), float("inf"), float("-inf")])
    np.testing.assert_allclose(sl.special.airy_ai(to_sl(x)).numpy(), torch.special.airy_ai(x).numpy(), rtol=1e-6)
    assert_same(sl.special.airy_ai(sl.tensor([1])), torch.special.airy_ai(torch.tensor([1])))
    assert sl.special.airy_ai(sl.zeros(2, 0)).shape == (2, 0)
    assert sl.special.airy_ai(sl.tensor(200.0)).item() == 0
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        sl.special.airy_ai(0.5)
