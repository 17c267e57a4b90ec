"""sluice.compile: whatever code reads besides its arguments is followed when it changes after the first call."""

import collections
import contextvars
import functools
import itertools
import os
import threading
import time
import types
import weakref

import numpy as np
import pytest

import sluice as sl
from sluice import nn

NESTED = [(1,)]


class Base:
    scale = 2


class Settings(Base):
    def __init__(self):
        self.offset = 1

    @property
    def doubled(self):
        return self.offset * 2

    def applied(self, x):
        return x * self.scale + self.doubled

    def __getitem__(self, i):
        return self.offset + i


class Slots:
    __slots__ = ("scale",)


class Net(nn.Module):
    power, pair = 2, (1, 2)

    def moved(self, x):
        return x + 1

    def forward(self, x):
        if hasattr(self, "late"):
            x = x * self.late
        return self.moved(x) * self.power * self.pair[0]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.settings = Net(), types.SimpleNamespace(scale=2)

    def forward(self, x):
        return self.inner(x) * self.settings.scale


def closures():
    def make(n):
        def scaled(x):
            return x * n

        def change(to):
            nonlocal n
            n = to

        return scaled, change

    (a, _), (b, change) = make(2), make(3)  # of one code
    return (lambda x: a(x) + b(x) * 10), [lambda: change(7)]


def function_parts():
    def scaled(x, factor=2, *, more=3):
        return x * factor * more * scaled.scale

    def other(x, factor=2, *, more=3):
        return x - factor - more - scaled.scale

    scaled.scale = 1
    return (lambda x: scaled(x)), [lambda: setattr(scaled, "__defaults__", (5,)), lambda: scaled.__kwdefaults__.update(more=7),
                                   lambda: setattr(scaled, "__kwdefaults__", {"more": 9}), lambda: setattr(scaled, "scale", 4),
                                   lambda: setattr(scaled, "__code__", other.__code__)]


def classes():
    class Low(Base):
        pass

    return (lambda x: x * Low.scale), [lambda: setattr(Low, "scale", 5), lambda: delattr(Low, "scale")]


def objects():
    class Own(Settings):
        pass

    o = Own()
    return (lambda x: o.applied(x) * o[2]), [
        lambda: setattr(o, "offset", 4), lambda: setattr(Own, "scale", 5), lambda: setattr(o, "scale", 6),
        lambda: setattr(Own, "doubled", 8), lambda: setattr(o, "applied", lambda x: x - 3),
        lambda: setattr(Own, "__getitem__", lambda self, i: i)]


def missing():
    o = types.SimpleNamespace()
    return (lambda x: x * getattr(o, "scale", 3)), [lambda: setattr(o, "scale", 5), lambda: delattr(o, "scale")]


def slots():
    o = Slots()
    o.scale = 2
    return (lambda x: x * o.scale), [lambda: setattr(o, "scale", 5)]


def containers():
    values, array = collections.deque([2]), np.ones(2, np.float32)
    names = functools.partial(lambda x, scale: x * scale, scale=2)
    return (lambda x: names(x) * values[0] + float(array[1])), [
        lambda: values.__setitem__(0, 3), lambda: array.__setitem__(1, 4), lambda: names.keywords.update(scale=9)]


def elsewhere():
    settings, value = threading.local(), contextvars.ContextVar("value", default=2)
    settings.scale, held = 2, Settings()
    referent = weakref.ref(held)
    os.environ["SLUICE_TEST_READS"] = "2"

    def function(x):
        return x * settings.scale * value.get() * int(os.environ["SLUICE_TEST_READS"]) + referent().offset

    return function, [lambda: setattr(settings, "scale", 3), lambda: value.set(5), lambda: setattr(held, "offset", 7),
                      lambda: os.environ.update(SLUICE_TEST_READS="4")]


def nested_types():
    return (lambda x: x.int() * NESTED[0][0]), [lambda: NESTED.__setitem__(0, (1.0,)), lambda: NESTED.__setitem__(0, (1,))]


def modules():
    class Own(Net):
        pass

    net = Own()
    return net, [lambda: setattr(Own, "power", 5), lambda: setattr(net, "power", 6), lambda: delattr(net, "power"),
                 lambda: setattr(Own, "pair", (1.5, 2)), lambda: setattr(Own, "moved", lambda self, x: x * 3),
                 lambda: setattr(net, "late", 2), lambda: delattr(net, "late"), lambda: setattr(net, "moved", lambda x: x - 4),
                 lambda: setattr(Own, "forward", lambda self, x: x * 11), lambda: setattr(net, "forward", lambda x: x * 13)]


def inner_modules():
    class Own(Net):
        pass

    net = Outer()
    net.inner = Own()
    return net, [lambda: setattr(net, "settings", types.SimpleNamespace(scale=5)),
                 lambda: setattr(Own, "forward", lambda self, x: x * 11),
                 lambda: setattr(net.inner, "forward", lambda x: x * 13)]


CASES = (closures, function_parts, classes, objects, missing, slots, containers, elsewhere, nested_types, modules,
         inner_modules)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_code_reads_is_followed(case, grad):
    function, changes = case()
    compiled = sl.compile(function, options={"recompile_limit": 20})
    with sl.set_grad_enabled(grad):
        x = sl.tensor([1.0, 2.0, 3.0], requires_grad=grad)
        for number, change in enumerate([lambda: None, *changes]):
            change()
            for _ in range(3):
                made, expected = compiled(x), function(x)
                assert made.dtype is expected.dtype and sl.equal(made, expected), f"{case.__name__}, change {number}"
    assert sl.compile.stats(compiled)["eager_calls"] == 0


def test_a_global_that_comes_later_is_followed():
    code = "def f(x):\n    try:\n        return x * SCALE\n    except NameError:\n        return x\n"
    space = {}
    exec(compile(code, "<string>", "exec"), space)  # as `python -c` runs it
    compiled, x = sl.compile(space["f"]), sl.ones(2)
    for change in ({}, {"SCALE": 5}, {"SCALE": 7}):
        space.update(change)
        for _ in range(3):
            assert sl.equal(compiled(x), space["f"](x))


def test_the_sign_of_zero_is_followed():
    net = nn.Identity()
    net.zero = 0.0
    compiled = sl.compile(lambda x: sl.copysign(x, net.zero))
    for zero in (0.0, -0.0, 0.0):
        net.zero = zero
        for _ in range(3):
            assert compiled(sl.ones(1)).item() == (1 if str(zero) == "0.0" else -1)


def test_another_class_of_an_object_is_followed():
    class Twice:
        def applied(self, x):
            return x * 2

    class Thrice(Twice):
        def applied(self, x):
            return x * 3

    class Added(nn.Module):
        def forward(self, x):
            return x + 1

    o, net, x = Twice(), nn.Sequential(nn.ReLU(), nn.Identity()), sl.tensor([-1.0, 2.0])
    for function, thing, cls in ((lambda x: o.applied(x), o, Thrice), (net, net[1], Added)):
        compiled = sl.compile(function)
        for change in (lambda: None, lambda: setattr(thing, "__class__", cls)):
            change()
            for _ in range(3):
                assert sl.equal(compiled(x), function(x))


def test_hooks_of_all_modules_are_followed():
    net, x = nn.Linear(2, 2), sl.ones(1, 2)
    compiled = sl.compile(net)
    plain = compiled(x)
    with nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 3):
        for _ in range(3):
            assert sl.allclose(compiled(x), plain * 3)
    assert sl.equal(compiled(x), plain)


def test_backward_hooks_are_followed():
    net, x = nn.Linear(3, 3), sl.randn(2, 3, requires_grad=True)
    compiled = sl.compile(net)

    def grad(function):
        x.grad = None
        function(x).sum().backward()
        return x.grad

    for register in (lambda: None, lambda: net.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 10,)),
                     lambda: net.register_full_backward_hook(lambda module, into, out: (into[0] * 3,))):
        register()
        for _ in range(2):
            assert sl.allclose(grad(compiled), grad(net))


def test_each_thread_has_its_own():
    settings, seen = threading.local(), []
    settings.scale = 2
    compiled = sl.compile(lambda x: x * settings.scale)

    def run():
        settings.scale = 9
        seen.append(compiled(sl.ones(1)).item())

    assert compiled(sl.ones(1)).item() == 2
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [9] and compiled(sl.ones(1)).item() == 2


ITEMS = itertools.count(1)
EFFECTS = {
    r"it changes the grad mode from True to False": (
        lambda x: x * (sl.set_grad_enabled(False) is not None), sl.is_grad_enabled),
    r"it changes the default dtype from .*float32 to .*float64": (
        lambda x: x * (sl.set_default_dtype(sl.float64) is None), sl.get_default_dtype),
    r"it takes from the iterator ITEMS": (lambda x: x * next(ITEMS), lambda: next(ITEMS)),
    r"manual_seed\(\) reaches the host": (lambda x: x * (sl.manual_seed(3) is not None), lambda: sl.rand(1).item()),
    r"time.monotonic\(\) reaches the host": (lambda x: x * (time.monotonic() > 0), lambda: None),
}


@pytest.mark.parametrize("message", EFFECTS)
def test_what_code_changes_elsewhere_is_a_break(message):
    function, state = EFFECTS[message]
    compiled, x = sl.compile(function), sl.ones(1)
    try:
        with pytest.warns(RuntimeWarning, match=message):
            compiled(x)
        first = state()
        for _ in range(2):
            sl.set_grad_enabled(True)
            sl.set_default_dtype(sl.float32)
            compiled(x)
            assert state() == (first + 2 if message.endswith("ITEMS") else first)
            first = first + 2 if message.endswith("ITEMS") else first
    finally:
        sl.set_grad_enabled(True)
        sl.set_default_dtype(sl.float32)


def test_inference_mode_is_followed():
    compiled, x = sl.compile(lambda x: x * 2 if sl.is_inference_mode_enabled() else x * 3), sl.ones(1)
    for mode in (sl.no_grad, sl.inference_mode, sl.no_grad):
        for _ in range(3):
            with mode():
                assert compiled(x).item() == (2 if mode is sl.inference_mode else 3)


def test_what_code_does_not_read_compiles_nothing_anew():
    o, net = Settings(), Outer()
    compiled, x = sl.compile(lambda x: net(x) * o.scale), sl.ones(2)
    compiled(x)
    for change in (lambda: setattr(o, "unread", 1), lambda: setattr(net, "unread", 2), lambda: setattr(Slots, "unread", 3)):
        change()
        compiled(x)
    assert sl.compile.stats(compiled)["compiles"] == 1
    del Slots.unread


def test_a_class_that_the_code_counts_in_is_a_break():
    class Counts:
        calls = 0

    def counted(x):
        Counts.calls += 1
        return x * Counts.calls

    compiled = sl.compile(counted)
    with pytest.warns(RuntimeWarning, match="it changes Counts.calls"):
        assert [compiled(sl.ones(1)).item() for _ in range(3)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore:compile.*writes in place to memory that another argument")
@pytest.mark.parametrize("views", [lambda t: (t[:3], t[1:]), lambda t: (t, t.detach()), lambda t: (t[:2], t[2:])])
def test_writes_to_memory_that_another_argument_has_too(views):
    def write(x, y):
        x.add_(1)
        return (y * 2).sum()

    compiled = sl.compile(write, dynamic=False)
    for overlapping in (False, True, False, True):
        ours, eager = sl.arange(4.0), sl.arange(4.0)
        given, expected = ((views(ours), views(eager)) if overlapping else ((ours, sl.ones(3)), (eager, sl.ones(3))))
        for _ in range(2):
            assert sl.equal(compiled(*given), write(*expected)) and sl.equal(ours, eager)


def test_writes_to_memory_that_a_buffer_or_an_array_has_too():
    net = nn.Module()
    net.register_buffer("seen", sl.zeros(3))
    array = np.zeros(4, np.float32)

    def to_argument(x, y):
        x.add_(1)
        return y + net.seen

    def to_buffer(x, y):
        net.seen.add_(1)
        return x + y

    for function in (to_argument, to_buffer):
        compiled = sl.compile(function)
        for given in (lambda: (sl.zeros(3), sl.ones(3)), lambda: (net.seen[:], sl.ones(3)),
                      lambda: (sl.from_numpy(array[:3]), sl.from_numpy(array[1:]))):
            results = []
            for call in (compiled, function):
                net.seen.zero_()
                array[:] = 0
                results.append([t.tolist() for t in (call(*given()), net.seen, sl.from_numpy(array))])
            assert results[0] == results[1]
