"""Meshes of several axes: placements, conversions between all ways to lie, and training over them, on devices of one process."""

import heapq
import itertools

import numpy as np
import pytest

import mesh_models
import sluice as sl
from sluice import nn, parallel

B, P, S = sl.sbp.broadcast, sl.sbp.partial_sum, sl.sbp.split
GRID = sl.placement("sim", [[0, 1], [2, 3]], names=("dp", "tp"))
ROW = sl.placement("sim", [0, 1, 2, 3])
WAYS = [S(0), S(1), B, P]
PAIRS = list(itertools.product(WAYS, WAYS))


def test_placements_of_several_axes():
    assert GRID.ranks == ((0, 1), (2, 3)) and GRID.shape == (2, 2) and GRID.names == ("dp", "tp")
    assert str(GRID) == "sim:0-3 (dp=2, tp=2)" and GRID.size() == 4 and GRID.size("tp") == 2 and GRID.axis("tp") == 1
    assert repr(GRID) == "sluice.placement(type='sim', ranks=[[0, 1], [2, 3]], names=('dp', 'tp'))"
    plain = sl.placement("sim", np.arange(4).reshape(2, 2))
    assert plain == GRID and hash(plain) == hash(GRID) and plain != ROW and str(plain) == "sim:0-3 (2, 2)"
    assert plain != sl.placement("sim", [[0, 1, 2, 3]]) and plain != sl.placement("sim", [[0, 2], [1, 3]])
    assert parallel.mesh("sim", dp=2, tp=2) == GRID and parallel.mesh("sim", dp=2, tp=2).names == GRID.names
    cube = parallel.mesh("sim", pp=2, dp=2, tp=2)
    assert [stage.ranks for stage in parallel.stages(cube)] == [((0, 1), (2, 3)), ((4, 5), (6, 7))]
    assert parallel.part(cube, "tp", 1).ranks == ((1, 3), (5, 7)) and parallel.part(GRID, "dp", 1).names == ("tp",)
    x = sl.ones(4, 3).to_global(GRID, (S(0), B))
    assert x.sbp == (S(0), B) and x.placement == GRID and x.placement.names == ("dp", "tp")
    assert x.to_global(sbp={"tp": S(-1)}).sbp == (B, S(1)) and x.to_global(sbp=B).sbp == (B, B)
    assert "placement=sluice.placement(type='sim', ranks=[[0, 1], [2, 3]], names=('dp', 'tp'))" in repr(x)


@pytest.mark.parametrize("use, error, text", [
    (lambda x: x.to_global(GRID, S(0)), TypeError,
     "sbp: got sluice.sbp.split(dim=0); must be 2 of sluice.sbp.split(dim), broadcast and partial_sum, one for each axis of "
     "sim:0-3 (dp=2, tp=2), or a dict by their names"),
    (lambda x: x.to_global(GRID, (S(0), B, B)), TypeError, "sbp: got "),
    (lambda x: x.to_global(GRID, {"pp": S(0)}), ValueError, "sbp: sim:0-3 (dp=2, tp=2) has no axis 'pp'; its axes: 'dp', 'tp'"),
    (lambda x: x.to_global(ROW, {"dp": S(0)}), ValueError, "sbp: sim:0-3 has no axis 'dp'; its axes: none has a name"),
    (lambda x: x.to_global(GRID, (S(1), S(1))), ValueError,
     "to_global: sbp: S(1),S(1) of float32(4, 3) over sim:0-3 (dp=2, tp=2): axis 1 has 3 elements for 4 parts; each device must "
     "get at least one"),
    (lambda x: x.to_global(GRID, (B, S(2))), IndexError, "sbp: split(dim=2) of a tensor of 2 dims"),
    (lambda x: x.to_global(ROW, S(0)).to_global(GRID), ValueError,
     "to_global: sbp is left out, and sim:0-3 (dp=2, tp=2) has other axes than sim:0-3; give one for each axis"),
    (lambda x: sl.placement("sim", [[0, 1], [2]]), ValueError,
     "placement: ranks are [[0, 1], [2]]; must be a list of device numbers, like [0, 1], or lists of one length"),
    (lambda x: sl.placement("sim", [[0, 1], [1, 2]]), ValueError, "placement: device given twice: sim:1"),
    (lambda x: sl.placement("sim", [[0, 1]], names=("dp",)), ValueError, "placement: names are ('dp',); must be 2, one for each"),
    (lambda x: sl.placement("sim", [[0, 1]], names=("dp", "dp")), ValueError, "placement: two axes are called 'dp'; names must differ"),
    (lambda x: sl.placement("sim", [[0, 1]], names=("dp", "1")), ValueError, "placement: an axis is called '1'"),
    (lambda x: GRID.axis("pp"), ValueError, "placement: sim:0-3 (dp=2, tp=2) has no axis 'pp'; its axes: 'dp', 'tp'"),
    (lambda x: parallel.mesh("sim"), ValueError, "mesh: sizes are {}"),
    (lambda x: parallel.mesh("sim", dp=0), ValueError, "mesh: sizes are {'dp': 0}"),
    (lambda x: parallel.part(GRID, "dp", 2), ValueError, "part: 2 of axis 'dp' of sim:0-3 (dp=2, tp=2); must be from 0 to 1"),
    (lambda x: parallel.visualize_sharding(x), RuntimeError, "visualize_sharding: the tensor is local"),
])
def test_bad_uses_are_named(use, error, text):
    with pytest.raises(error) as caught:
        use(sl.ones(4, 3))
    assert str(caught.value).startswith(text), caught.value


def operands(way):
    """How the factors of a product lie, so that it lies so; of partial sums each device then has an addend of its own."""
    return {S(0): (S(0), B), S(1): (B, S(1)), B: (B, B), P: (S(1), S(0))}[way]


class Convert(nn.Graph):
    """A product that lies one way, brought to others."""

    def __init__(self, source, ways, placement=GRID, target=GRID):
        super().__init__()
        self.source, self.ways, self.placement, self.target = source, ways, placement, target

    def build(self, a, b):
        left, right = zip(*map(operands, self.source))
        y = a.to_global(self.placement, left) @ b.to_global(self.placement, right)
        return [y.to_global(self.target, way).to_global(self.target, B) for way in self.ways]


def factors(rows, columns):
    rng = np.random.default_rng(0)  # whole numbers, whose sums have no order
    return [rng.integers(-8, 8, shape).astype(np.float32) for shape in ((rows, 8), (8, columns))]


@pytest.mark.parametrize("rows, columns", [(7, 5)])
def test_all_256_conversions_on_2_by_2_keep_the_bytes(rows, columns, count):
    a, b = factors(rows, columns)
    expected, done = (a @ b).tobytes(), 0
    for source in PAIRS:
        graph = Convert(source, PAIRS)
        for way, got in zip(PAIRS, graph(sl.tensor(a), sl.tensor(b))):
            assert got.numpy().tobytes() == expected, (source, way)
            done += 1
    count("ways to lie on 2 x 2", done, "conversions")
    assert done == 256


@pytest.mark.parametrize("placement, target", [(ROW, GRID), (GRID, ROW), (GRID, sl.placement("sim", [4, 5, 6])),
                                               (sl.placement("sim", [4, 5]), GRID),
                                               (GRID, sl.placement("sim", [[0], [4]])),
                                               (GRID, sl.placement("sim", [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]))])
def test_conversions_between_meshes_keep_the_bytes(placement, target):
    a, b = factors(9, 8)
    expected = (a @ b).tobytes()
    ways = list(itertools.product(*[WAYS] * len(target.shape)))
    for source in list(itertools.product(*[WAYS] * len(placement.shape)))[::3 if len(placement.shape) > 1 else 1]:
        for way, got in zip(ways, Convert(source, ways, placement, target)(sl.tensor(a), sl.tensor(b))):
            assert got.numpy().tobytes() == expected, (source, way)


def test_tensors_without_elements_cross_meshes():
    class Cross(nn.Graph):
        def build(self, x):
            return (x.to_global(GRID, (B, S(1))) + 1).to_global(sl.placement("sim", [4, 5]), B) + 1

    assert Cross()(sl.ones(0, 4)).shape == (0, 4)


def textbook(source, target, n):
    """Elements that travel on a row of n devices, of a whole of 1."""
    if source == target or source == B:
        return 0
    if source == P:
        return (n - 1) * (2 if target == B else 1)
    return n - 1 if target == B else (n - 1) / n


def cheapest(source, shape, grid):
    """The fewest elements that bring `source` to each way to lie, by steps along one axis; found without the compiler."""
    def fits(way):
        parts = [1] * len(shape)
        for one, n in zip(way, grid):
            if one.kind == "split":
                parts[one.dim] *= n
        return all(size % n == 0 for size, n in zip(shape, parts))

    best, heap, order = {}, [(0, 0, source)], itertools.count(1)
    while heap:
        cost, _, way = heapq.heappop(heap)
        if way in best:
            continue
        best[way] = cost
        for axis, new in itertools.product(range(len(grid)), WAYS):
            after = (*way[:axis], new, *way[axis + 1:])
            inner = {one for one in way[axis + 1:] if one.kind == "split"}
            if new == way[axis] or not fits(after) or inner & {new, way[axis]}:
                continue
            each = np.prod(shape) / np.prod([n for k, (one, n) in enumerate(zip(way, grid)) if k != axis and one.kind == "split"])
            lines = np.prod(grid) / grid[axis]
            heapq.heappush(heap, (cost + each * lines * textbook(way[axis], new, grid[axis]), next(order), after))
    return best


@pytest.mark.parametrize("grid", [(2, 2), (2, 4)])
def test_paths_move_the_fewest_bytes(grid):
    shape, mesh = (16, 16), sl.placement("sim", np.arange(np.prod(grid)).reshape(grid))
    table = {}
    for source in PAIRS:
        best = cheapest(source, shape, grid)
        for target in PAIRS:
            path = sl._C.boxing_path(list(shape), *[(str(mesh), sl.sbp.text(way, 2)) for way in (source, target)])
            assert sum(moved for *_, moved in path) == best[target], (source, target, path)
            table[source, target] = [text for _, text, _ in path]
    assert len(table) == 256
    assert table[(P, P), (B, B)] == ["P,S(0)", "B,S(0)", "B,B"]  # the second sum is of parts
    assert table[(S(0), S(0)), (B, S(0))] != ["B,S(0)"]  # parts of parts come together first


def test_a_gradient_lies_as_grad_sbp_says():
    class Laid(nn.Graph):
        def __init__(self, way):
            super().__init__()
            self.way = way

        def build(self, x):
            x.requires_grad_()
            y = x.to_global(GRID, (S(0), B), grad_sbp=self.way)
            (y * y).sum().backward()
            return x.grad

    x = sl.arange(32.0).reshape(8, 4)
    asked, plain = Laid((B, S(1))), Laid(None)
    assert np.array_equal(asked(x).numpy(), 2 * x.numpy()) and np.array_equal(plain(x).numpy(), 2 * x.numpy())
    assert "B,S(1) on sim:0-3" in parallel.conversions(asked) and "B,S(1) on sim:0-3" not in parallel.conversions(plain)
    with pytest.raises(NotImplementedError, match="to_global: grad_sbp: eager code has no gradients of global tensors"):
        x.to_global(GRID, B, grad_sbp=B)


def test_shardings_are_drawn():
    assert parallel.visualize_sharding(sl.ones(8, 4).to_global(GRID, (S(0), S(1)))) == """\
(8, 4) S(0),S(1) on sim:0-3 (dp=2, tp=2)
+---------+---------+
|  sim 0  |  sim 1  |
+---------+---------+
|  sim 2  |  sim 3  |
+---------+---------+"""
    assert parallel.visualize_sharding(sl.ones(8).to_global(GRID, (B, S(0)))) == """\
(8,) B,S(0) on sim:0-3 (dp=2, tp=2)
+---------+---------+
| sim 0,2 | sim 1,3 |
+---------+---------+"""
    assert parallel.visualize_sharding(sl.ones(7, 2, 2).to_global(GRID, (S(0), S(0)))).splitlines()[1:] == [
        "sim 0: [0:2, 0:2, 0:2]", "sim 1: [2:4, 0:2, 0:2]", "sim 2: [4:6, 0:2, 0:2]", "sim 3: [6:7, 0:2, 0:2]"]


CORNERS = list(itertools.product((1, 2), repeat=3))


def test_a_gpt_trains_over_each_corner_of_data_tensor_and_pipeline_parallel(count):
    found = {corner: mesh_models.losses(*corner)[0] for corner in CORNERS}
    expected = found[1, 1, 1]
    assert expected[-1] < expected[0]
    for (dp, tp, pp), losses in found.items():
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        assert losses == found[dp, tp, 1], (dp, tp, pp)  # a stage moves values alone: the same bits
    count("data x tensor x pipeline parallel", len(found), "layouts")


def test_zero_keeps_the_bits_on_a_mesh():
    plain, _ = mesh_models.losses(2, 2, 1)
    zero, graph = mesh_models.losses(2, 2, 1, zero=True)
    assert zero == plain
    assert any("S(" in b.split("on")[0] and "reduce_scatter" in b for b in parallel.conversions(graph).splitlines())


@pytest.mark.parametrize("way", [(S(0), S(1)), (S(1), S(0)), (S(0), S(0)), (S(2), S(0)), (B, S(1))])
def test_variables_lie_in_their_parts_and_come_back_whole(way):
    class Step(nn.Graph):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=1.0))

        def build(self, x):
            y = self.net.weight * x
            y.sum().backward()
            return y

    net = nn.Module()
    net.weight = nn.Parameter(sl.arange(5.0 * 3 * 4).reshape(5, 3, 4))
    net.to_global(GRID, B)
    net.weight.data = net.weight.data.to_global(sbp=way)
    x, before = sl.arange(60.0).reshape(5, 3, 4) + 7, net.weight.detach().to_local().numpy().copy()
    np.testing.assert_array_equal(Step(net)(x).numpy(), before * x.numpy())
    np.testing.assert_array_equal(net.weight.detach().to_local().numpy(), before - x.numpy())


def test_what_is_split_along_an_axis_travels_along_it():
    _, graph = mesh_models.losses(2, 2, 1, steps=1)
    found = [(kind, module, *(lies.split(" on ")[0] for lies in (old, new)))
             for kind, module, old, new, bytes in graph._call.session.conversions() if bytes and "piece" not in old + new]
    assert all(sum(a != b for a, b in zip(old.split(","), new.split(","))) == 1 for *_, old, new in found), found
    # What rows make is added up along tp, four times on the way forward; the loss and its gradients along dp.
    assert found[:4] == [("all_reduce", module, "S(0),P", "S(0),B")
                         for module in ("first.blocks.0.norm2", "", "last.blocks.0.norm2", "last.norm")]
    assert found[4][2:] == ("P,B", "B,B")
    updates = {(kind, old, new) for kind, module, old, new in found if module == "optimizer0"}
    assert ("all_reduce", "P,S(0)", "B,S(0)") in updates and ("all_reduce", "P,S(1)", "B,S(1)") in updates
    assert all(new.startswith(("B,", "P,S(")) for _, _, new in updates), updates


def test_parallelize_reads_a_plan(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([mesh_models.Block(8, 2), mesh_models.Block(8, 2)])
            self.register_buffer("scale", sl.ones(3))
            self._tp_plan = {f"layers.*.{name}": word for name, word in (("q", "colwise"), ("out", "rowwise"), ("norm1", "sequence_parallel"))}

    net, values = Net(), Net().state_dict()
    net.load_state_dict(values)
    strategy = parallel.parallelize(net, GRID)
    assert strategy["layers.1.q.weight"] == (B, S(0)) and strategy["layers.0.q.bias"] == (B, S(0))
    assert strategy["layers.1.out.weight"] == (B, S(1)) and strategy["layers.1.out.bias"] == (B, B)
    assert net.layers[1].q.weight.sbp == (B, S(0)) and net.scale.sbp == (B, B) and isinstance(net.layers[1].q.weight, nn.Parameter)
    assert all(np.array_equal(t.to_local().numpy(), values[name].numpy()) for name, t in net.state_dict().items())
    lines = str(strategy).splitlines()
    assert lines[0].split() == ["name", "shape", "on", "sim:0-3", "(dp=2,", "tp=2)"]
    assert "layers.0.q.weight" in str(strategy) and lines[1].endswith(("B,B", "B,S(0)"))
    strategy.save(tmp_path / "strategy.json")
    again = Net()
    assert parallel.parallelize(again, GRID, {}, strategy=tmp_path / "strategy.json").lies == strategy.lies
    assert parallel.parallelize(Net(), GRID, {}, strategy={"scale": {"dp": S(0)}})["scale"] == (S(0), B)


@pytest.mark.parametrize("plan, options, text", [
    ({"2": "colwise"}, {}, "parallelize: the plan names '2'; the model has no such module"),
    ({"0": "diagonal"}, {}, "parallelize: '0' is to be 'diagonal'; must be one of colwise, "),
    ({"1": "colwise"}, {}, "parallelize: '1' is to be 'colwise', and is a ReLU; must have a weight of 2 dims"),
    ({"0": "colwise"}, {"tp": "rows"}, "placement: sim:0-3 (dp=2, tp=2) has no axis 'rows'; its axes: 'dp', 'tp'"),
    (None, {"tp": "rows"}, "parallelize: axis 'tp' of sim:0-3 (dp=2, tp=2) is neither dp='dp' nor tp='rows'"),
    ({"0": "rowwise"}, {}, "parallelize: '0.weight' is (3, 1); cannot be split along dim 1 over the 2 devices of axis 'tp'"),
    ({}, {"strategy": {"0.scale": B}}, "parallelize: the strategy names '0.scale'; the model has no such parameter or buffer"),
    ({}, {"strategy": {"0.weight": (P, B)}}, "parallelize: '0.weight' is to lie as partial_sum along 'dp'"),
])
def test_bad_plans_are_named_before_anything_moves(plan, options, text):
    net = nn.Sequential(nn.Linear(1, 3), nn.ReLU())
    with pytest.raises(ValueError) as caught:
        parallel.parallelize(net, GRID, plan, **options)
    assert str(caught.value).startswith(text), caught.value
    assert not net[0].weight.is_global


def test_bad_strategies_are_named(tmp_path):
    net, file = nn.Linear(4, 4), tmp_path / "strategy.json"
    parallel.parallelize(nn.Linear(4, 4), GRID).save(file)
    good = file.read_text()
    for old, new, text in (('"dp"', '"pp"', "is for the axes ['pp', 'tp']; the mesh has ['dp', 'tp']"), ("B,B", "B", "has 1 sbp; must have 2"),
                           ("B,B", "P,B", "no strategy: ValueError: an sbp is 'P,B'; must be of S(dim) and B"),
                           ("{", "[", "no strategy: ")):
        file.write_text(good.replace(old, new))
        with pytest.raises(ValueError) as caught:
            parallel.parallelize(net, GRID, strategy=file)
        assert str(file) in str(caught.value) and text in str(caught.value)
        assert not net.weight.is_global


def test_layers_say_how_they_are_split():
    sl.manual_seed(3)
    up, down = parallel.Linear(6, 8, parallel="col", mesh=GRID), parallel.Linear(8, 6, parallel="row", mesh=GRID)
    assert up.weight.sbp == (B, S(0)) and up.bias.sbp == (B, S(0)) and down.weight.sbp == (B, S(1)) and down.bias.sbp == (B, B)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.up, self.down = up, down

        def build(self, x):
            return self.down(self.up(x).relu())

    x = sl.randn(4, 6)
    local = [p.to_local() for p in (up.weight, up.bias, down.weight, down.bias)]
    expected = nn.functional.linear(nn.functional.linear(x, *local[:2]).relu(), *local[2:])
    graph = Net()
    np.testing.assert_allclose(graph(x.to_global(GRID, {"dp": S(0)})).numpy(), expected.detach().numpy(), atol=1e-6)
    travels = [(kind, old) for kind, _, old, new, bytes in graph._call.session.conversions() if bytes and "piece" not in old + new]
    assert travels == [("reduce_scatter", "S(0),P on sim:0-3 (dp=2, tp=2)")]  # ahead of the result, which is brought off the mesh
    with pytest.raises(ValueError, match="Linear: parallel is 'both'; must be 'data', 'col' or 'row'"):
        parallel.Linear(6, 8, parallel="both", mesh=GRID)
    with pytest.raises(ValueError, match="Linear: parallel='col' has 1 features for 2 devices of axis 'tp'"):
        parallel.Linear(6, 1, parallel="col", mesh=GRID)
