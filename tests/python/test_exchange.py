"""Memory shared with torch, NumPy and the buffer protocol: zero copy both ways, or an error that says why not."""

import array
import gc
import weakref

import numpy as np
import pytest
import torch

import sluice as sl

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
SHAPES = [(), (1,), (5,), (2, 3), (0,), (2, 0, 3), (1, 4, 1)]


def filled(name, shape):
    return (torch.arange(int(np.prod(shape))).reshape(shape) % 3).to(getattr(torch, name))


# DLPack


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", DTYPES)
def test_dlpack_shares_memory_both_ways(name, shape):  # OE-08
    theirs = filled(name, shape)
    ours = sl.from_dlpack(theirs)
    assert tuple(ours.shape) == shape and ours.dtype.name == name
    back = torch.from_dlpack(ours)
    assert back.dtype is theirs.dtype and back.shape == theirs.shape
    if theirs.numel():
        assert ours.data_ptr() == theirs.data_ptr() == back.data_ptr()
        assert ours.float().tolist() == theirs.float().tolist() == back.float().tolist()
    mine = sl.zeros(*shape, dtype=getattr(sl, name))
    given = torch.from_dlpack(mine)
    assert given.shape == shape and (not given.numel() or given.data_ptr() == mine.data_ptr())


@pytest.mark.parametrize("index", [(slice(None), 1), (slice(1, 3), slice(None, None, 2)), (0,), (..., None, slice(2, 4))])
def test_dlpack_keeps_strides_and_offsets(index):  # OE-08
    theirs = torch.arange(60.0).reshape(3, 4, 5).transpose(0, 2)[index]
    ours = sl.from_dlpack(theirs)
    assert ours.data_ptr() == theirs.data_ptr() and ours.tolist() == theirs.tolist()
    mine = sl.arange(60.0).reshape(3, 4, 5).transpose(0, 2)[index]
    given = torch.from_dlpack(mine)
    assert given.data_ptr() == mine.data_ptr() and given.tolist() == mine.tolist()
    strides = [s for s, n in zip(mine.stride(), mine.shape) if n > 1]
    assert [s for s, n in zip(given.stride(), given.shape) if n > 1] == strides


def test_broadcast_strides_of_zero_are_kept():
    ours = sl.from_dlpack(torch.tensor([1.0, 2.0]).expand(3, 2))
    assert ours.stride() == (0, 1) and ours.tolist() == [[1.0, 2.0]] * 3


def test_writes_are_seen_on_both_sides():  # OE-08
    theirs = torch.zeros(4)
    ours = sl.from_dlpack(theirs)
    theirs[1] = 5
    ours[2] = 7.0
    ours.mul_(2)
    assert theirs.tolist() == ours.tolist() == [0, 10, 14, 0]
    mine = sl.zeros(3)
    given = torch.from_dlpack(mine)
    given += 1
    mine[0] = 9.0
    assert given.tolist() == mine.tolist() == [9, 1, 1]


def test_either_side_may_go_first(count):  # OE-08
    rounds = 200
    for i in range(rounds):
        theirs = torch.full((1000,), float(i))
        ours = sl.from_dlpack(theirs)
        del theirs
        gc.collect() if i % 50 == 0 else None
        assert ours[999].item() == i
        view = torch.from_dlpack(ours + 1)  # the exporter is gone at once
        assert view[999].item() == i + 1
        array = (ours * 2).numpy()
        assert array[0] == 2 * i
        taken = sl.from_dlpack(view)
        del ours, view
        assert taken[0].item() == i + 1
    count("tensors exchanged whose exporter went first", 3 * rounds, "tensors")


class Exporter:
    """A NumPy array that can say when it was let go."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_foreign_memory_is_released_with_the_last_tensor():
    class Array(np.ndarray):
        pass

    for share in (sl.from_numpy, sl.from_dlpack):
        owner = np.ones(3, np.float32).view(Array)
        gone = weakref.ref(owner)
        t = share(owner)
        view = t[1:]
        del owner, t
        gc.collect()
        assert gone() is not None and view.tolist() == [1, 1]
        del view
        gc.collect()
        assert gone() is None


def test_capsules_of_both_versions_and_their_ends():  # OE-08
    t = sl.arange(3)
    old, new = t.__dlpack__(), t.__dlpack__(max_version=(1, 0))
    assert '"dltensor"' in repr(old) and '"dltensor_versioned"' in repr(new)
    assert '"dltensor_versioned"' in repr(t.__dlpack__(max_version=(2, 5))) and '"dltensor"' in repr(t.__dlpack__(max_version=(0, 8)))
    for capsule in (old, new, sl.to_dlpack(t)):
        assert sl.from_dlpack(capsule).data_ptr() == t.data_ptr()
        with pytest.raises(RuntimeError, match="consumed already"):
            sl.from_dlpack(capsule)
    t.__dlpack__(), t.__dlpack__(max_version=(1, 0))  # dropped unused
    assert t.__dlpack_device__() == (1, 0)
    assert torch.utils.dlpack.from_dlpack(t.__dlpack__()).data_ptr() == t.data_ptr()
    assert np.from_dlpack(t).ctypes.data == t.data_ptr()


def test_copies_are_made_where_asked_for():
    theirs = torch.ones(2)
    assert sl.from_dlpack(theirs, copy=True).data_ptr() != theirs.data_ptr()
    assert sl.from_dlpack(theirs, copy=False).data_ptr() == theirs.data_ptr()
    ours = sl.ones(2)
    assert torch.from_dlpack(ours, copy=True).data_ptr() != ours.data_ptr()
    assert np.from_dlpack(ours, copy=True).ctypes.data != ours.data_ptr()


def test_what_cannot_be_exported_is_refused_as_by_torch():  # OE-08
    for make in (sl, torch):
        t = make.ones(2, requires_grad=True)
        with pytest.raises(BufferError, match="requires? gradient; ?use tensor.detach|require gradient, use tensor.detach"):
            t.__dlpack__()
        assert t.detach().__dlpack__() is not None
    with pytest.raises(BufferError, match="on sim:0, .* use tensor.cpu"):
        sl.ones(2).to("sim:0").__dlpack__()
    with pytest.raises(BufferError, match="on sim:0"):
        sl.ones(2).to("sim:0").__dlpack_device__()
    with pytest.raises(BufferError, match="stream must be None"):
        sl.ones(2).__dlpack__(stream=3)
    with pytest.raises(BufferError, match="cannot be exported to another device"):
        sl.ones(2).__dlpack__(dl_device=(2, 0))


def test_what_cannot_be_imported_is_named():
    with pytest.raises(TypeError, match="from_dlpack: got int; must have __dlpack__"):
        sl.from_dlpack(3)
    with pytest.raises(BufferError, match="type code 5 with 32 bits"):
        sl.from_dlpack(torch.zeros(2, dtype=torch.complex32))
    with pytest.raises(BufferError, match="stride -1 of dim 0 is negative"):
        sl.from_dlpack(np.arange(3)[::-1])
    with pytest.raises(BufferError, match="has 9 dims"):
        sl.from_dlpack(np.zeros((1,) * 9))

    class Elsewhere(Exporter):
        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(BufferError, match=r"DLPack device \(2, 0\)"):
        sl.from_dlpack(Elsewhere(np.ones(1)))


def test_an_exporter_from_before_versions_is_understood():
    class Old:
        def __dlpack__(self, stream=None):
            return torch.ones(3).__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    assert sl.from_dlpack(Old()).tolist() == [1, 1, 1]


# Read-only memory


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("share", [sl.from_numpy, sl.from_dlpack])
def test_read_only_memory_is_shared_and_kept_so(share):  # OE-08
    source = read_only(np.arange(4.0))
    t = share(source)
    assert t.data_ptr() == source.ctypes.data and (t + 1).tolist() == [1, 2, 3, 4]
    for write in (lambda: t.add_(1), lambda: t.zero_(), lambda: t.__setitem__(0, 1.0), lambda: t[1:].mul_(2), lambda: t.uniform_()):
        with pytest.raises(RuntimeError, match="read-only"):
            write()
    assert source.tolist() == t.tolist() == [0, 1, 2, 3]
    assert not t.numpy().flags.writeable and memoryview(t).readonly and not np.asarray(t).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert not np.from_dlpack(t).flags.writeable
    assert t.clone().add_(1).tolist() == [1, 2, 3, 4]


def test_a_plan_may_read_but_not_write_read_only_memory():
    class Reads(sl.nn.Graph):
        def build(self, x):
            return x * 2

    x = sl.from_numpy(read_only(np.ones(3, np.float32)))
    assert Reads()(x).tolist() == [2, 2, 2]

    class Counter(sl.nn.Module):
        def __init__(self, memory):
            super().__init__()
            self.register_buffer("n", memory)

        def forward(self, x):
            self.n.add_(x)
            return self.n * 1

    class Writes(sl.nn.Graph):
        def __init__(self, memory):
            super().__init__()
            self.counter = Counter(memory)

        def build(self, x):
            return self.counter(x)

    graph = Writes(x)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="read-only"):
            graph(sl.ones(3)).tolist()
    assert x.tolist() == [1, 1, 1]


# NumPy


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [d for d in DTYPES if d != "bfloat16"])
def test_numpy_shares_memory_both_ways(name, shape):
    source = filled(name, shape).numpy()
    t = sl.from_numpy(source)
    assert t.dtype.name == name and tuple(t.shape) == shape and t.tolist() == source.tolist()
    back = t.numpy()
    assert back.dtype == source.dtype and back.shape == shape and back.flags.writeable
    assert np.asarray(t).shape == shape
    if source.size:
        assert t.data_ptr() == source.ctypes.data == back.ctypes.data == np.asarray(t).ctypes.data


def test_array_protocol_follows_numpy_2():
    t = sl.arange(4.0)
    assert np.asarray(t).ctypes.data == t.data_ptr() and np.array(t).ctypes.data != t.data_ptr()
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    assert t.__array__(copy=False).ctypes.data == t.data_ptr() and t.__array__(copy=True).ctypes.data != t.data_ptr()
    with pytest.raises(ValueError, match="needs a copy; copy=False forbids it"):
        t.__array__(np.float64, copy=False)
    with pytest.raises(RuntimeError, match="requires grad; use tensor.detach"):
        np.asarray(sl.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="bfloat16 has no numpy dtype; use tensor.float"):
        np.asarray(sl.ones(2, dtype=sl.bfloat16))
    with pytest.raises(TypeError, match="on sim:0; use tensor.cpu"):
        sl.ones(2).to("sim:0").numpy()


def test_arrays_that_cannot_be_shared_are_named():
    packed = np.zeros(3, np.dtype([("a", np.int8), ("b", np.float32)]))
    for source, error, text in ((np.arange(3)[::-1], ValueError, "stride -8 of dim 0 is negative"),
                                (packed["b"], ValueError, "stride 5 bytes of dim 0 is no multiple"),
                                (np.zeros(2, ">f4"), TypeError, "dtype >f4"), (np.zeros(2, np.uint32), TypeError, "dtype uint32"),
                                (np.zeros(2, "U3"), TypeError, "dtype <U3"), (np.zeros(2, "M8[s]"), TypeError, "cannot include dtype 'M'"),
                                (np.zeros((1,) * 9), ValueError, "has 9 dims")):
        with pytest.raises(error, match=text):
            sl.from_numpy(source)
    with pytest.raises(ValueError, match="not aligned"):
        sl.from_numpy(np.zeros(9, np.uint8)[1:].view(np.float32))


# The buffer protocol


def test_memoryviews_of_tensors():
    t = sl.arange(6, dtype=sl.int32).reshape(2, 3)
    view = memoryview(t)
    assert (view.shape, view.strides, view.format, view.readonly, view.nbytes) == ((2, 3), (12, 4), "i", False, 24)
    view[1, 2] = 50
    assert t[1, 2].item() == 50
    assert memoryview(t.t()).strides == (4, 12) and memoryview(t.t()).tolist() == t.t().tolist()
    assert bytes(t) == t.numpy().tobytes() and bytearray(t) == t.numpy().tobytes()
    del t
    assert view[0, 1] == 1  # the memory lives on
    assert memoryview(sl.tensor(3.0)).tolist() == 3.0 and memoryview(sl.zeros(0)).nbytes == 0


def test_buffers_that_cannot_be_given_are_refused():
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(sl.ones(1, dtype=sl.bfloat16))
    with pytest.raises(BufferError, match="requires gradient"):
        memoryview(sl.ones(1, requires_grad=True))
    with pytest.raises(BufferError, match="sim:0"):
        memoryview(sl.ones(1).to("sim:0"))
    with pytest.raises(BufferError, match="not contiguous"):
        __import__("hashlib").sha256(sl.ones(2, 3).t())


def test_frombuffer_shares_what_has_a_buffer():  # OE-08
    source = bytearray(np.arange(4, dtype=np.float32).tobytes())
    t = sl.frombuffer(source, dtype=sl.float32)
    assert t.tolist() == [0, 1, 2, 3]
    t[0] = 8.0
    assert np.frombuffer(source, np.float32)[0] == 8
    with pytest.raises(BufferError):
        source.append(0)  # the tensor holds it
    del t
    source.append(0)
    assert sl.frombuffer(source, dtype=sl.float32, count=2, offset=4).tolist() == [1, 2]
    assert sl.frombuffer(array.array("h", [1, -2]), dtype=sl.int16).tolist() == [1, -2]
    constant = sl.frombuffer(b"\x80\x3f\x00\x40", dtype=sl.bfloat16)
    assert constant.float().tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="read-only"):
        constant.zero_()


@pytest.mark.parametrize("options", [dict(count=0), dict(offset=16), dict(offset=-1), dict(offset=3), dict(count=5), dict(count=4, offset=4)])
def test_frombuffer_refuses_what_torch_refuses(options):
    for make in (sl, torch):
        with pytest.raises(ValueError):
            make.frombuffer(bytearray(16), dtype=make.float32, **options)
    with pytest.raises(TypeError, match="gives no buffer"):
        sl.frombuffer([1, 2], dtype=sl.float32)


# Plans that write what is shared


def test_reading_waits_for_the_steps_that_write():  # OE-08
    class Step(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Linear(64, 64)
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=1.0))

        def build(self, x):
            loss = self.net(x).sum()
            loss.backward()
            return loss

    graph, x, steps = Step(), sl.ones(32, 64), 20
    weight = graph.net.weight.detach()
    before = weight.numpy().copy()
    shared = weight.numpy()
    for n in range(1, steps + 1):
        graph(x)
        for read in (lambda: weight.numpy(), lambda: np.asarray(weight), lambda: np.asarray(memoryview(weight)), lambda: torch.from_dlpack(weight)):
            now = np.asarray(read())
            np.testing.assert_allclose(now, before - 32 * n, rtol=1e-5)
            assert now.ctypes.data == shared.ctypes.data
    assert np.array_equal(shared, weight.numpy())
