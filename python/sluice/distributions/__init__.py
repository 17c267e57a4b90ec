"""Probability distributions: torch.distributions.

log_prob() and the other functions are differentiable and work in graphs; so do samples, but for the gradients of gamma
samples. Samples are torch's numbers where they are formulas of uniform or normal numbers, and others elsewhere.
"""

from sluice.distributions import constraints, kl, transforms, utils
from sluice.distributions.bounded import ContinuousBernoulli, Kumaraswamy, VonMises
from sluice.distributions.categorical import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from sluice.distributions.compound import (HalfCauchy, HalfNormal, Independent, LogNormal, MixtureSameFamily, Pareto,
                                           TransformedDistribution, Weibull)
from sluice.distributions.constraint_registry import biject_to, transform_to
from sluice.distributions.continuous import Cauchy, Gumbel, Laplace, Normal, StudentT, Uniform
from sluice.distributions.discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from sluice.distributions.distribution import Distribution, ExponentialFamily
from sluice.distributions.event_transforms import (CatTransform, CorrCholeskyTransform, CumulativeDistributionTransform,
                                                   PositiveDefiniteTransform, StackTransform, StickBreakingTransform)
from sluice.distributions.kl import kl_divergence, register_kl
from sluice.distributions.matrices import LKJCholesky, LowRankMultivariateNormal, Wishart
from sluice.distributions.multivariate import MultivariateNormal
from sluice.distributions.positive import Beta, Chi2, Dirichlet, Exponential, Gamma, InverseGamma
from sluice.distributions.relaxed import LogisticNormal, RelaxedBernoulli, RelaxedOneHotCategorical
from sluice.distributions.tails import FisherSnedecor, GeneralizedPareto
from sluice.distributions.transforms import (AbsTransform, AffineTransform, ComposeTransform, ExpTransform, IndependentTransform,
                                             LowerCholeskyTransform, PowerTransform, ReshapeTransform, SigmoidTransform,
                                             SoftmaxTransform, SoftplusTransform, TanhTransform, Transform, identity_transform)

__all__ = ["AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical",
           "Cauchy", "Chi2", "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential",
           "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy",
           "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy", "LKJCholesky",
           "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "LowerCholeskyTransform",
           "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
           "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform",
           "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform",
           "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT",
           "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
           "biject_to", "constraints", "identity_transform", "kl", "kl_divergence", "register_kl", "transform_to",
           "transforms", "utils"]
