"""Arithmetic in 16 bits with numbers: what torch rounds once, and numbers that do not fit."""

import random

import pytest
import torch

import sluice as sl
import sluice.nn as nn

DTYPES = ("float16", "bfloat16")
# Most of them are between two numbers of 16 bits, or beyond float16.
NUMBERS = (1.2345, 0.1, 3.14159, 1e5, 7e4, -2.71828, 1 / 3, 70001.5, 0.3, 0.7, 2.0)
WITH_NUMBERS = {
    "mul": lambda m, x, v: x * v,
    "number first": lambda m, x, v: v * x,
    "div": lambda m, x, v: x / v,
    "divided number": lambda m, x, v: v / x,
    "in place": lambda m, x, v: x.clone().mul_(v),
    "tensor without dims": lambda m, x, v: x * m.tensor(v),
    "float64 without dims": lambda m, x, v: x / m.tensor(v, dtype=m.float64),
    "add": lambda m, x, v: x + v,
    "sub": lambda m, x, v: x - v,
    "rsub": lambda m, x, v: v - x,
    "fmod": lambda m, x, v: m.fmod(x, v),
    "remainder": lambda m, x, v: m.remainder(x, v),
    "floor": lambda m, x, v: m.floor_divide(x, v),
    "trunc": lambda m, x, v: m.div(x, v, rounding_mode="trunc"),
    "lt": lambda m, x, v: x < v,
    "where": lambda m, x, v: m.where(x > 0, x, v),
    "maximum": lambda m, x, v: m.maximum(x, m.tensor(v)),
    "addcmul": lambda m, x, v: m.addcmul(x, x, x, value=v),
    "addcdiv": lambda m, x, v: m.addcdiv(x, x, x + 1, value=v),
    "lerp": lambda m, x, v: m.lerp(x, x * 3, v),
}


def bits(t):
    return [repr(v) for v in t.tolist()]


def operand(m, dtype):
    generator = random.Random(0)
    return m.tensor([generator.gauss(0, 3) for _ in range(500)] + [0.0, 3e4, 1e-4, -1e3], dtype=getattr(m, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_numbers_are_not_rounded_where_torch_does_not(name, dtype):
    f = WITH_NUMBERS[name]
    for v in NUMBERS:
        assert bits(f(sl, operand(sl, dtype), v)) == bits(f(torch, operand(torch, dtype), v)), v


OF_TWO = {
    "nextafter": lambda m, x, y, n: m.nextafter(x, y),
    "nextafter of equal ones": lambda m, x, y, n: m.nextafter(x, x),
    "nextafter of integers": lambda m, x, y, n: m.nextafter(n, x),
    "xlogy": lambda m, x, y, n: m.xlogy(x, y),
    "xlogy of a number": lambda m, x, y, n: m.xlogy(1.2345, x),
    "xlog1py": lambda m, x, y, n: m.special.xlog1py(x, y + 0),
    "ldexp": lambda m, x, y, n: m.ldexp(x, n),
    "ldexp of floats": lambda m, x, y, n: m.ldexp(n, x),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two(name, dtype):
    """Edges too: zeros of both signs, the least and the largest number, infinities, NaN; exponents beyond 8 bits of mantissa."""
    def call(m):
        x = m.cat([operand(m, dtype), m.tensor([0.0, -0.0, 6e-8, -6e-8, 65504.0, float("inf"), -float("inf"), float("nan")]).to(getattr(m, dtype))])
        n = m.tensor([generator.choice((-301, -200, -24, -3, 0, 1, 7, 24, 301)) for generator in [random.Random(1)] for _ in x.tolist()])
        return OF_TWO[name](m, x, x.flip(0), n)

    assert bits(call(sl)) == bits(call(torch))


def test_powers_of_two_beyond_the_range():
    for dtype in ("float32", "float64"):
        for x, n in ((1e-30, 200), (1e-300, 1500), (1e30, -170), (3e-39, 130), (float("inf"), -3000), (0.0, 3000), (1.5, 3000), (1.5, -3000)):
            ours, theirs = (m.ldexp(m.tensor([x], dtype=getattr(m, dtype)), m.tensor([n])).item() for m in (sl, torch))
            assert ours == theirs, (dtype, x, n)


def test_next_numbers_have_no_gradient():
    with pytest.raises(NotImplementedError, match="nextafter: has no gradient of float16; use float32 or detach"):
        sl.nextafter(sl.ones(2, dtype=sl.float16, requires_grad=True), sl.zeros(2, dtype=sl.float16))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_by_numbers_are_rounded_once_and_graphs_agree(dtype):
    class Scaled(nn.Graph):
        def build(self, x):
            return x * 0.1 / 1.2345

    grads = []
    for m in (sl, torch):
        x = operand(m, dtype).requires_grad_()
        (x * 0.1).sum().backward()
        grads.append(bits(x.grad))
    assert grads[0] == grads[1]
    assert bits(Scaled()(operand(sl, dtype))) == bits(operand(torch, dtype) * 0.1 / 1.2345)


TOO_LARGE = {
    "masked_fill": lambda m, x, v: x.masked_fill(x > 0, v),
    "clamp": lambda m, x, v: x.clamp(0, v),
    "clamp_min": lambda m, x, v: x.clamp_min(v),
    "full_like": lambda m, x, v: m.full_like(x, v),
    "fill_": lambda m, x, v: x.clone().fill_(v),
    "alpha": lambda m, x, v: m.add(x, x, alpha=v),
    "threshold": lambda m, x, v: m.nn.functional.threshold(x, v, v),
    "hardtanh": lambda m, x, v: m.nn.functional.hardtanh(x, 0, v),
    "index_fill": lambda m, x, v: x.index_fill(0, m.tensor([0]), v),
    "scatter": lambda m, x, v: x.scatter(0, m.tensor([0]), v),
    "pad": lambda m, x, v: m.nn.functional.pad(x, (1, 1), value=v),
}


@pytest.mark.parametrize("dtype, v", [("float16", 1e5), ("bfloat16", 1e39), ("float32", 1e39)])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_beyond_the_dtype_are_refused(name, dtype, v):
    for m in (sl, torch):
        with pytest.raises(RuntimeError, match="value cannot be converted to type .* without overflow"):
            TOO_LARGE[name](m, m.tensor([1.5, 2], dtype=getattr(m, dtype)), v)
        TOO_LARGE[name](m, m.tensor([1.5, 2], dtype=getattr(m, dtype)), float("inf"))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_numbers_that_integers_hold(dtype):
    def taken(m, f, v):
        try:
            return f(m, m.ones(2, dtype=getattr(m, dtype)), v).tolist()
        except RuntimeError:
            return None

    names = ("masked_fill", "full_like", "fill_", "index_fill", "scatter", "pad")
    for v in (-0.5, -2.58, 255.5, 127.5, -128.5, float("nan"), float("inf"), 1e10, -1, 300, 256, -129):
        for name in names if v != -1 and v != -129 else names[:-1]:
            assert taken(sl, TOO_LARGE[name], v) == taken(torch, TOO_LARGE[name], v), (name, v)
