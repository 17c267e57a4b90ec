"""gather, take_along_dim, take, index_select and embedding of every layout, against torch: values, gradients, errors."""

import numpy as np
import pytest
import torch

import sluice as sl

RANDOM = np.random.default_rng(0)
SHAPES = [((7,), (5,), 0), ((6, 9), (6, 4), 1), ((6, 9), (4, 9), 0), ((6, 9), (3, 7), 1), ((4, 5, 6), (4, 3, 6), 1),
          ((4, 5, 6), (2, 9, 3), 1), ((3, 1000), (3, 2000), 1), ((3, 2), (0, 2), 0), ((5, 4), (5, 0), 1), ((2, 3, 4, 5), (2, 3, 4, 8), -1)]
DTYPES = ["float32", "float64", "int8", "int16", "int64", "bool", "complex64", "complex128"]
LAYOUTS = {
    "as they are": lambda x: x,
    "last axes exchanged": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.ndim > 1 else x,
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
}


def case(shape, index_shape, dim, dtype="float32", index_dtype="int64"):
    x = torch.from_numpy((RANDOM.normal(0, 9, shape)).astype(dtype))
    index = torch.from_numpy(RANDOM.integers(0, max(shape[dim], 1), index_shape).astype(index_dtype))
    return x, index


def ours(t):
    """A tensor of the same strides."""
    return sl.from_numpy(t.numpy())


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("x_layout", LAYOUTS)
@pytest.mark.parametrize("index_layout", LAYOUTS)
def test_gather_of_every_layout(shapes, x_layout, index_layout):
    x, index = case(*shapes)
    x, index = LAYOUTS[x_layout](x), LAYOUTS[index_layout](index)
    mine = sl.gather(ours(x), shapes[2], ours(index))
    np.testing.assert_array_equal(mine.numpy(), torch.gather(x, shapes[2], index).numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_gather_of_every_dtype(dtype, index_dtype):
    for shapes in SHAPES:
        x, index = case(*shapes, dtype, index_dtype)
        mine = sl.gather(ours(x), shapes[2], ours(index))
        np.testing.assert_array_equal(mine.numpy(), torch.gather(x, shapes[2], index.long()).numpy())


@pytest.mark.parametrize("shape, count, dim", [((50, 33), (20, 1), 0), ((4, 50, 33), (4, 20, 1), 1), ((4, 50, 33), (1, 20, 1), 1),
                                               ((50, 4, 3), (600, 1, 1), 0), ((50, 700), (1, 1), 0), ((50, 6), (50, 1), 1)])
def test_rows_by_an_expanded_index(shape, count, dim):
    x, index = case(shape, count, dim)
    whole = list(shape)
    whole[dim] = count[dim]
    a, b = ours(x).requires_grad_(), x.clone().requires_grad_()
    mine = sl.gather(a, dim, ours(index).expand(*whole))
    theirs = torch.gather(b, dim, index.expand(*whole))
    np.testing.assert_array_equal(mine.detach().numpy(), theirs.detach().numpy())
    mine.square().sum().backward()
    theirs.square().sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(9,), (3, 9), (2, 3, 9), (1, 40)])
@pytest.mark.parametrize("count", [1, 7, 40_000])
def test_select_take_and_embed(shape, count):
    x = torch.from_numpy(RANDOM.normal(0, 1, shape).astype("float32"))
    for dim in range(len(shape)):
        index = torch.from_numpy(RANDOM.integers(0, shape[dim], count))
        np.testing.assert_array_equal(ours(x).index_select(dim, ours(index)).numpy(), x.index_select(dim, index).numpy())
    flat = torch.from_numpy(RANDOM.integers(-x.numel(), x.numel(), count))
    np.testing.assert_array_equal(ours(x).take(ours(flat)).numpy(), x.take(flat).numpy())
    along = torch.from_numpy(RANDOM.integers(-shape[-1], shape[-1], (*shape[:-1], count)))
    for dtype in ("int64", "int32"):
        np.testing.assert_array_equal(sl.take_along_dim(ours(x), ours(along.to(getattr(torch, dtype))), -1).numpy(),
                                      torch.take_along_dim(x, along, -1).numpy())
    if len(shape) == 2:
        index = torch.from_numpy(RANDOM.integers(0, shape[0], (count, 2)))
        np.testing.assert_array_equal(sl.nn.functional.embedding(ours(index), ours(x)).numpy(),
                                      torch.nn.functional.embedding(index, x).numpy())


@pytest.mark.parametrize("at", [0, 600, 1999])
@pytest.mark.parametrize("wrong", [-1, 1000, 1 << 40])
def test_an_index_beyond_the_axis_is_named(at, wrong):
    x, index = case((3, 1000), (3, 2000), 1)
    index[2, at] = wrong
    calls = [lambda: sl.gather(ours(x), 1, ours(index)), lambda: sl.gather(ours(x).t(), 0, ours(index).t()),
             lambda: sl.index_select(ours(x), 1, ours(index[2])), lambda: sl.index_select(ours(x[0]), 0, ours(index[2])),
             lambda: sl.gather(ours(x).t(), 0, ours(index[2])[:, None].expand(2000, 3))]
    for call in calls:
        with pytest.raises(IndexError, match=f"index out of range: {wrong} at axis . of size 1000; must be in .0, 999."):
            call()
    for beyond in (3000, -3001):
        with pytest.raises(IndexError, match=f"index out of range: {beyond} is out of bounds for dimension 0 with size 3000"):
            ours(x).take(sl.tensor([1, beyond]))


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("index_shape", [(0,), (1, 0), (0, 7), (2, 0, 9)], ids=str)
def test_an_index_without_elements_has_any_shape(shape, index_shape):
    def calls(m, x, index, src):
        yield m.gather(x, -1, index)
        yield m.scatter(x, 0, index, src)
        yield m.scatter(x, 0, index, 2.5)
        yield m.scatter_add(x, 0, index, src)
        for reduce in ("sum", "prod", "mean", "amax"):
            yield m.scatter_reduce(x, 0, index, src, reduce, include_self=False)

    numbers = torch.from_numpy(np.asarray(RANDOM.normal(0, 9, shape)))
    for dtype in ("int64", "int32", "float32"):
        results = []
        for m in (sl, torch):
            x = (ours(numbers) if m is sl else numbers.clone()).requires_grad_()
            made = list(calls(m, x, m.empty(index_shape, dtype=getattr(m, dtype)), m.ones(2, 2, dtype=m.float64)))
            sum(y.sum() * 2 for y in made[:4]).backward()  # torch has no gradient of reductions by such an index
            results.append([*(y.detach() for y in made), x.grad])
        for mine, theirs in zip(*results):
            assert tuple(mine.shape) == tuple(theirs.shape) and mine.dtype == sl.float64
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-15)
    with pytest.raises(IndexError, match="gather"):
        sl.gather(ours(numbers), 3, sl.empty(index_shape, dtype=sl.int64))
    with pytest.raises(RuntimeError, match="src"):
        sl.scatter(ours(numbers), 0, sl.empty(index_shape, dtype=sl.int64), sl.ones(2, 2))


def test_src_has_a_gradient_where_an_index_has_no_elements():
    for m in (sl, torch):
        for call in (m.scatter, m.scatter_add):
            src = m.ones(0, 3, requires_grad=True)
            call(m.zeros(2, 3), 0, m.empty(0, 3, dtype=m.int64), src).sum().backward()
            assert tuple(src.grad.shape) == (0, 3)
