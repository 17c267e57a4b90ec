"""Optimizers: torch.optim. Steps are one op per parameter, eager or inside a graph's plan."""

from sluice.optim import lr_scheduler as lr_scheduler
from sluice.optim.adam import Adam as Adam, AdamW as AdamW
from sluice.optim.optimizer import Optimizer as Optimizer
from sluice.optim.sgd import SGD as SGD
