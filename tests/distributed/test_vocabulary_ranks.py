"""The vocabulary and the sequence in parts on several ranks, with the bits of one process."""

import pathlib

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

MODELS = pathlib.Path(__file__).parents[1] / "python"

TRAINING = f"""
import sys
sys.path.insert(0, {str(MODELS)!r})
import vocabulary_models
from sluice import parallel
from sluice._tensor.global_tensors import place
dist.init()
mesh = parallel.mesh("sim", dp=2, tp=2)
for plan in (vocabulary_models.PLAN, vocabulary_models.SEQUENCE):
    found, graph, _ = vocabulary_models.losses(plan, mesh, share=lambda rows, mesh, way: place(sl.tensor(rows), mesh, way), zero=2)
    print(*[loss.hex() for loss in found])
"""


def test_training_on_four_ranks_has_the_bits_of_one_process(ranks):
    (one,) = ranks(1, TRAINING)
    assert len(one) == 2 and ranks(4, TRAINING) == [one] * 4
