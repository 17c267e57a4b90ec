"""Reading and writing at indices, with torch and NumPy as the oracles."""

import numpy as np
import pytest
import torch
from conftest import assert_same

import sluice as sl


def random_index(generator, shape, advanced):
    """An index of ints, slices, None, an ellipsis, and index arrays and masks, whose shapes broadcast."""
    index, used, length = [], 0, int(generator.integers(1, 4))
    ellipsis_at = int(generator.integers(0, len(shape) + 2))
    while used < len(shape):
        if len(index) == ellipsis_at and Ellipsis not in [i for i in index if i is Ellipsis]:
            index.append(Ellipsis)
            used += int(generator.integers(0, 2))
            continue
        size, kind = shape[used], generator.integers(0, 6 if advanced else 4)
        kind = 2 if kind == 3 and sum(i is None for i in index) > 1 else kind
        if kind == 0:
            index.append(int(generator.integers(-size, size)))
        elif kind == 1:
            start, stop = sorted(generator.integers(-size, size + 1, 2).tolist())
            index.append(slice(start, stop, int(generator.integers(1, 3))))
        elif kind == 2:
            index.append(slice(None))
        elif kind == 3:
            index.append(None)
            continue
        elif kind == 4:
            index.append(generator.integers(-size, size, length))
        else:
            mask = np.zeros(size, bool)
            mask[generator.permutation(size)[:min(length, size)]] = True
            index.append(mask if size >= length else generator.integers(0, size, (1,)))
        used += 1
    return index


def as_tensors(index, make):
    return tuple(make(i) if isinstance(i, np.ndarray) else i for i in index)


def legal(x, index):
    """The result of torch, and of NumPy too where no int stands beside an index array: NumPy takes it for one as well."""
    try:
        found = torch.tensor(x)[as_tensors(index, torch.tensor)].numpy()
    except IndexError:
        return None
    if not (any(isinstance(i, int) for i in index) and any(isinstance(i, np.ndarray) for i in index)):
        np.testing.assert_array_equal(found, x[tuple(index)])
    return found


@pytest.mark.parametrize("advanced", [False, True])
def test_random_indices_read_and_write_as_numpys(advanced):
    generator, done = np.random.default_rng(5 + advanced), 0
    while done < 60:
        shape = tuple(generator.integers(2, 5, int(generator.integers(1, 5))))
        x = generator.normal(size=shape)
        index = random_index(generator, shape, advanced)
        expected = legal(x, index)
        if expected is None or sum(i is Ellipsis for i in index) > 1:
            continue
        done += 1
        ours = sl.tensor(x)
        np.testing.assert_array_equal(ours[as_tensors(index, sl.tensor)].numpy(), expected, str(index))
        np.testing.assert_array_equal(ours[as_tensors(index, lambda i: i)].numpy(), expected)
        value = generator.normal(size=expected.shape)
        arrays = [i for i in index if isinstance(i, np.ndarray)]
        if all(i.dtype == bool or len(set(i.tolist())) == len(i) and (i >= 0).all() for i in arrays):  # no element is written twice
            target = torch.tensor(x)
            target[as_tensors(index, torch.tensor)] = torch.tensor(value)
            written = target.numpy()
            ours[as_tensors(index, sl.tensor)] = sl.tensor(value)
            np.testing.assert_array_equal(ours.numpy(), written, str(index))
        theirs = torch.tensor(x, requires_grad=True)
        theirs[as_tensors(index, torch.tensor)].cos().sum().backward()
        mine = sl.tensor(x, requires_grad=True)
        mine[as_tensors(index, sl.tensor)].cos().sum().backward()
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), 1e-12)


def test_results_of_indices_are_contiguous():
    x, p = sl.arange(60.0).reshape(3, 4, 5), torch.arange(60.0).reshape(3, 4, 5)
    i, j = sl.tensor([0, 1, 1]), torch.tensor([0, 1, 1])
    for ours, theirs in ((x[:, i], p[:, j]), (x[..., i], p[..., j]), (x[:, i, i], p[:, j, j]), (x[i, :, i], p[j, :, j]),
                         (x[:, None, i], p[:, None, j])):
        assert ours.stride() == theirs.stride() and ours.is_contiguous()
        assert_same(ours.view(-1), theirs.view(-1))


def test_0d_tensors_index_lists_tensors_and_slices():
    t0, t1, x = sl.tensor(0), sl.tensor(2), sl.arange(12).reshape(3, 4)
    p0, p1, p = torch.tensor(0), torch.tensor(2), torch.arange(12).reshape(3, 4)
    words = ["a", "b", "c"]
    pairs = [(x[t0], p[p0]), (x[t0, t1], p[p0, p1]), (x[t0:t1], p[p0:p1]), (x[:, t1:], p[:, p1:]), (x[::t1], p[::p1]), (x[t1, ...], p[p1, ...]),
             (x[[t0, t1]], p[[p0, p1]]), (x[-t1], p[-p1]), (x[t1 - 1:, t0], p[p1 - 1:, p0])]
    for ours, theirs in pairs:
        assert ours.tolist() == theirs.tolist() and tuple(ours.shape) == tuple(theirs.shape)
    assert words[t0] == "a" and words[t0:t1] == ["a", "b"] and list(range(5))[t1] == 2 and [7] * t1 == [7, 7]
    x[t0, t1] = -5
    assert x[0, 2].item() == -5


def test_masks_lists_ranges_and_uint8():
    t, x = torch.arange(12.0).reshape(3, 4), sl.arange(12.0).reshape(3, 4)
    for index in (lambda m: (range(3), m.tensor([0, 1, 3])), lambda m: ([0, 2],), lambda m: ([True, False, True],), lambda m: (slice(0, 2), [1, 3]),
                  lambda m: (m.tensor([[0, 1], [2, 0]]), slice(None)), lambda m: (m.tensor([True, False, True]), 1), lambda m: (m.tensor(True),),
                  lambda m: (..., m.tensor([0, 0])), lambda m: (None, [0], None), lambda m: ((0, 1), (1, 2))):
        assert x[index(sl)].tolist() == t[index(torch)].tolist()
        a, b = x.clone(), t.clone()
        a[index(sl)] = -1
        b[index(torch)] = -1
        assert a.tolist() == b.tolist()
    with pytest.warns(UserWarning):
        expected = t[torch.tensor([1, 0, 1], dtype=torch.uint8)]
    assert x[sl.tensor([1, 0, 1], dtype=sl.uint8)].tolist() == expected.tolist()
    for wrong, error in ((3, IndexError), ((0, 4), IndexError), ((0, 0, 0), IndexError), (1.5, IndexError), (slice(None, None, -1), ValueError),
                         ([0, 5], IndexError)):
        for m in (x, t):
            with pytest.raises(error):
                m[wrong].sum().item()


@pytest.mark.parametrize("chosen", [[False] * 6, [True, False, True, True, False, False], [True] * 6])
def test_masked_select_and_fill(chosen):
    x, mask = np.arange(6.0).reshape(2, 3), np.array(chosen).reshape(2, 3)
    ours = sl.tensor(x, requires_grad=True)
    picked = ours.masked_select(sl.tensor(mask))
    assert picked.tolist() == x[mask].tolist() and ours[sl.tensor(mask)].tolist() == x[mask].tolist()
    picked.square().sum().backward()
    assert ours.grad.tolist() == np.where(mask, 2 * x, 0).tolist()
    filled = np.where(mask, -1.5, x)
    assert sl.tensor(x).masked_fill(sl.tensor(mask), -1.5).tolist() == filled.tolist()
    assert sl.tensor(x).masked_fill_(sl.tensor(mask), sl.tensor(-1.5, dtype=sl.float64)).tolist() == filled.tolist()
    assert sl.tensor(x).masked_fill(sl.tensor(mask[:1]), 0).tolist() == np.where(mask[:1], 0, x).tolist()
    with pytest.raises(RuntimeError, match="expected BoolTensor"):
        ours.masked_select(sl.tensor(mask.astype(np.int64)))


def test_tensor_split_is_numpys_array_split():
    generator = np.random.default_rng(1)
    for _ in range(40):
        shape = tuple(generator.integers(1, 7, 3))
        x, dim = generator.normal(size=shape), int(generator.integers(-3, 3))
        into = int(generator.integers(1, 9)) if generator.random() < 0.5 else sorted(generator.integers(0, 7, 2).tolist())
        for ours, theirs in zip(sl.tensor(x).tensor_split(into, dim), np.array_split(x, into, dim), strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
    x = sl.arange(12.0).reshape(4, 3)
    for ours, theirs in ((x.hsplit(3), np.hsplit(x.numpy(), 3)), (x.vsplit([1, 3]), np.vsplit(x.numpy(), [1, 3]))):
        assert [p.tolist() for p in ours] == [p.tolist() for p in theirs]
    assert x.tensor_split(2)[0].data_ptr() == x.data_ptr()
    for call in (lambda m, v: v.hsplit(2), lambda m, v: v[0].vsplit(1), lambda m, v: v.tensor_split(0), lambda m, v: m.tensor(1.0).tensor_split(2),
                 lambda m, v: v.dsplit(1)):
        for m in (sl, torch):
            with pytest.raises(RuntimeError):
                call(m, m.arange(12.0).reshape(4, 3))


def test_transposes():
    x = sl.arange(6.0).reshape(2, 3)
    assert x.T.data_ptr() == x.t().data_ptr() == x.data_ptr() and x.T.shape == x.t().shape == (3, 2) and x.T.stride() == (1, 3)
    assert x.mT.tolist() == x.H.tolist() == x.mH.tolist() == x.T.tolist() and sl.tensor(1.0).t().item() == 1 and sl.ones(3).t().shape == (3,)
    for m in (sl, torch):
        with pytest.raises(RuntimeError, match="t(\\(\\))?:? expects a tensor with (at most 2 dims|<= 2 dimensions)"):
            m.ones(2, 3, 4).t()
        with pytest.raises(RuntimeError, match="only supported on matrices"):
            m.ones(2, 3, 4).H
        with pytest.raises(RuntimeError, match="only supported on matrices or batches"):
            m.ones(2).mT


def test_views_in_place_turn_the_tensor_itself():
    for name, args, shape in (("t_", (), (3, 4)), ("transpose_", (0, 1), (3, 4)), ("swapdims_", (0, 1), (3, 4)), ("swapaxes_", (-1, 0), (3, 4)),
                              ("squeeze_", (), (1, 3)), ("squeeze_", (0,), (1, 3)), ("unsqueeze_", (1,), (2, 3)), ("as_strided_", ((2, 2), (1, 2)), (2, 3))):
        x, t = sl.arange(12.0)[:shape[0] * shape[1]].reshape(shape), torch.arange(12.0)[:shape[0] * shape[1]].reshape(shape)
        at = x.data_ptr()
        assert getattr(x, name)(*args) is x and getattr(t, name)(*args) is t
        assert x.tolist() == t.tolist() and x.stride() == t.stride() and x.data_ptr() == at
    x = sl.ones(2, 3, requires_grad=True)
    y = (x * sl.arange(3.0)).t_()
    assert y.shape == (3, 2)
    (y * sl.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 2, 8], [0, 3, 10]]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.t_()
    with sl.no_grad():
        x.t_()
    assert x.shape == (3, 2) and x.requires_grad and x.is_leaf

    class Turned(sl.nn.Graph):
        def build(self, v):
            y = v * 2
            y.unsqueeze_(0).transpose_(1, 2)
            return y

    assert Turned()(sl.ones(2, 3)).shape == (1, 3, 2)
    assert sl.as_strided_(sl.arange(4.0), (2,), (2,)).tolist() == [0.0, 2.0]


def test_an_error_of_a_subscripts_own_is_the_users():
    class Unsized:
        def __len__(self):
            raise RuntimeError("no length")

        def __getitem__(self, i):
            return 0

    with pytest.raises(RuntimeError, match="^no length$"):
        sl.ones(3)[Unsized()]
