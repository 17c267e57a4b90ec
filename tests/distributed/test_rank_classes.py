"""Ranks that each compile one rank of each class: the bits of plans of all ranks, in plans that do not grow with them."""

import pathlib

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

MODELS = pathlib.Path(__file__).parents[1] / "python"

TRAINING = f"""
import sys
sys.path.insert(0, {str(MODELS)!r})
import mesh_models
from sluice._tensor.global_tensors import place
dist.init()
""" + """
share = lambda rows, mesh, way: place(sl.tensor(rows), mesh, way)
Plain = mesh_models.Train

class ByClasses(Plain):
    def __init__(self, *given):
        super().__init__(*given)
        self.config.enable_rank_classes()

for dp, tp, pp in CORNERS:
    told = []
    for kind in (Plain, ByClasses):
        mesh_models.Train = kind
        losses, graph = mesh_models.losses(dp, tp, pp, 3, "sim", share, False, sl.float32)
        options = graph.plan["options"]
        told.append(([loss.hex() for loss in losses], len(graph.plan["kernels"]), options.get("classes")))
    (all_losses, all_kernels, none), (losses, kernels, classes) = told
    print(losses == all_losses, none, kernels <= all_kernels, classes)
try:
    sl.save(graph, "bundle")
except NotImplementedError as error:
    print(str(error).split("  (")[0])
"""
REFUSED = "graph 'train': has the plan of one rank of each class; save a graph with enable_rank_classes(False)"
ONE, TWO = "True None True 0-{}", "True None True 0,1 2,3"


@pytest.mark.parametrize("n, corners, told", [
    (2, [(2, 1, 1), (1, 2, 1), (1, 1, 2)], ["True None True 0,1", "True None True 0,1", "True None True 0 1"]),
    (4, [(2, 2, 1), (1, 2, 2), (2, 1, 2)], [ONE.format(3), TWO, TWO]),
    (8, [(2, 2, 2)], ["True None True 0-3 4-7"]),
])
def test_losses_are_those_of_the_plan_of_all_ranks(ranks, count, n, corners, told):
    lines = ranks(n, f"CORNERS = {corners}\n" + TRAINING)
    assert lines == [lines[0]] * n
    assert lines[0] == [*told, REFUSED]
    count(f"losses of {n} ranks by classes", len(corners), "layouts of the same bits")


UNEVEN = """
dist.init()
P = sl.placement("cpu", [0, 1])

class Rows(sl.nn.Graph):
    def __init__(self):
        super().__init__(name="rows")
        self.config.enable_rank_classes()
    def build(self, x):
        return x.exp().sum()

x = sl.ones(3, 4).to_global(P, sl.sbp.broadcast).to_global(P, sl.sbp.split(0))
graph = Rows()
try:
    graph(x)
except NotImplementedError as error:
    print(str(error).split("  (")[0])
graph = Rows()
graph.config.enable_rank_classes(False)
print(round(graph(x).item(), 3))
"""


def test_what_classes_cannot_express_is_refused_on_every_rank(ranks):
    assert ranks(2, UNEVEN) == [["classes of ranks: float32(3, 4) as S(0): parts of different sizes; compile all ranks, which is what "
                                 "enable_rank_classes(False) does", "32.619"]] * 2
