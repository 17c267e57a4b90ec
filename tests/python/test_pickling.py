"""copy.copy, copy.deepcopy and pickle of tensors, parameters, modules and what belongs to them: as torch's."""

import copy
import pickle

import numpy as np
import children
import pytest
import torch

import sluice as sl
from sluice import multiprocessing as mp

WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, **{f"pickle {p}": lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in (2, 3, 4, 5)}}
LIMIT = 120


def made(lib, kind):
    t = lib.arange(6.0).reshape(2, 3)
    if kind == "parameter":
        t = lib.nn.Parameter(t)
    elif kind == "frozen":
        t = lib.nn.Parameter(t, requires_grad=False)
    elif kind == "leaf":
        t.requires_grad_(True)
    elif kind == "turned":
        return t.t()
    elif kind == "product":
        t = t.requires_grad_(True) * 2
    elif kind == "with attributes":
        t.note = ["a"]
    elif kind == "parameter with attributes":
        t = lib.nn.Parameter(t)
        t.note = ["a"]
    elif kind == "with gradient":
        t.requires_grad_(True)
        t.grad = lib.ones(2, 3)
    elif kind == "parameter with gradient":
        t = lib.nn.Parameter(t)
        t.grad = lib.ones(2, 3)
    return t


KINDS = ["plain", "parameter", "frozen", "leaf", "turned", "product", "with attributes", "parameter with attributes", "with gradient", "parameter with gradient"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_copies_are_as_in_torch(way, kind):  # OPS-39
    def outcome(lib):
        t = made(lib, kind)
        try:
            c = WAYS[way](t)
        except RuntimeError:
            return "error"
        result = [type(c).__name__, c.tolist(), c.stride(), c.requires_grad, c.is_leaf, None if c.grad is None else c.grad.tolist(), c.__dict__,
                  c.data_ptr() == t.data_ptr(), "note" in c.__dict__ and c.note is t.note]
        with lib.no_grad():
            c.add_(1)  # the copy, and with copy.copy the data of the tensor
        return [*result, t.tolist()]

    assert outcome(sl) == outcome(torch)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("way", WAYS)
def test_copies_of_every_dtype_and_shape(way, dtype):
    for shape in [(), (0,), (3, 0, 2), (4,), (2, 3, 4)]:
        x = (sl.ones(shape) * 2).to(getattr(sl, dtype))
        for t in (x, x.expand(2, *shape), x.permute(list(reversed(range(x.ndim))))):
            c = WAYS[way](t)
            assert c.dtype is t.dtype and c.shape == t.shape and c.tolist() == t.tolist()
            if way != "copy" and c.numel() and 0 not in c.stride():  # as torch, a deep copy of an expanded tensor is one
                c.zero_()
                assert x.tolist() == (sl.ones(shape) * 2).to(x.dtype).tolist()


@pytest.mark.parametrize("way", [w for w in WAYS if w != "copy"])
def test_modules_optimizers_and_their_parts(way):
    net = sl.nn.Sequential(sl.nn.Linear(3, 4), sl.nn.BatchNorm1d(4), sl.nn.ReLU())
    net.tied = net[0].weight
    net[0].bias.requires_grad_(False)
    x = sl.randn(5, 3)
    net(x).sum().backward()
    c = WAYS[way](net)
    assert c.tied is c[0].weight and type(c.tied) is sl.nn.Parameter and not c[0].bias.requires_grad
    assert c.eval()(x).equal(net.eval()(x)) and list(c.state_dict()) == list(net.state_dict())
    with sl.no_grad():
        c[0].weight.zero_()
        c[1].running_mean.add_(1)
    assert net[0].weight.abs().sum().item() > 0 and not net[1].running_mean.equal(c[1].running_mean)
    method = WAYS[way](net[0].forward)
    assert method.__self__ is not net[0] and method(x).equal(net[0](x))
    for value in (sl.float32, sl.bfloat16, sl.device("cpu"), sl.device("sim", 1), sl.Size([2, 3])):
        assert WAYS[way](value) == value and type(WAYS[way](value)) is type(value)


@pytest.mark.parametrize("way", [w for w in WAYS if w != "copy"])
def test_an_optimizer_goes_on_as_its_copy(way):
    def train(p, opt):
        for _ in range(3):
            opt.zero_grad()
            (p**2).sum().backward()
            opt.step()

    p = sl.nn.Parameter(sl.ones(3))
    opt = sl.optim.Adam([p], lr=0.1)
    train(p, opt)
    q, other = WAYS[way]((p, opt))
    assert other.param_groups[0]["params"][0] is q
    train(p, opt)
    train(q, other)
    assert p.equal(q)


def test_deep_copies_keep_who_is_who():
    t = sl.ones(2)
    a, b = copy.deepcopy([t, t])
    assert a is b and a is not t
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(sl.ones(2, requires_grad=True) * 2)


class Tagged(sl.Tensor):
    pass


@pytest.mark.parametrize("way", WAYS)
def test_subclasses_stay_what_they_are(way):
    t = Tagged(sl.ones(2))
    t.tag = 1
    c = WAYS[way](t)
    assert type(c) is Tagged and c.tag == 1 and c.tolist() == [1, 1]


@pytest.mark.parametrize("way", WAYS)
def test_traced_tensors_have_no_values(way):
    class Copies(sl.nn.Graph):
        def build(self, x):
            WAYS[way](x)
            return x

    with pytest.raises(RuntimeError, match="traced tensor"):
        Copies()(sl.ones(2))


def test_pickles_hold_the_values_once():
    assert len(pickle.dumps(sl.zeros(100_000))) < 401_000
    buffers = []
    assert len(pickle.dumps(sl.zeros(100_000), protocol=5, buffer_callback=buffers.append)) < 1000 and len(buffers) == 1


# Through multiprocessing


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queues_send_tensors(method):
    context = mp.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=children.double, args=(inbox, outbox), daemon=True)
    process.start()
    for t in (sl.arange(5), sl.arange(100_000.0).reshape(100, -1), sl.ones(50_000, dtype=sl.bfloat16), sl.arange(40_000).reshape(200, 200).t(),
              sl.zeros(0, 3), sl.tensor(True), sl.ones(100_000)[10:]):
        inbox.put(t)
        assert outbox.get(timeout=LIMIT).tolist() == (t * 2).tolist()
    for n in (3, 100_000):
        inbox.put(sl.nn.Parameter(sl.ones(n)))
        got = outbox.get(timeout=LIMIT)
        assert type(got) is sl.nn.Parameter and got.requires_grad and got.sum().item() == n
    inbox.put(None)
    process.join(LIMIT)
    assert process.exitcode == 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_shared_tensors_are_seen_by_all(method):
    t, net = sl.zeros(10), sl.nn.Linear(2, 2)
    assert not t.is_shared() and t.share_memory_() is t and t.is_shared() and t[3:].is_shared()
    assert net.share_memory() is net and net.weight.is_shared() and type(net.weight) is sl.nn.Parameter
    process = mp.get_context(method).Process(target=children.add, args=(t, net))
    process.start()
    process.join(LIMIT)
    assert process.exitcode == 0 and t.tolist() == [1.0] * 10 and net.weight.tolist() == [[7, 7], [7, 7]]


def test_what_cannot_be_sent():
    from multiprocessing.reduction import ForkingPickler

    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(sl.ones(3, requires_grad=True) * 2)
    with pytest.raises(NotImplementedError, match="sim"):
        sl.ones(3, device="sim:0").share_memory_()


def test_strategies():
    assert mp.get_all_sharing_strategies() == {mp.get_sharing_strategy()} == {"file_descriptor"}
    mp.set_sharing_strategy("file_descriptor")
    mp.unlink_all_shared_memory()
    with pytest.raises(ValueError, match="only 'file_descriptor' is supported"):
        mp.set_sharing_strategy("file_system")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_started_together(method):
    t = sl.zeros(2).share_memory_()
    assert mp.start_processes(children.work, ("fine", t), 2, start_method=method) is None and t.tolist() == [1, 2]
    with pytest.raises(mp.ProcessRaisedException, match="(?s)Process 1 terminated.*one has failed") as caught:
        mp.start_processes(children.work, ("raise", t), 2, start_method=method)
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 3"):
        mp.start_processes(children.work, ("exit", t), 2, start_method=method)


def test_arrays_of_numpy_and_tensors_share_one_pickle():
    a = np.arange(1000.0)
    x, y = pickle.loads(pickle.dumps((a, sl.from_numpy(a))))
    assert y.tolist() == x.tolist()


def test_pickles_that_name_the_modules_of_before_are_read():
    size = pickle.loads(b"csluice._size\nSize\n((I2\nI3\nttR.")
    assert type(size) is sl.Size and size == (2, 3)
    for value, now, before in ((sl.arange(3.0), b"sluice._tensor.pickling", b"sluice._pickling"),
                               (sl.device("cpu"), b"sluice._base.device", b"sluice._device")):
        data = pickle.dumps(value, 2)
        assert now in data
        again = pickle.loads(data.replace(now, before))
        assert str(again) == str(value) and type(again) is type(value)
