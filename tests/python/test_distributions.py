"""torch.distributions; torch is the oracle, samples by their statistics or, where torch's numbers are drawn, by bits."""

import math

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

A, B = torch.tensor([0.5, 1.5, 3.0], dtype=torch.float64), torch.tensor([[2.0], [0.7]], dtype=torch.float64)
P = torch.tensor([[0.1, 0.6, 0.3], [0.25, 0.25, 0.5]], dtype=torch.float64)
U = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
TRIL = torch.tensor([[1.0, 0, 0], [0.3, 2.0, 0], [-0.5, 0.2, 0.7]], dtype=torch.float64)


def torch_or_sl(like, number):
    """A number as a tensor of the library that `like` is of."""
    return like.reshape(-1)[0].detach() * 0 + number


MAKE = {  # name: (distribution of a library and tensors, tensors, a value)
    "Normal": (lambda d, a, b: d.Normal(a, b), (A, B), U),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), (A, B), U),
    "Cauchy": (lambda d, a, b: d.Cauchy(a, b), (A, B), U),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), (A, B), U),
    "StudentT": (lambda d, a, b: d.StudentT(a + 2.5, a, b), (A, B), U),
    "Uniform": (lambda d, a, b: d.Uniform(-a, b), (A, B), U * 0.7 - 0.1),
    "Exponential": (lambda d, a: d.Exponential(a), (A,), U),
    "Gamma": (lambda d, a, b: d.Gamma(a, b), (A, B), U),
    "InverseGamma": (lambda d, a, b: d.InverseGamma(a + 2, b), (A, B), U),
    "Chi2": (lambda d, a: d.Chi2(a), (A,), U),
    "Beta": (lambda d, a, b: d.Beta(a, b), (A, B), U),
    "Dirichlet": (lambda d, a: d.Dirichlet(a), (A.expand(2, 3) + 1,), P),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), (A, B), U),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), (A,), U),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a), (A,), U),
    "Weibull": (lambda d, a, b: d.Weibull(a, b), (A, B), U),
    "Pareto": (lambda d, a, b: d.Pareto(b, a + 2), (A, B), U + 3),
    "Bernoulli": (lambda d, p: d.Bernoulli(p), (U,), torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)),
    "Bernoulli of logits": (lambda d, a: d.Bernoulli(logits=a), (A,), torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)),
    "Geometric": (lambda d, p: d.Geometric(p), (U,), torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)),
    "Geometric of logits": (lambda d, a: d.Geometric(logits=a), (A,), torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)),
    "Binomial": (lambda d, p: d.Binomial(5, p), (U,), torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)),
    "Binomial of logits": (lambda d, a: d.Binomial(5, logits=a), (A,), torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)),
    "NegativeBinomial": (lambda d, p: d.NegativeBinomial(5, p), (U,), torch.tensor([0.0, 1.0, 7.0], dtype=torch.float64)),
    "Poisson": (lambda d, a: d.Poisson(a), (A,), torch.tensor([0.0, 1.0, 7.0], dtype=torch.float64)),
    "Categorical": (lambda d, p: d.Categorical(p * 3), (P,), torch.tensor([[0, 1], [2, 2]])),
    "Categorical of logits": (lambda d, p: d.Categorical(logits=p), (P,), torch.tensor([[0, 1], [2, 2]])),
    "OneHotCategorical": (lambda d, p: d.OneHotCategorical(p), (P,), torch.eye(3, dtype=torch.float64)[1:]),
    "OneHotCategoricalStraightThrough": (lambda d, p: d.OneHotCategoricalStraightThrough(p), (P,), torch.eye(3, dtype=torch.float64)[1:]),
    "Multinomial": (lambda d, p: d.Multinomial(4, p), (P,), torch.tensor([[1.0, 2, 1], [0, 0, 4]], dtype=torch.float64)),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), (A, B), U),
    "Transformed": (lambda d, a, b: d.TransformedDistribution(d.Normal(a, b), [d.SigmoidTransform(), d.AffineTransform(1.0, -2.0)]), (A, B),
                    U - 0.5),
    "tanh": (lambda d, a: d.TransformedDistribution(d.Normal(a, 1.0), d.TanhTransform()), (A,), U),
    "Mixture": (lambda d, p, a: d.MixtureSameFamily(d.Categorical(p), d.Normal(a, a + 0.5)), (P, A.expand(2, 3)), torch.tensor(
        [0.3, 2.0], dtype=torch.float64)),
    "Mixture of vectors": (lambda d, p, a: d.MixtureSameFamily(d.Categorical(p[0]), d.Independent(d.Normal(a, 1.0), 1)), (
        P, A.expand(3, 3) * TRIL), U),
    "MultivariateNormal": (lambda d, a, t: d.MultivariateNormal(a, scale_tril=t), (A, TRIL), U),
    "MultivariateNormal of covariance": (lambda d, a, t: d.MultivariateNormal(a, t @ t.mT), (A, TRIL), U),
    "MultivariateNormal of precision": (lambda d, a, t: d.MultivariateNormal(a, precision_matrix=t @ t.mT), (A, TRIL), U),
}
MAKE.update({
    "ContinuousBernoulli": (lambda d, p: d.ContinuousBernoulli(p), (torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64),), U),
    "ContinuousBernoulli of logits": (lambda d, a: d.ContinuousBernoulli(logits=a), (A - 1,), U),
    "Kumaraswamy": (lambda d, a, b: d.Kumaraswamy(a, b), (A, B), U),
    "VonMises": (lambda d, a, b: d.VonMises(a - 1, b), (A, B), U),
    "FisherSnedecor": (lambda d, a, b: d.FisherSnedecor(a * 3, b * 5), (A, B), U),
    "RelaxedBernoulli": (lambda d, p: d.RelaxedBernoulli(torch_or_sl(p, 0.7), p), (U,), U),
    "RelaxedBernoulli of logits": (lambda d, a: d.RelaxedBernoulli(torch_or_sl(a, 0.7), logits=a), (A,), U),
    "RelaxedOneHotCategorical": (lambda d, p: d.RelaxedOneHotCategorical(torch_or_sl(p, 0.7), p), (P,), P.flip(-1)),
    "LogisticNormal": (lambda d, a: d.LogisticNormal(a[:2] - 1, a[:2] + 0.1), (A,), P),
    "LKJCholesky": (lambda d, a: d.LKJCholesky(3, a[:2] + 0.5), (A,), torch.linalg.cholesky(torch.tensor(
        [[1.0, 0.3, -0.2], [0.3, 1.0, 0.5], [-0.2, 0.5, 1.0]], dtype=torch.float64))),
    "Wishart": (lambda d, a, t: d.Wishart(a + 4, scale_tril=t.tril()), (A, TRIL), TRIL @ TRIL.mT * 2),
    "Wishart of covariance": (lambda d, a, t: d.Wishart(a[0] + 4, t @ t.mT), (A, TRIL), TRIL @ TRIL.mT),
    "Wishart of precision": (lambda d, a, t: d.Wishart(a[0] + 4, precision_matrix=t @ t.mT), (A, TRIL), TRIL @ TRIL.mT),
    "LowRankMultivariateNormal": (lambda d, a, t: d.LowRankMultivariateNormal(a, t[:, :2], a + 0.2), (A, TRIL), U),
})
PROPERTIES = ["mean", "mode", "variance", "stddev"]


def needs(name):
    """Names that this distribution takes from elsewhere, and that are not there."""
    if "Multivariate" not in name:
        return []
    linalg = getattr(sl, "linalg", None)
    return [f"linalg.{n}" for n in ("cholesky", "solve_triangular", "cholesky_ex") if not hasattr(linalg, n)]


@pytest.fixture(params=MAKE)
def case(request):
    if missing := needs(request.param):
        pytest.skip(f"sluice has no {missing}")
    return request.param, *MAKE[request.param]


def pair(make, tensors, requires_grad=False):
    theirs = [t.clone().requires_grad_(requires_grad) for t in tensors]
    ours = [to_sl(t) for t in theirs]
    return make(sl.distributions, *ours), make(torch.distributions, *theirs), ours, theirs


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
    with pytest.raises(TypeError, match="Expected a Distribution subclass"):
        sl.distributions.register_kl(int, Mine)


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


@pytest.mark.parametrize("name", ["ExpTransform", "SigmoidTransform", "TanhTransform", "SoftplusTransform", "affine", "power", "composed",
                                  "independent", "inverse", "reshape"])
def test_transforms_equal_torch(name):
    special = {"affine": lambda d: d.AffineTransform(2.0, -3.0), "power": lambda d: d.PowerTransform(2.5),
               "composed": lambda d: d.ComposeTransform([d.SigmoidTransform(), d.AffineTransform(1.0, 2.0), d.ExpTransform()]),
               "independent": lambda d: d.IndependentTransform(d.ExpTransform(), 1), "inverse": lambda d: d.ExpTransform().inv, "reshape": lambda d: d.ReshapeTransform((2, 3), (3, 2))}
    make = special.get(name, lambda d: getattr(d, name)())
    ours, theirs = make(sl.distributions), make(torch.distributions)
    x = torch.tensor([[0.5, 1.0, 2.0], [0.1, 0.2, 3.0]], dtype=torch.float64)
    y = theirs(x)
    assert_same(ours(to_sl(x)), y, 1e-10)
    assert_same(ours.inv(to_sl(y)), theirs.inv(y), 1e-9)
    assert_same(ours.log_abs_det_jacobian(to_sl(x), to_sl(y)), theirs.log_abs_det_jacobian(x, y), 1e-9)
    assert_same(ours.inv.log_abs_det_jacobian(to_sl(y), to_sl(x)), theirs.inv.log_abs_det_jacobian(y, x), 1e-9)
    assert tuple(ours.forward_shape((2, 3))) == tuple(theirs.forward_shape((2, 3)))
    assert ours.domain.event_dim == theirs.domain.event_dim and ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.bijective == theirs.bijective and ours.inv.inv == ours and ours != sl.distributions.AbsTransform()


EVENTS = {
    "StickBreakingTransform": (lambda d: d.StickBreakingTransform(), torch.tensor([[0.5, 1.0, -2.0], [0.1, 0.2, 3.0]],
                                                                                  dtype=torch.float64)),
    "CorrCholeskyTransform": (lambda d: d.CorrCholeskyTransform(), torch.tensor([[0.5, 1.0, -2.0, 0.3, 0.1, -0.4]] * 2,
                                                                                dtype=torch.float64)),
    "CumulativeDistributionTransform": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)), A),
    "CatTransform": (lambda d: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], 1, [2, 1]), torch.ones(4, 3,
                                                                                                                      dtype=torch.float64)),
    "CatTransform of ones": (lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1), torch.ones(4, 2,
                                                                                                             dtype=torch.float64)),
    "StackTransform": (lambda d: d.StackTransform([d.ExpTransform(), d.SigmoidTransform(), d.TanhTransform()], 1),
                       torch.ones(4, 3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", EVENTS)
def test_transforms_of_events_equal_torch(name):
    make, x = EVENTS[name]
    ours, theirs = make(sl.distributions), make(torch.distributions)
    x = x.clone().requires_grad_()
    mine, y = to_sl(x), theirs(x)
    assert_same(ours(mine), y, 1e-9)
    assert_same(ours.inv(to_sl(y)), theirs.inv(y), 1e-7)
    found, expected = ours.log_abs_det_jacobian(mine, ours(mine)), theirs.log_abs_det_jacobian(x, y)
    assert_same(found, expected, 1e-8)
    assert_same(sl.autograd.grad(found.sum() + ours(mine).square().sum(), mine)[0],
                torch.autograd.grad(expected.sum() + y.square().sum(), x)[0], 1e-7)
    assert ours.domain.event_dim == theirs.domain.event_dim and ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.bijective == theirs.bijective and bool(ours.codomain.check(ours(mine)).all())
    assert tuple(ours.forward_shape(tuple(x.shape))) == tuple(theirs.forward_shape(tuple(x.shape)))
    assert tuple(ours.inverse_shape(tuple(y.shape))) == tuple(theirs.inverse_shape(tuple(y.shape)))


def test_transforms_of_events_that_do_not_fit():
    d = sl.distributions
    with pytest.raises(ValueError, match="flattened lower-diagonal"):
        d.CorrCholeskyTransform()(sl.ones(4))
    with pytest.raises(ValueError, match="not square"):
        d.CorrCholeskyTransform().inverse_shape((3, 4))
    with pytest.raises(AssertionError, match="must have 2 entries"):
        d.StackTransform([d.ExpTransform(), d.ExpTransform()])(sl.ones(3))
    with pytest.raises(AssertionError, match="same length as tseq"):
        d.CatTransform([d.ExpTransform()], 0, [1, 2])


def test_transforms_by_constraint():
    def moved(d, lib, x):
        c = d.constraints
        return [t(kind)(x) for t in (d.biject_to, d.transform_to) for kind in (
            c.positive, c.real, c.unit_interval, c.interval(-1.0, 3.0), c.greater_than(2.0), c.less_than(1.0))] + [
                d.transform_to(c.simplex)(x), d.biject_to(c.independent(c.positive, 1))(x), d.biject_to(c.simplex)(x), d.biject_to(c.corr_cholesky)(x),
                d.transform_to(c.positive_definite)(x.reshape(1, 3).expand((3, 3))), d.biject_to(c.cat([c.positive, c.real], 0,
                                                                                                       [2, 1]))(x),
                d.transform_to(c.stack([c.positive, c.real, c.unit_interval]))(x)]

    for a, b in zip(moved(sl.distributions, sl, to_sl(A)), moved(torch.distributions, torch, A), strict=True):
        assert_same(a, b, 1e-9)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        sl.distributions.biject_to(sl.distributions.constraints.boolean)


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
