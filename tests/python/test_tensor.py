"""Tensors themselves: creation, dtypes, numpy, indexing, views, in-place ops, printing."""

import copy
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl


def test_ops_return_values_at_once(capsys):  # OE-04
    x = sl.ones(2, 2)
    hidden = x * 3
    print(hidden)
    assert capsys.readouterr().out == "tensor([[3., 3.],\n        [3., 3.]])\n"


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_dtypes_round_trip_through_numpy(name):  # OE-06
    t = sl.tensor([1, 0, 1], dtype=getattr(sl, name))
    assert t.dtype is getattr(sl, name)
    assert t.numpy().dtype == name
    assert sl.from_numpy(t.numpy()).dtype is t.dtype
    assert t.tolist() == [1, 0, 1]
    assert repr(t.dtype) == f"sluice.{name}"


def test_bfloat16_rounds_and_complex_is_shared():
    t = sl.tensor([1.0, 1.0039], dtype=sl.bfloat16)
    assert t.float().tolist() == torch.tensor([1.0, 1.0039]).bfloat16().float().tolist()
    with pytest.raises(TypeError, match="bfloat16"):
        t.numpy()
    shared = np.zeros(2, np.complex64)
    sl.from_numpy(shared)[1] = 2j
    assert sl.tensor([1 + 2j]).tolist() == [1 + 2j] and shared.tolist() == [0, 2j]


def test_numpy_memory_is_shared_both_ways():  # OE-07
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = sl.from_numpy(array)
    array[0, 0] = 42
    assert t[0, 0].item() == 42
    assert t.data_ptr() == array.ctypes.data
    t.add_(1)
    assert array[0, 0] == 43
    back = t.numpy()
    assert back.ctypes.data == array.ctypes.data
    strided = sl.from_numpy(array.T)
    assert strided.stride() == (1, 3) and strided.tolist() == array.T.tolist()
    assert sl.from_dlpack(torch.arange(3)).tolist() == [0, 1, 2]
    assert torch.from_dlpack(t).data_ptr() == t.data_ptr()
    assert np.asarray(t).ctypes.data == t.data_ptr()


def test_tensor_copies_and_infers_dtypes_as_torch():
    array = np.ones(2)
    t = sl.tensor(array)
    array[0] = 5
    assert t.tolist() == [1, 1] and t.dtype is sl.float64
    for data in (1, 1.5, True, [1, 2], [1.0, 2], [[True], [False]], [], 2**60 + 1):
        assert_same(sl.tensor(data), torch.tensor(data))
    assert sl.tensor([sl.tensor(1.0), sl.tensor(2.0)]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="unequal"):
        sl.tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match="got list with elements of <U1; must be numbers"):
        sl.tensor(["a"])


def test_creation_functions_equal_torch():
    for name, args in (("arange", (5,)), ("arange", (1, 7, 2)), ("arange", (0, 1, 0.25)), ("linspace", (0, 1, 5)), ("eye", (3,)),
                       ("zeros", (2, 3)), ("ones", ((2, 3),)), ("full", ((2,), 7)), ("full", ((2,), 0.5)), ("eye", (2, 4))):
        assert_same(getattr(sl, name)(*args), getattr(torch, name)(*args))


@pytest.mark.parametrize("size", [(5,), (100,), (3, 7), (64, 33)])
def test_random_creation_follows_torchs_generator(size):
    assert sl.rand(*size).tolist() == torch.rand(*size).tolist()
    assert_same(sl.randn(*size), torch.randn(*size), 1e-6)  # torch's vector code rounds logarithms its own way
    assert sl.randint(0, 100, size).tolist() == torch.randint(0, 100, size).tolist()
    assert sl.randperm(20).tolist() == torch.randperm(20).tolist()


INDICES = [0, -1, slice(1, None), slice(None, None, 2), (slice(None), 1), (..., 0), (None, 1), (slice(0, 2), None, slice(1, 3)),
           (1, ..., slice(None, 1)), (slice(3, 1),), ()]


@pytest.mark.parametrize("index", INDICES)
def test_basic_indexing_gives_torchs_views(index):
    a = torch.arange(60.0).reshape(3, 4, 5)
    x = to_sl(a)
    assert_same(x[index], a[index])
    assert x[index]._is_view()
    x[index] = 7.0
    a[index] = 7.0
    assert_same(x, a)


FANCY = [([2, 0],), (slice(None), [1, 1, 3]), ([0, 2], [1, -1]), ([0, 1], slice(None), [4, 2]), ([[0, 1], [2, 0]], 1)]


@pytest.mark.parametrize("index", FANCY)
def test_tensor_indexing_equals_torch(index):
    a = torch.arange(60.0).reshape(3, 4, 5)
    x = to_sl(a)
    ours = tuple(sl.tensor(i) if isinstance(i, list) else i for i in index)
    theirs = tuple(torch.tensor(i) if isinstance(i, list) else i for i in index)
    assert_same(x[ours], a[theirs])
    value = torch.rand(a[theirs].shape)
    x[ours] = to_sl(value)
    a[theirs] = value
    assert_same(x, a)


def test_mask_indexing_equals_torch():
    a = torch.randn(4, 5)
    x = to_sl(a)
    assert_same(x[x > 0], a[a > 0])
    assert_same(x[to_sl(a[:, 0] > 0)], a[a[:, 0] > 0])
    x[x > 0] = -1.0
    a[a > 0] = -1.0
    assert_same(x, a)


def test_bad_indices_are_named():
    x = sl.zeros(2, 3)
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
        x[2]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="float32"):
        x[sl.tensor([0.5])]
    with pytest.raises(IndexError, match="mask of shape"):
        x[sl.tensor([True])]


def test_views_alias_and_in_place_ops_write_through():
    a = torch.arange(12.0).reshape(3, 4)
    x = to_sl(a)
    for t in (x, a):
        t[1].mul_(10)
        t.t()[0].add_(1)
        t.view(-1)[2:4].zero_()
        t.transpose(0, 1)[:, 2].fill_(-3)
        t -= 1
        t.clamp_(min=-2)
        t[:, 1].copy_(t[:, 0])
    assert_same(x, a)
    assert x[1:].data_ptr() == x.data_ptr() + 16
    with pytest.raises(RuntimeError, match="view"):
        x.t().view(-1)


def test_in_place_version_is_checked_by_backward():
    x = sl.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified|version"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)


PRINTED = [[1.0, 2.0], [0.1234567, 100.5], [1e-6, 1.0], [1, -2], [True, False], [], 3.5, [[1.5, -2.25], [0.0, 1e3]]]


@pytest.mark.parametrize("data", PRINTED[:2] + PRINTED[3:7])
def test_repr_equals_torchs(data):
    assert repr(sl.tensor(data)) == repr(torch.tensor(data))


def test_repr_tells_dtype_and_grad():
    assert repr(sl.tensor([1], dtype=sl.int32)) == "tensor([1], dtype=sluice.int32)"
    assert "requires_grad=True" in repr(sl.ones(1, requires_grad=True))
    assert "grad_fn=<" in repr(sl.ones(1, requires_grad=True) * 2)


def test_scalars_convert_and_ambiguous_truth_is_refused():
    assert float(sl.tensor(2.5)) == 2.5 and int(sl.tensor(3)) == 3 and [10, 20][sl.tensor(1)] == 20
    assert bool(sl.tensor([True])) and f"{sl.tensor(1.5):.2f}" == "1.50"
    assert len(sl.zeros(4, 2)) == 4 and [t.tolist() for t in sl.arange(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(sl.ones(2))
    with pytest.raises(ValueError):
        sl.ones(2).item()


def test_attributes_follow_torch():
    x, a = sl.zeros(2, 3, 4).permute(2, 0, 1), torch.zeros(2, 3, 4).permute(2, 0, 1)
    assert tuple(x.shape) == tuple(a.shape) and x.stride() == a.stride() and x.size(1) == 2 and x.numel() == 24
    assert x.is_contiguous() is False and x.contiguous().is_contiguous() and x.ndim == 3
    assert repr(x.shape) == "sluice.Size([4, 2, 3])" and str(x.device) == "cpu" and x.element_size() == 4
    assert x.to(sl.float32) is x and x.double().dtype is sl.float64 and x.to("cpu", sl.int64).dtype is sl.int64


def test_deepcopy_and_pickle_keep_values():
    x = sl.rand(3, requires_grad=True)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.tolist() == x.tolist() and other.requires_grad and other.data_ptr() != x.data_ptr()


def test_tensors_move_to_the_simulated_device_and_back():
    x = sl.arange(6).reshape(2, 3)
    y = x.to("sim:0")
    assert str(y.device) == "sim:0" and y.cpu().tolist() == x.tolist() and y.data_ptr() != x.data_ptr()
    with sl.device("sim:0"):
        assert str(sl.ones(2).device) == "sim:0"
    with pytest.raises(ValueError, match="GPU"):
        sl.device("GPU")


def test_import_is_light(run_script):
    result = run_script("import sys, sluice\nassert 'numpy' not in sys.modules and 'sluice.nn' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_numpy_arrays_index():
    t = sl.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(t[np.array([1, 0])].numpy(), [[3, 4, 5], [0, 1, 2]])
    assert t[np.int64(1), np.array(2)].item() == 5
    with pytest.raises((TypeError, IndexError), match="index"):
        t[np.zeros((3, 3))]
    with pytest.raises((TypeError, IndexError), match="index"):
        t[np.zeros((3, 3))] = 1

    class Raising:
        def __index__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        t[Raising()]
