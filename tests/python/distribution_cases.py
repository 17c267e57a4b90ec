"""What the tests of distributions share: one case of each, in both libraries."""

import pytest
import torch
from conftest import to_sl

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
