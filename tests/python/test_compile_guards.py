"""sluice.compile: what makes a call compile anew, and the limit."""

import types
import warnings

import pytest

import sluice as sl
from sluice import nn

SCALE = 2
SETTINGS = types.SimpleNamespace(offset=1)
TABLE = [1, 2]


def compiles(compiled):
    return sl.compile.stats(compiled)["compiles"]


def f(x, k=2):
    return x * k + 1


@pytest.mark.parametrize("other", [
    lambda: (sl.ones(3, dtype=sl.float64),), lambda: (sl.ones(3, dtype=sl.int64),), lambda: (sl.ones(4),), lambda: (sl.ones(3, 1),),
    lambda: (sl.ones(3, requires_grad=True),), lambda: (sl.ones(3, device="sim:0"),), lambda: (sl.ones(3), 3), lambda: (sl.ones(3), 2.0),
    lambda: (sl.ones(3), True), lambda: (sl.ones(3, 2)[:, 0],)],
    ids=["dtype", "integer", "shape", "rank", "requires_grad", "device", "number", "type of number", "bool", "strides"])
def test_another_argument_compiles_anew(other):
    compiled = sl.compile(f, dynamic=False)
    for _ in range(2):
        assert sl.equal(compiled(sl.ones(3), 2), f(sl.ones(3), 2))
    assert compiles(compiled) == 1
    for _ in range(2):
        made, expected = compiled(*other()), f(*other())
        assert made.dtype is expected.dtype and made.device == expected.device and sl.equal(made.cpu(), expected.cpu())
        assert made.requires_grad == expected.requires_grad
    assert compiles(compiled) == 2
    compiled(sl.ones(3), 2)
    assert compiles(compiled) == 2


def test_nan_and_signed_zero_are_values_of_their_own():
    compiled = sl.compile(f)
    for k in (float("nan"), float("nan"), 0.0, -0.0):
        assert sl.equal(1 / compiled(sl.ones(1) - 1, k).sub(1), 1 / f(sl.ones(1) - 1, k).sub(1)) or k != k
    assert compiles(compiled) == 3


def test_the_structure_of_arguments_counts():
    @sl.compile
    def total(xs, **named):
        return sum(xs) + sum(named.values())

    x = sl.ones(2)
    for args, named in (([x, x + 1], {}), ((x, x + 1), {}), ([x], {"a": x}), ([x], {"b": x})):
        assert sl.equal(total(args, **named), sum(args) + sum(named.values()))
    assert compiles(total) == 4


def test_grad_mode_default_dtype_and_autocast_count():
    w = sl.ones(2, 2, requires_grad=True)

    @sl.compile
    def g(x):
        return x @ w + sl.zeros(2)

    x = sl.ones(2, 2)
    assert g(x).requires_grad
    with sl.no_grad():
        assert not g(x).requires_grad
    assert compiles(g) == 2
    try:
        sl.set_default_dtype(sl.float64)
        assert g(x).dtype is sl.float64
    finally:
        sl.set_default_dtype(sl.float32)
    with sl.autocast("cpu", dtype=sl.bfloat16):
        assert sl.equal(g(x).float(), (x @ w + sl.zeros(2)).float())
    assert compiles(g) == 4 and g(x).dtype is sl.float32 and compiles(g) == 4


def test_the_mode_of_every_module_counts():
    net = sl.compile(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)))
    x = sl.randn(4, 3)
    net.eval()
    net(x)
    net[2].train()
    before = net[2].running_mean.clone()
    net(x)
    assert compiles(net) == 2 and not sl.equal(before, net[2].running_mean)


def test_parameters_replaced_and_changed_in_place():
    net = nn.Linear(2, 2)
    compiled, x = sl.compile(net), sl.ones(1, 2)
    compiled(x)
    with sl.no_grad():
        net.weight.fill_(3)
    assert sl.allclose(compiled(x), net(x)) and compiles(compiled) == 1
    net.weight = nn.Parameter(sl.zeros(2, 2))
    assert sl.allclose(compiled(x), net(x)) and compiles(compiled) == 2
    net.weight.data = sl.ones(2, 2)
    assert sl.allclose(compiled(x), net(x)) and compiles(compiled) == 3
    net.bias.requires_grad_(False)
    compiled(x).sum().backward()
    assert net.bias.grad is None and compiles(compiled) == 4


def test_attributes_globals_and_closures_count():
    global SCALE
    factor, net = 5, nn.Identity()
    net.power = 2

    @sl.compile
    def g(x):
        return net(x) ** net.power * SCALE * factor + SETTINGS.offset + len(TABLE)

    def check():
        assert g(sl.ones(1) * 3).item() == 3 ** net.power * SCALE * factor + SETTINGS.offset + len(TABLE)

    changes = 1
    check()
    try:
        for change in (lambda: setattr(net, "power", 3), lambda: setattr(SETTINGS, "offset", 7), lambda: TABLE.append(3)):
            change()
            changes += 1
            check()
            check()
            assert compiles(g) == changes
        SCALE, factor = 4, 6
        check()
        assert compiles(g) == changes + 1
    finally:
        SCALE, SETTINGS.offset = 2, 1
        del TABLE[2:]


def test_attributes_of_functions_count_also_those_that_come_later():
    def helper(x):
        return x

    def scaled(x):
        return helper(x) * getattr(helper, "scale", 2) + (scaled.shift if hasattr(scaled, "shift") else 0)

    g = sl.compile(scaled)
    assert g(sl.ones(1)).item() == 2
    helper.scale = 5
    assert g(sl.ones(1)).item() == 5
    scaled.shift = 1
    assert g(sl.ones(1)).item() == 6
    del helper.scale
    assert g(sl.ones(1)).item() == 3 and compiles(g) == 4


def test_tensors_from_outside_are_read_as_they_are_now():
    w, constant = sl.ones(2, requires_grad=True), sl.ones(4)[::2]

    @sl.compile
    def g(x):
        return (x * w + constant).sum()

    x = sl.ones(2)
    for value in (1.0, 2.0):
        with sl.no_grad():
            w.fill_(value)
        (grad,) = sl.autograd.grad(g(x), [w])
        assert g(x).item() == 2 * value + 2 and grad.tolist() == [1, 1]
    assert compiles(g) == 1
    constant.fill_(5)
    assert g(x).item() == 14 and compiles(g) == 2
    w = sl.zeros(2)
    assert g(x).item() == 10 and compiles(g) == 3


def test_a_limit_then_eager_with_one_warning():
    compiled = sl.compile(f, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 11):
            assert sl.equal(compiled(sl.ones(n)), f(sl.ones(n)))
        compiled(sl.ones(10))
    counts = sl.compile.stats(compiled)
    assert counts["compiles"] == 8 and counts["recompiles"] == 7 and counts["eager_calls"] == 3 and counts["limits"] == 3
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message) == (
        "compile: recompile_limit: 'f' was compiled 8 times; other calls run eagerly from now on. The last guard that failed: tensor 0 is "
        "float32(9,) on cpu:0; compiled was float32(8,) on cpu:0. Pass dynamic=True for sizes, or options={'recompile_limit': n}")


def test_the_limit_is_an_option():
    compiled = sl.compile(f, dynamic=False, options={"recompile_limit": 2})
    with pytest.warns(RuntimeWarning, match="was compiled 2 times"):
        for n in range(1, 5):
            compiled(sl.ones(n))
    assert compiles(compiled) == 2


def test_a_parameter_that_is_replaced_again_and_again_stays_compiled():
    net = nn.Linear(2, 2)
    compiled = sl.compile(net)
    for i in range(12):
        net.weight.data = sl.full((2, 2), float(i))
        assert sl.allclose(compiled(sl.ones(1, 2)), net(sl.ones(1, 2)))
    assert sl.compile.stats(compiled)["eager_calls"] == 0 and compiles(compiled) == 12


def test_the_log_of_guards_names_topics(monkeypatch, capfd):
    monkeypatch.setenv("SLUICE_LOGS", "recompiles,graph,guards,perf,fusion")
    compiled = sl.compile(f, dynamic=False)
    compiled(sl.ones(2))
    compiled(sl.ones(3))
    said = capfd.readouterr().err
    assert "[sluice recompiles] 'f': tensor 0 is float32(3,) on cpu:0; compiled was float32(2,) on cpu:0" in said
    assert "[sluice graph] 'f':" in said and 'input "tensors.0"' in said and "[sluice guards] 'f': tensor 0 is float32(2,)" in said
    assert "[sluice perf] 'f': traced and compiled in" in said and "[sluice fusion] 'f': passes that changed it:" in said
    monkeypatch.setenv("SLUICE_LOGS", "nosuch")
    with pytest.warns(RuntimeWarning, match="SLUICE_LOGS: 'nosuch' is no topic; topics are graph, guards, recompiles, fusion, perf, and all"):
        sl.compile(f)(sl.ones(2))


def test_reset_lets_go():
    compiled = sl.compile(f)
    compiled(sl.ones(2))
    sl.compile.reset()
    assert sl.compile.stats()["compiles"] == 0
    compiled(sl.ones(2))
    assert sl.compile.stats()["compiles"] == 1


class Model:
    """No module, with methods that are compiled."""

    def __init__(self):
        self.net, self.scale, self.steps = nn.Linear(2, 2), 2, 0
        self.shift = sl.zeros(2)

    @sl.compile
    def step(self, x):
        return self.net(x) * self.scale + self.shift

    def plain(self, x):
        return self.net(x) * self.scale + self.shift


def test_attributes_of_objects_that_code_reads_count_and_others_do_not():
    model, x = Model(), sl.ones(1, 2)
    sl.compile.reset()
    for n in range(12):
        model.steps = n
        model.shift.fill_(n)
        assert sl.allclose(model.step(x), model.plain(x), atol=1e-6)
    assert sl.compile.stats()["compiles"] == 1
    model.scale = 5
    assert sl.allclose(model.step(x), model.plain(x), atol=1e-6)
    model.shift = sl.ones(2)
    assert sl.allclose(model.step(x), model.plain(x), atol=1e-6)
    assert sl.compile.stats()["compiles"] == 3 and sl.compile.stats()["eager_calls"] == 0


def test_a_forward_that_is_decorated_has_programs_for_each_module():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        @sl.compile
        def forward(self, x):
            return self.inner(x).relu() + x

    sl.compile.reset()
    blocks, x = nn.Sequential(*[Block() for _ in range(12)]), sl.ones(1, 2)
    for _ in range(2):
        expected = x
        for block in blocks:
            expected = block.inner(expected).relu() + expected
        assert sl.allclose(blocks(x), expected, atol=1e-5)
    assert sl.compile.stats()["compiles"] == 12 and sl.compile.stats()["eager_calls"] == 0
