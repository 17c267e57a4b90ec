"""Optimizers: torch.optim, and those of OneFlow. A step is a function of tensors, eager or inside a graph's plan."""

from typing import Any

from sluice.optim import lr_scheduler as lr_scheduler
from sluice.optim import swa_utils as swa_utils
from sluice.optim._groups import weight_decay_groups as weight_decay_groups
from sluice.optim.adafactor import Adafactor as Adafactor
from sluice.optim.adagrad import Adadelta as Adadelta, Adagrad as Adagrad, RMSprop as RMSprop
from sluice.optim.adam import Adam as Adam, AdamW as AdamW, LazyAdam as LazyAdam
from sluice.optim.adam_variants import Adamax as Adamax, NAdam as NAdam, RAdam as RAdam
from sluice.optim.ftrl import FTRL as FTRL
from sluice.optim.layerwise import LAMB as LAMB, LARS as LARS
from sluice.optim.lbfgs import LBFGS as LBFGS
from sluice.optim.muon import Muon as Muon
from sluice.optim.optimizer import Optimizer as Optimizer
from sluice.optim.rprop import ASGD as ASGD, Rprop as Rprop
from sluice.optim.sgd import SGD as SGD
from sluice.optim.sparse_adam import SparseAdam as SparseAdam


def __getattr__(name: str) -> Any:
    if name == "swap_in_optimizer_params_and_state":
        raise AttributeError("sluice.optim has no swap_in_optimizer_params_and_state: an optimizer keeps its parameters; copy "
                             "into them, and use load_state_dict()")
    raise AttributeError(f"module 'sluice.optim' has no attribute {name!r}")
