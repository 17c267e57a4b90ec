"""Meshes of several axes on several ranks: every conversion against NumPy, and training with the bits of one process."""

import pathlib

import numpy as np
import pytest

import sluice as sl
from rank_programs import environment, ranks, start  # noqa: F401: fixtures

MODELS = pathlib.Path(__file__).parents[1] / "python"

EAGER = """
import itertools, math
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
GRID = sl.placement("cpu", [[0, 1], [2, 3]], names=("dp", "tp"))
PAIRS = list(itertools.product([S(0), S(1), B, P], repeat=2))
rng = np.random.default_rng(0)
at = divmod(rank, 2)

def mine(whole, way, coordinates=at):  # of an array, what a device has where there are no sums
    for one, n, c in zip(way, (2, 2), coordinates):
        if one.kind == "split":
            whole = np.array_split(whole, n, axis=one.dim)[c]
    return whole

def addends(way):  # by device: what they have of a whole, of which sums have addends; and the whole
    whole, parts = rng.integers(-8, 8, (7, 5)).astype(np.float32), {}
    sums = [axis for axis, one in enumerate(way) if one == P]
    for own in itertools.product(*[range(2) if axis in sums else (0,) for axis in (0, 1)]):
        parts[own] = rng.integers(-8, 8, (7, 5)).astype(np.float32)
    own = tuple(c if axis in sums else 0 for axis, c in enumerate(at))
    return np.ascontiguousarray(mine(parts[own], way)), sum(parts.values())

count = 0
for source in PAIRS:
    part, whole = addends(source)
    x = sl.tensor(part).to_global(GRID, source)
    assert x.shape == whole.shape and np.array_equal(x.to_local().numpy(), part)
    for target in PAIRS:
        y = x.to_global(GRID, target)
        assert y.sbp == target and y.placement == GRID
        if P not in target:
            assert y.to_local().numpy().tobytes() == np.ascontiguousarray(mine(whole, target)).tobytes(), (source, target)
        assert y.to_global(GRID, B).to_local().numpy().tobytes() == whole.tobytes(), (source, target)
        count += 1
print(count)

row, few = sl.placement("cpu", [0, 1, 2, 3]), sl.placement("cpu", [1, 2])
part, whole = addends((P, S(1)))
x = sl.tensor(part).to_global(GRID, (P, S(1)))
for placement, way in ((row, S(0)), (row, P), (few, S(1)), (few, B)):
    y = x.to_global(placement, way)
    assert y.to_global(GRID, B).to_local().numpy().tobytes() == whole.tobytes()
    assert y.to_global(GRID, (S(1), S(0))).to_local().numpy().tobytes() == np.ascontiguousarray(mine(whole, (S(1), S(0)))).tobytes()
copy = sl.full((2, 3), float(rank)).to_global(GRID, {"dp": S(0)})  # along tp the first has what both get
assert copy.shape == (4, 3) and (copy.to_local().numpy() == at[0] * 2).all()
try:
    sl.ones(3 if rank == 1 else 2, 2).to_global(GRID, {"dp": S(0)})
except ValueError as error:
    print(error)
try:
    sl.parallel.mesh("cpu", dp=3, tp=2)
except ValueError as error:
    print(error)
"""


def test_all_256_eager_conversions_on_four_ranks_are_numpys(ranks, count):
    (first, *others) = ranks(4, "import sluice.parallel\n" + EAGER)
    assert first == [
        "256", "to_global: rank 1 has float32 (3, 2); it must be float32 (2, 2), for (sluice.sbp.split(dim=0), sluice.sbp.broadcast) "
        "of (4, 2) over ranks [0, 1, 2, 3]",
        "mesh: dp=3 x tp=2 is 6 devices; the job has 4 ranks, and the sizes must multiply to that"]
    assert others == [first] * 3
    count("ways to lie on 2 x 2 ranks", int(first[0]), "conversions")


GRAPHS = """
import itertools
dist.init()
S, B, P = sl.sbp.split, sl.sbp.broadcast, sl.sbp.partial_sum
GRID = sl.placement("cpu", [[0, 1], [2, 3]])
PAIRS = list(itertools.product([S(0), S(1), B, P], repeat=2))

class Convert(sl.nn.Graph):
    def __init__(self, source):
        super().__init__()
        self.source = source
    def build(self, a, b):
        left, right = zip(*({S(0): (S(0), B), S(1): (B, S(1)), B: (B, B), P: (S(1), S(0))}[one] for one in self.source))
        y = a.to_global(GRID, left) @ b.to_global(GRID, right)
        return [y.to_global(GRID, way).to_global(GRID, B) for way in PAIRS]

a, b = (np.random.default_rng(i).integers(-8, 8, shape).astype(np.float32) for i, shape in enumerate([(ROWS, 8), (8, 4)]))
for source in ((P, P), (S(0), S(0)), (P, S(1)), (S(1), P)):
    graph = Convert(source)
    for way, got in zip(PAIRS, graph(sl.tensor(a), sl.tensor(b))):
        assert got.numpy().tobytes() == (a @ b).tobytes(), (source, way)
kinds = {k["op"] for k in graph.plan["kernels"]}
groups = {tuple(g["ranks"]) if isinstance(g, dict) else tuple(g) for g in graph.plan.get("groups", graph.plan.get("collectives", []))}
print(sorted(kinds & {"all_gather", "all_to_all"}), len(groups))
"""


@pytest.mark.parametrize("rows", [8, 7])
def test_conversions_in_graphs_on_four_ranks_are_numpys(ranks, rows):
    lines = ranks(4, f"ROWS = {rows}\n" + GRAPHS)
    assert lines == [lines[0]] * 4 and lines[0][0].startswith("['all_gather', 'all_to_all'] "), lines


TRAINING = f"""
import sys
sys.path.insert(0, {str(MODELS)!r})
import mesh_models
from sluice._tensor.global_tensors import place
place_here = dist.init()
""" + """
share = lambda rows, mesh, way: place(sl.tensor(rows), mesh, way)
for dp, tp, pp in CORNERS:
    found, graph = mesh_models.losses(dp, tp, pp, STEPS, "sim", share, ZERO, sl.float32)
    print(dp, tp, pp, *[loss.hex() for loss in found])
"""


@pytest.mark.parametrize("corners", [[(1, 1, 2), (1, 2, 1), (2, 1, 1)]])
def test_training_on_two_ranks_has_the_bits_of_one_process(ranks, corners):
    """With the two tests that follow, all of data x tensor x pipeline parallel of {1, 2}^3."""
    given = f"CORNERS, STEPS, ZERO = {corners}, 4, False\n"
    (one,) = ranks(1, given + TRAINING)
    assert len(one) == len(corners) and ranks(2, given + TRAINING) == [one] * 2


@pytest.mark.parametrize("corners, zero", [([(2, 2, 1)], True), ([(1, 2, 2), (2, 1, 2), (1, 4, 1), (2, 2, 1)], False)])
def test_training_on_four_ranks_has_the_bits_of_one_process(ranks, corners, zero):
    given = f"CORNERS, STEPS, ZERO = {corners}, 4, {zero}\n"
    (one,) = ranks(1, given + TRAINING)
    assert len(one) == len(corners) and ranks(4, given + TRAINING) == [one] * 4


def test_training_over_two_by_two_by_two_has_the_bits_of_one_process(ranks):
    given = "CORNERS, STEPS, ZERO = [(2, 2, 2)], 3, False\n"
    (one,) = ranks(1, given + TRAINING)
    assert len(one) == 1 and ranks(8, given + TRAINING) == [one] * 8


STAGED = f"""
import sys
sys.path.insert(0, {str(MODELS)!r})
import staged_models
from sluice._tensor.global_tensors import place
dist.init()
found, *_ = staged_models.losses(SIZES, share=lambda rows, mesh, way: place(sl.tensor(rows), mesh, way), dtype=sl.float32, micro=MICRO, **OPTIONS)
print(*[loss.hex() for loss in found])
"""


@pytest.mark.parametrize("sizes, micro, options", [(dict(pp=2), 4, {}), (dict(pp=2), 4, dict(pp_chunks=2)), (dict(pp=2, tp=2), 2, {}),
                                                   (dict(pp=2, dp=2, tp=2), 1, {})])
def test_a_model_that_is_cut_by_its_plan_has_the_bits_of_one_process(ranks, sizes, micro, options):
    """With dp a micro-batch has other rows where each rank cuts its own part, so there a step is one of them."""
    program, n = f"SIZES, MICRO, OPTIONS = {sizes}, {micro}, {options}\n" + STAGED, int(np.prod(list(sizes.values())))
    (one,) = ranks(1, program)
    assert len(one) == 1 and ranks(n, program) == [one] * n


SAVED = """
import sys, os
sys.path.insert(0, %r)
import mesh_models
from sluice._tensor.global_tensors import place
dist.init()
share = lambda rows, mesh, way: place(sl.tensor(rows), mesh, way)
where = os.environ["BUNDLE"]
found, graph = mesh_models.losses(2, 2, 1, 2, "sim", share, False, sl.float32)
sl.save(graph, where)
loaded = sl.load_graph(where)
rng = np.random.default_rng(9)
mesh = sl.parallel.mesh("sim", dp=2, tp=2)
batches = [[share(np.ascontiguousarray(rng.integers(0, 20, (4, 8))), mesh, {"dp": sl.sbp.split(0)}) for _ in range(2)] for _ in range(2)]
print([loaded(*batch).item().hex() for batch in batches] == [graph(*batch).item().hex() for batch in batches])
""" % str(MODELS)


def test_a_bundle_of_a_mesh_runs_on_its_ranks_and_in_one_process(ranks, tmp_path):
    assert ranks(4, "import sluice.parallel\n" + SAVED, BUNDLE=str(tmp_path / "bundle")) == [["True"]] * 4
    whole = sl.load_graph(tmp_path / "bundle")
    ids = np.ascontiguousarray(np.random.default_rng(9).integers(0, 20, (4, 8)))
    assert np.isfinite(whole(sl.tensor(ids), sl.tensor(ids)).item())
