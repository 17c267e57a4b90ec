"""Optimizers: torch.optim. Steps are one op per parameter, eager or inside a graph's plan."""

from sluice.optim import lr_scheduler
from sluice.optim.adam import Adam, AdamW
from sluice.optim.optimizer import Optimizer
from sluice.optim.sgd import SGD
