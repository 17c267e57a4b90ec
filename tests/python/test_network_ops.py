"""The functions of network layers against torch's: values and gradients."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional
from conftest import assert_same

import sluice as sl
import sluice.nn.functional


def pairs(*lists):
    return list(itertools.product(*lists))


def compare(function, *shapes, low=None, tolerance=1e-4, name=""):
    """Runs `function(F, module, *tensors)` under torch and Sluice; `low` draws from [low, 1), else normal numbers."""
    rng = np.random.RandomState(0)
    arrays = [np.asarray(rng.randn(*s) if low is None else low + (1 - low) * rng.rand(*s)).astype(np.float32) for s in shapes]
    results = []
    for module in (torch, sl):
        inputs = [module.tensor(a) for a in arrays]
        for x in inputs:
            x.requires_grad_(True)
        y = function(module.nn.functional, module, *inputs)
        grad = np.asarray(np.random.RandomState(1).randn(*y.shape)).astype(np.float32)
        y.backward(module.tensor(grad))
        results.append([y.detach().numpy()] + [None if x.grad is None else x.grad.numpy() for x in inputs])
    for expected, got in zip(*results):
        assert (expected is None) == (got is None), name
        if expected is not None:
            assert expected.shape == got.shape, name
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("a,b", [((3,), (3,)), ((4, 3), (3,)), ((3,), (3, 5)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 5)),
                                 ((2, 1, 4, 3), (3, 3, 5)), ((3,), (2, 3, 5)), ((2, 4, 3), (3,))])
def test_matmul(a, b):
    compare(lambda F, m, x, y: m.matmul(x, y), a, b)


@pytest.mark.parametrize("dims,geometry", pairs((1, 2, 3), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 1, 2, 2), (2, 2, 1, 4)]))
def test_convolutions(dims, geometry):
    stride, padding, dilation, groups = geometry
    spatial, kernel = (9, 8, 7)[:dims], (3, 2, 3)[:dims]
    compare(lambda F, m, x, w, b: getattr(F, f"conv{dims}d")(x, w, b, stride, padding, dilation, groups),
            (2, 4, *spatial), (8, 4 // groups, *kernel), (8,))
    for output_padding in range(stride):
        compare(lambda F, m, x, w, b: getattr(F, f"conv_transpose{dims}d")(x, w, b, stride, padding, output_padding, groups, dilation),
                (2, 4, *spatial), (4, 8 // groups, *kernel), (8,))


@pytest.mark.parametrize("dims,options", pairs((1, 2, 3), [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}]))
def test_pooling(dims, options):
    shape = (2, 3, *(9, 8, 7)[:dims])
    compare(lambda F, m, x: getattr(F, f"max_pool{dims}d")(x, **options), shape)
    for count in (True, False):
        compare(lambda F, m, x: getattr(F, f"avg_pool{dims}d")(x, count_include_pad=count, **options), shape)


@pytest.mark.parametrize("dims,size", pairs((1, 2, 3), (1, 3, 4, 7)))
def test_adaptive_pooling(dims, size):
    shape = (2, 3, *(9, 8, 7)[:dims])
    compare(lambda F, m, x: getattr(F, f"adaptive_avg_pool{dims}d")(x, size), shape)
    compare(lambda F, m, x: getattr(F, f"adaptive_max_pool{dims}d")(x, size), shape)


@pytest.mark.parametrize("shape,training", pairs([(6, 4), (6, 4, 5), (3, 4, 5, 2)], (True, False)))
def test_batch_norm_and_its_running_statistics(shape, training):
    statistics = {}

    def function(F, m, x, w, b):
        mean, var = m.tensor([0.5, -1.0, 0.0, 2.0]), m.tensor([1.0, 0.5, 2.0, 1.5])
        y = F.batch_norm(x, mean, var, w, b, training, 0.1, 1e-5)
        statistics[m.__name__] = np.stack([mean.numpy(), var.numpy()])
        return y

    compare(function, shape, (4,), (4,))
    np.testing.assert_allclose(statistics["sluice"], statistics["torch"], rtol=1e-5)


def test_norms_of_rows():
    compare(lambda F, m, x, w, b: F.layer_norm(x, (4, 5), w, b), (3, 4, 5), (4, 5), (4, 5))
    compare(lambda F, m, x, w: F.rms_norm(x, (5,), w, 1e-5), (3, 4, 5), (5,))
    for dtype in ("float64", "float32", "float16"):  # of small values the default eps is seen
        x, ours = torch.full((2, 5), 1e-3, dtype=getattr(torch, dtype)), sl.full((2, 5), 1e-3, dtype=getattr(sl, dtype))
        assert_same(sl.nn.functional.rms_norm(ours, (5,)), torch.nn.functional.rms_norm(x, (5,)), 1e-3 if dtype == "float16" else 1e-6)
    compare(lambda F, m, x, w, b: F.group_norm(x, 3, w, b), (2, 6, 4, 4), (6,), (6,))


def test_batchmean_of_a_scalar():
    losses = [m.nn.functional.kl_div(m.tensor(-0.5), m.tensor(0.3), reduction="batchmean") for m in (sl, torch)]
    assert_same(*losses)


@pytest.mark.parametrize("reduction,smoothing,weighted", pairs(("mean", "sum", "none"), (0.0, 0.1), (False, True)))
def test_cross_entropy(reduction, smoothing, weighted):
    options = {"reduction": reduction, "label_smoothing": smoothing}

    def loss(target, **more):
        return lambda F, m, x: F.cross_entropy(x, m.tensor(np.array(target)), m.tensor([0.5, 1.0, 2.0, 0.3]) if weighted else None, **options, **more)

    compare(loss([1, 0, 3, 2, 3]), (5, 4))
    compare(loss([1, 0, 3, 2, 3], ignore_index=3), (5, 4))
    compare(loss([[1, 0], [3, -100], [2, 2]]), (3, 4, 2))
    compare(loss(2), (4,))
    compare(lambda F, m, x, p: F.cross_entropy(x, p, m.tensor([0.5, 1.0, 2.0, 0.3]) if weighted else None, **options), (5, 4), (5, 4))


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_losses(reduction):
    r = {"reduction": reduction}
    compare(lambda F, m, x: F.nll_loss(x, m.tensor(np.array([1, 0, 3, 2, 3])), **r), (5, 4))
    for name, more in [("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", {"beta": 0.7}), ("huber_loss", {"delta": 0.7})]:
        compare(lambda F, m, x, y: getattr(F, name)(x, y, **r, **more), (5, 4), (5, 4), name=name)
    compare(lambda F, m, x, y: F.binary_cross_entropy(x, y, **r), (5, 4), (5, 4), low=0.05)
    compare(lambda F, m, x, y: F.binary_cross_entropy_with_logits(x * 10, y, pos_weight=m.tensor([0.5, 1.0, 2.0, 3.0]), **r), (5, 4), (5, 4))


def test_embedding_padding_gets_no_gradient():
    index = np.array([[1, 2, 0], [4, 4, 2]])
    for padding in (None, 2, -1):
        compare(lambda F, m, w: F.embedding(m.tensor(index), w, padding_idx=padding), (5, 3))


def test_attention():
    qkv = (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6)
    compare(lambda F, m, q, k, v: F.scaled_dot_product_attention(q, k, v), *qkv)
    compare(lambda F, m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *qkv)
    mask = np.random.RandomState(2).rand(5, 5) > 0.3
    compare(lambda F, m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=m.tensor(mask)), *qkv)
    compare(lambda F, m, q, k, v, a: F.scaled_dot_product_attention(q, k, v, attn_mask=a), *qkv, (5, 5))


@pytest.mark.parametrize("name,options", [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}), ("SGD", {"maximize": True, "weight_decay": 0.1}), ("Adam", {}), ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}), ("AdamW", {}), ("AdamW", {"weight_decay": 0.3, "amsgrad": True, "maximize": True})])
def test_optimizers_step_alike(name, options):
    rng = np.random.RandomState(3)
    start, grads = rng.randn(7, 5).astype(np.float32), rng.randn(6, 7, 5).astype(np.float32)
    results = []
    for module in (torch, sl):
        param = module.nn.Parameter(module.tensor(start))
        optimizer = getattr(module.optim, name)([param], lr=0.1, **options)
        for grad in grads:
            param.grad = module.tensor(grad)
            optimizer.step()
        results.append(param.detach().numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)
