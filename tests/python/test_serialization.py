"""save and load: torch's checkpoint format in both directions."""

import collections
import io
import os
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch

import sluice as sl
from sluice.serialization import _pickler as p

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]


def values(dtype, *shape):
    torch.manual_seed(0)
    t = torch.randn(*shape) * 10
    return t.abs().to(torch.uint8) if dtype == "uint8" else t.to(getattr(torch, dtype))


def ours(t):
    """A torch tensor as one of Sluice, through a checkpoint."""
    buffer = io.BytesIO()
    torch.save(t, buffer)
    buffer.seek(0)
    return sl.load(buffer)


def theirs(obj):
    """Reads with torch what Sluice writes."""
    buffer = io.BytesIO()
    sl.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def again(obj, **options):
    buffer = io.BytesIO()
    sl.save(obj, buffer)
    buffer.seek(0)
    return sl.load(buffer, **options)


def assert_same(a, b):
    assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_array_equal(a.detach().double().numpy(), b.detach().double().numpy())


VIEWS = {
    "whole": lambda t: t, "transposed": lambda t: t.permute(2, 0, 1), "rows": lambda t: t[1:3], "column": lambda t: t[:, 2],
    "element": lambda t: t[1, 2, 3], "empty": lambda t: t[1:1], "narrow": lambda t: t[:, 1:3, 2:4],
    "expanded": lambda t: t[:, :1, :1].expand(4, 3, 6), "corner": lambda t: t[3:, 4:, 5:],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_tensors_go_both_ways(dtype, view):  # OE-22
    t = VIEWS[view](values(dtype, 4, 5, 6))
    loaded = ours(t)
    assert_same(loaded, t)
    if t.numel():
        assert tuple(loaded.stride()) == t.stride() or dtype == "bfloat16" or max(t.shape, default=0) <= 1 or 1 in t.shape
    x = VIEWS[view](ours(values(dtype, 4, 5, 6)))
    back = theirs(x)
    assert_same(back, t)
    assert_same(again(x), t)


def test_nests_of_everything_go_both_ways(tmp_path):
    def nest(lib, tensor):
        return {
            "tensors": [tensor, (tensor, None)], "ordered": collections.OrderedDict(b=1, a=tensor), "numbers": [1, -2**70, 2.5, float("inf"), True, 1j],
            "text": "näme", "bytes": b"\x00\xff", "array": bytearray(b"ab"), "set": {1, "a"}, 3: {"nested": {}}, "dtype": lib.bfloat16,
            "device": lib.device("cpu"), "size": lib.zeros(2, 3).shape, "count": collections.Counter("hello"),
        }

    path = str(tmp_path / "a.pt")
    torch.save(nest(torch, torch.arange(5.0)), path)
    read = sl.load(path)
    expected = nest(sl, sl.arange(5.0))
    for key in ("numbers", "text", "bytes", "array", "set", 3, "dtype", "device", "size", "count"):
        assert read[key] == expected[key] and type(read[key]) is type(expected[key]), key
    assert list(read) == list(expected) and list(read["ordered"].items())[0] == ("b", 1)
    assert read["tensors"][0] is read["tensors"][1][0] is read["ordered"]["a"]

    sl.save(expected, path)
    read = torch.load(path, weights_only=True)
    expected = nest(torch, torch.arange(5.0))
    for key in ("numbers", "text", "bytes", "array", "set", 3, "dtype", "device", "size", "count"):
        assert read[key] == expected[key] and type(read[key]) is type(expected[key]), key
    assert read["tensors"][0] is read["ordered"]["a"] and torch.equal(read["tensors"][0], torch.arange(5.0))


def test_views_of_one_storage_share_it_after_loading():
    for read in (ours, theirs, again):
        lib = torch if read is ours else sl
        base = lib.arange(12.0).reshape(3, 4)
        a, row, whole, turned = read([base[1:], base[1], base, base.t()])
        row[0] = 100
        assert a[0, 0].item() == whole[1, 0].item() == turned[0, 1].item() == 100
        assert whole[0, 0].item() == 0


def test_only_what_tensors_see_of_a_storage_is_written():
    buffer = io.BytesIO()
    big = sl.zeros(1_000_000)
    sl.save([big[10:20], big[15:30]], buffer)
    assert len(buffer.getvalue()) < 5000
    buffer.seek(0)
    a, b = torch.load(buffer)
    assert a.shape == (10,) and b.shape == (15,) and a.untyped_storage().nbytes() == 80


def test_parameters_and_flags_go_both_ways():
    w = torch.nn.Parameter(torch.arange(3.0))
    loaded = ours([w, torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(1), requires_grad=False)])
    assert [type(t) for t in loaded] == [sl.nn.Parameter, sl.Tensor, sl.nn.Parameter]
    assert [t.requires_grad for t in loaded] == [True, True, False] and all(t.is_leaf for t in loaded)
    loaded = theirs([sl.nn.Parameter(sl.arange(3.0)), sl.ones(2, requires_grad=True), sl.nn.Parameter(sl.ones(1), requires_grad=False)])
    assert [type(t) for t in loaded] == [torch.nn.Parameter, torch.Tensor, torch.nn.Parameter]
    assert [t.requires_grad for t in loaded] == [True, True, False]


def test_attributes_of_tensors_are_kept():
    t, w = sl.ones(2), sl.nn.Parameter(sl.ones(2))
    t.note, w.note = "a", [1]
    assert again(t).note == "a" and again(w).note == [1] and type(again(w)) is sl.nn.Parameter
    assert theirs(t).note == "a" and theirs(w).note == [1]
    t = torch.ones(2)
    t.note = "b"
    assert ours(t).note == "b"


def test_training_goes_on_from_a_torch_checkpoint_and_back(tmp_path):
    def model(lib):
        return lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.BatchNorm1d(8), lib.nn.ReLU(), lib.nn.Linear(8, 2))

    def steps(lib, net, opt, n):
        for i in range(n):
            x = lib.tensor(np.random.RandomState(i).randn(16, 4).astype("float32"))
            loss = (net(x) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()

    path = tmp_path / "step.pt"
    a = model(torch)
    opt_a = torch.optim.Adam(a.parameters(), lr=0.1)
    steps(torch, a, opt_a, 3)
    torch.save({"model": a.state_dict(), "opt": opt_a.state_dict()}, path)
    b = model(sl)
    opt_b = sl.optim.Adam(b.parameters(), lr=0.1)
    state = sl.load(path)
    b.load_state_dict(state["model"])
    opt_b.load_state_dict(state["opt"])
    assert steps(torch, a, opt_a, 4) == pytest.approx(steps(sl, b, opt_b, 4), rel=1e-4)
    sl.save({"model": b.state_dict(), "opt": opt_b.state_dict()}, path)
    c = model(torch)
    opt_c = torch.optim.Adam(c.parameters(), lr=0.1)
    state = torch.load(path, weights_only=True)
    c.load_state_dict(state["model"])
    opt_c.load_state_dict(state["opt"])
    assert steps(torch, c, opt_c, 4) == pytest.approx(steps(sl, b, opt_b, 4), rel=1e-4)


class Tricked:
    def __init__(self, function, *args):
        self.reduced = (function, args)

    def __reduce__(self):
        return self.reduced


def checkpoint(data, **records):
    """A zip file with this data.pkl."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {"data.pkl": data, "version": b"3\n", **records}.items():
            archive.writestr(f"archive/{name}", content)
    buffer.seek(0)
    return buffer


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
    for t, name in [(torch.ones(2).to_sparse(), "_rebuild_sparse_tensor")]:
        with pytest.raises(pickle.UnpicklingError, match=rf"{name}, which Sluice does not have; only strided tensors"):
            ours(t)


class Config:
    def __init__(self, x):
        self.x = x


def test_what_torch_keeps_beside_values_is_heeded():
    assert ours(torch._neg_view(torch.arange(3.0))).tolist() == [0, -1, -2]
    with pytest.raises(pickle.UnpicklingError, match=r"torch.nn.modules.linear.Linear, a class of torch; save its state_dict\(\)"):
        ours(torch.nn.Linear(1, 1))


def test_safe_globals():
    buffer = io.BytesIO()
    sl.save({"config": Config(3), "w": sl.ones(2)}, buffer)

    def load():
        buffer.seek(0)
        return sl.load(buffer)

    with pytest.raises(pickle.UnpicklingError, match=r"Config, which is not on the allow-list"):
        load()
    with sl.serialization.safe_globals([Config]):
        assert load()["config"].x == 3 and sl.serialization.get_safe_globals() == [Config]
    assert sl.serialization.get_safe_globals() == []
    sl.serialization.add_safe_globals([(Config, f"{Config.__module__}.Config")])
    assert load()["config"].x == 3
    sl.serialization.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError, match="allow-list"):
        load()
    with pytest.raises(TypeError, match="expected functions or classes"):
        sl.serialization.add_safe_globals([3])
    buffer.seek(0)
    assert sl.load(buffer, weights_only=False)["config"].x == 3


def test_modules_are_saved_whole():
    net = sl.nn.Sequential(sl.nn.Linear(2, 3), sl.nn.ReLU())
    with pytest.raises(pickle.UnpicklingError, match="allow-list"):
        again(net)
    loaded = again(net, weights_only=False)
    x = sl.randn(4, 2)
    assert loaded(x).equal(net(x)) and type(loaded[0].weight) is sl.nn.Parameter


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


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    sl.save([1], path)
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        sl.save([2, lambda: 0], path)
    assert sl.load(path) == [1] and os.listdir(tmp_path) == ["a.pt"]


def test_files_and_paths(tmp_path):
    with open(tmp_path / "f", "wb") as file:
        sl.save(sl.ones(2), file)
    for source in (str(tmp_path / "f"), tmp_path / "f", open(tmp_path / "f", "rb"), io.BytesIO((tmp_path / "f").read_bytes())):
        assert sl.load(source).tolist() == [1, 1]
        if hasattr(source, "close"):
            source.close()
    with open(tmp_path / "f", "rb") as file:
        assert torch.load(file).tolist() == [1, 1]

    class WritesOnly:
        data = b""

        def write(self, data):
            self.data += bytes(data)

    only = WritesOnly()
    sl.save([1, sl.ones(3)], only)
    assert sl.load(io.BytesIO(only.data))[0] == torch.load(io.BytesIO(only.data))[0] == 1
    same = [io.BytesIO(), io.BytesIO()]
    for buffer in same:
        sl.save({"a": sl.arange(4)}, buffer)
    assert same[0].getvalue() == same[1].getvalue()


def test_mmap(tmp_path):
    path = tmp_path / "big.pt"
    for lib in (torch, sl):
        w = lib.arange(5000.0)
        lib.save({"w": w, "b": lib.ones(3, dtype=lib.bfloat16)}, path)
        before = path.read_bytes()
        loaded = sl.load(path, mmap=True)
        assert loaded["w"].tolist() == list(range(5000)) and loaded["b"].float().tolist() == [1, 1, 1]
        loaded["w"][0] = 5
        assert loaded["w"][0].item() == 5 and path.read_bytes() == before
        assert torch.load(path, mmap=True, weights_only=True)["w"][7].item() == 7
    with pytest.raises(ValueError, match="file path"):
        sl.load(io.BytesIO(), mmap=True)
    path.write_bytes(before[:len(before) // 2])
    with pytest.raises(RuntimeError, match="big.pt"):
        sl.load(path, mmap=True)


def test_map_location():
    buffer = io.BytesIO()
    sl.save({"a": sl.ones(2, device="sim:0"), "b": sl.zeros(2)}, buffer)

    def places(location):
        buffer.seek(0)
        return [str(t.device) for t in sl.load(buffer, map_location=location).values()]

    assert places(None) == ["sim:0", "cpu"]
    assert places("cpu") == places(sl.device("cpu")) == ["cpu", "cpu"]
    assert places({"sim:0": "cpu"}) == ["cpu", "cpu"] and places({"cpu": "sim:0"}) == ["sim:0", "sim:0"]
    assert places(lambda storage, location: storage) == ["cpu", "cpu"] and places(lambda storage, location: None) == ["sim:0", "cpu"]
    seen = []
    places(lambda storage, location: seen.append((location, tuple(storage.shape))))
    assert seen == [("sim:0", (2,)), ("cpu", (2,))]
    with pytest.raises(TypeError, match="map_location returned 3"):
        places(lambda storage, location: 3)
    archive = zipfile.ZipFile(io.BytesIO(buffer.getvalue()))
    lost = checkpoint(archive.read("archive/data.pkl").replace(b"sim:0", b"xpu:0"), **{f"data/{i}": archive.read(f"archive/data/{i}") for i in "01"})
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on device xpu:0.*map_location='cpu'"):
        sl.load(lost)
    lost.seek(0)
    assert sl.load(lost, map_location="cpu")["a"].tolist() == [1, 1]


def test_arguments():
    buffer = io.BytesIO()
    sl.save(1, buffer)
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="pickle_module"):
        sl.load(buffer, pickle_module=pickle, weights_only=True)
    assert sl.load(buffer, pickle_module=pickle) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        buffer.seek(0)
        sl.load(buffer, nonsense=1)
    with pytest.raises(NotImplementedError, match="1.6"):
        sl.save(1, io.BytesIO(), _use_new_zipfile_serialization=False)
    for protocol in (2, 3, 4, 5):
        data = io.BytesIO()
        sl.save({"a": sl.ones(2), "b": b"bytes"}, data, pickle_protocol=protocol)
        data.seek(0)
        assert sl.load(data)["a"].tolist() == [1, 1]


def test_graphs_are_saved_alone():
    class Same(sl.nn.Graph):
        def build(self, x):
            return x

    graph = Same(name="same")
    graph(sl.ones(2))
    with pytest.raises(TypeError, match="save: graph 'same' is a part of other data; save the state_dict"):
        sl.save({"graph": graph}, io.BytesIO())


def test_traced_tensors_are_refused():
    class Saves(sl.nn.Graph):
        def build(self, x):
            sl.save(x, io.BytesIO())
            return x

    with pytest.raises(RuntimeError, match="save: got a traced tensor"):
        Saves()(sl.ones(2))
