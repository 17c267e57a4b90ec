"""repr of tensors, which is torch's but for the module's name."""

import numpy as np
import pytest
import torch
from conftest import to_sl

import sluice as sl

inf, nan = float("inf"), float("nan")

TENSORS = {
    "floats": torch.tensor([[1.5, -2.25], [3.0, 1000.5]]), "whole floats": torch.tensor([1.0, -20.0, 300.0]), "ints": torch.tensor([[1, -20], [300, 4]]),
    "bools": torch.tensor([[True, False], [False, False]]), "0-d": torch.tensor(3.14159), "0-d int": torch.tensor(-7), "0-d bool": torch.tensor(True),
    "0-d whole": torch.tensor(2.0), "empty": torch.zeros(0), "empty 2-d": torch.zeros(0, 3), "empty ints": torch.zeros(2, 0, dtype=torch.int64),
    "empty of int32": torch.zeros(0, dtype=torch.int32), "special": torch.tensor([nan, inf, -inf, 1.0]), "special fractions": torch.tensor([nan, inf, -inf, 0.5]),
    "only special": torch.tensor([nan, inf, -inf]), "zeros": torch.zeros(2, 3), "negative zero": torch.tensor([-0.0, 0.0, 0.5]),
    "far apart": torch.tensor([1e-3, 5000.0]), "small": torch.tensor([1e-5, 2e-5]), "large": torch.tensor([1e9, 2e9]), "large and special": torch.tensor([1e10, nan, -inf]),
    "large whole": torch.tensor([1.0, 1e5]), "double": torch.tensor([1.5], dtype=torch.float64), "half": torch.tensor([1.5, 65504.0], dtype=torch.float16),
    "bfloat16": torch.tensor([1.5, 2.7], dtype=torch.bfloat16), "uint8": torch.arange(3, dtype=torch.uint8), "int32": torch.arange(40, dtype=torch.int32),
    "long line": torch.arange(100) * 12345, "long line of floats": torch.arange(50.0) / 7, "3-d": torch.arange(24.0).reshape(2, 3, 4) / 3,
    "4-d": torch.arange(16).reshape(2, 2, 2, 2), "summarised": torch.arange(1001), "summarised floats": torch.arange(2000.0).reshape(40, 50) / 10,
    "summarised 3-d": torch.arange(8000).reshape(20, 20, 20), "summarised thin": torch.arange(3000).reshape(3, 1000), "1000 are whole": torch.arange(1000.0),
    "summarised tall": torch.arange(4000.0).reshape(1000, 4) * 1e4, "column": torch.arange(5.0).reshape(5, 1), "strided": torch.arange(6.0).reshape(2, 3).t(),
    "wide with dtype": torch.arange(12, dtype=torch.int16) * 1000,
}


def plain(text):
    return text.replace("torch.", "").replace("sluice.", "")


def ours(t):
    return to_sl(t.float()).to(sl.bfloat16) if t.dtype is torch.bfloat16 else to_sl(t)


@pytest.mark.parametrize("name", TENSORS)
def test_repr_is_torchs(name):
    t = TENSORS[name]
    assert plain(repr(ours(t))) == plain(repr(t)) and plain(str(ours(t))) == plain(str(t))


def test_history_is_told_as_torch_tells_it():
    for make in (lambda m: m.ones(2, requires_grad=True), lambda m: m.ones(2, requires_grad=True) * 2, lambda m: m.full((30,), 0.125, requires_grad=True),
                 lambda m: m.arange(30.0, requires_grad=True).sin(), lambda m: m.zeros(0, 2, requires_grad=True), lambda m: (m.ones((), requires_grad=True) + 1),
                 lambda m: m.ones(3, dtype=m.float64, requires_grad=True).exp()):
        assert plain(repr(make(sl))) == plain(repr(make(torch)))


@pytest.mark.parametrize("given", [{"precision": 2}, {"edgeitems": 1, "threshold": 5}, {"linewidth": 40}, {"sci_mode": True}, {"sci_mode": False},
                                   {"profile": "short"}, {"profile": "full"}, {"precision": 8, "linewidth": 120}])
def test_printoptions_are_torchs(given):
    tensors = [torch.arange(30.0) / 7, torch.tensor([1e-5, 1.0]), torch.arange(1200), torch.arange(60).reshape(3, 4, 5)]
    try:
        for m in (torch, sl):
            m.set_printoptions(**given)
        for t in tensors:
            assert plain(repr(to_sl(t))) == plain(repr(t))
    finally:
        for m in (torch, sl):
            m.set_printoptions(profile="default", linewidth=80)
    assert sl.get_printoptions()["precision"] == 4
    with pytest.raises(ValueError, match="profile is 'tiny'"):
        sl.set_printoptions(profile="tiny")


def test_the_default_dtype_is_not_told():
    sl.set_default_dtype(sl.float64)
    torch.set_default_dtype(torch.float64)
    try:
        for t in (torch.ones(2), torch.ones(2, dtype=torch.float32), torch.zeros(0, 1)):
            assert plain(repr(to_sl(t))) == plain(repr(t))
    finally:
        sl.set_default_dtype(sl.float32)
        torch.set_default_dtype(torch.float32)


def test_random_tensors_print_as_torchs():
    generator = np.random.default_rng(3)
    for _ in range(60):
        shape = tuple(generator.integers(1, 6, generator.integers(1, 4)))
        values = generator.normal(size=shape) * 10.0 ** generator.integers(-6, 9)
        if generator.random() < 0.3:
            values = np.round(values)
        t = torch.tensor(values.astype(np.float32))
        assert plain(repr(to_sl(t))) == plain(repr(t))


def test_a_traced_tensor_tells_its_type():
    class Shows(sl.nn.Graph):
        def build(self, x):
            assert repr(x) == "tensor(..., size=(2,), dtype=sluice.float32, traced)"
            return x

    Shows()(sl.ones(2))
