"""Optimizers of complex parameters, whose parts are updated as real numbers: as torch's, eager and in graphs."""

import numpy as np
import pytest
import torch

import sluice as sl

OPTIONS = [("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("SGD", {"momentum": 0.9, "maximize": True}),
           ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {"amsgrad": True}), ("AdamW", {"maximize": True}),
           ("Adagrad", {"initial_accumulator_value": 0.2}), ("Adadelta", {}), ("Adamax", {}), ("ASGD", {"t0": 1}), ("NAdam", {}),
           ("RAdam", {}), ("RMSprop", {}), ("RMSprop", {"centered": True, "momentum": 0.9}), ("Rprop", {})]
START = np.array([[1 + 2j, -0.5j, 0.25], [0.3 + 0j, 2 - 1j, 1j]], np.complex64)
STEPS = 5


def loss(m, p, scale, x):
    return ((p * m.tensor([1 + 1j, 2 - 1j, 0.5j]) - m.tensor([0.5j, 1.0, 1 + 1j])).abs() ** 2).sum() + (scale * x).abs().sum()


def trained(m, name, options, graph=False, dtype="complex64"):
    p = m.nn.Parameter(m.tensor(START, dtype=getattr(m, dtype)))
    scale = m.nn.Parameter(m.tensor([0.5, -1.0], dtype=p.real.dtype))
    x = m.tensor([1 + 1j, 2.0])
    optimizer = getattr(m.optim, name)([p, scale], lr=0.1, **options)

    def value():
        optimizer.zero_grad()
        y = loss(m, p, scale, x)
        y.backward()
        return y

    if graph:
        class Step(sl.nn.Graph):
            def __init__(self):
                super().__init__()
                self.p, self.scale = p, scale
                self.add_optimizer(optimizer)

            def build(self):
                y = loss(m, self.p, self.scale, x)
                y.backward()
                return y

        step = Step()
    losses = [(step() if graph else optimizer.step(value)).item() for _ in range(STEPS)]
    return losses, p.detach().numpy(), scale.detach().numpy(), optimizer


@pytest.mark.parametrize("name, options", OPTIONS)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_steps_are_torchs(name, options, graph):
    ours, theirs = trained(sl, name, options, graph), trained(torch, name, options)
    for a, b in zip(ours[:3], theirs[:3]):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    assert ours[1].dtype == np.complex64


@pytest.mark.parametrize("name, options", [("SGD", {"momentum": 0.9}), ("Adam", {}), ("Rprop", {}), ("Adagrad", {})])
def test_state_dicts_are_exchanged_with_torch(name, options):
    ours, theirs = trained(sl, name, options)[3], trained(torch, name, options)[3]
    for number, state in theirs.state_dict()["state"].items():
        mine = ours.state_dict()["state"][number]
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                assert str(mine[key].dtype).split(".")[1] == str(value.dtype).split(".")[1]
                np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=2e-4, atol=2e-4)


def test_lbfgs_and_what_takes_no_complex_parameters():
    for options in ({}, {"line_search_fn": "strong_wolfe"}):
        # Its line searches take roundings of float32 to other points.
        ours, theirs = (trained(m, "LBFGS", options, dtype="complex128") for m in (sl, torch))
        np.testing.assert_allclose(ours[0][:3], theirs[0][:3], rtol=1e-3, atol=1e-3)
    for name in ("Adafactor", "Muon"):
        p = sl.nn.Parameter(sl.tensor(START))
        optimizer = getattr(sl.optim, name)([p])
        (p * p.conj()).real.sum().backward()
        with pytest.raises(RuntimeError, match=f"{name} does not support complex parameters"):
            optimizer.step()
