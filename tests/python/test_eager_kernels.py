"""Tests the ways in which eager ops are fast, against torch: writes in place, gradients of shared weights, loops and kernels."""

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

RANDOM = np.random.default_rng(0)


def pair(*shape, low=-1.0, high=1.0, dtype="float32", grad=False):
    """The same random tensor of torch and of ours."""
    a = torch.from_numpy(np.asarray(RANDOM.uniform(low, high, shape)).astype(dtype))
    return a.requires_grad_(grad), to_sl(a)


# --- in place ---

UPDATES = {
    "add_": lambda x, y: x.add_(y),
    "add_alpha": lambda x, y: x.add_(y, alpha=3),
    "add_number": lambda x, y: x.add_(2),
    "add_itself": lambda x, y: x.add_(x),
    "sub_itself": lambda x, y: x.sub_(x, alpha=2),
    "mul_": lambda x, y: x.mul_(y),
    "iadd": lambda x, y: x.__iadd__(y),
    "imul": lambda x, y: x.__imul__(0.5),
    "div_": lambda x, y: x.div_(y.abs() + 1),
    "div_trunc": lambda x, y: x.div_(y.abs() + 1, rounding_mode="trunc"),
    "div_floor": lambda x, y: x.div_(y.abs() + 1, rounding_mode="floor"),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "addcmul_itself": lambda x, y: x.addcmul_(x, y),
    "addcdiv_": lambda x, y: x.addcdiv_(y, y.abs() + 1, value=2),
    "clamp_": lambda x, y: x.clamp_(-0.2, 0.3),
    "clamp_tensor": lambda x, y: x.clamp_(min=y),
    "clamp_both_itself": lambda x, y: x.clamp_(x, y),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 7),
    "relu_": lambda x, y: x.relu_(),
    "exp_": lambda x, y: x.exp_(),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "square_": lambda x, y: x.square_(),
    "neg_": lambda x, y: x.neg_(),
    "lerp_": lambda x, y: x.lerp_(y, 0.3),
    "transposed": lambda x, y: x.t().add_(y.t()),
    "by_its_transpose": lambda x, y: x.add_(x.t().clone()),
    "rows": lambda x, y: x[1:].mul_(y[1:]),
    "column": lambda x, y: x[:, 2].add_(y[:, 0]),
    "neighbours": lambda x, y: x[1:].add_(y[:-1]),
    "broadcast": lambda x, y: x.add_(y[0]),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_in_place_equal_torchs(name):
    update = UPDATES[name]
    for grad_mode in (True, False):
        for dtype in ("float32", "float64"):
            (a, x), (b, y) = pair(5, 5, dtype=dtype), pair(5, 5, dtype=dtype)
            before, place, alias = x._version, x.data_ptr(), x.view(25)
            with torch.set_grad_enabled(grad_mode), sl.set_grad_enabled(grad_mode):
                ours = update(x, y)
                update(a, b)
            assert_same(x, a, 1e-6)
            assert_same(alias, a.view(25), 1e-6)  # the memory is the same
            assert x.data_ptr() == place and x._version > before
            assert ours.data_ptr() >= place and not ours.requires_grad


def test_updates_of_integers_and_bools_equal_torchs():
    for dtype in ("int64", "int32", "uint8"):
        for name in ("add_", "add_alpha", "add_itself", "mul_", "div_trunc", "div_floor", "clamp_both_itself", "masked_fill_",
                     "square_"):
            (a, x), (b, y) = pair(4, 4, low=0, high=9, dtype=dtype), pair(4, 4, low=0, high=9, dtype=dtype)
            UPDATES[name](a, b), UPDATES[name](x, y)
            assert_same(x, a)
    a, x = torch.tensor([True, False, True]), sl.tensor([True, False, True])
    assert_same(x.add_(sl.tensor([False, False, True])), a.add_(torch.tensor([False, False, True])))
    with pytest.raises(RuntimeError, match="can't be cast"):
        sl.ones(3, dtype=sl.int64).add_(0.5)
    with pytest.raises((RuntimeError, ValueError), match="broadcast shape"):
        sl.ones(3).add_(sl.ones(2, 3))


def test_what_gradients_need_is_not_overwritten():
    (a, x), (w, v) = pair(4), pair(4, grad=True)
    for t, weight in ((a, w), (x, v)):
        y = t.clone().mul_(weight)  # the old content is read by the gradient of the weight
        y.add_(1).relu_()
        y.sum().backward()
    assert_same(v.grad, w.grad)
    x = sl.ones(3)
    y = sl.exp(sl.ones(3, requires_grad=True))
    z = (y * x).sum()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    leaf = sl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.add_(1)
    with sl.no_grad():
        leaf.add_(1)
    assert leaf.tolist() == [2.0, 2.0, 2.0] and leaf.requires_grad


def test_read_only_memory_is_not_written():
    memory = np.arange(4, dtype=np.float32)
    memory.flags.writeable = False
    x = sl.from_dlpack(memory)
    for grad_mode in (True, False):
        with sl.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match="read-only"):
            x.add_(1)
    assert memory.tolist() == [0, 1, 2, 3]


def test_updates_in_a_graph():
    class Net(sl.nn.Graph):
        def build(self, x, y):
            z = x * 1
            z.add_(y).mul_(2)
            z[1:].relu_()
            return z

    (a, x), (b, y) = pair(4, 3), pair(4, 3)
    c = (a + b) * 2
    c[1:].relu_()
    assert_same(Net()(x, y), c)


# --- gradients of shared weights ---

def shared(m, x, w, u, bias):
    """Few rows at a time by weights that are much larger."""
    h = x
    for i in range(5):
        h = m.tanh(m.nn.functional.linear(h, w, bias) + h @ u)
        if i == 2:
            h = h + (u @ h.t()).t() * 0.1 + m.nn.functional.linear(h[:2], w).sum()
    return (h * h).sum()


def test_gradients_of_shared_weights_equal_torchs():
    given = [pair(3, 24, dtype="float64"), *(pair(*size, dtype="float64", grad=True) for size in ((24, 24), (24, 24), (24,)))]
    theirs, ours = [a for a, _ in given], [b for _, b in given]
    seen = []
    ours[1].register_hook(lambda g: seen.append(g.clone()))
    shared(torch, *theirs).backward()
    shared(sl, *ours).backward()
    for a, b in zip(theirs[1:], ours[1:]):
        assert_same(b.grad, a.grad, 1e-9)
    assert len(seen) == 1
    assert_same(seen[0], theirs[1].grad, 1e-9)  # a hook sees the whole gradient, once
    for some in ([1], [2, 3], [1, 2, 3]):
        found = sl.autograd.grad(shared(sl, *ours), [ours[i] for i in some])
        expected = torch.autograd.grad(shared(torch, *theirs), [theirs[i] for i in some])
        for a, b in zip(found, expected):
            assert_same(a, b, 1e-9)


def test_second_gradients_of_shared_weights_equal_torchs():
    given = [pair(3, 24, dtype="float64"), *(pair(*s, dtype="float64", grad=True) for s in ((24, 24), (24, 24), (24,)))]
    results = []
    for m, k in ((torch, 0), (sl, 1)):
        x, *weights = [both[k] for both in given]
        first = m.autograd.grad(shared(m, x, *weights), weights, create_graph=True)
        results.append(m.autograd.grad(sum((g * g).sum() for g in first), weights))
    for a, b in zip(*results):
        assert_same(b, a, 1e-8)


def test_gradients_of_shared_weights_in_a_graph():
    given = [pair(3, 24), *(pair(*s, grad=True) for s in ((24, 24), (24, 24), (24,)))]

    class Net(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u, self.bias = (sl.nn.Parameter(both[1].detach()) for both in given[1:])

    class Step(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = Net()
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.01))

        def build(self, x):
            loss = shared(sl, x, self.net.w, self.net.u, self.net.bias)
            loss.backward()
            return loss

    step = Step()
    optimizer = torch.optim.SGD([both[0] for both in given[1:]], lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        loss = shared(torch, *(both[0] for both in given))
        loss.backward()
        optimizer.step()
        assert_same(step(given[0][1]), loss, 1e-4)
    for (a, _), p in zip(given[1:], step.net.parameters()):
        assert_same(p, a, 1e-4)


def test_recurrent_steps_in_a_loop_of_ones_own():
    torch.manual_seed(0), sl.manual_seed(0)
    theirs, ours = torch.nn.LSTMCell(6, 20), sl.nn.LSTMCell(6, 20)
    a, x = pair(7, 2, 6)
    for m, net, data in ((torch, theirs, a), (sl, ours, x)):
        h, c = m.zeros(2, 20), m.zeros(2, 20)
        for t in range(7):
            h, c = net(data[t], (h, c))
        ((h * h).sum() + c.sum()).backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_same(p.grad, q.grad, 1e-5)


def test_anomalies_are_found_in_gradients_of_shared_weights():
    w = sl.ones(8, 8, requires_grad=True)
    with sl.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
        h = sl.ones(1, 8)
        for _ in range(3):
            h = h @ w
        (h * float("nan")).sum().backward()


# --- an LSTM's step ---

@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_lstm_cell_is_what_it_is_made_of(dtype):
    kind = getattr(sl, dtype)
    given = [pair(*s, dtype="float64")[1].to(kind).requires_grad_() for s in ((3, 20), (3, 20), (3, 5))]
    h, c, gates = sl._C.ops.lstm_cell(*given)
    wide = [t.detach().to(sl.float64).requires_grad_() for t in given]
    i, f, g, o = (wide[0] + wide[1]).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    state = f * wide[2] + i * g
    out = o * state.tanh()
    tolerance = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 3e-2)
    for a, b in ((h, out), (c, state), (gates, sl.cat([i, f, g, o], 1))):
        assert_same(a.double(), torch.from_numpy(b.detach().numpy()), tolerance)
    ((h * h).sum() + (c * 3).sum() + gates.sum()).backward()
    ((out * out).sum() + (state * 3).sum() + sl.cat([i, f, g, o], 1).sum()).backward()
    for a, b in zip(given, wide):
        assert_same(a.grad.double(), torch.from_numpy(b.grad.numpy()), tolerance)


# --- loops ---

def special_floats():
    huge = np.array([1e4, 1e6, 1.6777216e7, 3e7, 1e10, 1e20, 3.4e38, 2.5e30, 7.0368744e13], np.float32)
    tiny = np.array([0, 1e-45, 1e-38, 1e-20, 1e-5, 0.5, 1, 1.5707964, 3.1415927, 6.2831855, np.inf, np.nan], np.float32)
    every = RANDOM.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    positive = np.concatenate([huge, tiny])
    return np.concatenate([positive, -positive, every, RANDOM.uniform(-10, 10, 20000).astype(np.float32)])


@pytest.mark.parametrize("name, ulps", [("sin", 3), ("cos", 3), ("tan", 5), ("atan", 4), ("asin", 4)])
def test_trigonometry_is_good_for_all_numbers(name, ulps):
    x = special_floats()
    if name == "asin":
        x = x[np.abs(x) <= 1]
    with np.errstate(invalid="ignore"):
        expected = getattr(torch, name)(torch.from_numpy(x.astype(np.float64))).numpy()
    found = getattr(sl, name)(sl.from_numpy(x)).numpy().astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    kept = ~np.isnan(expected)
    ulp = np.spacing(np.abs(expected[kept]).astype(np.float32)).astype(np.float64)
    assert np.all(np.abs(found[kept] - expected[kept]) <= ulps * ulp)
    assert np.array_equal(np.signbit(found[x == 0]), np.signbit(expected[x == 0]))


def test_atan2_has_all_its_quadrants():
    values = np.array([0.0, -0.0, 1, -1, 3e-39, -3e-39, 2.5, -7, np.inf, -np.inf, np.nan, 1e30, -1e-30], np.float32)
    y, x = (v.ravel().copy() for v in np.meshgrid(values, values))
    found = sl.atan2(sl.from_numpy(y), sl.from_numpy(x)).numpy()
    expected = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=1e-45)
    assert np.array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


def test_erfinv_equals_torchs():
    x = np.concatenate([RANDOM.uniform(-1, 1, 5000), [0.0, -0.0, 1, -1, 1.5, -2, np.nan, 0.9999999, -0.9999999, 1e-30]])
    a = torch.from_numpy(x.astype(np.float32))
    assert_same(sl.erfinv(to_sl(a)), torch.erfinv(a), 2e-5)


SUMS = [lambda m, x: x.sum(), lambda m, x: x.sum(-1), lambda m, x: x.sum(0), lambda m, x: x.sum((0, 2)),
        lambda m, x: x.transpose(0, 2).sum(0), lambda m, x: x[:, ::2].sum((0, 2)), lambda m, x: x.mean((1, 2)),
        lambda m, x: x.amax(-1), lambda m, x: x.amin((0, 2)), lambda m, x: x.prod(-1), lambda m, x: (x > 0.9).any(-1),
        lambda m, x: (x > -0.99).all(-1), lambda m, x: x[..., 5:].flip(-1).sum(-1)]


@pytest.mark.parametrize("reduce", SUMS)
@pytest.mark.parametrize("length", [1, 31, 32, 63, 64, 65, 127, 200, 4097])
def test_reductions_of_rows_of_any_length(reduce, length):
    for dtype in ("float32", "float64"):
        a, x = pair(2, 3, max(length, 6), dtype=dtype)
        assert_same(reduce(sl, x), reduce(torch, a), 1e-4 if dtype == "float32" else 1e-9)
    a = torch.from_numpy(RANDOM.integers(-2**62, 2**62, (2, 3, max(length, 6))))
    assert_same(to_sl(a).sum(-1), a.sum(-1))  # wraps around
    assert_same(to_sl(a).amax(-1), a.amax(-1))


def test_extrema_of_rows_keep_nans():
    a = torch.zeros(3, 300)
    a[1, 170] = float("nan")
    a[2, 299] = float("nan")
    for f in (lambda x: x.amax(-1), lambda x: x.amin(-1), lambda x: x.sum(-1)):
        assert_same(f(to_sl(a)), f(a))


# --- indices ---

@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool", "float16"])
def test_gather_and_scatter_equal_torchs(dtype):
    a = torch.from_numpy(RANDOM.integers(0, 2 if dtype == "bool" else 9, (6, 7, 5))).to(getattr(torch, dtype))
    for dim in (0, 1, -1):
        for index in (torch.from_numpy(RANDOM.integers(0, 5, (4, 3, 5))),
                      torch.from_numpy(RANDOM.integers(0, 5, (5, 3, 4))).transpose(0, 2)):
            x, i = to_sl(a), to_sl(index)
            assert_same(sl.gather(x, dim, i), torch.gather(a, dim, index))
            some = (slice(4), slice(3), slice(4))
            assert_same(sl.gather(x.transpose(0, 2), dim, i[some]), torch.gather(a.transpose(0, 2), dim, index[some]))
            source = a[:4, :3, :5]
            if dim != 0:  # which of several writes to one place wins is not said
                assert sl.scatter(x, dim, i[:1, :1, :1], to_sl(source)[:1, :1, :1]).tolist() == torch.scatter(
                    a, dim, index[:1, :1, :1], source[:1, :1, :1]).tolist()
            if dtype != "bool":
                assert_same(x.scatter_add(dim, i[some], to_sl(source[some])), a.scatter_add(dim, index[some], source[some]))
    with pytest.raises(IndexError, match="out of range"):
        sl.gather(to_sl(a), 0, sl.tensor([[[9]]]))


# --- pooling ---

def pooling_cases():
    """40 configurations."""
    for dims, size in ((1, (2, 3, 41)), (2, (2, 3, 13, 17)), (3, (1, 2, 7, 8, 19))):
        for kernel, stride, padding, dilation, ceil in (
                (2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 1, 1, 2, False), (3, 2, 0, 1, True), (5, 3, 2, 1, True),
                (1, 1, 0, 1, False), (2, 5, 1, 3, True)):
            yield dims, size, dict(kernel_size=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil)
        for kernel, stride, padding, ceil, include, divisor in ((2, 2, 0, False, True, None), (3, 2, 1, False, False, None),
                                                                (3, 1, 1, True, True, None), (5, 3, 2, True, False, None),
                                                                (3, 2, 0, False, True, 4), (4, 1, 2, False, True, None)):
            extra = {} if dims == 1 else {"divisor_override": divisor}
            yield dims, size, dict(kernel_size=kernel, stride=stride, padding=padding, ceil_mode=ceil,
                                   count_include_pad=include, **extra)
    yield 2, (2, 70, 9, 150), dict(kernel_size=(3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2), ceil_mode=False)


def test_pooling_equals_torchs():
    cases = list(pooling_cases())
    assert len(cases) == 40
    for dims, size, options in cases:
        name = f"{'max' if 'dilation' in options else 'avg'}_pool{dims}d"
        f, g = getattr(torch.nn.functional, name), getattr(sl.nn.functional, name)
        a, _ = pair(*size)
        layouts = [a] + ([a.to(memory_format=torch.channels_last)] if dims == 2 else [])
        for layout in layouts:
            layout = layout.detach().requires_grad_()
            x = to_sl(layout.detach()).requires_grad_()
            expected, found = f(layout, **options), g(x, **options)
            assert_same(found, expected, 1e-5)
            expected.square().sum().backward(), found.square().sum().backward()
            assert_same(x.grad, layout.grad, 1e-5)
            if name.startswith("max"):
                expected, found = f(layout, return_indices=True, **options), g(x, return_indices=True, **options)
                assert_same(found[1], expected[1])
    a = torch.zeros(1, 1, 80)
    a[0, 0, 40] = float("nan")
    a[0, 0, :3] = -float("inf")
    for expected, found in zip(torch.nn.functional.max_pool1d(a, 3, 1, return_indices=True),
                               sl.nn.functional.max_pool1d(to_sl(a), 3, 1, return_indices=True)):
        assert_same(found, expected)


# --- the profiler's overhead ---

def test_overhead_adds_up():
    x = sl.ones(1000)
    printed = sl.profiler.overhead(lambda: x + x * x, repeat=4, show=False)
    assert printed.calls == 2 and 0 < printed.kernels < printed.total
    assert abs(printed.kernels + printed.overhead - printed.total) < 1e-12
    assert abs(printed.percent - 100 * printed.overhead / printed.total) < 1e-9
    assert "2 kernels" in str(printed)
    assert [line.split()[0] for line in str(printed).split("\n")[:3]] == ["total", "kernels", "overhead"]
    nothing = sl.profiler.overhead(lambda: None, show=False)
    assert nothing.calls == 0 and nothing.percent == 100 and "0 kernels" in str(nothing)


def test_overhead_prints_and_refuses(capsys):
    sl.profiler.overhead(lambda: sl.ones(2) + 1)
    assert "overhead" in capsys.readouterr().out
    with pytest.raises(ValueError, match="repeat is 0"):
        sl.profiler.overhead(lambda: None, repeat=0)
    with pytest.raises(ZeroDivisionError):
        sl.profiler.overhead(lambda: 1 / 0)
    before = sl._C.kernel_time()
    sl.ones(2) + 1
    assert sl._C.kernel_time() == before  # nothing is timed afterwards


def test_ten_thousand_chained_adds_are_one_program_of_a_graph(capsys):
    x, y, count = sl.ones(16), sl.full((16,), 1e-3), 10_000

    def chain(x, y):
        for _ in range(count):
            x = x + y
        return x

    cost = sl.profiler.overhead(lambda: chain(x, y), repeat=1, warmup=0)
    assert cost.calls == count and 0 < cost.per_kernel < cost.total
    assert f"{count} kernels, {cost.per_kernel * 1e6:.2f} us of overhead each" in capsys.readouterr().out
    graph = sl.nn.Graph.trace(chain)
    np.testing.assert_array_equal(graph(x, y).numpy(), chain(x, y).numpy())
    programs = [len(actor["program"]) for actor in graph.plan["actors"] if actor.get("program")]
    assert max(programs) >= len(graph.plan["kernels"])  # one actor, so that a call is a message
