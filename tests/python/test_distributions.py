"""torch.distributions: densities, moments, divergences, refusals and graphs; torch is the oracle."""

import math

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from distribution_cases import MAKE, case, needs, pair  # noqa: F401

PROPERTIES = ["mean", "mode", "variance", "stddev"]


def attempt(f):
    try:
        return f()
    except NotImplementedError:
        return None


def assert_equal(ours, theirs, tolerance=1e-8):
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert_same(ours, theirs, tolerance)


def test_functions_and_their_gradients_equal_torch(case):
    name, make, tensors, value = case
    q = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    asked = {"log_prob": value, "cdf": value, "icdf": q, "entropy": None, "perplexity": None}
    for function, argument in asked.items():
        ours, theirs, a, b = pair(make, tensors, requires_grad=True)
        given = [] if argument is None else [argument.clone().requires_grad_(argument.is_floating_point())]
        mine = [to_sl(t) for t in given]
        found, expected = (attempt(lambda: getattr(d, function)(*g)) for d, g in ((ours, mine), (theirs, given)))
        if expected is None and found is not None:
            continue  # more than torch has
        assert_equal(found, expected, 1e-7 if name in ("Multinomial",
                                                       "VonMises") else 1e-8)  # torch's logarithm of total_count! is float32
        if expected is None or not expected.requires_grad:
            continue
        if function == "cdf" and name in ("Gamma", "InverseGamma", "Chi2"):
            continue  # igamma has no derivative by its first argument, there as here
        expected.sum().backward()
        found.sum().backward()
        for x, y in zip([*a, *mine], [*b, *given]):
            if y.grad is not None or x.grad is not None:
                zeros = torch.zeros_like(y) if y.grad is None else y.grad
                assert_same(sl.zeros_like(x) if x.grad is None else x.grad, zeros, 1e-7)


def test_moments_shapes_and_support_equal_torch(case):
    name, make, tensors, value = case
    ours, theirs, *_ = pair(make, tensors)
    for d in (lambda d: d, lambda d: d.expand((4, *d.batch_shape))):
        mine, its = d(ours), d(theirs)
        assert tuple(mine.batch_shape) == tuple(its.batch_shape) and tuple(mine.event_shape) == tuple(its.event_shape)
        for prop in PROPERTIES:
            expected = attempt(lambda: getattr(its, prop))
            if expected is not None:
                if (name, prop) == ("Kumaraswamy", "mode"):
                    continue  # torch's is NaN everywhere
                assert_same(getattr(mine, prop).expand(tuple(expected.shape)), expected, 1e-6 if name == "VonMises" else 1e-8)
        try:
            expected = its.log_prob(value)
        except ValueError:
            with pytest.raises(ValueError, match="not broadcastable"):
                mine.log_prob(to_sl(value))
        else:
            assert_same(mine.log_prob(to_sl(value)), expected,
                        1e-7 if name == "VonMises" else 1e-8)  # torch's i0 has fewer digits
        assert tuple(mine.sample().shape) == tuple(its.sample().shape)
        assert tuple(mine.sample((2, 3)).shape) == tuple(its.sample((2, 3)).shape) == tuple(its.sample(torch.Size([2, 3])).shape)
    assert ours.has_rsample == theirs.has_rsample and ours.has_enumerate_support == theirs.has_enumerate_support
    assert ours.support.event_dim == theirs.support.event_dim and ours.support.is_discrete == theirs.support.is_discrete
    assert bool(ours.support.check(ours.sample((5,))).all())
    if theirs.has_enumerate_support:
        for expand in (True, False):
            assert_equal(ours.enumerate_support(expand), theirs.enumerate_support(expand))


def test_generalized_pareto():
    """In float32, the one dtype that torch's takes."""
    k = torch.tensor([-0.4, 0.0, 0.3, 1.5])
    q = torch.tensor([0.1, 0.5, 0.7, 0.9])
    leaves = [torch.tensor([0.5, -1.0, 0.0, 2.0], requires_grad=True), torch.tensor([0.5, 1.0, 2.0, 3.0], requires_grad=True)]
    mine = [to_sl(t) for t in leaves]
    theirs, ours = torch.distributions.GeneralizedPareto(*leaves, k), sl.distributions.GeneralizedPareto(*mine, to_sl(k))
    x = theirs.icdf(q).detach()
    assert_same(ours.icdf(to_sl(q)), x, 1e-5)
    for f in ("log_prob", "cdf"):
        found, expected = getattr(ours, f)(to_sl(x)), getattr(theirs, f)(x)
        assert_same(found, expected, 1e-5)
        for g, h in zip(sl.autograd.grad(found.sum(), mine), torch.autograd.grad(expected.sum(), leaves)):
            assert_same(g, h, 1e-4)
    for f in (lambda d: d.entropy(), lambda d: d.mean, lambda d: d.variance, lambda d: d.mode):
        assert_same(f(ours), f(theirs), 1e-5)
    sl.manual_seed(3)
    torch.manual_seed(3)
    assert_same(ours.rsample((5,)), theirs.rsample((5,)), 1e-5)
    assert bool(ours.support.check(ours.sample((100,))).all())
    with pytest.raises(ValueError, match="Expected exactly one of covariance_matrix"):
        sl.distributions.Wishart(4.0, sl.eye(3), sl.eye(3))


def test_mode_of_kumaraswamy():
    d = sl.distributions.Kumaraswamy(sl.tensor([2.0, 3.0, 0.5]), sl.tensor([2.0, 5.0, 2.0]))
    x = sl.linspace(0.001, 0.999, 999).unsqueeze(1)
    best = x.squeeze(1)[d.log_prob(x).argmax(0)]
    assert bool(((d.mode - best).abs()[:2] < 1e-3).all()) and math.isnan(d.mode[2].item())


KL = ["ContinuousBernoulli", "LowRankMultivariateNormal", "Normal", "Laplace", "Cauchy", "Gumbel", "Exponential", "Gamma",
      "Beta", "Dirichlet", "LogNormal", "HalfNormal", "Bernoulli",
      "Geometric", "Binomial", "Poisson", "Categorical", "OneHotCategorical", "Independent", "MultivariateNormal", "Pareto", "Transformed"]


@pytest.mark.parametrize("name", KL)
def test_divergences_equal_torch(name):
    if missing := needs(name):
        pytest.skip(f"sluice has no {missing}")
    make, tensors, _ = MAKE[name]
    others = [t.flip(-1) if "Multivariate" not in name else t + 0.1 * torch.eye(t.shape[-1], dtype=t.dtype) if t.ndim == 2 else t * 2
              for t in tensors]
    ours, theirs, a, b = pair(make, tensors, requires_grad=True)
    ours2, theirs2, *_ = pair(make, others)
    for p, q in ((0, 1), (1, 0), (0, 0)):
        found = sl.distributions.kl_divergence((ours, ours2)[p], (ours, ours2)[q])
        assert_equal(found, torch.distributions.kl_divergence((theirs, theirs2)[p], (theirs, theirs2)[q]))
    sl.distributions.kl_divergence(ours, ours2).sum().backward()
    torch.distributions.kl_divergence(theirs, theirs2).sum().backward()
    for x, y in zip(a, b):
        assert_same(x.grad, y.grad, 1e-7)


def test_divergences_across_kinds_and_registered_ones():
    def kinds(d, lib):
        one = lib.tensor([0.7, 2.0], dtype=lib.float64)
        return [d.kl_divergence(p, q) for p, q in (
            (d.Uniform(-one, one), d.Normal(one, 2.0)), (d.Normal(-one, one), d.Laplace(one, 2.0)),
            (d.Laplace(-one, one), d.Normal(one, 2.0)),
            (d.Exponential(one), d.Normal(one, 2.0)), (d.Gamma(one, 2.0), d.Normal(one, 2.0)),
            (d.Exponential(one), d.Gamma(one, 3.0)), (d.Gamma(one, 3.0), d.Exponential(one)),
            (d.Uniform(one, one + 1), d.Uniform(0.5 * one, one + 2)), (d.Uniform(one, one + 1), d.Uniform(one + 0.5, one + 2)),
            (d.Bernoulli(lib.tensor([0.0, 1.0])), d.Bernoulli(lib.tensor([0.5, 0.0]))))]

    for a, b in zip(kinds(sl.distributions, sl), kinds(torch.distributions, torch), strict=True):
        assert_same(a, b, 1e-8)
    with pytest.raises(NotImplementedError, match="No KL"):
        sl.distributions.kl_divergence(sl.distributions.Normal(0, 1), sl.distributions.Poisson(1.0))

    class Mine(sl.distributions.Normal):
        pass

    assert sl.distributions.kl_divergence(Mine(0, 1), Mine(0, 1)).item() == 0

    @sl.distributions.register_kl(Mine, Mine)
    def mine(p, q):
        return sl.tensor(42.0)

    assert sl.distributions.kl_divergence(Mine(0, 1), Mine(0, 1)).item() == 42
    with pytest.raises(TypeError, match="Expected a class of distributions"):
        sl.distributions.register_kl(3, Mine)


WRONG = {
    "scale": lambda d, lib: d.Normal(0.0, -1.0), "NaN": lambda d, lib: d.Normal(lib.tensor([0.0, math.nan]), 1.0),
    "a string": lambda d, lib: d.Normal("a", 1.0), "probability": lambda d, lib: d.Bernoulli(1.5),
    "both": lambda d, lib: d.Bernoulli(probs=0.5, logits=0.0), "neither": lambda d, lib: d.Categorical(),
    "low": lambda d, lib: d.Uniform(2.0, 1.0), "0-d": lambda d, lib: d.Categorical(lib.tensor(0.5)),
    "0-d concentration": lambda d, lib: d.Dirichlet(lib.tensor(0.5)), "rate": lambda d, lib: d.Poisson(-1.0),
    "negative": lambda d, lib: d.Categorical(lib.tensor([-0.5, 1.0])), "no success": lambda d, lib: d.Geometric(0.0),
    "outside": lambda d, lib: d.Exponential(1.0).log_prob(lib.tensor(-1.0)),
    "not a class": lambda d, lib: d.Categorical(lib.ones(3)).log_prob(lib.tensor(3)),
    "not whole": lambda d, lib: d.Poisson(1.0).log_prob(lib.tensor(0.5)),
    "not a tensor": lambda d, lib: d.Normal(0.0, 1.0).log_prob(0.5),
    "shape": lambda d, lib: d.Normal(lib.zeros(3), 1.0).log_prob(lib.zeros(2)),
    "event": lambda d, lib: d.Dirichlet(lib.ones(3)).log_prob(lib.ones(2) / 2),
    "too many": lambda d, lib: d.Independent(d.Normal(0.0, 1.0), 1),
    "components": lambda d, lib: d.MixtureSameFamily(d.Categorical(lib.ones(3)), d.Normal(lib.zeros(2), 1.0)),
    "no mixture": lambda d, lib: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(lib.zeros(2), 1.0)),
    "no transform": lambda d, lib: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]),
    "counts": lambda d, lib: d.Multinomial(3, lib.ones(2)).log_prob(lib.ones(2) * 2),
    "dim": lambda d, lib: d.LKJCholesky(1), "freedom": lambda d, lib: d.Wishart(1.0, lib.eye(3)), 
    "factor": lambda d, lib: d.LowRankMultivariateNormal(lib.zeros(3), lib.ones(2, 2), lib.ones(3)),
    "diagonal": lambda d, lib: d.LowRankMultivariateNormal(lib.zeros(3), lib.ones(3, 2), lib.ones(2)),
    "both parameters": lambda d, lib: d.RelaxedBernoulli(lib.tensor(1.0), lib.tensor(0.5), lib.tensor(0.5)),
    "beyond the tail": lambda d, lib: d.GeneralizedPareto(0.0, 1.0, -0.5).log_prob(lib.tensor(2.5)),
    "degrees": lambda d, lib: d.Chi2(0.0), "half": lambda d, lib: d.HalfNormal(-1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_as_in_torch(name):
    for lib in (torch, sl):
        with pytest.raises(ValueError) as error:
            WRONG[name](lib.distributions, lib)
    if name == "scale":
        assert str(error.value).startswith("Expected parameter scale (Tensor of shape ()) of distribution Normal(loc: 0.0, scale: -1.0) "
                                           "to satisfy the constraint GreaterThan(lower_bound=0.0), but found invalid values:\n")
    if name == "outside":
        assert "to be within the support (GreaterThanEq(lower_bound=0.0)) of the distribution Exponential(rate: 1.0)" in str(error.value)


def test_names_that_are_no_distributions():
    with pytest.raises(AttributeError, match="has no attribute 'Typo'"):
        sl.distributions.Typo


def test_validation_can_be_left_out():
    d = sl.distributions
    assert math.isnan(d.Normal(0.0, -1.0, validate_args=False).log_prob(sl.tensor(0.0)).item())
    d.Distribution.set_default_validate_args(False)
    try:
        d.Normal(0.0, -1.0)
    finally:
        d.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="must be True or False"):
        d.Distribution.set_default_validate_args(3)


def test_repr_equals_torch():
    def texts(d, lib):
        return [repr(x).replace("sluice.", "torch.") for x in (
            d.Normal(0.0, 1.0), d.Normal(lib.zeros(3), 1.0), d.Gamma(2.0, 3.0), d.Bernoulli(0.5), d.Categorical(lib.ones(4)),
            d.Independent(d.Normal(lib.zeros(3), 1.0), 1))]

    assert texts(sl.distributions, sl) == texts(torch.distributions, torch)


def test_in_a_graph(case):
    name, make, tensors, value = case

    class Ask(sl.nn.Graph):
        def build(self, value, *given):
            given = [(g * 1).requires_grad_(True) for g in given]
            d = make(sl.distributions, *given)
            found = d.log_prob(value)
            return found, d.sample((3,)), [g for g in sl.autograd.grad(found.sum(), given, allow_unused=True) if g is not None]

    found, drawn, grads = Ask()(to_sl(value), *map(to_sl, tensors))
    leaves = [t.clone().requires_grad_(True) for t in tensors]
    theirs = make(torch.distributions, *leaves)
    expected = theirs.log_prob(value)
    assert_same(found, expected, 1e-7 if name == "VonMises" else 1e-8)
    assert tuple(drawn.shape) == (3, *theirs.batch_shape, *theirs.event_shape)
    assert bool(make(sl.distributions, *map(to_sl, tensors)).support.check(drawn).all())
    for a, b in zip(grads, [g for g in torch.autograd.grad(expected.sum(), leaves, allow_unused=True) if g is not None], strict=True):
        assert_same(a, b, 1e-7)
