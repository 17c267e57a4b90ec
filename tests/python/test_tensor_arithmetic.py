"""Arithmetic where torch's rules are particular: quotients, powers, extrema that tie, spreads of little, bools."""

import itertools
import warnings

import numpy as np
import pytest
import torch

import sluice as sl

inf, nan = float("inf"), float("nan")


def both(make):
    return make(sl), make(torch)


def assert_bitwise(ours, theirs):
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1] and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


# Quotients


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("operands", {
    "tensor by number": lambda m: (m.tensor([1.5, -7.0, 0.0, -0.0, 1e30]), 2.0), "by a negative": lambda m: (m.tensor([7.0, -7.5, 0.1]), -0.3),
    "tensors": lambda m: (m.tensor([7.0, -7.0, 1.0]), m.tensor([2.0, 2.0, 0.0])), "ints": lambda m: (m.tensor([7, -7, 6]), m.tensor([2, 2, -4])),
    "int by number": lambda m: (m.tensor([7, -7]), 2), "int by float": lambda m: (m.tensor([7, -7]), 2.5),
    "by zero": lambda m: (m.tensor([1.0, -1.0, 0.0]), 0.0), "uint8": lambda m: (m.tensor([7, 255], dtype=m.uint8), 2)}.items(), ids=lambda o: o[0])
def test_quotients_are_torchs_bits(operands, mode):
    (a, b), (x, y) = both(operands[1])
    assert_bitwise(sl.div(a, b, rounding_mode=mode), torch.div(x, y, rounding_mode=mode))
    assert_bitwise(a.div(b, rounding_mode=mode), x.div(y, rounding_mode=mode))
    if mode is None:
        assert_bitwise(a / b, x / y)
        assert_bitwise(sl.true_divide(a, b), torch.true_divide(x, y))
    elif mode == "floor" and operands[0] != "by zero":
        assert_bitwise(a // b, x // y)


def test_numbers_by_tensors_and_integers_by_zero():
    for number, values in itertools.product((1, 2.5, -3), ([0.3, -7.0, 0.0], [3, -2, 1])):
        ours, theirs = both(lambda m: number / m.tensor(values))
        assert_bitwise(ours, theirs)
    for m in (sl, torch):
        for call in (lambda: m.tensor([1]) // 0, lambda: m.tensor([1]) % 0, lambda: m.tensor([1]).fmod(0)):
            with pytest.raises(RuntimeError, match="ZeroDivisionError|ivision by zero|by 0|by zero"):
                call()
    with pytest.raises((ValueError, RuntimeError), match="'trunc' or 'floor'"):
        sl.ones(1).div(2, rounding_mode="up")


# Powers

POWERS = {
    "tensor, tensor": lambda m: (m.tensor([2.0, 0.5, 3.0], requires_grad=True), m.tensor([3.0, -2.0, 0.5], requires_grad=True)),
    "negative base": lambda m: (m.tensor([-2.0, -8.0, -1.5], requires_grad=True), m.tensor([2.0, 1.0 / 3, -3.0], requires_grad=True)),
    "zero base": lambda m: (m.tensor([0.0, 0.0, 0.0], requires_grad=True), m.tensor([0.0, 2.0, -1.0], requires_grad=True)),
    "special": lambda m: (m.tensor([inf, -inf, nan, 1.0], requires_grad=True), m.tensor([0.0, 3.0, 0.0, nan], requires_grad=True)),
    **{f"tensor, {e}": (lambda m, e=e: (m.tensor([-2.0, 0.0, 0.25, inf], requires_grad=True), e)) for e in (0, 1, 2, 3, -1, 0.5, -0.5, 2.5, -2)},
    **{f"{b}, tensor": (lambda m, b=b: (b, m.tensor([-2.0, 0.0, 0.5, 3.0], requires_grad=True))) for b in (0, 1, 2, -2.0, 0.5)},
    "ints": lambda m: (m.tensor([2, -3, 0]), m.tensor([10, 3, 0])), "int, number": lambda m: (m.tensor([2, -3]), 3), "int, float": lambda m: (m.tensor([4, 9]), 0.5),
    "number, int": lambda m: (2, m.tensor([0, 5])), "bool": lambda m: (m.tensor([True, False]), 2),
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_are_torchs(name):
    (a, b), (x, y) = both(POWERS[name])
    ours, theirs = a**b, x**y
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), 1e-6)
    leaves = [(p, q) for p, q in ((a, x), (b, y)) if isinstance(q, torch.Tensor) and q.requires_grad]
    if leaves:
        ours.sum().backward()
        theirs.sum().backward()
    for mine, its in leaves:
        np.testing.assert_allclose(mine.grad.numpy(), its.grad.numpy(), 1e-6, err_msg=name)


def test_integers_have_no_negative_powers():
    for m in (sl, torch):
        with pytest.raises(RuntimeError, match="negative integer powers are not allowed"):
            m.tensor([2]) ** -1


# Extrema


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_ties_share_the_gradient_as_torch(name):
    generator = np.random.default_rng(4)
    a = generator.normal(size=(40,)).astype(np.float32)
    b = np.where(generator.random(40) < 0.3, a, generator.normal(size=40).astype(np.float32)).astype(np.float32)
    a[:2], b[1:3] = nan, nan
    grads = []
    for m in (sl, torch):
        x, y = m.tensor(a, requires_grad=True), m.tensor(b, requires_grad=True)
        (getattr(m, name)(x, y) * m.arange(40.0)).sum().backward()
        grads.append((x.grad.numpy(), y.grad.numpy()))
    np.testing.assert_array_equal(grads[0], grads[1])


@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_have_three_overloads(name):
    x, t = both(lambda m: m.tensor([[3.0, 1.0, 3.0], [nan, 5.0, 5.0], [2.0, -1.0, 0.5]]))
    f, g = getattr(sl, name), getattr(torch, name)
    assert_bitwise(f(x), g(t))
    assert_bitwise(f(x, x.flip(0)), g(t, t.flip(0)))
    for dim, keepdim in itertools.product((0, 1, -1), (False, True)):
        ours, theirs = f(x, dim, keepdim), g(t, dim, keepdim=keepdim)
        assert_bitwise(ours.values, theirs.values)
        assert ours.indices.tolist() == theirs.indices.tolist() and ours[0] is ours.values and len(ours) == 2
    ours, theirs = f(x, axis=0, keepdims=True), g(t, dim=0, keepdim=True)
    assert_bitwise(ours.values, theirs.values)


# Spreads


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_spreads_of_little_are_torchs(name):
    cases = [((3, 4), (), {}), ((3, 4), (1,), {"unbiased": False}), ((1,), (), {}), ((3, 1), (1,), {}), ((0,), (), {}), ((3, 0), (1,), {}),
             ((3, 4), ((0, 1),), {}), ((3, 4), (), {"correction": 0}), ((3, 4), (0,), {"correction": 3, "keepdim": True}), ((3, 4), (0,), {"correction": 5}),
             ((), (), {}), ((), (), {"correction": 0}), ((2, 3, 4), ((0, -1),), {"keepdim": True}), ((3, 4), ([],), {}), ((3, 4), (False,), {})]
    for shape, args, options in cases:
        values = np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # too few elements
            theirs = getattr(torch, name)(torch.tensor(values), *args, **options)
        ours = getattr(sl, name)(sl.tensor(values), *args, **options)
        for a, b in zip(ours if isinstance(theirs, tuple) else (ours,), theirs if isinstance(theirs, tuple) else (theirs,), strict=True):
            assert tuple(a.shape) == tuple(b.shape)
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, err_msg=f"{shape} {args} {options}")
    for m in (sl, torch):
        with pytest.raises(RuntimeError, match="float"):
            getattr(m, name)(m.tensor([1, 2]))


# Bools


def test_bools_are_what_comparisons_and_logic_give():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    x, y = sl.tensor(a), sl.tensor(b)
    for ours, theirs in ((x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a), (x.logical_and(y), a & b), (x.logical_or(y), a | b), (x.logical_xor(y), a ^ b),
                         (x.logical_not(), ~a), (x == y, a == b), (x != y, a != b), (x > y, a > b), (x <= y, a <= b), (x & True, a), (False | y, b), (x + y, a | b),
                         (x * y, a & b)):
        assert ours.dtype is sl.bool and ours.tolist() == theirs.tolist()
    numbers = sl.tensor([-1.5, 0.0, nan, 2.0])
    for mask in (numbers > 0, numbers == 0, numbers.isnan(), numbers.ge(0), sl.isfinite(numbers), numbers.bool(), numbers.logical_not(), numbers.signbit()):
        assert mask.dtype is sl.bool and mask.sum().dtype is sl.int64
    assert x.sum().item() == 2 and x.any().item() and not x.all().item() and (x + 1).dtype is sl.int64 and (x * 1.5).dtype is sl.float32
    assert numbers[numbers > 0].tolist() == [2.0] and sl.where(numbers > 0, numbers, 0).tolist() == [0, 0, 0, 2]
    assert x.cumsum(0).tolist() == [1, 2, 2, 2] and x.float().mean().item() == 0.5 and sl.tensor([True]).int().tolist() == [1]
    for m in (sl, torch):
        for call in (lambda: m.tensor([True]) - m.tensor([True]), lambda: -m.tensor([True]), lambda: 1 - m.tensor([True]) if m is torch else m.tensor([True]) - 1):
            with pytest.raises(RuntimeError, match="bool"):
                call()
