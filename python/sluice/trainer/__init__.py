"""Training by configuration: a model, data, and how both lie on the ranks; checkpoints, evaluation and hooks beside it.

    python -m sluice.trainer config.yaml train.steps=100
"""

from sluice.trainer._config import (Checkpointing, Config, Evaluation, Parallel, Train, call, load, made)
from sluice.trainer._evaluators import Bleu, Evaluator, Perplexity, Regression, TopK
from sluice.trainer._hooks import Callback, Hook, ProgressBar, TensorBoard
from sluice.trainer._trainer import Trainer

__all__ = ["Bleu", "Callback", "Checkpointing", "Config", "Evaluation", "Evaluator", "Hook", "Parallel", "Perplexity", "ProgressBar", "Regression",
           "TensorBoard", "TopK", "Train", "Trainer", "call", "load", "made"]
