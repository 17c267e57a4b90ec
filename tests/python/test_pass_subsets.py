"""Whatever passes of the compiler are on or off, a graph computes the same: random graphs bit for bit, nets as torch does."""

import random

import numpy as np
import pytest
import torch
from conftest import to_sl
from exact_graphs import ExactGraph, inputs_of

import sluice as sl
from sluice import nn

NEEDED = {"decompose", "partition", "patterns"}  # ops without a kernel have no other way; global tensors and patterns are asked for
OPTIONAL = [name for name in sl._C.pass_names() if name not in NEEDED]


def subsets(count):
    """The sets of passes that are off: none, all, each alone, all but one, and random ones, always the same."""
    draw = random.Random(0)
    ones = [{name} for name in OPTIONAL]
    some = [{name for name in OPTIONAL if draw.random() < 0.5} for _ in range(count)]
    return [set(), set(OPTIONAL), *ones, *(set(OPTIONAL) - one for one in ones), *some]


def exact(seed):
    return ExactGraph(seed, placed=seed % 2 == 1)


def results_of(graph, steps, off, **options):
    for name in sorted(off):
        graph.config.disable_pass(name)
    for name, value in options.items():
        getattr(graph.config, name)(value)
    results = []
    for step in steps:
        made = graph(**{n: sl.from_numpy(v) for n, v in step.items()})
        results += [t.numpy().tobytes() for t in (made if isinstance(made, (list, tuple)) else [made])]
    graph.synchronize()
    results += [t.numpy().tobytes() for t in graph.state.buffers()]
    graph.close()
    return results


@pytest.mark.parametrize("part", range(4))
def test_every_subset_computes_the_same_bits(part):
    """1,024 of the 2^n subsets, always the same, each with one random graph, and each graph with many subsets. Any four passes are on
    and off in every combination."""
    chosen = random.Random(1).sample(range(2 ** len(OPTIONAL)), 1024)
    every = [{name for i, name in enumerate(OPTIONAL) if bits >> i & 1} for bits in chosen]
    seeds = range(part * 8, part * 8 + 8)
    steps = {seed: inputs_of(seed, 3) for seed in seeds}
    expected = {seed: results_of(exact(seed), steps[seed], OPTIONAL, enable_straighten_algorithm="Disable") for seed in seeds}
    for i, off in enumerate(every[part::4]):
        seed = seeds[i % len(seeds)]
        assert results_of(exact(seed), steps[seed], off) == expected[seed], (seed, off)


def net(lib):
    class Residual(lib.Module):
        def __init__(self, channels):
            super().__init__()
            self.pad, self.conv = lib.ZeroPad2d(1), lib.Conv2d(channels, channels, 3)
            self.norm, self.relu = lib.BatchNorm2d(channels), lib.ReLU()

        def forward(self, x):
            return self.relu(self.norm(self.conv(self.pad(x))) * 1.0 + x)

    return lib.Sequential(lib.Conv2d(3, 6, 3, bias=False), lib.BatchNorm2d(6), lib.ReLU(), Residual(6), lib.Flatten(), lib.Linear(216, 16),
                          lib.ReLU(), lib.Linear(16, 16), lib.GELU(), lib.Linear(16, 4))


class Run(nn.Graph):
    def __init__(self, net, train):
        super().__init__()
        self.net, self.train_it = net, train
        if train:
            self.add_optimizer(sl.optim.Adam(net.parameters(), lr=0.01, weight_decay=0.1))
            self.config.enable_multi_tensor_update()  # so that fuse_updates has something to do
            self.config.allow_fuse_model_update_ops()

    def build(self, x, y):
        out = self.net(x)
        loss = nn.functional.cross_entropy(out, y)
        if self.train_it:
            loss.backward()
        return loss, out


@pytest.mark.parametrize("train", [False, True])
def test_nets_compute_what_torch_does(train):
    torch.manual_seed(1)
    theirs = net(torch.nn).train(train)
    start = {k: v.clone() for k, v in theirs.state_dict().items()}
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01, weight_decay=0.1)
    expected = []
    for _ in range(3):
        out = theirs(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        expected.append((loss.item(), out.detach().numpy()))
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    kinds = set()
    for off in subsets(8):
        ours = net(nn).train(train)
        ours.load_state_dict({k: to_sl(v) for k, v in start.items()})
        graph = Run(ours, train)
        for name in sorted(off):
            graph.config.disable_pass(name)
        for loss, out in expected:
            got = graph(to_sl(x), to_sl(y))
            np.testing.assert_allclose(got[0].item(), loss, rtol=2e-4, err_msg=str(off))
            np.testing.assert_allclose(got[1].numpy(), out, rtol=2e-3, atol=2e-4, err_msg=str(off))
        kinds.add(tuple(k["op"] for k in graph.plan["kernels"]))
        graph.close()
    assert len(kinds) >= 5  # passes do something here
