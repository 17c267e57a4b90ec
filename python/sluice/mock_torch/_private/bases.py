"""Private names of torch's modules that packages import, and that Sluice's modules have under the same name: bases of layers above all.

A module of torch whose names Sluice has in another module is in PLACES.
"""

from __future__ import annotations

# By module, names that start with an underscore and are looked up as the public ones are.
BASES = {place: frozenset(names.split()) for place, names in {
    "torch.nn.functional": "_pad _in_projection_packed",
    "torch.nn.init": "_calculate_correct_fan _calculate_fan_in_and_fan_out",
    "torch.nn.modules.batchnorm": "_BatchNorm _LazyNormBase _NormBase",
    "torch.nn.modules.conv": "_ConvNd _ConvTransposeNd _LazyConvXdMixin",
    "torch.nn.modules.dropout": "_DropoutNd",
    "torch.nn.modules.instancenorm": "_InstanceNorm",
    "torch.nn.modules.loss": "_Loss _WeightedLoss",
    "torch.nn.modules.module": "_EXTRA_STATE_KEY_SUFFIX _IncompatibleKeys",
    "torch.nn.modules.padding": "_CircularPadNd _ConstantPadNd _ReflectionPadNd _ReplicationPadNd",
    "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _LPPoolNd _MaxPoolNd _MaxUnpoolNd",
    "torch.optim.lr_scheduler": "_LRScheduler",
}.items()}

# By module of Sluice, modules of torch whose names it has.
PLACES = {f"{root}.{name}": place for root, place, names in (
    ("torch.distributions", "sluice.distributions", """bernoulli beta binomial cauchy chi2 continuous_bernoulli dirichlet exp_family exponential
        fishersnedecor gamma generalized_pareto geometric gumbel half_cauchy half_normal independent inverse_gamma kumaraswamy laplace
        lkj_cholesky log_normal logistic_normal lowrank_multivariate_normal mixture_same_family multinomial multivariate_normal
        negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli relaxed_categorical studentT transformed_distribution
        uniform von_mises weibull wishart"""),
    ("torch.nn.modules", "sluice.nn.modules.norm", "batchnorm instancenorm normalization"),
    ("torch.nn.modules", "sluice.nn", "channelshuffle flatten fold pixelshuffle upsampling"),
    ("torch.nn.utils", "sluice.nn.utils", "spectral_norm weight_norm"),
    ("torch.optim", "sluice.optim", "adadelta adamax adamw asgd nadam radam rmsprop"),
    ("torch.cuda", "sluice.amp", "amp"),
    ("torch.cuda.amp", "sluice.amp", "autocast_mode grad_scaler"),
) for name in names.split() for place in [place]}

# By package of torch, modules of Sluice that have what a module in it lacks: torch divides the classes among its modules otherwise.
ALSO = {"torch.nn.modules": ("sluice.nn", "sluice.nn.modules.lazy"), "torch.distributions": ("sluice.distributions",),
        "torch.optim": ("sluice.optim",)}
