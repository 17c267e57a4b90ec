"""Samples of torch.distributions, by their statistics or, where torch's numbers are drawn, by bits."""

import math

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from distribution_cases import MAKE, case, pair  # noqa: F401

NO_MOMENTS = {"Cauchy", "HalfCauchy"}
HEAVY = {"FisherSnedecor", "StudentT", "InverseGamma", "Pareto", "LogNormal", "Weibull"}  # tails: quantiles in place of moments


def test_samples_have_the_moments_of_their_distribution(case):
    name, make, tensors, value = case
    ours, theirs, *_ = pair(make, tensors)
    sl.manual_seed(11)
    torch.manual_seed(12)
    n = 20000
    drawn = torch.from_numpy(ours.sample((n,)).double().numpy())
    its = theirs.sample((n,)).double()
    if drawn.ndim == 1 or name not in NO_MOMENTS | HEAVY:
        spread = its.std(0) / math.sqrt(n)
        assert ((drawn.mean(0) - its.mean(0)).abs() <= 8 * spread + 1e-12).all()
        assert (drawn.std(0).clamp(min=1e-12) / its.std(0).clamp(min=1e-12) - 1).abs().max() < 0.12
    for q in (0.1, 0.5, 0.9):  # ranks: how many lie below torch's quantile
        for one in (drawn.reshape(n, -1)[:, :6],):
            point = its.reshape(n, -1)[:, :6].quantile(q, dim=0)
            below, at = (one < point).double().mean(0), (one == point).double().mean(0)
            error = 6 * math.sqrt(2 * q * (1 - q) / n)
            assert ((below <= q + error) & (below + at >= q - error)).all(), (name, q, below)
    assert not ours.sample().requires_grad


def test_reparameterized_samples_have_gradients(case):
    name, make, tensors, value = case
    ours, theirs, a, b = pair(make, tensors, requires_grad=True)
    if not theirs.has_rsample:
        with pytest.raises(NotImplementedError, match="rsample"):
            ours.rsample()
        return
    if name in NO_MOMENTS | HEAVY or name.startswith("Wishart"):  # torch's backward pass of Wishart's fails
        ours.rsample((3,)).sum().backward()
        assert any(x.grad is not None for x in a)
        return
    n = 20000  # the gradient of a mean is the mean of gradients, and torch's has one as well
    weights = to_sl(torch.linspace(0.5, 1.5, theirs.event_shape.numel() * max(theirs.batch_shape.numel(), 1), dtype=torch.float64))
    sl.manual_seed(1)
    (ours.rsample((n,)).mean(0).reshape(-1) * weights).sum().backward()
    torch.manual_seed(2)
    (theirs.rsample((n,)).mean(0).reshape(-1) * torch.from_numpy(weights.numpy())).sum().backward()
    for x, y in zip(a, b):
        if y.grad is not None:
            assert_same(x.grad, y.grad, 0.15)


@pytest.mark.parametrize("name", ["Normal", "Uniform", "LogNormal", "HalfNormal", "Laplace", "Gumbel", "Independent", "tanh"])
def test_samples_are_torchs_numbers(name):
    make, tensors, _ = MAKE[name]
    for dtype in (torch.float32, torch.float64):
        ours, theirs, *_ = pair(make, [t.to(dtype) for t in tensors])
        sl.manual_seed(5)
        torch.manual_seed(5)
        for shape in ((), (7,)):
            assert_same(ours.sample(shape), theirs.sample(shape), 5e-6 if dtype is torch.float32 else 1e-12)


def test_classes_are_torchs_where_several_are_drawn():
    ours, theirs, *_ = pair(*MAKE["Categorical"][:2])
    sl.manual_seed(5)
    torch.manual_seed(5)
    assert ours.sample((50,)).tolist() == theirs.sample((50,)).tolist()


def test_gradients_of_gamma_samples():
    generator = torch.Generator().manual_seed(3)
    a = torch.cat([10 ** (torch.rand(300, generator=generator, dtype=torch.float64) * 5 - 1.5), torch.tensor([1e4], dtype=torch.float64)])
    z = torch._standard_gamma(a, generator=generator)
    from sluice.distributions._sampling import gamma_gradient

    ours, theirs = torch.from_numpy(gamma_gradient(a.numpy(), z.numpy())), torch._standard_gamma_grad(a, z)
    assert ((ours - theirs).abs() <= 2e-3 * theirs.abs() + 1e-12).all()  # torch's are approximations
    for x, point in ((0.3, 0.1), (2.0, 3.5), (2.0, 9.0), (50.0, 60.0)):  # d z / d a at a constant quantile
        eps, one = 1e-5, torch.tensor(point, dtype=torch.float64)
        up, down = (torch.special.gammainc(torch.tensor(x + e, dtype=torch.float64), one) for e in (eps, -eps))
        density = torch.distributions.Gamma(torch.tensor(x, dtype=torch.float64), 1.0).log_prob(one).exp()
        assert gamma_gradient(sl._numpy().array([x]), sl._numpy().array([point]))[0] == pytest.approx(
            float(-(up - down) / (2 * eps) / density), rel=1e-5)


def test_poisson_samples_of_small_and_large_rates():
    rates = sl.tensor([0.0, 0.3, 4.0, 9.99, 10.0, 50.0, 1e4], dtype=sl.float64)
    sl.manual_seed(2)
    drawn = sl.distributions.Poisson(rates).sample((20000,))
    assert drawn.dtype is sl.float64 and bool((drawn >= 0).all()) and bool((drawn == drawn.floor()).all())
    assert bool(((drawn.mean(0) - rates).abs() <= 6 * (rates / 20000).sqrt()).all())
    assert bool((drawn.var(0) - rates).abs()[1:].div(rates[1:]).max() < 0.06)
