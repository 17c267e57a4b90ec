"""Every elementwise op that is a function of tensors, against torch's of that name: values, dtypes, gradients."""

import math
import pathlib
import re

import numpy as np
import pytest
import sluice as sl
from sluice import _C

torch = pytest.importorskip("torch")

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 8192.0, 1e-30, 1e-3, -2.5, 3.5, 0.999, 88.0, -30.0, math.inf, -math.inf,
           math.nan]
TABLES = pathlib.Path(__file__).resolve().parents[2] / "base" / "scalar"
NAMES = [name for table in ("unary", "binary", "comparison")
         for name in re.findall(r"^[A-Z]+[12]\((\w+),", (TABLES / f"{table}.inc").read_text(), re.M)
         if name not in {"add", "sub", "div", "polygamma"}]  # which take more than operands
# torch computes these for integers of one kind only, or of none.
OF_FLOATS = {"logaddexp", "logaddexp2", "hypot", "nextafter", "frac"}
OF_INTEGERS = {"gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"}
# Ours and torch's agree on less here: a multiple of half a turn has no accurate sine once pi times x is rounded, and
# torch's trigamma, of which the gradient of digamma is made, has 9 digits in double.
LOOSE = {"sinc": 1e-5}
LOOSE_GRADIENTS = {"digamma": 1e-8}
# These give 0 for -0: operands are taken in any order, or the vectorised form loses the sign.
ANY_ZERO = {"maximum", "minimum", "fmax", "fmin", "clamp_min", "clamp_max", "xlogy", "expm1", "log1p"}
OURS_REFUSES = {("sign", "bool")}


def inputs_of(op):
    return sum(1 for i in getattr(_C.ops, op).signature.split(",") if "Tensor" in i)


def values(dtype, seed):
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        x = np.concatenate([np.roll(SPECIAL, 3 * seed), random.uniform(-3, 3, 200), random.uniform(0, 1, 50)])
    elif dtype == "bool":
        x = random.integers(0, 2, 50)
    else:
        x = random.integers(0 if dtype == "uint8" else -9, 9, 50)
    return x.astype(dtype)


def both(name, arrays):
    ours = getattr(sl, name)(*[sl.from_numpy(a.copy()) for a in arrays])
    return ours, getattr(torch, name)(*[torch.from_numpy(a.copy()) for a in arrays])


def check(name, arrays):
    ours, theirs = both(name, arrays)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    got, want = ours.numpy(), theirs.numpy()
    if want.dtype.kind == "f":
        # Nothing is promised of a rounding error's share of an argument, hence the absolute part.
        error = LOOSE.get(name, {"float32": 6e-7, "float64": 4e-15}[str(want.dtype)])
        np.testing.assert_allclose(got, want, rtol=error, atol=error / 2, equal_nan=True)
        if name not in ANY_ZERO:
            zero = (want == 0) & (got == 0)
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OF_INTEGERS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_torchs(name, dtype):
    arrays = [values(dtype, seed) for seed in range(inputs_of(name))]
    if len(arrays) == 2:  # every special value with every other
        special = np.array(SPECIAL, dtype)
        arrays = [np.concatenate([arrays[0], np.repeat(special, special.size)]),
                  np.concatenate([arrays[1], np.tile(special, special.size)])]
    check(name, arrays)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OF_FLOATS])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_are_promoted_as_in_torch(name, dtype):
    if (name, dtype) in OURS_REFUSES:
        pytest.skip("refused")
    arrays = [values(dtype, seed) for seed in range(inputs_of(name))]
    if len(arrays) == 2 and dtype != "bool" and name not in {"gcd", "lcm"}:
        arrays[1] = np.abs(arrays[1]) + 1  # not divided by zero
    try:
        getattr(torch, name)(*map(torch.from_numpy, arrays))
    except RuntimeError:
        pytest.skip("torch has none of this dtype")
    check(name, arrays)


def smooth(name):
    """The range of each operand in which the op's own samples lie."""
    return {"acosh": [(1.5, 3)], "lgamma": [(0.5, 3)], "digamma": [(0.5, 3)], "xlogy": [(0.2, 1), (0.5, 2)],
            "pow": [(0.5, 2), (-2, 2)], "fmod": [(2.2, 2.8), (0.95, 1.05)], "remainder": [(2.2, 2.8), (0.95, 1.05)]}.get(
                name, [(0.2, 0.8), (0.85, 2)])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OF_INTEGERS])
def test_gradients_are_torchs(name):
    random = np.random.default_rng(0)
    arrays = [random.uniform(*range_, 20) for range_ in smooth(name)[:inputs_of(name)]]
    mine = [sl.from_numpy(a.copy()).requires_grad_() for a in arrays]
    theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    try:
        result = getattr(torch, name)(*theirs)
        result.sum().backward()
    except RuntimeError:
        pytest.skip("torch has no gradient")
    getattr(sl, name)(*mine).sum().backward()
    for ours, want in zip(mine, theirs):
        expected = np.zeros(20) if want.grad is None else (want.grad + 0).numpy()
        got = np.zeros(20) if ours.grad is None else ours.grad.numpy()
        np.testing.assert_allclose(got, expected, rtol=LOOSE_GRADIENTS.get(name, 1e-12), atol=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if hasattr(torch.Tensor, n)])
def test_methods_are_the_functions(name):
    dtype = "int64" if name in OF_INTEGERS else "float32"
    arrays = [np.abs(values(dtype, seed)) for seed in range(inputs_of(name))]
    tensors = [sl.from_numpy(a) for a in arrays]
    np.testing.assert_array_equal(getattr(tensors[0], name)(*tensors[1:]).numpy(), getattr(sl, name)(*tensors).numpy())


def test_powers_of_two_have_exact_logarithms():
    for dtype in (sl.float32, sl.float64):
        x = sl.tensor([2.0**k for k in range(-20, 21)], dtype=dtype)
        assert x.log2().tolist() == list(range(-20, 21))
        assert x.log2().exp2().tolist() == x.tolist()
    assert sl.tensor([1.0, 10.0, 100.0, 1000.0]).log10().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("order", range(5))
def test_polygamma_is_torchs(order):
    x = np.concatenate([np.linspace(0.1, 30, 50), [-0.5, -1.5, -2.25, math.nan]])
    ours, theirs = sl.polygamma(order, sl.from_numpy(x)), torch.polygamma(order, torch.from_numpy(x))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8 if order == 1 else 1e-12)
    np.testing.assert_array_equal(sl.from_numpy(x).polygamma(order).numpy(), ours.numpy())
