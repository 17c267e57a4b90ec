"""What the tests of checkpoints share."""

import pytest
import torch
from conftest import to_sl

import sluice as sl

BOTH_KINDS = pytest.mark.parametrize("use_reentrant", [False, True])


def block(lib, width=16):
    return lib.nn.Sequential(lib.nn.Linear(width, width), lib.nn.Tanh(), lib.nn.Linear(width, width), lib.nn.ReLU())


def pair(make):
    torch.manual_seed(1)
    theirs, ours = make(torch), make(sl)
    ours.load_state_dict({k: to_sl(v) for k, v in theirs.state_dict().items()})
    return ours, theirs
