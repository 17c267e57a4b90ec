"""Helpers that the tests of optimizers and schedules share: the same training with torch and with Sluice, eager or as a graph."""

import numpy as np
import torch
from conftest import to_sl

import sluice as sl
import sluice.nn as nn


def quadratic(lib, dtype="float64"):
    """A module with parameters of 2, 1 and 0 dimensions, whose loss of a batch is a sum of squares."""
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=shape) for shape in ((5, 3), (4,), ())]
    targets = [rng.normal(size=shape) for shape in ((5, 3), (4,), ())]

    class Quadratic(lib.nn.Module):
        def __init__(self):
            super().__init__()
            for name, a in zip("abc", arrays):
                setattr(self, name, lib.nn.Parameter(lib.tensor(a, dtype=getattr(lib, dtype))))
            self.targets = [lib.tensor(t, dtype=getattr(lib, dtype)) for t in targets]

        def forward(self, x):
            terms = [((i + 1) * (p - t) * x) ** 2 for i, (p, t) in enumerate(zip((self.a, self.b, self.c), self.targets))]
            return terms[0].sum() + terms[1].sum() + terms[2]

    return Quadratic()


def net(lib, dtype="float32"):
    """A small network, with the same parameters each time."""
    module = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3))
    rng = np.random.default_rng(4)
    with lib.no_grad():
        for p in module.parameters():
            p.copy_(lib.tensor(rng.normal(size=tuple(p.shape)) * 0.5))
    return module.to(getattr(lib, dtype))


def batches(n, dtype="float64"):
    """The inputs of n steps of a quadratic()."""
    return [torch.tensor(v, dtype=getattr(torch, dtype)) for v in np.random.default_rng(5).uniform(0.5, 1.5, size=n)]


def train(module, optimizer, inputs, schedule=None, closure=False):
    """Steps as torch has them, also of ours. Returns the losses."""
    losses = []
    for x in inputs:
        def run():
            optimizer.zero_grad()
            loss = module(x).sum()
            loss.backward()
            return loss

        loss = optimizer.step(run) if closure else run()
        if not closure:
            optimizer.step()
        if schedule is not None:
            schedule.step()
        losses.append(float(loss.detach()))
    return losses


class Training(nn.Graph):
    def __init__(self, module, optimizer, schedule=None, micro_batches=1):
        super().__init__()
        self.module, self.optimizer, self.schedule = module, optimizer, schedule
        self.add_optimizer(optimizer, schedule)
        if micro_batches > 1:
            self.config.set_gradient_accumulation_steps(micro_batches)

    def build(self, x):
        loss = self.module(x).sum()
        loss.backward()
        return loss


def values(module):
    return [p.detach().numpy().copy() for p in module.parameters()]


def assert_close(ours, theirs, tolerance, what=""):
    """All parameters within `tolerance`, relative to the largest element of each."""
    for a, b, (name, _) in zip(values(ours), values(theirs), ours.named_parameters()):
        scale = np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{what} {name}")


def pair(name, options, dtype="float64", make=quadratic, groups=None):
    """(our module and optimizer), (torch's). groups: makes parameter groups of a module."""
    made = []
    for lib in (sl, torch):
        module = make(lib, dtype)
        params = groups(module) if groups else list(module.parameters())
        made.append((module, getattr(lib.optim, name)(params, **options)))
    return made


def ours_of(inputs):
    return [to_sl(x) for x in inputs]
