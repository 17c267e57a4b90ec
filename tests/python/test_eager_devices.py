"""Eager operations on devices: on the simulated one they give what they give on the CPU, and torch's numbers."""

import io
import pickle
import threading

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl
from test_ops import KINKED, SMOOTH, _both

import sluice as sl
import sluice.nn.functional as F
from on_sim import SIM


def there(t):
    """A leaf on the device with the numbers of `t`."""
    return to_sl(t).detach().to(SIM).requires_grad_(t.requires_grad)


def here(t):
    assert str(t.device) == SIM, t.device
    return t.cpu()


# Functions. Index tensors that a case makes are on the cpu: they go with their tensor, but gather's and scatter's.
ON_CPU_INDICES = {"gather", "scatter_add"}


@pytest.mark.parametrize("name", [n for n in {**SMOOTH, **KINKED} if n not in ON_CPU_INDICES])
def test_values_and_gradients_are_torchs_there(name):
    torch.manual_seed(3)
    case = {**SMOOTH, **KINKED}[name]
    ours, theirs, _, b = _both(case, torch.float32)
    a = [there(t) for t in b]
    x, y = ours(*a), theirs(*b)
    assert_same(here(x), y, 1e-5)
    weight = torch.rand(y.shape)
    x.backward(to_sl(weight).to(SIM))
    y.backward(weight)
    for s, t in zip(a, b):
        if t.grad is not None:
            assert str(s.grad.device) == SIM
            assert_same(s.grad.cpu(), t.grad, 1e-4)


MORE = {
    "gather": lambda m, x, on: x.gather(1, on([[0, 1], [2, 2], [1, 0]])),
    "scatter_add": lambda m, x, on: x.scatter_add(1, on([[0, 0], [2, 2], [1, 0]]), x),
    "nonzero": lambda m, x, on: (x > 0).nonzero(),
    "masked_select": lambda m, x, on: x.masked_select(x > 0),
    "bool mask": lambda m, x, on: x[x > 0],
    "mask of rows": lambda m, x, on: x[on([True, False, True])],
    "unique": lambda m, x, on: m.unique(x.round()),
    "unique counts": lambda m, x, on: m.unique(x.round(), return_inverse=True, return_counts=True),
    "unique_consecutive": lambda m, x, on: m.unique_consecutive(x.round().flatten()),
    "bincount": lambda m, x, on: m.bincount(on([1, 2, 2, 5])),
    "repeat_interleave": lambda m, x, on: x.repeat_interleave(on([1, 0, 2]), 0),
    "one_hot": lambda m, x, on: m.nn.functional.one_hot(on([1, 2, 0])),
    "where": lambda m, x, on: m.where(x > 0),
    "index_put": lambda m, x, on: x.index_put((on([0, 2]), on([1, 1])), on([5.0, 6.0]).to(x.dtype)),
    "take": lambda m, x, on: x.take(on([0, 5, 7])),
    "combinations": lambda m, x, on: m.combinations(x[0]),
    "cartesian_prod": lambda m, x, on: m.cartesian_prod(x[0], x[1]),
    "histc": lambda m, x, on: m.histc(x, 5, -2, 2),
    "bucketize": lambda m, x, on: m.bucketize(x, on([-1.0, 0.0, 1.0]).to(x.dtype)),
    "einsum": lambda m, x, on: m.einsum("ij,kj->ik", x, x),
    "cdist": lambda m, x, on: m.cdist(x, x + 1),
    "kthvalue": lambda m, x, on: x.kthvalue(2, 1),
    "median": lambda m, x, on: x.median(1),
    "quantile": lambda m, x, on: x.quantile(0.3, 1),
    "cov": lambda m, x, on: m.cov(x),
    "tril_": lambda m, x, on: x.clone().tril_(),
    "clamp": lambda m, x, on: x.clamp(min=x.mean(), max=0.7),
    "nan_to_num": lambda m, x, on: (x / 0).nan_to_num(1.0),
    "isin": lambda m, x, on: m.isin(x.round(), on([0.0, 1.0]).to(x.dtype)),
    "interpolate": lambda m, x, on: m.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "grid_sample": lambda m, x, on: m.nn.functional.grid_sample(x[None, None], x[:2, :2].reshape(1, 1, 2, 2), align_corners=False),
    "unfold": lambda m, x, on: m.nn.functional.unfold(x[None, None], (2, 2)),
    "linalg.inv": lambda m, x, on: m.linalg.inv(x @ x.T + 3 * m.eye(3, dtype=x.dtype, device=x.device)),
    "linalg.svdvals": lambda m, x, on: m.linalg.svdvals(x),
    "linalg.norm": lambda m, x, on: m.linalg.norm(x, "fro"),
    "slogdet": lambda m, x, on: m.linalg.slogdet(x[:, :3] + 3 * m.eye(3, dtype=x.dtype, device=x.device)),
    "multi_margin": lambda m, x, on: m.nn.functional.multi_margin_loss(x, on([0, 1, 3])),
    "nll_loss": lambda m, x, on: m.nn.functional.nll_loss(x.log_softmax(1), on([0, 1, 3]), weight=x[0].abs()),
    "cross_entropy": lambda m, x, on: m.nn.functional.cross_entropy(x, on([0, 1, 3]), label_smoothing=0.1),
    "embedding": lambda m, x, on: m.nn.functional.embedding(on([[0, 2], [1, 1]]), x),
    "ctc_loss": lambda m, x, on: m.nn.functional.ctc_loss(x.log_softmax(1)[:, None], on([[1, 2]]), (3,), (2,)),
    "item": lambda m, x, on: m.tensor(x.sum().item()),
    "tolist": lambda m, x, on: m.tensor(x.tolist()),
    "iteration": lambda m, x, on: m.stack([row * 2 for row in x]),
    "bool": lambda m, x, on: m.tensor(bool((x > -100).all()) and 7 in on([7, 8])),
    "cat of views": lambda m, x, on: m.cat([x[:, 1:], x.flip(1)[:, :1], x.expand(3, 4)[:, ::2]], 1),
    "to dtype": lambda m, x, on: x.to(m.float16).double() + x.int(),
    "var_mean": lambda m, x, on: m.var_mean(x, 1),
    "tensor_split": lambda m, x, on: x.tensor_split(3, 1),
    "meshgrid": lambda m, x, on: m.meshgrid(x[0], x[1], indexing="ij"),
    "diag": lambda m, x, on: m.diag(x[0]),
    "searchsorted": lambda m, x, on: m.searchsorted(x.sort(1).values, x),
    "renorm": lambda m, x, on: x.renorm(2, 0, 1.0),
    "trapz": lambda m, x, on: m.trapezoid(x, dx=0.5),
    "logcumsumexp": lambda m, x, on: x.logcumsumexp(1),
    "cummax": lambda m, x, on: x.cummax(1),
}


@pytest.mark.parametrize("name", MORE)
def test_functions_there_are_torchs(name):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(5))
    expected = MORE[name](torch, x, torch.tensor)
    got = MORE[name](sl, to_sl(x).to(SIM), lambda data: sl.tensor(data, device=SIM))
    expected, got = ([v] if not isinstance(v, (tuple, list)) else list(v) for v in (expected, got))
    assert len(expected) == len(got)
    for e, g in zip(expected, got):
        if name not in ("item", "tolist", "bool"):
            assert str(g.device) == SIM
        assert_same(g.cpu(), e, 1e-4)


def test_writes_and_views_are_torchs():
    def run(m, x, on):
        y = x.clone()
        column, block = y[:, 1], y[1:, 2:]
        column.mul_(2)
        block += 1
        y[0] = 5
        y[2, 1:3] = on([7.0, 8.0])
        y[y > 6] = -1
        y[on([0, 1]), on([0, 3])] = on([0.5, 0.25])
        y.t()[3].add_(column.sum())
        y.masked_fill_(y < -0.5, 9)
        y.index_add_(0, on([1]), x[:1])
        y.copy_(y.flip(0) + m.ones(4, device=x.device))
        y.fill_diagonal_(3).clamp_(max=8).zero_() if False else y.fill_diagonal_(3).clamp_(max=8)
        return y, column, block

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    expected = run(torch, x, torch.tensor)
    got = run(sl, to_sl(x).to(SIM), lambda data: sl.tensor(data, device=SIM))
    for g, e in zip(got, expected):
        assert_same(here(g), e, 1e-6)


def test_copies_between_devices_and_their_gradients():
    x = sl.arange(6.0).reshape(2, 3).requires_grad_()
    far = x.t().to(SIM, non_blocking=True).to("sim:1")
    assert str(far.device) == "sim:1" and far.tolist() == [[0, 3], [1, 4], [2, 5]]
    (far * far).sum().backward()
    assert x.grad.is_cpu and x.grad.tolist() == [[0, 2, 4], [6, 8, 10]]
    target = sl.zeros(2, 3, device=SIM)
    source = sl.ones(3, requires_grad=True)
    written = target.clone().copy_(source * 2)
    assert str(written.device) == SIM
    written.sum().backward()
    assert source.grad.is_cpu and source.grad.tolist() == [4, 4, 4]
    cpu = sl.zeros(2)
    cpu.copy_(sl.tensor([1.0, 2.0], device=SIM))
    cpu[0] = sl.tensor(5.0, device=SIM)
    assert cpu.is_cpu and cpu.tolist() == [5, 2]
    assert target.to(SIM) is target and target.to(SIM, copy=True) is not target and target.cpu().is_cpu
    assert str(sl.ones(2).type_as(target).device) == SIM and str(target.to(cpu).device) == "cpu"


def test_tensors_are_made_there():
    makes = {
        "zeros": lambda **k: sl.zeros(2, 3, **k), "ones": lambda **k: sl.ones(2, **k), "full": lambda **k: sl.full((2,), 3.5, **k),
        "empty": lambda **k: sl.empty(2, **k).fill_(1), "arange": lambda **k: sl.arange(5, **k), "eye": lambda **k: sl.eye(3, **k),
        "linspace": lambda **k: sl.linspace(0, 1, 5, **k), "tensor": lambda **k: sl.tensor([1, 2], **k),
        "scalar": lambda **k: sl.tensor(2.5, **k), "as_tensor": lambda **k: sl.as_tensor(np.arange(3), **k),
        "hann_window": lambda **k: sl.hann_window(5, **k), "logspace": lambda **k: sl.logspace(0, 1, 3, **k),
        "tril_indices": lambda **k: sl.tril_indices(3, 3, **k), "scalar_tensor": lambda **k: sl.scalar_tensor(2, **k),
        "rand": lambda **k: sl.rand(4, **k), "randn": lambda **k: sl.randn(4, **k), "randint": lambda **k: sl.randint(9, (4,), **k),
        "randperm": lambda **k: sl.randperm(6, **k), "whole": lambda **k: sl.full((2,), 2**60 + 1, **k),
    }
    for name, make in makes.items():
        sl.manual_seed(4)
        expected = make()
        for scope in ("argument", "with", "default"):
            sl.manual_seed(4)
            if scope == "argument":
                made = make(device=SIM)
            elif scope == "with":
                with sl.device(SIM):
                    assert sl.get_default_device() == sl.device(SIM)
                    made = make()
            else:
                sl.set_default_device(SIM)
                try:
                    made = make()
                    assert make(device="cpu").is_cpu
                    with sl.device("cpu"):
                        assert make().is_cpu
                finally:
                    sl.set_default_device(None)
            assert str(made.device) == SIM and made.dtype is expected.dtype, (name, scope)
            assert made.tolist() == expected.tolist(), (name, scope)
    assert sl.get_default_device() == sl.device("cpu")
    x = sl.ones(2, 3, device=SIM)
    for made in (sl.zeros_like(x), sl.rand_like(x), x.new_zeros(2), x.new_tensor([1]), sl.full_like(x, 2), x.new_full((1,), 2), sl.randint_like(x, 5),
                 sl.bernoulli(x * 0.5), sl.normal(x, x), x.clone().normal_(), x.clone().uniform_(), x.clone().exponential_(), sl.poisson(x),
                 sl.multinomial(x, 2), F.dropout(x, 0.5), F.gumbel_softmax(x), F.rrelu(x, training=True), sl.histogram(x, 3)[1],
                 F.fractional_max_pool2d(x[None].expand(3, 2, 3), 2, output_size=1), x.clone().random_(5), x.clone().bernoulli_(0.5)):
        assert str(made.device) == SIM
    with pytest.raises(NotImplementedError, match="npu:0: the backend of npu could not be loaded"):
        sl.set_default_device("npu")


def test_blocks_that_end_out_of_order_leave_no_device_behind():
    """A generator that began within a block ends behind it; one that is suspended holds its own block."""
    def inside(name):
        with sl.device(name):
            yield str(sl.get_default_device())

    with sl.device(SIM):
        first, second = inside("cpu"), inside(SIM)
        assert next(first) == "cpu" and next(second) == SIM
    del first
    assert str(sl.get_default_device()) == SIM
    thread = threading.Thread(target=second.close)
    thread.start()
    thread.join()
    assert sl.get_default_device() == sl.device("cpu") and sl.ones(1).is_cpu

    class Sum(sl.nn.Graph):
        def build(self, x):
            return x.sum()

    graph = Sum()
    graph(sl.ones(2))
    assert "device" not in str(graph)


def test_generators_are_for_a_device():
    g = sl.Generator(device=SIM)
    assert g.device == sl.device(SIM) and sl.Generator().device == sl.device("cpu")
    a, b = sl.rand(3, generator=g.manual_seed(1), device=SIM), sl.rand(3, generator=sl.Generator().manual_seed(1))
    assert a.tolist() == b.tolist()
    with pytest.raises(RuntimeError, match="Expected a 'sim' device type for generator but found 'cpu'"):
        sl.rand(3, generator=sl.Generator(), device=SIM)
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'sim'"):
        sl.rand(3, generator=g)


def test_mixed_devices_are_refused_as_torch_refuses_them():
    x, y = sl.ones(3, device=SIM), sl.ones(3)
    text = "Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu!"
    for call in (lambda: x + y, lambda: y + x, lambda: y.add_(x), lambda: sl.cat([x, y]), lambda: sl.matmul(x, y), lambda: F.linear(x, y),
                 lambda: sl.where(x > 0, x, y), lambda: F.mse_loss(x, y), lambda: y.add_(sl.tensor(1.0, device=SIM)),
                 lambda: x.index_select(0, sl.tensor([0]))):
        with pytest.raises(RuntimeError, match=text):
            call()
    with pytest.raises(RuntimeError, match="at least two devices, sim:0 and sim:1!"):
        x + x.to("sim:1")
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device as the indexed tensor \(cpu:0\)"):
        y[sl.tensor([0], device=SIM)]
    for call in (lambda s: x + s, lambda s: s * x, lambda s: x.clone().mul_(s), lambda s: sl.where(x > 0, x, s), lambda s: x.clamp(min=s),
                 lambda s: x.lerp(x, s), lambda s: sl.maximum(x, s)):
        assert here(call(sl.tensor(2.0))).tolist() == call(sl.tensor(2.0, device=SIM)).tolist()
    assert x[sl.tensor([0, 2])].tolist() == [1, 1] and str(x[y > 0].device) == SIM
    with pytest.raises(TypeError, match="on sim:0; use tensor.cpu"):
        x.numpy()
    scale = sl.tensor(2.0, requires_grad=True)
    (x * scale).sum().backward()
    assert scale.grad.is_cpu and scale.grad.item() == 3


def test_text_and_numbers_of_tensors_there():
    x = sl.tensor([1.5, 2.0], device=SIM)
    assert repr(x) == "tensor([1.5000, 2.0000], device='sim:0')"
    assert repr(x.requires_grad_() * 2) == "tensor([3., 4.], device='sim:0', grad_fn=<MulBackward0>)"
    assert float(x[1]) == 2.0 and f"{x[0].detach():.2f}" == "1.50" and int(sl.tensor(3, device=SIM)) == 3 and [1, 2][sl.tensor(1, device=SIM)] == 2
    assert x.get_device() == 0 and not x.is_cpu and not x.is_cuda and len(x) == 2


def test_saving_keeps_the_device():
    state = {"a": sl.arange(4.0, device=SIM), "b": sl.ones(2)}
    buffer = io.BytesIO()
    sl.save(state, buffer)
    for place, expected in ((None, [SIM, "cpu"]), ("cpu", ["cpu", "cpu"]), (sl.device(SIM), [SIM, SIM]), ({SIM: "sim:1"}, ["sim:1", "cpu"])):
        buffer.seek(0)
        loaded = sl.load(buffer, map_location=place)
        assert [str(v.device) for v in loaded.values()] == expected and loaded["a"].tolist() == [0, 1, 2, 3]
    again = pickle.loads(pickle.dumps(state["a"][1:]))
    assert str(again.device) == SIM and again.tolist() == [1, 2, 3]
    import copy
    twin = copy.deepcopy(state["a"])
    assert str(twin.device) == SIM and twin.data_ptr() != state["a"].data_ptr()


def test_regions_of_mixed_precision_are_for_their_devices():
    a, b = sl.rand(3, 3), sl.rand(3, 3, device=SIM)
    with sl.autocast("sim", dtype=sl.bfloat16):
        assert (a @ a).dtype is sl.float32 and (b @ b).dtype is sl.bfloat16
        assert sl.is_autocast_enabled("sim") and not sl.is_autocast_enabled("cpu")
        with sl.autocast("cpu", dtype=sl.bfloat16):
            assert (a @ a).dtype is sl.bfloat16 and (b @ b).dtype is sl.bfloat16
    assert (b @ b).dtype is sl.float32


def test_a_device_of_a_library_has_eager_ops(run_script):
    from test_device_kinds import EXAMPLE

    done = run_script(f"""
import sluice as sl
sl.backends.load({str(EXAMPLE)!r})
x = sl.arange(6.0, device="example:0").reshape(2, 3).requires_grad_()
y = (x @ x.T).softmax(-1)
assert str(y.device) == "example:0", y
z = x.detach().cpu().requires_grad_()
(z @ z.T).softmax(-1)[0].square().sum().backward()
y[0].square().sum().backward()
assert str(x.grad.device) == "example:0" and x.grad.cpu().tolist() == z.grad.tolist()
model = sl.nn.Linear(3, 2).to("example:0")
optimizer = sl.optim.Adam(model.parameters())
model(x.detach()).sum().backward()
optimizer.step()
print(model.weight.device, sl.get_device_module("example").memory_allocated() > 0)
""", timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "example:0 True", done.stdout + done.stderr
