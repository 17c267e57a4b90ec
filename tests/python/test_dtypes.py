"""Every dtype through every family of ops, with its extremes and special values: torch decides dtype, values and refusals."""

import itertools

import numpy as np
import pytest
import torch

import sluice as sl

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-12}


def content(name):
    """24 values: extremes, zeros of both signs, infinities, NaN, and small ones."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.randint(0, 2, (24,)).bool()
    if "int" in name:
        limits = torch.iinfo(dtype)
        special = torch.tensor([0, 1, limits.max, limits.min, 2, 3], dtype=dtype)
        return torch.cat([special, torch.randint(max(-20, limits.min), 20, (18,)).to(dtype)])
    limits = torch.finfo(dtype)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), limits.max, limits.min, limits.eps, 1, -1, 0.5],
                           dtype=dtype)
    return torch.cat([special, (torch.randn(13) * 4).to(dtype)])


def ours_of(x):
    if not isinstance(x, torch.Tensor):
        return x
    return sl.tensor(x.float().numpy()).to(sl.bfloat16) if x.dtype is torch.bfloat16 else sl.tensor(x.numpy())


def array(x):
    return (x.float() if "bfloat16" in str(x.dtype) else x).numpy()


def check(function, *args):
    """If torch gives a result, ours is the same; calls that torch refuses are not looked at."""
    try:
        theirs = function(torch, *args)
    except (RuntimeError, TypeError, NotImplementedError, IndexError):
        return
    ours = function(sl, *map(ours_of, args))
    pairs = zip(theirs, ours) if isinstance(theirs, tuple) else [(theirs, ours)]
    for a, b in pairs:
        assert (b.dtype.name, tuple(b.shape)) == (str(a.dtype)[6:], tuple(a.shape))
        x, y = array(a), array(b)
        if x.dtype.kind != "f":
            np.testing.assert_array_equal(y, x)
            continue
        tolerance = TOLERANCE[b.dtype.name]
        np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64), rtol=tolerance, atol=1e-37)


UNARY = """neg abs exp expm1 log log1p sqrt rsqrt reciprocal sin cos tan tanh erf floor ceil round trunc sigmoid relu isnan isinf
isfinite logical_not bitwise_not exp2 log2 log10 frac nonzero""".split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    check(lambda m, x: getattr(x, name)(), content(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic(name, dtype):
    x = content(dtype)
    check(lambda m, x: getattr(x, name)(), x[x.float().abs() < 8])


REDUCTIONS = "sum mean prod amax amin any all argmax argmin max min std var logsumexp norm cumsum softmax".split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("values", ["all", "no NaN", "small"])
def test_reductions(name, dtype, values):
    x = content(dtype)
    if values != "all":
        x = x[x == x]
    if values == "small":
        x = x[x.float().abs() < 100]
    check(lambda m, x: x.norm(2, 0) if name == "norm" else getattr(x, name)(0), x)
    if name not in ("cumsum", "softmax", "logsumexp"):
        check(lambda m, x: getattr(x, name)(), x)


BINARY = """add sub mul div floor_divide pow maximum minimum atan2 eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
bitwise_or bitwise_xor""".split()


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = content(a), content(b)[torch.randperm(24)]
        if name == "floor_divide" and y.dtype is not torch.bool:
            y = torch.where(y == 0, torch.ones_like(y), y)
        if name == "pow" and "int" in a + b:
            x, y = x % 5 if a != "bool" else x, y.abs() % 5 if b != "bool" else y
        check(lambda m, x, y: getattr(m, name)(x, y), x, y)


@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_remainders(name):
    for a, b in itertools.product(DTYPES[1:], DTYPES[1:]):
        y = torch.tensor([3, 5, 7, 2], dtype=getattr(torch, b))
        check(lambda m, x, y: getattr(m, name)(x, y), torch.tensor([20, 7, 19, 0], dtype=getattr(torch, a)), y)


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("atan2", "maximum", "minimum", "floor_divide") and "logical" not in n])
def test_binary_with_a_number(name):
    for dtype, number in itertools.product(DTYPES, (0, 1, 2, -3, 2.5, True, 300)):
        check(lambda m, x: getattr(x, name)(number), content(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_rest(dtype):
    x = content(dtype)
    finite = x if "float" not in dtype else x[8:] % 100
    for to in DTYPES:
        check(lambda m, x: x.to(getattr(m, to)), finite)
    check(lambda m, x: x.sort(stable=True), x)
    check(lambda m, x: x.sort(stable=True, descending=True), x)
    check(lambda m, x: x.topk(5).values, x)
    check(lambda m, x: x.clamp(0, 3), x)
    check(lambda m, x: x.clamp(-1.5, 3.5), x)
    check(lambda m, x: m.where(x == x, x, 0), x)
    check(lambda m, x: x.masked_fill(x == x, 1), x)
    check(lambda m, x: m.cat([x, x]), x)
    check(lambda m, x: x.reshape(4, 6).tril(), x)
    check(lambda m, x: m.flip(x, (0,)), x)
    check(lambda m, x: x.roll(3, 0), x)
    check(lambda m, x: x.repeat(2, 1), x)
    check(lambda m, x: x.reshape(4, 6) @ x.reshape(6, 4), x if dtype == "bool" else x[:1].expand(24) + 1)
    check(lambda m, x: m.isclose(x, x + 1), x)
    check(lambda m, x: x.gather(0, m.tensor([1, 2, 0])), x)
    check(lambda m, x: x.scatter_add(0, m.tensor([1, 1]), x[:2]), x)
    check(lambda m, x: x.index_add(0, m.tensor([1, 1]), x[:2]), x)
    check(lambda m, x: x[x.bool()], x)
    check(lambda m: m.eye(3, dtype=getattr(m, dtype)))
    check(lambda m: m.arange(5, dtype=getattr(m, dtype)))
    check(lambda m: m.full((2,), 3, dtype=getattr(m, dtype)))
    check(lambda m: m.linspace(0, 10, 4, dtype=getattr(m, dtype)))


WITH_A_NUMBER = {
    "mul": lambda lib, x, k: x * k, "radd": lambda lib, x, k: k + x, "clamp": lambda lib, x, k: x.clamp(max=k),
    "pow": lambda lib, x, k: x ** k, "eq": lambda lib, x, k: x == k, "where": lambda lib, x, k: lib.where(x > 0, x, k),
    "fill_": lambda lib, x, k: x.fill_(k), "full": lambda lib, x, k: lib.full((2,), k, dtype=x.dtype)}


@pytest.mark.parametrize("call", WITH_A_NUMBER.values(), ids=WITH_A_NUMBER)
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
def test_ints_of_more_than_64_bits_are_refused(call, dtype):
    for k in (2**64, -2**64, 10**400):
        with pytest.raises((OverflowError, RuntimeError)):
            call(torch, torch.ones(2, dtype=getattr(torch, dtype)), k)
        message = f"number: an int of {k.bit_length()} bits was given; must fit into 64 with its sign, or be a float"
        with pytest.raises(ValueError, match=message):
            call(sl, sl.ones(2, dtype=getattr(sl, dtype)), k)
    assert call(sl, sl.ones(2, dtype=sl.int64), 2**63 - 1).dtype in (sl.int64, sl.bool)
    assert call(sl, sl.ones(2), 2.0**64).dtype in (sl.float32, sl.bool)


@pytest.mark.parametrize("arguments", [
    (2**53 + 1, 2**53 + 6), (2**62, 2**62 + 3), (-2**63, -2**63 + 3), (2**63 - 3, 2**63 - 1), (2**62 + 10, 2**62, -3),
    (2**62, 2**62 + 2, 5), (-2**61, 2**61, 2**61 - 1), (2**53 - 2, 2**53 + 2)])
def test_a_range_of_large_numbers_is_exact(arguments):
    ours = sl.arange(*arguments)
    assert ours.dtype is sl.int64 and ours.tolist() == torch.arange(*arguments).tolist() == list(range(*arguments))
    with pytest.raises(ValueError, match=f"arange: from 0 to {10**30}; both must fit into 64 bits"):
        sl.arange(10**30)


@pytest.mark.parametrize("data", [[1, 2**63], [[2**64]], [-2**63 - 1], 2**64])
def test_tensors_of_ints_that_int64_has_not(data):
    for lib in (torch, sl):
        with pytest.raises((ValueError, RuntimeError, OverflowError)):
            lib.tensor(data)
        assert lib.tensor(data, dtype=lib.float64).numel() > 0
    with pytest.raises(ValueError, match="an int of 6[45] bits was given; must fit into 64 with its sign, or be a float"):
        sl.tensor(data)


def test_long_ints_among_floats_are_floats():
    for data in ([2**64, 1.5], [1.5, [2**70][0]], [1e30, 2.0], [2**63, 0.5]):
        assert sl.tensor(data).tolist() == torch.tensor(data).tolist()


def test_sizes_of_more_than_64_bits_are_refused():
    for make in (sl.ones, sl.zeros, sl.empty, sl.rand):
        for size in ((10**30,), ((2, 10**30),)):
            with pytest.raises(ValueError, match="size: an int of 100 bits was given; must fit into 64 with its sign"):
                make(*size)


def test_products_of_large_whole_numbers_are_exact():
    for other, alpha in ((1, 2**60 + 1), (2**31 + 1, 2**31 - 1), (3, 2**61 + 7), (2**62, 4), (-2**40, 2**40)):
        for dtype in ("int64", "float64"):
            for function in (lambda lib, x: x.sub(other, alpha=alpha), lambda lib, x: lib.add(x, other, alpha=alpha)):
                ours, expected = (function(lib, lib.ones(2, dtype=getattr(lib, dtype)) * 7) for lib in (sl, torch))
                assert ours.tolist() == expected.tolist() and ours.dtype.name == dtype


def test_views_of_other_elements_say_what_is_in_the_way():
    for x, message in ((sl.ones(4, 4)[:, ::2], r"view: self.stride\(-1\) must be 1 to view float32 as uint8 .*, but got 2"),
                       (sl.ones(3, 3, dtype=sl.int8)[:, :2],
                        r"view: self.stride\(0\) must be divisible by 2 to view int8 as int16 .*, but got 3")):
        with pytest.raises(RuntimeError, match=message):
            x.view(sl.uint8 if x.dtype is sl.float32 else sl.int16)
