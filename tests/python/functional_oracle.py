"""One call under torch and Sluice: values, gradients and gradients of gradients, eager and in a graph."""

import numpy as np
import torch
from conftest import to_sl

import sluice as sl
import sluice.nn.functional  # noqa: F401


def drawn(*shapes, seed=0, scale=1.0, dtype=torch.float64):
    """Normal numbers as torch tensors."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64).mul(scale).to(dtype) for s in shapes]


def tensors(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def derived(module, call, inputs, double):
    """Outputs, gradients of their weighted sum, and those of that of the gradients."""
    outputs = tensors(call(module, *inputs))
    wanted = [x for x in inputs if isinstance(x, module.Tensor) and x.requires_grad]
    results = list(outputs)

    def weighted(values):
        total = 0
        for i, y in enumerate(values):
            if y is not None and y.dtype in (module.float32, module.float64, module.float16, module.bfloat16):
                noise = np.random.RandomState(7 + i).uniform(0.5, 1.5, tuple(y.shape))
                total = total + (y * module.tensor(noise).to(y.dtype)).sum()
        return total

    if wanted:
        total = weighted(outputs)
        first = [None] * len(wanted)
        if isinstance(total, module.Tensor) and total.requires_grad:
            first = module.autograd.grad(total, wanted, create_graph=double, allow_unused=True)
        results += first
        if double:
            scalar = weighted(first)
            known = isinstance(scalar, module.Tensor) and scalar.requires_grad
            results += module.autograd.grad(scalar, wanted, allow_unused=True) if known else [None] * len(wanted)
    return results


def array(x):
    x = x.detach()
    if x.dtype in (torch.bfloat16, torch.float16, sl.bfloat16, sl.float16):
        x = x.float()
    return x.numpy(force=True) if isinstance(x, torch.Tensor) else x.numpy()


def same(ours, theirs, tolerance, name):
    if ours is None or theirs is None:  # no gradient is zeros
        for one in (ours, theirs):
            assert one is None or not array(one).any(), f"{name}: a gradient in one alone: {ours} {theirs}"
        return
    assert tuple(ours.shape) == tuple(theirs.shape), f"{name}: {tuple(ours.shape)}, torch's {tuple(theirs.shape)}"
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), f"{name}: {ours.dtype}, torch's {theirs.dtype}"
    np.testing.assert_allclose(array(ours), array(theirs), rtol=tolerance, atol=tolerance, err_msg=name)


class Called(sl.nn.Graph):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def build(self, *inputs):
        leaves = [x.requires_grad_() if isinstance(x, sl.Tensor) and x.dtype in (sl.float32, sl.float64) else x for x in inputs]
        results = derived(sl, self.call, leaves, False)
        return tuple(r for r in results if r is not None)


def agree(call, *inputs, double=True, graph=True, tolerance=1e-9, name=""):
    """call(module, *inputs) gives the same under both. Floating inputs are differentiated, but for 16-bit ones."""
    def leaf(x):
        floating = isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float64)
        return x.detach().clone().requires_grad_(floating) if isinstance(x, torch.Tensor) else x

    theirs = derived(torch, call, [leaf(x) for x in inputs], double)
    mine = [to_sl(leaf(x)) if isinstance(x, torch.Tensor) else x for x in inputs]
    ours = derived(sl, call, mine, double)
    assert len(ours) == len(theirs), f"{name}: {len(ours)} results, torch's {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs)):
        same(a, b, tolerance, f"{name} result {i} of {len(ours)}")
    if graph and all(isinstance(x, torch.Tensor) for x in inputs):
        planned = tensors(Called(call)(*[x.detach() for x in mine]))
        first = [r for r in derived(sl, call, mine, False) if r is not None]
        assert len(planned) == len(first)
        for i, (a, b) in enumerate(zip(planned, first)):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=f"{name} result {i} of the graph")


def kinds(call, *inputs):
    """The kind of error that each raises for bad arguments, theirs first, and our text."""
    kind, text = [], ""
    for module in (torch, sl):
        try:
            call(module, *[to_sl(x) if module is sl and isinstance(x, torch.Tensor) else x for x in inputs])
            kind.append(None)
        except Exception as error:  # noqa: BLE001: what it is, is the question
            kind.append(next(k for k in type(error).__mro__ if k.__module__ == "builtins"))
            text = str(error)
    return kind, text
