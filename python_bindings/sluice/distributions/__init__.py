"""Probability distributions: torch.distributions.

log_prob() and the other functions are differentiable and work in graphs; so do samples, but for the gradients of gamma
samples. Samples are torch's numbers where they are formulas of uniform or normal numbers, and others elsewhere.
"""

from typing import Any

from sluice.distributions import constraints, kl, transforms, utils
from sluice.distributions.categorical import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from sluice.distributions.compound import (HalfCauchy, HalfNormal, Independent, LogNormal, MixtureSameFamily, Pareto,
                                           TransformedDistribution, Weibull)
from sluice.distributions.constraint_registry import biject_to, transform_to
from sluice.distributions.continuous import Cauchy, Gumbel, Laplace, Normal, StudentT, Uniform
from sluice.distributions.discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.kl import kl_divergence, register_kl
from sluice.distributions.multivariate import MultivariateNormal
from sluice.distributions.positive import Beta, Chi2, Dirichlet, Exponential, Gamma, InverseGamma
from sluice.distributions.transforms import (AbsTransform, AffineTransform, ComposeTransform, ExpTransform, IndependentTransform,
                                             LowerCholeskyTransform, PowerTransform, ReshapeTransform, SigmoidTransform,
                                             SoftmaxTransform, SoftplusTransform, TanhTransform, Transform, identity_transform)

__all__ = ["AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ComposeTransform",
           "Dirichlet", "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "Gamma", "Geometric", "Gumbel", "HalfCauchy",
           "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Laplace", "LogNormal", "LowerCholeskyTransform",
           "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PowerTransform", "ReshapeTransform", "SigmoidTransform",
           "SoftmaxTransform", "SoftplusTransform", "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform",
           "Weibull", "biject_to", "constraints", "identity_transform", "kl", "kl_divergence", "register_kl", "transform_to", "transforms",
           "utils"]

_MISSING = ("ContinuousBernoulli", "CorrCholeskyTransform", "FisherSnedecor", "GeneralizedPareto", "Kumaraswamy", "LKJCholesky",
            "LogisticNormal", "LowRankMultivariateNormal", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StackTransform",
            "StickBreakingTransform", "VonMises", "Wishart", "CatTransform", "CumulativeDistributionTransform")


def __getattr__(name: str) -> Any:
    if name in _MISSING:
        raise AttributeError(f"module 'sluice.distributions' has no attribute '{name}': not supported; a TransformedDistribution or a "
                             "subclass of Distribution may do")
    raise AttributeError(f"module 'sluice.distributions' has no attribute '{name}'")
