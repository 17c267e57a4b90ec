"""Which functions give memory of their own and which a view: torch decides, here as eager ops and inside graphs."""

import builtins
import dis
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F

# name -> (function of a tensor, its shape); `m` is torch or sluice, `f` its nn.functional.
CASES = {
    "add 0": (lambda m, f, x: x + 0, (3,)),
    "sub 0": (lambda m, f, x: x - 0, (3,)),
    "mul 1": (lambda m, f, x: x * 1, (3,)),
    "div 1": (lambda m, f, x: x / 1, (3,)),
    "pow 1": (lambda m, f, x: x.pow(1), (3,)),
    "pow 1.0": (lambda m, f, x: x ** 1.0, (3,)),
    "pow 1 of 0-d": (lambda m, f, x: x ** 1, ()),
    "positive": (lambda m, f, x: +x, (3,)),
    "abs": (lambda m, f, x: x.abs(), (3,)),
    "relu": (lambda m, f, x: f.relu(x), (3,)),
    "clamp": (lambda m, f, x: x.clamp(min=-1e9), (3,)),
    "maximum": (lambda m, f, x: m.maximum(x, x), (3,)),
    "where": (lambda m, f, x: m.where(m.ones(3) > 0, x, x), (3,)),
    "masked_fill": (lambda m, f, x: x.masked_fill(m.zeros(3) > 0, 1.0), (3,)),
    "tril": (lambda m, f, x: x.tril(5), (3, 3)),
    "triu": (lambda m, f, x: x.triu(-5), (3, 3)),
    "round": (lambda m, f, x: x.round(), (3,)),
    "lerp": (lambda m, f, x: x.lerp(x, 0.0), (3,)),
    "addmm with beta 0": (lambda m, f, x: x.addmm(m.ones(2, 1), m.ones(1, 2), beta=0), (2, 2)),
    "sum of 0-d": (lambda m, f, x: x.sum(), ()),
    "sum over an axis of 1": (lambda m, f, x: x.sum(1), (3, 1)),
    "mean of 0-d": (lambda m, f, x: x.mean(), ()),
    "prod of 0-d": (lambda m, f, x: x.prod(), ()),
    "amax of 0-d": (lambda m, f, x: x.amax(), ()),
    "max of 0-d": (lambda m, f, x: x.max(), ()),
    "max(-1) of 0-d": (lambda m, f, x: x.max(-1).values, ()),
    "min(0, keepdim) of 0-d": (lambda m, f, x: x.min(0, keepdim=True).values, ()),
    "max over an axis of 1": (lambda m, f, x: x.max(1).values, (3, 1)),
    "cumsum of 0-d": (lambda m, f, x: x.cumsum(0), ()),
    "cumsum over an axis of 1": (lambda m, f, x: x.cumsum(1), (3, 1)),
    "norm 1 of 0-d": (lambda m, f, x: x.norm(1), ()),
    "logsumexp over an axis of 1": (lambda m, f, x: x.logsumexp(1), (3, 1)),
    "softmax": (lambda m, f, x: x.softmax(0), (3,)),
    "repeat once": (lambda m, f, x: x.repeat(1), (3,)),
    "repeat once, more dims": (lambda m, f, x: x.repeat(1, 1), (3,)),
    "repeat a row": (lambda m, f, x: x.repeat(2, 1), (3,)),
    "repeat an axis of 1": (lambda m, f, x: x.repeat(1, 4), (3, 1)),
    "repeat a 0-d": (lambda m, f, x: x.repeat(3), ()),
    "repeat an expanded": (lambda m, f, x: x.expand(3).repeat(2), (1,)),
    "repeat none of a 0-d": (lambda m, f, x: x.repeat(()), ()),
    "tile once": (lambda m, f, x: m.tile(x, (1,)), (3,)),
    "tile a row": (lambda m, f, x: m.tile(x, (2, 1)), (3,)),
    "roll by a turn": (lambda m, f, x: x.roll(3, 0), (3,)),
    "roll by nothing": (lambda m, f, x: x.roll(0, 0), (3,)),
    "roll flat": (lambda m, f, x: x.roll(6), (2, 3)),
    "flip no dims": (lambda m, f, x: m.flip(x, ()), (3,)),
    "flip an axis of 1": (lambda m, f, x: m.flip(x, (1,)), (3, 1)),
    "cat of one": (lambda m, f, x: m.cat([x]), (3,)),
    "cat with nothing": (lambda m, f, x: m.cat([x, m.zeros(0)]), (2, 3)),
    "stack of one": (lambda m, f, x: m.stack([x]), (3,)),
    "hstack of one": (lambda m, f, x: m.hstack([x]), (3,)),
    "vstack of one": (lambda m, f, x: m.vstack([x]), (3,)),
    "pad by 0": (lambda m, f, x: f.pad(x, (0, 0)), (3,)),
    "pad by nothing": (lambda m, f, x: f.pad(x, ()), (3,)),
    "crop by pad": (lambda m, f, x: f.pad(x, (-1, 0)), (3,)),
    "gather": (lambda m, f, x: x.gather(0, m.tensor([0, 1, 2])), (3,)),
    "gather of 0-d": (lambda m, f, x: x.gather(0, m.tensor(0)), ()),
    "scatter nothing": (lambda m, f, x: x.scatter(0, m.zeros(0, dtype=m.int64), m.zeros(0)), (3,)),
    "scatter_add nothing": (lambda m, f, x: x.scatter_add(0, m.zeros(0, dtype=m.int64), m.zeros(0)), (3,)),
    "index_select": (lambda m, f, x: x.index_select(0, m.tensor([0, 1, 2])), (3,)),
    "index_select of 0-d": (lambda m, f, x: x.index_select(0, m.tensor(0)), ()),
    "index_add nothing": (lambda m, f, x: x.index_add(0, m.zeros(0, dtype=m.int64), m.zeros(0)), (3,)),
    "take_along_dim": (lambda m, f, x: m.take_along_dim(x, m.tensor([0, 1, 2]), 0), (3,)),
    "index by a list": (lambda m, f, x: x[[0, 1, 2]], (3,)),
    "index by True": (lambda m, f, x: x[True], (3,)),
    "masked_select": (lambda m, f, x: x.masked_select(m.ones(3) > 0), (3,)),
    "sort": (lambda m, f, x: x.sort().values, (3,)),
    "sort of 0-d": (lambda m, f, x: x.sort().values, ()),
    "topk of 0-d": (lambda m, f, x: x.topk(1).values, ()),
    "clone": (lambda m, f, x: x.clone(), (3,)),
    "to copy": (lambda m, f, x: x.to(x.dtype, copy=True), (3,)),
    "contiguous of a transposed": (lambda m, f, x: x.t().contiguous(), (2, 3)),
    "reshape of a transposed": (lambda m, f, x: x.t().reshape(6), (2, 3)),
    "avg_pool by 1": (lambda m, f, x: f.avg_pool1d(x, 1), (1, 1, 3)),
    "max_pool by 1": (lambda m, f, x: f.max_pool1d(x, 1), (1, 1, 3)),
    "adaptive_avg_pool to its size": (lambda m, f, x: f.adaptive_avg_pool1d(x, 3), (1, 1, 3)),
    "hardtanh": (lambda m, f, x: f.hardtanh(x, -1e9, 1e9), (3,)),
    "leaky_relu": (lambda m, f, x: f.leaky_relu(x, 1.0), (3,)),
    "normalize": (lambda m, f, x: f.normalize(x, dim=0), (3,)),
    "l1_loss without reduction": (lambda m, f, x: f.l1_loss(x, m.zeros(3), reduction="none"), (3,)),
    "broadcast_tensors of one": (lambda m, f, x: m.broadcast_tensors(x)[0], (3,)),
    "meshgrid of one": (lambda m, f, x: m.meshgrid(x, indexing="ij")[0], (3,)),
    "reshape": (lambda m, f, x: x.reshape(3), (3,)),
    "reshape to 2-d": (lambda m, f, x: x.reshape(3, 1), (3,)),
    "view": (lambda m, f, x: x.view(-1), (3,)),
    "view of 0-d": (lambda m, f, x: x.view(()), ()),
    "view_as": (lambda m, f, x: x.view_as(m.zeros(6)), (2, 3)),
    "flatten": (lambda m, f, x: x.flatten(), (2, 3)),
    "unflatten": (lambda m, f, x: x.unflatten(0, (3, 1)), (3,)),
    "squeeze nothing": (lambda m, f, x: x.squeeze(), (3,)),
    "unsqueeze": (lambda m, f, x: x.unsqueeze(0), (3,)),
    "expand": (lambda m, f, x: x.expand(3), (3,)),
    "broadcast_to": (lambda m, f, x: m.broadcast_to(x, (2, 3)), (3,)),
    "permute": (lambda m, f, x: x.permute(0), (3,)),
    "transpose of an axis with itself": (lambda m, f, x: x.transpose(0, 0), (3,)),
    "movedim of an axis to itself": (lambda m, f, x: x.movedim(0, 0), (3,)),
    "t of 1-d": (lambda m, f, x: x.t(), (3,)),
    "T": (lambda m, f, x: x.T, (2, 3)),
    "narrow": (lambda m, f, x: x.narrow(0, 0, 3), (3,)),
    "select": (lambda m, f, x: x.select(0, 1), (3,)),
    "split": (lambda m, f, x: x.split(3)[0], (3,)),
    "chunk": (lambda m, f, x: x.chunk(1)[0], (3,)),
    "unbind": (lambda m, f, x: x.unbind()[0], (3,)),
    "x[:]": (lambda m, f, x: x[:], (3,)),
    "x[...]": (lambda m, f, x: x[...], (3,)),
    "x[None]": (lambda m, f, x: x[None], (3,)),
    "x[None] of 0-d": (lambda m, f, x: x[None], ()),
    "x[...] of 0-d": (lambda m, f, x: x[...], ()),
    "x[()]": (lambda m, f, x: x[()], ()),
    "x[..., None]": (lambda m, f, x: x[..., None], (3,)),
    "x[None, 1:, None]": (lambda m, f, x: x[None, 1:, None], (3,)),
    "x[1]": (lambda m, f, x: x[1], (3,)),
    "detach": (lambda m, f, x: x.detach(), (3,)),
    "data": (lambda m, f, x: x.data, (3,)),
    "float of a float": (lambda m, f, x: x.float(), (3,)),
    "to its dtype": (lambda m, f, x: x.to(m.float32), (3,)),
    "type": (lambda m, f, x: x.type(m.float32), (3,)),
    "contiguous": (lambda m, f, x: x.contiguous(), (3,)),
    "dropout that is off": (lambda m, f, x: f.dropout(x, 0.5, training=False), (3,)),
    "dropout of nothing": (lambda m, f, x: f.dropout(x, 0.0), (3,)),
    "relu in place": (lambda m, f, x: f.relu(x, inplace=True), (3,)),
    "hardtanh in place": (lambda m, f, x: f.hardtanh(x, inplace=True), (3,)),
    "leaky_relu in place": (lambda m, f, x: f.leaky_relu(x, inplace=True), (3,)),
    "elu in place": (lambda m, f, x: f.elu(x, inplace=True), (3,)),
    "silu in place": (lambda m, f, x: f.silu(x, inplace=True), (3,)),
    "dropout in place": (lambda m, f, x: f.dropout(x, 1.0, inplace=True), (3,)),
    "add in place": (lambda m, f, x: x.add_(1), (3,)),
}
HOST = {"sort", "sort of 0-d", "topk of 0-d", "masked_select"}  # need the values, which a graph that is made has not


def content(shape):
    return (torch.arange(float(np.prod(shape))) - 1.5).reshape(shape)


def clone_of_written(m, f, function, x):
    """The result, and what it holds after a write to x; and x after a write to the result."""
    y = function(m, f, x)
    before = y.clone()
    x.add_(8)
    after = y.clone()
    kept = x.clone()
    if all(n == 1 or s != 0 for n, s in zip(y.shape, y.stride())):
        y.mul_(4)
    return before, after, kept, x.clone(), y.clone()


@pytest.mark.parametrize("name", CASES)
def test_a_write_is_seen_where_torch_sees_it(name):
    function, shape = CASES[name]
    x = content(shape)
    for ours, theirs in zip(clone_of_written(sl, F, function, to_sl(x)), clone_of_written(torch, TF, function, x.clone())):
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", [name for name in CASES if name not in HOST])
def test_a_write_in_a_graph_is_seen_where_torch_sees_it(name):
    function, shape = CASES[name]
    x = content(shape)

    class Written(sl.nn.Graph):
        def build(self, x):
            return clone_of_written(sl, F, function, x.clone())

    for ours, theirs in zip(Written()(to_sl(x)), clone_of_written(torch, TF, function, x.clone())):
        assert_same(ours, theirs)


# Writes to views of views that show elements more than once, though the written ones do not.
THROUGH_REPEATS = {
    "a row of broadcast_to": (lambda m, x: m.broadcast_to(x, (2, 4, 2))[0], lambda y: y.add_(100)),
    "transposed": (lambda m, x: x.expand(3, 4, 2).transpose(0, 2)[1, :, 2], lambda y: y.fill_(7)),
    "of a slice": (lambda m, x: x[1:3].reshape(2, 2, 1).expand(2, 2, 5)[..., 3], lambda y: y.mul_(-3)),
    "a NaN": (lambda m, x: x.reshape(4, 1, 2, 1).expand(4, 3, 2, 2)[::2, 1, :, 0], lambda y: y.fill_(float("nan"))),
    "reshaped": (lambda m, x: x.expand(3, 4, 2)[1].reshape(8)[2:5], lambda y: y.add_(50)),
    "none": (lambda m, x: x.expand(3, 4, 2)[0, 2:2], lambda y: y.add_(50)),
    "twice": (lambda m, x: x.t().unsqueeze(0).expand(2, 2, 4)[1, :, 1].unsqueeze(1).expand(2, 3)[:, 2], lambda y: y.fill_(9)),
    "of one element": (lambda m, x: x[0, 0].expand(3, 2)[1, 1], lambda y: y.fill_(77)),
}


@pytest.mark.parametrize("name", THROUGH_REPEATS)
def test_a_write_through_a_view_that_repeats_elements_reaches_them_once(name):
    view, write = THROUGH_REPEATS[name]
    x = content((4, 2))

    def written(m, x):
        base = x * 1
        write(view(m, base))
        (base * m.arange(1.0, 9).reshape(4, 2)).sum().backward()
        return base, base.expand(2, 4, 2), x.grad

    class Table(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", to_sl(x))

        def forward(self):
            write(view(sl, self.table))
            base = self.table.clone()
            write(view(sl, base))
            return base, view(sl, self.table).clone()

    class Written(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = Table()

        def build(self):
            return self.module()

    for ours, theirs in zip(written(sl, to_sl(x).requires_grad_()), written(torch, x.clone().requires_grad_())):
        assert_same(ours.detach(), theirs.detach())
    table = x.clone()
    write(view(torch, table))
    base = table.clone()
    write(view(torch, base))
    graph = Written()
    for ours, theirs in zip((*graph(), graph.module.table), (base, view(torch, table), table)):
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_memory_is_shared_where_torch_shares_it(name):
    function, shape = CASES[name]

    def shares(m, f, x):
        return function(m, f, x).data_ptr() == x.data_ptr()

    same_start = name not in ("select", "x[1]", "x[None, 1:, None]")
    x, y = to_sl(content(shape)), content(shape)
    assert shares(sl, F, x) == shares(torch, TF, y)
    assert same_start or function(sl, F, x).data_ptr() - x.data_ptr() == 4


VIEWS = {name: case for name, case in CASES.items() if name.startswith(("view", "reshape", "squeeze", "expand", "transpose", "movedim",
                                                                       "permute", "t of", "x[")) and "transposed" not in name}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_changes_nothing_is_another_tensor(name):
    function, shape = VIEWS[name]
    x, y = to_sl(content(shape)), content(shape)
    for m, f, t in ((sl, F, x), (torch, TF, y)):
        view = function(m, f, t)
        view.requires_grad_()
        assert not t.requires_grad
        t.requires_grad_()
        assert not function(m, f, t).is_leaf


def test_parameters_and_buffers_can_be_viewed_in_a_graph():
    class Flat(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = sl.nn.Parameter(sl.arange(6.0).reshape(2, 3).clone())
            self.register_buffer("table", sl.arange(6.0))

        def forward(self, x):
            return self.weight.view(-1) * x.view(6) + self.weight.view_as(x).view(6) + self.table.view(2, 3).view(-1)

    module = Flat()

    class Viewing(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module

        def build(self, x):
            return self.module(x)

    x = sl.ones(2, 3)
    assert Viewing()(x).tolist() == module(x).tolist()


def test_buffers_may_be_views_of_other_tensors():
    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = sl.zeros(4)
            self.register_buffer("low", self.memory[:2])
            self.register_buffer("high", self.memory[2:])
            self.register_buffer("mask", sl.tril(sl.ones(3, 3)).view(1, 3, 3))
            self.register_buffer("positions", sl.arange(3.0).expand(2, -1))
            self.register_buffer("turned", sl.arange(6.0).view(3, 2).t())

        def forward(self, x):
            self.high.add_(1)
            self.low.copy_(self.high * 2)
            return (x * self.positions + self.turned) @ self.mask[0] + self.high.sum(), self.low, self.high

    class Run(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def build(self, x):
            return self.net(x)

    run, net, x = Run(), Net(), sl.arange(6.0).view(2, 3)
    for step in range(3):
        if step == 2:  # what is written between steps is there in the next
            run.net.high.fill_(5)
            net.memory[2:] = 5
        for ours, eager in zip(run(x), net(x)):
            assert ours.tolist() == eager.tolist()
    run.synchronize()
    assert run.net.memory.tolist() == net.memory.tolist() == [12, 12, 6, 6]


def test_a_size_that_does_not_fit_the_strides_is_refused_everywhere():
    class Refused(sl.nn.Graph):
        def build(self, x):
            return x.t().view(-1)

    for run in (lambda: sl.ones(2, 3).t().view(-1), lambda: Refused()(sl.ones(2, 3)), lambda: sl.ones(3).expand(2, 3).view(6)):
        with pytest.raises(RuntimeError, match="view size is not compatible|view: size .* is not compatible"):
            run()
    assert sl.ones(2, 0).t().view(0).shape == (0,)
    assert sl.ones(2, 3).t().view(3, 2, 1).shape == (3, 2, 1)
    with pytest.raises((RuntimeError, ValueError), match="view|shape"):
        sl.ones(4).view(3)


def test_a_gradient_that_nobody_else_sees_is_kept_without_a_copy():
    x = sl.ones(3, requires_grad=True)
    arrived = []
    x.register_hook(lambda g: arrived.append(g.data_ptr()))
    (x * x).sum().backward()
    given = sl.ones(3)
    y = sl.ones(3, requires_grad=True)
    y.backward(given)
    given.zero_()
    assert y.grad.tolist() == [1.0] * 3
    assert arrived == [x.grad.data_ptr()]


def modules():
    for info in pkgutil.walk_packages(sl.__path__, "sluice."):
        if not info.name.endswith(("__main__", "onnx.backend")):  # the latter needs the package onnx
            yield importlib.import_module(info.name)
    yield sl


BUILTINS = {name for name in vars(builtins) if not name.startswith("__")}


def codes_of(module):
    """The code of every function the module defines, with those inside it, and the globals it sees."""
    scopes = [module, *(c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__)]
    for function in (m for scope in scopes for m in vars(scope).values() if inspect.isfunction(m)):
        codes = [function.__code__]
        for code in codes:
            codes += [c for c in code.co_consts if inspect.iscode(c)]
            yield code, function.__globals__


def test_no_code_of_ours_finds_a_tensor_function_in_place_of_a_builtin():
    found = set()
    for module in modules():
        for code, scope in codes_of(module):
            read = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
            found |= {(scope["__name__"], code.co_name, name) for name in read & BUILTINS & set(scope)
                      if not (inspect.isclass(scope[name]) and issubclass(scope[name], BaseException))}
    assert found == set()
    assert not set(vars(sl._tensor.functions)) & BUILTINS, "its code would find these instead of the builtins"
    assert {"max", "min", "sum", "any", "all", "abs", "round", "pow"} <= set(sl._C.fn.__all__)
