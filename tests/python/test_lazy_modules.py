"""Lazy modules and their parameters against torch's."""

import copy
import pickle

import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import assert_same

import sluice as sl
import sluice.nn as nn
from module_pairs import both, pair

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning",
                                        "ignore:Initializing zero-element tensors:UserWarning")

LAZY = [("LazyLinear", (3,), (2, 4)), ("LazyLinear", (3, False), (5, 2, 4)), ("LazyConv1d", (4, 3), (2, 3, 7)),
        ("LazyConv2d", (4, 3, 2, 1, 1, 2), (2, 4, 7, 7)), ("LazyConv3d", (2, 2), (3, 4, 4, 4)), ("LazyConvTranspose1d", (4, 3), (2, 3, 5)),
        ("LazyConvTranspose2d", (4, 3, 2), (2, 3, 4, 4)), ("LazyConvTranspose3d", (2, 2), (1, 2, 3, 3, 3)),
        ("LazyBatchNorm1d", (), (4, 3)), ("LazyBatchNorm1d", (1e-5, 0.1, True, False), (4, 3)), ("LazyBatchNorm2d", (1e-3, 0.2), (2, 3, 4, 4)), ("LazyBatchNorm3d", (1e-5, 0.1, False), (2, 3, 2, 2, 2))]


@pytest.mark.parametrize("kind, args, shape", LAZY, ids=str)
def test_lazy_modules_equal_torchs(kind, args, shape):
    theirs, ours = pair(lambda N: getattr(N, kind)(*args))
    a, x = both(shape)
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    parameters = list(ours.parameters())
    fresh, empty = copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))
    assert fresh.has_uninitialized_params() and empty.load_state_dict(fresh.state_dict()).missing_keys == []
    torch.manual_seed(1), sl.manual_seed(1)
    b, y = theirs(a), ours(x)
    assert_same(y, b, 1e-4)
    assert type(ours).__name__ == type(theirs).__name__ == kind.removeprefix("Lazy") and not ours._forward_pre_hooks
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q)
    assert all(p is q and isinstance(q, nn.Parameter) for p, q in zip(parameters, ours.parameters()))
    fresh.load_state_dict(ours.state_dict())
    assert not fresh.has_uninitialized_params()
    assert sl.equal(fresh.eval()(x), ours.eval()(x)) and type(fresh) is type(ours)
    assert type(fresh.double()) is type(ours)


def test_uninitialized_parameters():
    for N, lib in ((torch.nn, torch), (nn, sl)):
        p = N.UninitializedParameter(dtype=lib.float64) if lib is sl else N.parameter.UninitializedParameter(dtype=lib.float64)
        with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
            p.shape
        for call in (lambda p: p + 1, lambda p: p.sum(), lambda p: p @ p, lambda p: p.tolist() and None):
            with pytest.raises((ValueError, RuntimeError)):
                call(p)
        assert repr(p) == "<UninitializedParameter>" and p.requires_grad and p.dtype is lib.float64
        p.materialize((2, 3))
        assert type(p) is N.Parameter and p.shape == (2, 3) and p.requires_grad and p.dtype is lib.float64
    lazy = nn.LazyLinear(3).half()
    assert lazy.weight.dtype is sl.float16 and nn.parameter.is_lazy(lazy.weight)
    lazy.float()
    with pytest.raises(RuntimeError, match="size mismatch|uninitialized"):
        nn.Linear(2, 3).load_state_dict(lazy.state_dict())

    class Calls(nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = lazy

        def build(self, x):
            return self.m(x)

    with pytest.raises(RuntimeError, match="LazyLinear: its parameters have no shape yet; call the module once"):
        Calls()(sl.ones(2, 4))
    lazy(sl.ones(2, 4))
    assert Calls()(sl.ones(2, 4)).shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(3, 2)(sl.ones(2, 2))
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv2d(4, 1, groups=2)(sl.ones(1, 3, 2, 2))


def test_optimizers_of_lazy_modules():
    m = nn.LazyLinear(3)
    m(sl.ones(1, 2))
    optimizer = sl.optim.SGD(m.parameters(), 1.0)
    m(sl.ones(1, 2)).sum().backward()
    before = m.weight.detach().clone()
    optimizer.step()
    assert sl.allclose(m.weight, before - 1)
