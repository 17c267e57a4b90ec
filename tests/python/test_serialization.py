"""save and load: torch's checkpoint format in both directions."""

import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

import sluice as sl
from checkpoints import checkpoint, ours

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]


def values(dtype, *shape):
    torch.manual_seed(0)
    t = torch.randn(*shape) * 10
    return t.abs().to(torch.uint8) if dtype == "uint8" else t.to(getattr(torch, dtype))


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
