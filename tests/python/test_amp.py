"""Mixed precision by regions: dtypes and values as torch's on the CPU, eager and in graphs."""

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import sluice as sl
import sluice.nn.functional as F
from sluice import nn
from sluice.amp import lists


def pair(x):
    return sl.tensor(x), torch.tensor(x)


GRID = np.random.default_rng(0).uniform(0.2, 0.7, (4, 4)).astype(np.float32)

# Calls take (library, functional, tensor).
CALLS = {
    "matmul": lambda t, f, x: t.matmul(x, x), "@": lambda t, f, x: x @ x, "mm": lambda t, f, x: t.mm(x, x),
    "bmm": lambda t, f, x: t.bmm(x[None], x[None]), "addmm": lambda t, f, x: t.addmm(x, x, x),
    "linear": lambda t, f, x: f.linear(x, x), "conv1d": lambda t, f, x: f.conv1d(x[None], x[:, :, None]),
    "conv2d": lambda t, f, x: f.conv2d(x[None, None], x[None, None]), "method": lambda t, f, x: x.matmul(x),
    "tensordot": lambda t, f, x: t.tensordot(x, x, dims=1), "einsum": lambda t, f, x: t.einsum("ij,jk->ik", x, x),
    "inner": lambda t, f, x: t.inner(x, x), "exp": lambda t, f, x: x.exp(), "softmax": lambda t, f, x: f.softmax(x, dim=1), "sum": lambda t, f, x: x.sum(),
    "add": lambda t, f, x: x + x, "prod": lambda t, f, x: x.prod(), "mse_loss": lambda t, f, x: f.mse_loss(x, x * 0),
    "l1_loss": lambda t, f, x: f.l1_loss(x, x * 0), "bce": lambda t, f, x: f.binary_cross_entropy(x, x),
    "cross_entropy": lambda t, f, x: f.cross_entropy(x, t.arange(4)), "layer_norm": lambda t, f, x: f.layer_norm(x, (4,)),
    "cat": lambda t, f, x: t.cat([x, x @ x]), "stack": lambda t, f, x: t.stack([x @ x, x @ x]),
    "sdpa": lambda t, f, x: f.scaled_dot_product_attention(x[None], x[None], x[None]), "tanh": lambda t, f, x: t.tanh(x @ x),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("start", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_and_values_are_torchs(name, start, dtype):
    if start == "float64" and name in ("cat", "sdpa"):
        pytest.skip("torch refuses to mix float64 there")
    if name == "cat" and start == "bfloat16" and dtype == "float16":
        pytest.skip("torch refuses to mix the two")
    ours, theirs = pair(GRID)
    with sl.autocast("cpu", dtype=getattr(sl, dtype)):
        y = CALLS[name](sl, F, ours.to(getattr(sl, start)))
    with torch.autocast("cpu", dtype=getattr(torch, dtype)):
        z = CALLS[name](torch, TF, theirs.to(getattr(torch, start)))
    assert y.dtype.name == str(z.dtype)[6:]
    np.testing.assert_allclose(y.float().numpy(), z.float().numpy(), rtol=2e-2, atol=2e-2)


def net(t):
    return t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 3))


def models():
    ours, theirs = net(sl), net(torch)
    ours.load_state_dict({k: sl.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def test_gradients_are_of_the_parameters_dtype_and_as_torchs():
    ours, theirs = models()
    with sl.autocast("cpu"):
        loss = F.cross_entropy(ours(sl.tensor(GRID)), sl.tensor([0, 1, 2, 0]))
    loss.backward()
    with torch.autocast("cpu"):
        peer = TF.cross_entropy(theirs(torch.tensor(GRID)), torch.tensor([0, 1, 2, 0]))
    peer.backward()
    assert loss.item() == pytest.approx(peer.item(), rel=1e-2)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert p.grad.dtype is sl.float32
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=5e-2, atol=5e-3)


def test_graphs_have_the_casts_in_their_plans():
    class Forward(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            with sl.autocast("cpu"):
                return self.model(x)

    ours, _ = models()
    x = sl.tensor(GRID)
    graph = Forward(ours)
    with sl.autocast("cpu"):
        eager = ours(x)
    y = graph(x)
    assert y.dtype is eager.dtype is sl.bfloat16
    np.testing.assert_array_equal(y.float().numpy(), eager.detach().float().numpy())
    with sl.no_grad():
        ours[0].weight.mul_(2)
    assert not np.array_equal(graph(x).float().numpy(), y.float().numpy())  # no cast weight was frozen


def test_a_region_around_the_call_is_seen():
    class Forward(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)

    ours, _ = models()
    graph, x = Forward(ours), sl.tensor(GRID)
    assert graph(x).dtype is sl.float32
    with sl.autocast("cpu"):
        ours(x)  # a cast of the weights is kept here, and must not get into the plan
        assert graph(x).dtype is sl.bfloat16
        with sl.no_grad():
            ours[2].weight.zero_()
        np.testing.assert_array_equal(graph(x).float().numpy(), ours(x).detach().float().numpy())
    assert graph(x).dtype is sl.float32


def test_regions_nest_and_end():
    x = sl.tensor(GRID)
    with sl.autocast("cpu"):
        assert (x @ x).dtype is sl.bfloat16 and sl.is_autocast_enabled()
        with sl.autocast("cpu", enabled=False):
            assert (x @ x).dtype is sl.float32 and not sl.is_autocast_enabled()
        with sl.autocast("cpu", dtype=sl.float16):
            assert (x @ x).dtype is sl.float16
        assert (x @ x).dtype is sl.bfloat16
        seen = []
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert seen == [sl.float32]  # regions are a thread's own
    with pytest.raises(KeyError):
        with sl.autocast("cpu"):
            raise KeyError
    assert (x @ x).dtype is sl.float32 and not sl.is_autocast_enabled()


def test_a_function_can_be_a_region():
    @sl.amp.autocast("cpu")
    def product(x):
        return x @ x

    assert product(sl.tensor(GRID)).dtype is sl.bfloat16 and product.__name__ == "product"


def test_weights_that_are_updated_inside_are_cast_anew():
    w, x = sl.ones(4, 4).requires_grad_(True), sl.tensor(GRID)
    with sl.autocast("cpu"):
        first = (x @ w).float()
        with sl.no_grad():
            w.mul_(2)
        np.testing.assert_allclose((x @ w).detach().float().numpy(), 2 * first.detach().numpy(), rtol=1e-2)


def test_the_lists_can_be_changed():
    x = sl.tensor(GRID)
    assert "matmul" in lists.lower and "mse_loss" in lists.float32 and "cat" in lists.widest
    try:
        lists.lower.discard("matmul")
        lists.float32.add("exp")
        lists.lower.add("tanh")
        with sl.autocast("cpu"):
            assert (x @ x).dtype is sl.float32
            assert x.bfloat16().exp().dtype is sl.float32
            assert x.tanh().dtype is sl.bfloat16
    finally:
        lists.lower.add("matmul")
        lists.float32.discard("exp")
        lists.lower.discard("tanh")
    with sl.autocast("cpu"):
        assert (x @ x).dtype is sl.bfloat16 and x.bfloat16().exp().dtype is sl.bfloat16 and x.tanh().dtype is sl.float32
    with pytest.raises(ValueError, match="amp.lists: there is no function 'no_such'"):
        lists.lower.add("no_such")
    assert "no_such" not in lists.lower


def test_what_is_asked_wrongly():
    with pytest.warns(UserWarning, match="In cpu autocast, but the target dtype is not supported"):
        with sl.autocast("cpu", dtype=sl.float64):
            assert not sl.is_autocast_enabled()
    if not sl.cuda.is_available():
        with pytest.warns(UserWarning, match="device_type of 'cuda', but CUDA is not available. Disabling"):
            with sl.autocast("cuda"):
                assert not sl.is_autocast_enabled()
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        sl.autocast(3)
    with pytest.raises(ValueError):
        sl.autocast("no device")
    with pytest.raises(ValueError, match="must be bfloat16 or float16"):
        sl.set_autocast_dtype("cpu", sl.float32)


def test_defaults():
    assert sl.get_autocast_cpu_dtype() is sl.bfloat16 and sl.get_autocast_gpu_dtype() is sl.float16
    try:
        sl.set_autocast_cpu_dtype(sl.float16)
        with sl.autocast("cpu"):
            assert (sl.tensor(GRID) @ sl.tensor(GRID)).dtype is sl.float16
    finally:
        sl.set_autocast_cpu_dtype(sl.bfloat16)
    assert sl.amp.is_autocast_available("cpu") and not sl.amp.is_autocast_available("no device")
    with sl.autocast("cpu", cache_enabled=False):
        assert not sl.is_autocast_cache_enabled()
        sl.clear_autocast_cache()
