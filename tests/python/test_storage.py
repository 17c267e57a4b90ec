"""Storages, as torch's users ask tensors for them, and tensors without contents."""

import numpy as np
import pytest
import torch

import sluice as sl


def facts(lib):
    """What torch and Sluice must say alike."""
    t = lib.arange(12, dtype=lib.float32).reshape(3, 4)
    part, storage, typed = t[1:, ::2], t.untyped_storage(), t.storage()
    yield part.untyped_storage().data_ptr() == t.data_ptr(), part.data_ptr() - t.data_ptr()
    yield storage.nbytes(), storage.size(), len(storage), storage.element_size(), str(storage.device), storage.is_cuda
    yield typed.size(), len(typed), typed.nbytes(), typed.element_size(), str(typed.dtype).rpartition(".")[2], typed.tolist(), typed[3]
    yield part.untyped_storage()._cdata == storage._cdata, t.clone().untyped_storage()._cdata == storage._cdata
    typed[2] = 7
    part.untyped_storage()[16:20].fill_(0)
    yield t.tolist(), storage.tolist(), storage.clone().tolist() == storage.tolist()
    yield lib.is_storage(storage), lib.is_storage(t), isinstance(storage, lib.UntypedStorage)
    yield t.new(typed).tolist(), lib.empty(0).set_(storage, 1, (2, 2), (4, 1)).tolist()
    yield lib.UntypedStorage(5).nbytes(), lib.UntypedStorage([1, 2]).tolist(), lib.UntypedStorage(3).fill_(9).tolist()
    yield [str(lib.zeros(2, dtype=getattr(lib, d)).storage().tolist()) for d in ("bool", "int64", "float16", "bfloat16", "complex64")]
    shared = t.untyped_storage()._new_shared(8)
    yield shared.is_shared(), storage.is_shared(), shared.nbytes()
    meta = lib.empty(300, 2, device="meta")
    yield meta.untyped_storage().nbytes(), str(meta.device), meta.is_meta, t.is_meta, repr(meta), tuple(lib.matmul(meta, meta.mT).shape)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_are_torchs():
    expected, got = list(facts(torch)), list(facts(sl))
    assert got == expected


def test_a_storage_of_a_file_is_seen_without_copies(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(12)))
    for lib in (torch, sl):
        part = lib.UntypedStorage.from_file(str(tmp_path / "file"), False, 12)[4:12]
        seen = lib.asarray(part, dtype=lib.uint8)
        assert seen.tolist() == list(range(4, 12)) and seen.view(lib.int16).shape == (4,)
        seen[0] = 99
        assert part[0] == 99
    assert (tmp_path / "file").read_bytes()[4] == 4


def test_a_write_to_a_storage_counts_as_a_version():
    w = sl.ones(3)
    w.untyped_storage().fill_(0)
    assert w.tolist() == [0, 0, 0] and w._version == 1


def test_memory_keeps_its_size():
    with pytest.raises(NotImplementedError, match="UntypedStorage.resize_: 12 elements to 0; memory keeps its size here"):
        sl.ones(3).untyped_storage().resize_(0)


def test_a_traced_tensor_has_no_storage():
    class G(sl.nn.Graph):
        def build(self, x):
            x.untyped_storage()
            return x

    with pytest.raises(RuntimeError, match="untyped_storage: got a traced tensor"):
        G()(sl.ones(2))


def test_a_model_of_any_size_can_be_asked_for_its_shapes():
    with sl.device("meta"):
        net = sl.nn.Linear(2**20, 2**20)  # four terabytes
        out = net(sl.ones(3, 2**20))
    assert out.shape == (3, 2**20) and net.weight.is_meta and net.weight.nbytes == 2**42
    small = sl.nn.Linear(3, 2, device="meta").to_empty(device="cpu")
    small.load_state_dict({"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
    assert small(sl.ones(1, 3)).tolist() == [[3, 3]]


@pytest.mark.parametrize("read", [lambda t: t.tolist(), lambda t: t.cpu(), lambda t: t.sum().item(), lambda t: sl.ones(2).copy_(t)])
def test_a_tensor_without_contents_cannot_be_read(read):
    with pytest.raises(NotImplementedError, match="meta: a tensor of this device has no data"):
        read(sl.ones(2, device="meta"))
