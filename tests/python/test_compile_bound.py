"""sluice.compile: calls that need no Python to see that nothing has changed give what other calls give."""

import collections
import gc
import threading
import time
import warnings
import weakref

import pytest

import sluice as sl
from sluice import nn

SCALE = 2
LIST = [1.0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.power = nn.Linear(4, 6), nn.Linear(6, 3), 1
        self.drop = nn.Dropout(0.9)

    def forward(self, x):
        return self.second(self.drop(self.first(x).relu()) ** self.power) * SCALE


@pytest.fixture(autouse=True)
def anew():
    sl.compile.reset()
    with sl.no_grad():
        yield
    sl.compile.reset()


def bound(compiled):
    return compiled._region._bound


def warmed(function, *arguments, **options):
    """Compiled and called, so that the next call is bound."""
    compiled = sl.compile(function, **options)
    for _ in range(2):
        compiled(*arguments)
    assert bound(compiled) is not None
    return compiled


def test_calls_are_bound_once_a_plan_has_run_and_are_counted():
    net, x = Net().eval(), sl.randn(1, 4)
    compiled = sl.compile(net)
    assert bound(compiled) is None
    compiled(x)
    first = bound(compiled)
    assert first is not None
    for _ in range(5):
        x = sl.randn(1, 4)
        assert sl.allclose(compiled(x), net(x), atol=1e-6)
    assert bound(compiled) is first and sl.compile.stats(compiled)["calls"] == 6 and sl.compile.stats(compiled)["compiles"] == 1


def set_scale(value):
    global SCALE
    SCALE = value


CHANGES = {
    "a weight, in place": lambda net: net.first.weight.fill_(0.5),
    "a weight's memory": lambda net: setattr(net.first.weight, "data", sl.ones(6, 4)),
    "a parameter": lambda net: setattr(net.first, "bias", nn.Parameter(sl.ones(6))),
    "a module": lambda net: setattr(net, "second", nn.Linear(6, 3)),
    "an attribute": lambda net: setattr(net, "power", 3),
    "a global": lambda net: set_scale(7),
    "a hook": lambda net: net.second.register_forward_hook(lambda module, args, result: result + 1),
    "the module itself": lambda net: net.load_state_dict(Net().state_dict()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_change_of_what_the_code_reads_is_seen(change, mode):
    net, x = Net().eval(), sl.randn(2, 4)
    compiled = warmed(net, x, mode=mode)
    try:
        before = compiled(x)
        change(net)
        for _ in range(3):
            assert sl.allclose(compiled(x), net(x), atol=1e-5)
        assert not sl.allclose(before, net(x), atol=1e-5)
    finally:
        set_scale(2)


def test_the_mode_of_a_module_is_seen():
    net, x = Net().eval(), sl.ones(64, 4)
    compiled = warmed(net, x)
    net.drop.train()
    assert not sl.equal(compiled(x), compiled(x))  # other elements are dropped
    net.drop.eval()
    for _ in range(3):
        assert sl.allclose(compiled(x), net(x), atol=1e-6)


ARGUMENTS = {
    "dtype": lambda: (sl.ones(2, 3, dtype=sl.float64), sl.ones(3)),
    "shape": lambda: (sl.ones(4, 3), sl.ones(3)),
    "strides": lambda: (sl.randn(3, 2).T, sl.ones(3)),
    "offset": lambda: (sl.randn(4, 3)[2:], sl.ones(3)),
    "requires_grad": lambda: (sl.ones(2, 3, requires_grad=True), sl.ones(3)),
    "a parameter": lambda: (nn.Parameter(sl.randn(2, 3)), sl.ones(3)),
    "device": lambda: (sl.ones(2, 3, device="sim:0"), sl.ones(3, device="sim:0")),
    "a number": lambda: (sl.ones(2, 3), 4.0),
    "more": lambda: (sl.ones(2, 3), sl.ones(3), sl.ones(1)),
}


def add(x, y, z=0):
    return (x + y * 2 + z, x.sum())


@pytest.mark.filterwarnings("ignore:compile.*graph break")  # a parameter among the arguments
@pytest.mark.parametrize("other", ARGUMENTS.values(), ids=ARGUMENTS)
def test_other_arguments_are_seen(other):
    compiled = warmed(add, sl.ones(2, 3), sl.ones(3), dynamic=False)
    arguments = other()
    for _ in range(3):
        with sl.enable_grad():
            made, expected = compiled(*arguments), add(*arguments)
        for a, b in zip(made, expected):
            assert a.dtype is b.dtype and a.device == b.device and a.requires_grad == b.requires_grad and sl.allclose(a.cpu(), b.cpu())
        assert sl.equal(compiled(sl.ones(2, 3), sl.ones(3))[0], add(sl.ones(2, 3), sl.ones(3))[0])
        assert sl.equal(compiled(sl.ones(2, 3), sl.ones(3), z=5)[0], add(sl.ones(2, 3), sl.ones(3), 5)[0])


def test_one_tensor_given_twice_is_seen():
    def write(x, y):
        return x * 2 + y

    x, y = sl.ones(3), sl.zeros(3)
    compiled = warmed(write, x, y)
    one = bound(compiled)
    assert sl.equal(compiled(x, x), x * 3) and sl.compile.stats(compiled)["compiles"] == 2
    assert sl.equal(compiled(x, y), x * 2) and bound(compiled) is one


def test_settings_of_the_thread_and_of_the_process_are_seen():
    net, x = Net().eval(), sl.randn(2, 4)
    compiled = warmed(net, x)
    with sl.enable_grad():
        assert compiled(x).requires_grad
    assert not compiled(x).requires_grad
    with sl.autocast("cpu", dtype=sl.bfloat16):
        assert compiled(x).dtype is net(x).dtype is sl.bfloat16
    assert compiled(x).dtype is sl.float32
    before = sl.compile.stats(compiled)["compiles"]
    try:
        sl.set_float32_matmul_precision("high")
        compiled(x)
        assert sl.compile.stats(compiled)["compiles"] == before + 1
    finally:
        sl.set_float32_matmul_precision("highest")
    zeros = warmed(lambda x: x + sl.zeros(2), sl.ones(2))
    try:
        sl.set_default_dtype(sl.float64)
        assert zeros(sl.ones(2, dtype=sl.float32)).dtype is sl.float64
    finally:
        sl.set_default_dtype(sl.float32)
    assert zeros(sl.ones(2)).dtype is sl.float32


def test_within_graphs_and_in_eager_mode_code_is_run_itself():
    net, x = Net().eval(), sl.randn(2, 4)
    compiled = warmed(net, x)
    calls = sl.compile.stats(compiled)["calls"]

    class Outer(nn.Graph):
        def build(self, x):
            return compiled(x) + 1

    assert sl.allclose(Outer()(x), net(x) + 1, atol=1e-6)
    with sl.set_mode("eager"):
        assert sl.allclose(compiled(x), net(x))
    assert sl.compile.stats(compiled)["calls"] == calls


def test_closures_and_tensors_from_outside_are_seen():
    factor, other = 3, sl.ones(4)[::2]
    compiled = warmed(lambda x: x * factor + other, sl.ones(2))
    factor = 5
    for _ in range(3):
        assert sl.equal(compiled(sl.ones(2)), sl.full((2,), 6.0))
    other.fill_(2)
    for _ in range(3):
        assert sl.equal(compiled(sl.ones(2)), sl.full((2,), 7.0))


def test_what_identity_does_not_tell_is_left_to_python():
    ordered = collections.OrderedDict(a=1.0)
    for kept, more in ((LIST, LIST.append), (ordered, lambda n: ordered.update({len(ordered): n}))):
        compiled = sl.compile(lambda x: x * len(kept))  # noqa: B023
        try:
            for n in (1, 2, 3):
                for _ in range(3):
                    assert compiled(sl.ones(1)).item() == n
                assert (bound(compiled) is None) == (kept is ordered)  # the order of which no address tells
                more(1.0)
        finally:
            del LIST[1:]


def test_results_of_any_nest():
    x = sl.randn(3)
    for function in (lambda x: x + 1, lambda x: (x + 1,), lambda x: [x + 1, {"a": (x * 2, x - 1), "n": 4}], lambda x: (x * 2, x + 1, x * 2)):
        compiled = warmed(function, x)
        made, expected = compiled(x), function(x)
        assert type(made) is type(expected) and repr(made) == repr(expected)


def test_other_objects_of_equal_value_are_bound_again_and_not_for_ever():
    net, x = Net().eval(), sl.randn(1, 4)
    compiled = warmed(net, x)
    for i in range(40):
        net.power = float("1.0")
        assert sl.allclose(compiled(x), net(x), atol=1e-6)
    assert sl.compile.stats(compiled)["compiles"] == 2  # of the int before, and of the float
    assert sl.compile.stats(compiled)["calls"] == 42


def test_programs_that_take_turns_stay_bound():
    net, xs = Net().eval(), [sl.randn(2, 4), sl.randn(3, 4)]
    compiled = sl.compile(net, dynamic=False)
    seen = []
    for _ in range(4):
        for x in xs:
            assert sl.allclose(compiled(x), net(x), atol=1e-6)
            seen.append(bound(compiled))
    assert seen[2:] == seen[:2] * 3 and seen[0] is not seen[1]


def test_a_bound_call_raises_what_others_raise():
    net, x = Net().eval(), sl.randn(1, 4)
    compiled = warmed(net, x)
    (program,) = compiled._region.all_programs()
    program._graph._call.session.close()
    with pytest.raises(RuntimeError, match="graph: it was closed; compile it again to call it"):
        compiled(x)


def test_threads_share_a_bound_call():
    net = Net().eval()
    compiled = warmed(net, sl.randn(1, 4))
    wrong = []

    def run(seed):
        with sl.no_grad():
            for i in range(50):
                x = sl.full((1, 4), float(seed * 50 + i) / 100)
                if not sl.allclose(compiled(x), net(x), atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_compiled_modules_are_let_go():
    net = Net().eval()
    compiled = warmed(net, sl.randn(1, 4))
    net.compiled = compiled  # a cycle through what is watched
    gone = weakref.ref(net.first)
    del net, compiled
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_results_are_the_callers_for_good(mode):
    net = Net().eval()
    compiled = warmed(net, sl.randn(1, 4), mode=mode)
    xs = [sl.randn(1, 4) for _ in range(8)]
    results = [compiled(x) for x in xs]
    for x, y in zip(xs, results):
        assert sl.allclose(y, net(x), atol=1e-6)
        y.fill_(0)
    assert all(sl.allclose(compiled(x), net(x), atol=1e-6) for x in xs)


def test_with_less_overhead_a_short_step_is_over_when_its_call_returns():
    net, x = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)), sl.randn(1, 512)  # longer than what is brief by default
    compiled = warmed(net, x, mode="reduce-overhead")
    ready, deadline = 0, time.monotonic() + 60
    while ready < 50 and time.monotonic() < deadline:  # a stream that looks for work when a step comes runs it itself
        made = compiled(x)
        ready = ready + 1 if made.is_ready() else 0
        made.sync()
    assert ready == 50


def test_an_error_of_a_kernel_is_raised_where_a_result_is_read():
    table = sl.randn(4, 2)

    def rows(i):
        return sl.nn.functional.embedding(i, table)

    for mode in ("default", "reduce-overhead"):
        compiled = warmed(rows, sl.tensor([1, 2]), mode=mode)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = compiled(sl.tensor([1, 9]))
        with pytest.raises(IndexError, match="embedding"):
            made.sum()
        assert sl.equal(compiled(sl.tensor([3, 0])), table[sl.tensor([3, 0])])
