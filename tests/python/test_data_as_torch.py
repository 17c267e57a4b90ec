"""sluice.data for who comes from torch: its orders of samples, and torchvision's transforms."""

import importlib.util
import io
import pathlib
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import sluice as sl
from sluice import data


def numbers(n):
    return data.arrays(np.arange(n))


def flat(batches):
    return [v for batch in batches for v in batch.tolist()]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_is_that_of_torchs_loader(seed):
    loader = DataLoader(torch.arange(23), 4, shuffle=True, generator=torch.Generator().manual_seed(seed))
    want = [flat(loader) for _ in range(3)]
    pipeline = numbers(23).shuffle(seed, order="torch").batch(4)
    assert [flat(pipeline) for _ in range(3)] == want
    assert flat(numbers(23).shuffle(seed, order="torch").repeat(3).batch(23)) == sum(want, [])
    first = numbers(23).shuffle(seed, order="torch").repeat().batch(5)
    steps = iter(first)
    got = flat(next(steps) for _ in range(7))
    again = numbers(23).shuffle(seed, order="torch").repeat().batch(5)
    again.load_state_dict(first.state_dict())
    assert got + flat(x for x, _ in zip(again, range(6))) == sum(want, [])[:65]


@pytest.mark.parametrize("drop", [False, True])
def test_the_order_is_that_of_torchs_distributed_sampler(drop):
    for rank in range(3):
        sampler = DistributedSampler(range(23), 3, rank, seed=5, drop_last=drop)
        pipeline = numbers(23).shuffle(5, order="torch").shard(rank, 3, "drop" if drop else "pad").batch(4)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            assert flat(pipeline) == list(sampler)


def test_other_orders_are_told():
    with pytest.raises(ValueError, match="shuffle: order: 'numpy'; must be 'sluice' or 'torch'"):
        numbers(3).shuffle(order="numpy")
