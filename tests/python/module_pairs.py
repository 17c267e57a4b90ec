"""What the tests of modules share: the same module of ours and of torch's."""

import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from conftest import to_sl

import sluice as sl
import sluice.nn as nn


def net(N):
    return N.Sequential(N.Linear(2, 3), N.Sequential(N.BatchNorm1d(3), N.ReLU()), N.Linear(3, 1))


def pair(make):
    torch.manual_seed(4), sl.manual_seed(4)
    return make(torch.nn), make(nn)


def both(shape):
    a = torch.randn(shape, requires_grad=True)
    return a, to_sl(a)


def doubled(module, args):
    return (args[0] * 2,)
