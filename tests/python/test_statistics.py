"""Means beside spreads, and running products, on values at the edges and in every layout: as torch's."""

import itertools

import numpy as np
import pytest
import torch
from functional_oracle import agree

import sluice as sl

INF, NAN = float("inf"), float("nan")
LAYOUTS = {"as they are": lambda x: x, "exchanged": lambda x: x.transpose(0, -1), "parts": lambda x: x[..., 1:]}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
@pytest.mark.parametrize("shape", [(1,), (6,), (3, 4), (2, 3, 3)], ids=str)
def test_means_of_rows_with_infinities(name, shape):
    size, rank = int(np.prod(shape)), len(shape)
    dims = [None, *itertools.chain.from_iterable(itertools.combinations(range(rank), k) for k in range(1, rank + 1))]
    edges = [{at: v} for at in range(size) for v in (INF, -INF)]
    edges += [{0: INF, size - 1: INF}, {0: INF, size - 1: -INF}, {0: NAN, size - 1: INF}, {size // 2: NAN}, {}]
    for edge in edges:
        x = np.arange(size, dtype="float32")
        for at, v in edge.items():
            x[at] = v
        for layout in LAYOUTS.values():
            ours, theirs = layout(sl.tensor(x.reshape(shape))), layout(torch.tensor(x.reshape(shape)))
            for dim in dims:
                got, wanted = (getattr(m, name)(t, dim=dim, correction=0) for m, t in ((sl, ours), (torch, theirs)))
                for mine, one in zip(got, wanted):
                    np.testing.assert_allclose(mine.numpy(), one.numpy(), rtol=1e-6, err_msg=f"{edge} {dim}")


@pytest.mark.parametrize("name", ["var_mean", "std_mean", "var", "std"])
def test_gradients_of_spreads(name):
    x = torch.randn(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for dim in (None, 0, (0, 2), (0, 1, 2)):
        for correction in (0, 1, 0.5):
            agree(lambda m, x: getattr(m, name)(x, dim=dim, correction=correction), x, name=f"{dim} {correction}")


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["var_mean", "std_mean", "var", "std"])
def test_spreads_of_nothing_and_of_equal_complex_numbers(name):
    for correction in (-1, 0, 1):
        got, wanted = (getattr(m, name)(m.empty(2, 0), dim=1, correction=correction) for m in (sl, torch))
        for mine, theirs in zip(got, wanted) if "mean" in name else [(got, wanted)]:
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    if name.startswith("std"):
        return  # no slope there
    results = []
    for m in (sl, torch):
        x = m.tensor([[1 + 2j, 1 + 2j], [0.5 - 1j, 2j]], dtype=m.complex128, requires_grad=True)
        y = getattr(m, name)(x, dim=1)
        (first,) = m.autograd.grad((y[0] if "mean" in name else y).sum(), x, create_graph=True)
        (second,) = m.autograd.grad((first * (1 - 0.5j)).real.sum(), x)
        results.append([first.detach().numpy(), second.numpy()])
    for got, wanted in zip(*results):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


# There are more lines than go side by side, and longer ones than a piece.
@pytest.mark.parametrize("shape", [(1,), (7, 300), (300, 7), (1000, 3), (3, 20, 129)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
def test_running_products(shape, dtype):
    x = np.random.default_rng(0).uniform(-1.2, 1.2, shape)
    x = (np.sign(x) * np.ceil(np.abs(x)) if dtype == "int32" else x).astype(dtype)
    for layout in LAYOUTS.values():
        ours, theirs = layout(sl.tensor(x)), layout(torch.tensor(x))
        for dim in range(len(shape)):
            mine, wanted = sl.cumprod(ours, dim), torch.cumprod(theirs, dim)
            least = 0 if dtype == "int32" else np.finfo(dtype).tiny  # below it numbers have fewer bits
            np.testing.assert_allclose(mine.numpy(), wanted.numpy(), rtol=3e-6 if dtype in ("float32", "complex64") else 1e-12, atol=least)
            if dtype[0] == "f":
                np.testing.assert_array_equal(np.signbit(mine.numpy()), np.signbit(wanted.numpy()))


def test_running_products_with_zeros_and_infinities():
    x = torch.tensor([[2.0, -0.0, 3.0, -1.0], [INF, 2.0, 0.0, 1.0], [1.0, NAN, 0.0, 2.0], [-0.0, -1.0, -1.0, 5.0]])
    for dim in (0, 1):
        mine, theirs = sl.cumprod(sl.tensor(x.numpy()), dim).numpy(), torch.cumprod(x, dim).numpy()
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(np.signbit(mine)[theirs == 0], np.signbit(theirs)[theirs == 0])
    y = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for dim in (0, 1, -1):
        agree(lambda m, x: m.cumprod(x, dim), y, name=f"along {dim}")


CLAMPS = {
    "numbers": lambda m, x, y, z: m.clamp(x, -0.5, 0.75),
    "crossing numbers": lambda m, x, y, z: m.clamp(x, 0.5, -0.25),
    "NaN as a bound": lambda m, x, y, z: m.nan_to_num(m.clamp(x, NAN, 0.5), 3.0),
    "tensors": lambda m, x, y, z: m.clamp(x, y, z),
    "tensors that meet": lambda m, x, y, z: m.clamp(x, y, y),
    "rows": lambda m, x, y, z: m.clamp(x, y[0], z[:, :1]),
    "integers": lambda m, x, y, z: m.clamp(x, 0, 1),
    "lower alone": lambda m, x, y, z: m.clamp(x, min=y),
    "upper alone": lambda m, x, y, z: m.clamp(x, max=0.25),
    "cube": lambda m, x, y, z: x ** 3,
    "cube of a view": lambda m, x, y, z: x.t() ** 3.0,
}


@pytest.mark.parametrize("name", CLAMPS)
def test_what_runs_in_one_pass(name):
    generator = torch.Generator().manual_seed(0)
    x, y, z = (torch.randn(4, 4, dtype=torch.float64, generator=generator).mul(4).round().div(4) for _ in range(3))
    x[0, 0] = x[0, 1] = -0.5
    x[1, :2] = 0.75
    agree(CLAMPS[name], x, y, z, name=name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_bounds_and_cubes_in_every_dtype(dtype):
    x = np.random.default_rng(0).uniform(0, 9, 4097)
    ours, theirs = sl.tensor(x).to(getattr(sl, dtype)), torch.tensor(x).to(getattr(torch, dtype))

    def cube(m, x):
        """A power of ours is two products, each rounded, but of float16, which is rounded at the end."""
        if m is sl:
            return x ** 3
        wide = x.float() if x.dtype is torch.float16 else x
        return (wide * wide * wide).to(x.dtype)

    calls = [lambda m, x: m.clamp(x, 2, 5), lambda m, x: m.clamp(x, m.ones_like(x), x[0]), cube]
    if "float" in dtype:
        calls += [lambda m, x: m.clamp(x - 4, -1.5, 2.25), lambda m, x: (x / 0).clamp(0.0, 1.0),
                  lambda m, x: (x / 0 * 0).clamp(0.0, 1.0), lambda m, x: cube(m, x - 4.5), lambda m, x: -0.0 * cube(m, x)]
    for call in calls:
        mine, wanted = call(sl, ours), call(torch, theirs)
        assert mine.dtype.name == str(wanted.dtype)[6:]
        np.testing.assert_array_equal(mine.double().numpy(), wanted.double().numpy())
