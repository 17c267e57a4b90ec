"""load(): checkpoints with code in them, hostile pickles, files that are cut off or damaged."""

import collections
import io
import os
import pickle
import random

import pytest
import torch

import sluice as sl
from sluice.serialization import _pickler as p
from checkpoints import checkpoint, ours


class Tricked:
    def __init__(self, function, *args):
        self.reduced = (function, args)

    def __reduce__(self):
        return self.reduced


def test_code_in_a_checkpoint_is_refused_by_name_and_not_run(tmp_path):
    marker = tmp_path / "ran"
    for protocol in (2, 4):
        for trick in (Tricked(os.mkdir, str(marker)), Tricked(eval, f"open({str(marker)!r}, 'w')"), Tricked(getattr, "text", "upper")):
            data = pickle.dumps({"a": [1, trick]}, protocol)
            name = trick.reduced[0].__name__
            with pytest.raises(pickle.UnpicklingError, match=r"BytesIO: Weights only load failed: it calls "
                                                             rf"\S+\.{name}, which is not on the "
                                                              "allow-list.*add_safe_globals.*weights_only=False.*collections.OrderedDict"):
                sl.load(checkpoint(data))
            assert sl.serialization.get_unsafe_globals_in_checkpoint(checkpoint(data))[0].endswith(name)
            assert not marker.exists()
    assert sl.load(checkpoint(pickle.dumps(Tricked(len, "abc"), 2)), weights_only=False) == 3


HOSTILE = [
    b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00trueq\x01\x85R.", b"(S'true'\nios\nsystem\n.", b"(cos\nsystem\nS'true'\no.", b"Ptext\n.", b"K\x01Q.",
    b"\x80\x02ccollections\nOrderedDict\n)R}X\x06\x00\x00\x00updateK\x01sb.",  # an attribute: allowed, on that object alone
    b"\x80\x02ctorch\nTensor\n}X\x01\x00\x00\x00aK\x01s\x86b.", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
    b"\x80\x02ctorch.nn.parameter\nParameter\n)\x81.", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))\x89NtR.",
    b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R.",
    b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", b"\x80\x02r\xff\xff\xff\xff.", b"\x80\x02" + b"(" * 100000 + b".", b"", b"\x80\x02.", b"\xff",
    b"\x80\x02K\x01K\x01a.", b"\x80\x02}K\x01K\x01K\x01se.", b"\x80\x02(K\x01u.", b"\x80\x02h\x07.", b"\x82\x01.",
    b"\x80\x02X\xff\xff\xff\x7fabc.", b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_pickles_are_errors_of_one_kind(data):
    before = dict(vars(sl.nn.Parameter)), dict(vars(collections.OrderedDict))
    if b"update" in data:
        assert sl.load(checkpoint(data)).__dict__ == {"update": 1}
    else:
        with pytest.raises(pickle.UnpicklingError, match="load: a BytesIO: Weights only load failed: "):
            sl.load(checkpoint(data))
    assert before == (dict(vars(sl.nn.Parameter)), dict(vars(collections.OrderedDict)))


def test_hostile_tensors_are_errors():
    def tensor(offset, size, stride, count=4, record=b"\0" * 16):
        storage = p.Storage("0", sl.float32, "cpu")
        storage.start, storage.end = 0, 4 * count
        out = io.BytesIO()
        p.Pickler(out, 2, p.Storages(), False).dump(p._Reduced(p._TENSOR, (storage, offset, size, stride, False, None)))
        return checkpoint(out.getvalue(), **{"data/0": record})

    assert sl.load(tensor(0, (2, 2), (2, 1))).tolist() == [[0, 0], [0, 0]]
    for offset, size, stride in [(1, (4,), (1,)), (0, (5,), (1,)), (0, (2, 2), (3, 1)), (-1, (2,), (1,)), (0, (2,), (-1,)), (0, (2,), (1, 1)),
                                 (0, (2**62, 2**62), (2**62, 1)), (0, ("a",), (1,)), (0.5, (1,), (1,)), (0, (True,), (1,)), (2**70, (1,), (1,))]:
        with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
            sl.load(tensor(offset, size, stride))
    with pytest.raises(RuntimeError, match=r"record data/0 has 12 bytes; its tensors need 4 elements"):
        sl.load(tensor(0, (2,), (1,), record=b"\0" * 12))
    with pytest.raises(RuntimeError, match=r"record data/0 has 16 bytes; its tensors need 1000000000000 elements"):
        sl.load(tensor(0, (2,), (1,), count=10**12))


def test_what_sluice_has_not_is_named():
    for t, name in [(torch.nested.nested_tensor([torch.ones(2)]), "_rebuild_nested_tensor")]:
        with pytest.raises(pickle.UnpicklingError, match=rf"{name}, which Sluice does not have; only strided tensors"):
            ours(t)


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 300, 600, -30, -1])
def test_files_cut_off_are_errors_with_their_name(tmp_path, cut):
    path = tmp_path / "weights.pt"
    sl.save({"w": sl.arange(100.0)}, path)
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    with pytest.raises((RuntimeError, EOFError), match="weights.pt"):
        sl.load(path)


def test_damaged_files_are_errors_or_equal(tmp_path):
    path = tmp_path / "weights.pt"
    state = {"w": sl.arange(20.0), "b": [1, "two"]}
    sl.save(state, path)
    data, rng, errors = path.read_bytes(), random.Random(0), 0
    for _ in range(400):
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutant[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(mutant)
        try:
            loaded = sl.load(path)
            assert loaded["w"].tolist() == list(range(20)) and loaded["b"] == [1, "two"]  # sums of records are checked
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            assert "weights.pt" in str(error)
            errors += 1
    assert errors > 100


def test_other_files_are_errors(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        sl.load(path)
    path.write_bytes(b"hello world")
    with pytest.raises(RuntimeError, match="x: not a zip file"):
        sl.load(path)
    buffer = io.BytesIO()
    torch.save(torch.ones(2), buffer, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="not a zip file.*load it in torch and save it again"):
        sl.load(io.BytesIO(buffer.getvalue()))
    with pytest.raises(IsADirectoryError, match="load_graph"):
        sl.load(tmp_path)
    with pytest.raises(RuntimeError, match="Parent directory .*none does not exist"):
        sl.save(1, tmp_path / "none" / "a.pt")
    for function in (lambda: sl.save(1, 3), lambda: sl.load(3)):
        with pytest.raises(AttributeError):
            function()
    archive = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), archive)
    with pytest.raises(RuntimeError, match="TorchScript"):
        sl.load(io.BytesIO(archive.getvalue()))
