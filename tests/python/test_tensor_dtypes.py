"""Ranges and promotion of dtypes, tensors named after them, memory formats: as torch says."""

import itertools
import pickle

import numpy as np
import pytest
import torch

import sluice as sl

NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
FLOATS, INTEGERS = NAMES[6:], NAMES[1:6]


def of(name):
    return getattr(sl, name), getattr(torch, name)


@pytest.mark.parametrize("name", FLOATS)
def test_finfo(name):
    ours, theirs = (m.finfo(d) for m, d in zip((sl, torch), of(name)))
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert repr(ours) == repr(theirs) and ours == sl.finfo(of(name)[0]) and hash(ours) == hash(sl.finfo(of(name)[0]))


@pytest.mark.parametrize("name", INTEGERS)
def test_iinfo(name):
    ours, theirs = (m.iinfo(d) for m, d in zip((sl, torch), of(name)))
    assert (ours.bits, ours.max, ours.min, ours.dtype, repr(ours)) == (theirs.bits, theirs.max, theirs.min, theirs.dtype, repr(theirs))


def test_infos_refuse_what_torchs_refuse():
    assert sl.finfo().dtype == "float32" and sl.finfo(float).bits == 32 and sl.iinfo(int).bits == 64
    for call in (lambda m: m.finfo(m.int32), lambda m: m.iinfo(m.float32), lambda m: m.iinfo(m.bool), lambda m: m.finfo("float32")):
        for m in (sl, torch):
            with pytest.raises(TypeError):
                call(m)


def test_promotion():
    for a, b in itertools.product(NAMES, repeat=2):
        assert str(sl.promote_types(of(a)[0], of(b)[0])).split(".")[1] == str(torch.promote_types(of(a)[1], of(b)[1])).split(".")[1]
        assert sl.can_cast(of(a)[0], of(b)[0]) == torch.can_cast(of(a)[1], of(b)[1]), (a, b)
    for number, name in itertools.product((True, 2, 2.5), NAMES):
        (ours, theirs) = (m.result_type(m.ones(2).to(d), number) for m, d in zip((sl, torch), of(name)))
        assert str(ours).split(".")[1] == str(theirs).split(".")[1]
    assert sl.result_type(1, 2.0) is sl.float32 and sl.result_type(sl.tensor(1.0, dtype=sl.float64), sl.ones(1)) is sl.float32


@pytest.mark.parametrize("name", ["FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor",
                                  "BoolTensor", "Tensor"])
def test_tensors_named_after_dtypes(name):
    ours, theirs = getattr(sl, name), getattr(torch, name)
    assert tuple(ours(2, 3).shape) == (2, 3) and tuple(ours().shape) == (0,) and tuple(ours(sl.Size([4])).shape) == (4,)
    for data in ([1, 0, 1], (0, 1), [[1, 0], [0, 1]], np.array([1, 0]), range(2), []):
        mine, expected = ours(data), theirs(list(data) if isinstance(data, range) else data)
        assert mine.tolist() == expected.tolist() and str(mine.dtype).split(".")[1] == str(expected.dtype).split(".")[1]
        assert mine.type() == expected.type() and isinstance(mine, ours) and sl.typename(mine) == torch.typename(expected)
    for wrong in ((1.5,), (2, [3]), ("text",)):
        with pytest.raises(TypeError):
            ours(*wrong)
        with pytest.raises(TypeError):
            theirs(*wrong)


def test_classes_tell_dtypes_apart():
    x = sl.ones(2)
    assert isinstance(x, sl.FloatTensor) and not isinstance(x, sl.DoubleTensor) and isinstance(x, sl.Tensor)
    assert x.type("torch.DoubleTensor").dtype is sl.float64 and x.type(sl.LongTensor).dtype is sl.int64 and x.type(sl.half).dtype is sl.float16
    assert x.type() == "torch.FloatTensor" and x.double().new(2).dtype is sl.float64 and x.new([1, 2]).tolist() == [1, 2]
    assert sl.Tensor(x).data_ptr() == x.data_ptr() and sl.Tensor([1]).item() == 1
    with pytest.raises(TypeError):
        sl.LongTensor(x)
    sl.set_default_tensor_type(sl.DoubleTensor)
    try:
        assert sl.ones(1).dtype is sl.float64 and sl.Tensor([1]).dtype is sl.float64
    finally:
        sl.set_default_tensor_type("torch.FloatTensor")
    assert sl.ones(1).dtype is sl.float32
    with pytest.raises(TypeError, match="only floating-point types"):
        sl.set_default_tensor_type(sl.LongTensor)


def test_memory_formats():
    t, x = torch.arange(120.0).reshape(2, 3, 4, 5), sl.arange(120.0).reshape(2, 3, 4, 5)
    for m, v in ((torch, t), (sl, x)):
        y = v.contiguous(memory_format=m.channels_last)
        assert y.stride() == (60, 1, 15, 3) and y.is_contiguous(memory_format=m.channels_last) and not y.is_contiguous()
        assert not v.is_contiguous(memory_format=m.channels_last) and v.contiguous() is v and y.contiguous(memory_format=m.channels_last) is y
        assert y.contiguous().stride() == v.stride() and y.tolist() == v.tolist() and y.dim_order() == (0, 2, 3, 1)
        assert v.clone(memory_format=m.channels_last).stride() == y.stride() and v.clone(memory_format=m.preserve_format).stride() == v.stride()
        with pytest.raises(RuntimeError, match="required rank 4"):
            v[0].contiguous(memory_format=m.channels_last)
        with pytest.raises(RuntimeError, match="preserve memory format"):
            v.transpose(0, 1).contiguous(memory_format=m.preserve_format)
        deep = v[None].contiguous(memory_format=m.channels_last_3d)
        assert deep.is_contiguous(memory_format=m.channels_last_3d) and not deep.is_contiguous(memory_format=m.channels_last)
    assert repr(sl.channels_last) == "sluice.channels_last" and isinstance(sl.channels_last, sl.memory_format)
    assert x.layout is sl.strided and isinstance(x.layout, sl.layout) and pickle.loads(pickle.dumps(sl.channels_last)) == sl.channels_last
    with pytest.raises(ValueError, match="memory_format is 'text'"):
        x.contiguous(memory_format="text")


def test_empty_strided_and_logspace():
    assert sl.empty_strided((2, 3), (1, 2)).stride() == (1, 2) and sl.ones(2).new_empty_strided((2, 2), (0, 1)).shape == (2, 2)
    with pytest.raises(RuntimeError, match="dimensionality"):
        sl.empty_strided((2, 3), (1,))
    for args in ((0, 2, 5), (1, -1, 3, 2.0), (0, 1, 1), (0, 1, 0)):
        np.testing.assert_allclose(sl.logspace(*args).numpy(), torch.logspace(*args).numpy(), 1e-5)
    for args in ((5,), (1, 4), (0, 1, 0.25), (3, 0, -1)):
        with pytest.warns(UserWarning):
            expected = torch.range(*args) if len(args) > 1 else torch.range(0, *args)
        assert sl.range(*args).tolist() == expected.tolist()


def test_python_and_numpy_numbers_are_taken():
    x, t = sl.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
    array = np.arange(3.0)
    assert (x * array).tolist() == (t * torch.tensor(array)).tolist() and (x * array).dtype is sl.float64
    assert (x + np.float32(1)).dtype is sl.float32 and sl.tensor(np.float64(2)).dtype is sl.float64 and sl.tensor(np.float32(2)).dtype is sl.float32
    assert sl.tensor([np.float64(1), np.float64(2)]).dtype is sl.float64 and sl.tensor(range(3)).tolist() == [0, 1, 2]
    assert sl.ones(2, dtype=float).dtype is sl.float64 and sl.ones(2, dtype=int).dtype is sl.int64 and x.to(float).dtype is sl.float64
    assert sl.zeros(np.int64(2), np.int32(3)).shape == (2, 3) and sl.full((2,), np.float64(1.5)).tolist() == [1.5, 1.5]
    assert x[np.int64(1)].tolist() == t[1].tolist() and x.reshape(np.int64(3), -1).shape == (3, 2) and x.sum(np.int64(0)).shape == (3,)
    assert sl.clamp(x, np.float64(1), np.int64(3)).tolist() == t.clamp(1, 3).tolist() and sl.tensor(np.array(2.5)).ndim == 0
    assert x.view(sl.Size([3, 2])).shape == (3, 2) and x.permute([1, 0]).shape == (3, 2) and sl.stack((x, x)).shape == (2, 2, 3)
