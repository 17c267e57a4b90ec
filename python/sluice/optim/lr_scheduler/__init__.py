"""Learning-rate schedules: torch.optim.lr_scheduler, and those of OneFlow, FlowVision and LiBai.

Each is written once, on numbers or on traced scalars: eager steps evaluate it, and graphs compile it.
"""

from sluice.optim.lr_scheduler.base import LRScheduler as LRScheduler
from sluice.optim.lr_scheduler.composites import ChainedScheduler as ChainedScheduler, SequentialLR as SequentialLR
from sluice.optim.lr_scheduler.cycles import CyclicLR as CyclicLR, OneCycleLR as OneCycleLR
from sluice.optim.lr_scheduler.factors import (
    ConstantLR as ConstantLR,
    CosineAnnealingLR as CosineAnnealingLR,
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
    ExponentialLR as ExponentialLR,
    LambdaLR as LambdaLR,
    LinearLR as LinearLR,
    MultiplicativeLR as MultiplicativeLR,
    MultiStepLR as MultiStepLR,
    PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)
from sluice.optim.lr_scheduler.flowvision import PolyLRScheduler as PolyLRScheduler, TanhLRScheduler as TanhLRScheduler
from sluice.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
from sluice.optim.lr_scheduler.warmup import (
    CosineDecayLR as CosineDecayLR,
    WarmupCosineLR as WarmupCosineLR,
    WarmupLR as WarmupLR,
    WarmUpLR as WarmUpLR,
)

_LRScheduler = LRScheduler  # torch's name until 2.0
