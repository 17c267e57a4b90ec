"""Every optimizer and flag against torch over 50 steps, eager and in a graph."""

import numpy as np
import pytest
import torch
from conftest import to_sl
from optimizing import Training, assert_close, batches, net, ours_of, pair, quadratic, train, values

import sluice as sl
import sluice.nn as nn

CASES = [  # the first of each optimizer is that of the network
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}), ("SGD", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 1e-4, "momentum": 0.5, "maximize": True}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 1e-2, "maximize": True, "betas": (0.8, 0.95)}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True, "foreach": True}),
    ("AdamW", {"lr": 1e-2, "weight_decay": 0.1}), ("AdamW", {"lr": 1e-2, "amsgrad": True, "fused": True, "eps": 1e-3}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}), ("Adadelta", {"rho": 0.8, "eps": 1e-4, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1}), ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5}),
    ("Adagrad", {"lr": 0.01, "maximize": True, "eps": 1e-3}),
    ("Adamax", {"lr": 1e-2, "weight_decay": 0.1}),
    ("Adamax", {"lr": 1e-2, "betas": (0.8, 0.9), "maximize": True, "foreach": False}),
    ("ASGD", {"lr": 1e-2, "t0": 10, "lambd": 1e-2, "weight_decay": 0.1}),
    ("ASGD", {"lr": 1e-4, "alpha": 0.5, "t0": 0, "maximize": True}),
    ("NAdam", {"lr": 1e-2, "weight_decay": 0.1}), ("NAdam", {"lr": 1e-2, "momentum_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 1e-2, "weight_decay": 0.1}), ("RAdam", {"lr": 1e-2, "betas": (0.8, 0.9), "maximize": True}),
    ("RAdam", {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": True, "capturable": False}),
    ("RMSprop", {"lr": 1e-2, "momentum": 0.9, "centered": True, "weight_decay": 0.1}), ("RMSprop", {"lr": 1e-2}),
    ("RMSprop", {"lr": 1e-2, "alpha": 0.9, "centered": True, "eps": 1e-3}),
    ("RMSprop", {"lr": 1e-3, "momentum": 0.5, "maximize": True}),
    ("Rprop", {"lr": 1e-2}), ("Rprop", {"lr": 1e-2, "etas": (0.3, 1.5), "step_sizes": (1e-4, 0.05), "maximize": True}),
    ("Adafactor", {"lr": 1e-2, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-6, 1e-2), "maximize": True}),
    ("Adafactor", {"lr": 1e-1, "d": 2.0}),
]
FIRST = list({name: (name, options) for name, options in reversed(CASES)}.values())
TOLERANCE = {"NAdam": 3e-6, "ASGD": 3e-6}  # torch keeps scalars of theirs as float32


@pytest.mark.parametrize("name, options", CASES, ids=str)
def test_quadratic_equals_torch(name, options):  # OE-17, LR-17
    (ours, optimizer), (theirs, other) = pair(name, options)
    graph_module, graph_optimizer = pair(name, options)[0]
    graph = Training(graph_module, graph_optimizer)
    inputs = batches(50)
    expected = train(theirs, other, inputs)
    assert train(ours, optimizer, ours_of(inputs)) == pytest.approx(expected, rel=1e-6)
    losses = [graph(x) for x in ours_of(inputs)]
    assert [loss.item() for loss in losses] == pytest.approx(expected, rel=1e-6)
    assert_close(ours, theirs, TOLERANCE.get(name, 1e-6), "eager")
    assert_close(graph_module, theirs, TOLERANCE.get(name, 1e-6), "graph")
    assert repr(optimizer) == repr(other)


@pytest.mark.parametrize("name, options", FIRST, ids=str)
def test_network_equals_torch(name, options):
    dtype = "float64" if name == "Rprop" else "float32"  # it goes by signs, which rounding changes
    (ours, optimizer), (theirs, other) = pair(name, options, dtype, net)
    graph_module, graph_optimizer = pair(name, options, dtype, net)[0]
    graph = Training(graph_module, graph_optimizer)
    inputs = [torch.tensor(np.random.default_rng(i).normal(size=(4, 6)), dtype=getattr(torch, dtype)) for i in range(50)]
    train(theirs, other, inputs)
    train(ours, optimizer, ours_of(inputs))
    for x in ours_of(inputs):
        graph(x)
    assert_close(ours, theirs, 1e-5, "eager")
    assert_close(graph_module, theirs, 1e-5, "graph")


# The second moments of pixels that are always 0 are rounding alone.
FLOORS = {"RMSprop": {"eps": 1e-4},
          **{name: {"eps": 1e-6} for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad")}}


@pytest.mark.parametrize("name, options", FIRST, ids=str)
def test_digits_equal_torchs(name, options):  # OE-17
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data / 16.0, digits.target
    dtype = "float64" if name == "Rprop" else "float32"
    found = []
    for lib in (sl, torch):
        module = lib.nn.Sequential(lib.nn.Linear(64, 24), lib.nn.ReLU(), lib.nn.Linear(24, 10)).to(getattr(lib, dtype))
        with lib.no_grad():
            for i, p in enumerate(module.parameters()):
                p.copy_(lib.tensor(np.random.default_rng(i).normal(size=tuple(p.shape)) * 0.2))
        optimizer = getattr(lib.optim, name)(module.parameters(), **{**options, **FLOORS.get(name, {})})
        losses = []
        for step in range(50):
            rows = slice(step * 32, step * 32 + 32)
            optimizer.zero_grad()
            loss = lib.nn.functional.cross_entropy(module(lib.tensor(images[rows], dtype=getattr(lib, dtype))),
                                                   lib.tensor(labels[rows]))
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        found.append((module, losses))
    (ours, losses), (theirs, expected) = found
    assert losses == pytest.approx(expected, rel=1e-4)
    assert_close(ours, theirs, 2e-5)  # 50 steps of float32, each with roundings of its own


@pytest.mark.parametrize("options", [{}, {"nesterov": False, "weight_decay": 0.0},
                                     {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}], ids=str)
def test_muon_equals_torch_as_far_as_bfloat16_goes(options):
    made = [pair("Muon", {"lr": 0.02, **options}, "float32", matrices) for _ in range(2)]
    (ours, optimizer), (theirs, other) = made[0]
    graph_module, graph_optimizer = made[1][0]
    graph = Training(graph_module, graph_optimizer)
    before = values(theirs)
    inputs = [torch.tensor(np.random.default_rng(i).normal(size=(4, 6)), dtype=torch.float32) for i in range(5)]
    train(theirs, other, inputs)
    train(ours, optimizer, ours_of(inputs))
    for x in ours_of(inputs):
        graph(x)
    for start, a, b, c in zip(before, values(ours), values(graph_module), values(theirs)):
        for found in (a, b):
            assert np.linalg.norm(found - c) < 0.03 * np.linalg.norm(c - start)
    assert repr(optimizer) == repr(other)
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        sl.optim.Muon([nn.Parameter(sl.ones(3))])


def matrices(lib, dtype):
    module = lib.nn.Sequential(lib.nn.Linear(6, 8, bias=False), lib.nn.Tanh(), lib.nn.Linear(8, 3, bias=False))
    with lib.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(lib.tensor(np.random.default_rng(i).normal(size=tuple(p.shape)).astype("float32")))
    return module


# Those that torch does not have: references after the papers.


def lamb(p, g, s, lr, betas, eps, weight_decay, adam_w_mode=True, do_bias_correction=True):
    s["t"] = s.get("t", 0) + 1
    if not adam_w_mode:
        g = g + weight_decay * p
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    m, v = s["m"], s["v"]
    if do_bias_correction:
        m, v = m / (1 - betas[0] ** s["t"]), v / (1 - betas[1] ** s["t"])
    r = m / (np.sqrt(v) + eps) + (weight_decay * p if adam_w_mode else 0)
    ratio = np.linalg.norm(p) / np.linalg.norm(r) if np.linalg.norm(p) > 0 and np.linalg.norm(r) > 0 else 1.0
    return p - lr * ratio * r


def lars(p, g, s, lr, momentum, lars_coefficient, eps, weight_decay):
    p_norm, g_norm = np.linalg.norm(p), np.linalg.norm(g)
    ratio = lars_coefficient * p_norm / (eps + g_norm + weight_decay * p_norm) if p_norm > 0 and g_norm > 0 else 1.0
    s["v"] = momentum * s.get("v", 0) + lr * ratio * (g + weight_decay * p)
    return p - s["v"]


def ftrl(p, g, s, lr, lr_power, initial_accumulator_value, lambda1, lambda2, beta, weight_decay):
    g = g + weight_decay * p
    old = s.get("n", initial_accumulator_value + 0 * g)
    s["n"] = old + g * g
    s["z"] = s.get("z", 0) + g - (s["n"] ** -lr_power - old ** -lr_power) / lr * p
    return np.where(np.abs(s["z"]) <= lambda1, 0.0,
                    (np.sign(s["z"]) * lambda1 - s["z"]) / ((beta + s["n"] ** -lr_power) / lr + lambda2))


def lazy_adam(p, g, s, lr, betas, eps):
    s["t"] = s.get("t", 0) + 1
    rows = (g != 0).reshape(len(g), -1).any(axis=1) if g.ndim else np.True_
    rows = np.reshape(rows, np.shape(rows) + (1,) * (g.ndim - np.ndim(rows)))
    m, v = (s.get(k, np.zeros_like(p)) for k in "mv")
    s["m"] = np.where(rows, betas[0] * m + (1 - betas[0]) * g, m)
    s["v"] = np.where(rows, betas[1] * v + (1 - betas[1]) * g * g, v)
    step = lr / (1 - betas[0] ** s["t"]) * s["m"] / (np.sqrt(s["v"] / (1 - betas[1] ** s["t"])) + eps)
    return np.where(rows, p - step, p)


OTHERS = [
    ("LAMB", lamb, dict(lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)),
    ("LAMB", lamb, dict(lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, adam_w_mode=False)),
    ("LAMB", lamb, dict(lr=0.01, betas=(0.9, 0.99), eps=1e-6, weight_decay=0, do_bias_correction=False)),
    ("LARS", lars, dict(lr=0.5, momentum=0.9, lars_coefficient=0.02, eps=1e-9, weight_decay=0.1)),
    ("FTRL", ftrl, dict(lr=0.5, lr_power=-0.5, initial_accumulator_value=0.1, lambda1=0.5, lambda2=0.1, beta=0.5,
                        weight_decay=0.01)),
    ("FTRL", ftrl, dict(lr=0.5, lr_power=-0.7, initial_accumulator_value=0.2, lambda1=0, lambda2=0, beta=0, weight_decay=0)),
    ("LazyAdam", lazy_adam, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-8)),
]


class Rows(nn.Module):
    """Batches read some rows of one matrix; of the others all."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(2)
        for name, shape in (("a", (5, 3)), ("b", (4,)), ("c", ()), ("zero", (2,))):
            setattr(self, name, nn.Parameter(sl.tensor(rng.normal(size=shape) * (name != "zero"))))

    def forward(self, mask):
        return ((self.a - 1) ** 2 * mask).sum() + ((self.b - 1) ** 2 * mask[0]).sum() + (self.c - 1) ** 2 + ((self.zero - 1) ** 2).sum()


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("name, step, options", OTHERS, ids=lambda v: v if isinstance(v, str) else "")
def test_optimizers_of_oneflow_equal_their_formulas(name, step, options, in_graph):  # LR-18, OE-17
    ours, shadow = Rows(), Rows()
    optimizer = getattr(sl.optim, name)(ours.parameters(), **options)
    graph = Training(ours, optimizer) if in_graph else None
    expected, states = values(shadow), [{} for _ in values(shadow)]
    rng = np.random.default_rng(7)
    for _ in range(10):
        mask = (rng.uniform(size=(5, 1)) < 0.5).astype(float)
        graph(sl.tensor(mask)) if in_graph else train(ours, optimizer, [sl.tensor(mask)])
        for p, v in zip(shadow.parameters(), expected):
            p.data = sl.tensor(v)
        shadow.zero_grad()
        shadow(sl.tensor(mask)).sum().backward()
        expected = [step(v, p.grad.numpy(), s, **options) for v, p, s in zip(expected, shadow.parameters(), states)]
    for found, v in zip(values(ours), expected):
        np.testing.assert_allclose(found, v, rtol=1e-6, atol=1e-9)


def test_adam_without_bias_correction():  # LR-17
    rng = np.random.default_rng(1)
    start, grads = rng.normal(size=4), rng.normal(size=(10, 4))
    p = nn.Parameter(sl.tensor(start))
    optimizer = sl.optim.AdamW([p], lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, do_bias_correction=False)
    m = v = 0
    for g in grads:
        p.grad = sl.tensor(g)
        optimizer.step()
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        start = start * (1 - 0.1 * 0.1) - 0.1 * m / (np.sqrt(v) + 1e-3)
    np.testing.assert_allclose(p.detach().numpy(), start, rtol=1e-9)


# LBFGS


def rosenbrock(lib, p):
    return (1 - p[:-1]).square().sum() + 100 * (p[1:] - p[:-1].square()).square().sum()


@pytest.mark.parametrize("options", [
    {"line_search_fn": "strong_wolfe"}, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7}, {"lr": 1e-3},
    {"line_search_fn": "strong_wolfe", "max_eval": 4, "lr": 0.5}, {"lr": 0.1, "max_iter": 4, "history_size": 2}], ids=str)
def test_lbfgs_equals_torch(options):  # OE-17
    start = np.array([-1.2, 1.0, 0.7, -0.5])
    found = []
    for lib in (sl, torch):
        p = lib.nn.Parameter(lib.tensor(start))
        other = lib.nn.Parameter(lib.tensor([[0.5], [-2.0]], dtype=lib.float64))
        optimizer = lib.optim.LBFGS([p, other], **options)

        def closure():
            optimizer.zero_grad()
            loss = rosenbrock(lib, p) + (other ** 4).sum()
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure).detach()) for _ in range(8)]
        state = optimizer.state_dict()["state"][0]
        found.append((losses, p.detach().numpy(), other.detach().numpy(), state["func_evals"], state["n_iter"]))
    (losses, p, other, *counts), (their_losses, their_p, their_other, *their_counts) = found
    assert counts == their_counts
    np.testing.assert_allclose(losses, their_losses, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(p, their_p, rtol=1e-6)
    np.testing.assert_allclose(other, their_other, rtol=1e-5, atol=1e-7)


def test_lbfgs_resumes_from_its_state_and_torchs():
    def begin(lib):
        p = lib.nn.Parameter(lib.tensor([-1.2, 1.0], dtype=lib.float64))
        return p, lib.optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")

    def go(lib, p, optimizer, steps):
        def closure():
            optimizer.zero_grad()
            loss = rosenbrock(lib, p)
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)

    theirs, other = begin(torch)
    go(torch, theirs, other, 2)
    ours, optimizer = begin(sl)
    ours.data = to_sl(theirs.detach())
    optimizer.load_state_dict(other.state_dict())
    go(torch, theirs, other, 3)
    go(sl, ours, optimizer, 3)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="LBFGS has a step\\(\\) of its own"):
        Training(quadratic(sl), optimizer)
    with pytest.raises(ValueError, match="per-parameter options"):
        sl.optim.LBFGS([{"params": [ours]}, {"params": [nn.Parameter(sl.ones(1))]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        sl.optim.LBFGS([ours], line_search_fn="armijo")
