"""Helpers that the shards of autotest share: `python -m sluice.testing.autotest --ops OP --seed 7 --n 20`, a test per op."""

import os

import pytest
import torch

from sluice.testing.autotest import names
from sluice.testing.autotest.run import Options, drawn, run_op, told

N = int(os.environ.get("SLUICE_AUTOTEST_N", "20"))
SEED = 7
OPS = names.ops(torch)


def of(choose):
    """Parametrizes a test with the ops that are chosen."""
    return pytest.mark.parametrize("op", [op for op in OPS if choose(op)])


def holds(op, **flags):
    """Every case of the op agrees, torch takes a good part of them, and some ran as graphs, where graphs take the op."""
    options = Options(n=N, seed=SEED, **flags)
    tally = run_op(op, torch, options)
    assert not tally.failures, "\n".join(told(op, *failure, options) for failure in tally.failures)
    assert 4 * tally.accepted >= tally.cases, f"torch refuses most cases: {tally.accepted} of {tally.cases} are left"
    assert tally.planned or "graph" in drawn(op, SEED, 0, torch)[1].without, "no case ran as a graph"
