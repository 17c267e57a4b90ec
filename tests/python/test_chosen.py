"""Results that are as long as the data say, in graphs: nonzero, masks, unique. PyTorch is the oracle."""

import warnings

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn

DRAW = np.random.RandomState(3)
SHAPES = {"x": (4, 5), "w": (4, 5), "v": (12,)}
# From step to step: some, nothing, everything.
STEPS = [{name: (DRAW.randint(-2, 3, shape) * scale + shift).astype(np.float32) for name, shape in SHAPES.items()}
         for scale, shift in ((1, 0), (0, 0), (1, 5), (1, -1))]
ROWS = np.array([True, False, True, True])


def graph_of(fn):
    class Net(nn.Graph):
        def build(self, x, w, v):
            return fn(sl, x, w, v)

    return Net(name="net")


def check(fn):
    """Compares each step with torch, in values, dtypes and shapes."""
    graph = graph_of(fn)
    for step in STEPS:
        given = graph(*[sl.tensor(a) for a in step.values()])
        expected = fn(torch, *[torch.tensor(a) for a in step.values()])
        pairs = zip(given, expected) if isinstance(expected, (tuple, list)) else [(given, expected)]
        for ours, theirs in pairs:
            assert tuple(ours.shape) == tuple(theirs.shape)
            assert str(ours.dtype) == str(theirs.dtype).replace("torch", "sluice")
            assert np.array_equal(ours.numpy(), theirs.numpy())


RESULTS = {
    "nonzero": lambda m, x, w, v: x.nonzero(),
    "nonzero of a row": lambda m, x, w, v: (v > 0).nonzero(),
    "nonzero of one element": lambda m, x, w, v: v[0].nonzero(),
    "nonzero, by axes": lambda m, x, w, v: x.nonzero(as_tuple=True),
    "argwhere": lambda m, x, w, v: m.argwhere(x > 0),
    "where": lambda m, x, w, v: m.where(x > 0),
    "masked_select": lambda m, x, w, v: m.masked_select(x, w > 0),
    "masked_select, spread": lambda m, x, w, v: x.masked_select(v[:5] > 0),
    "a mask": lambda m, x, w, v: x[x > 0],
    "a mask of rows": lambda m, x, w, v: x[w[:, 0] > 0],
    "a mask of columns": lambda m, x, w, v: x[:, v[:5] > 0],
    "a mask behind an index": lambda m, x, w, v: x[1, v[:5] > 0],
    "a mask and an index": lambda m, x, w, v: x[w[:, 0] > 0, 1],
    "a mask and an index of one": lambda m, x, w, v: x[w[:, 0] > 0, m.tensor([2])],
    "a mask and what it chooses": lambda m, x, w, v: x[w[:, 0] > 0, v[:4].abs().long().clamp(max=4)[w[:, 0] > 0]],
    "a mask of bytes": lambda m, x, w, v: v[(v > 0).to(m.uint8)],
    "a mask of a constant": lambda m, x, w, v: x[m.tensor(ROWS)],
    "several results": lambda m, x, w, v: (x[x > 0], w, v.nonzero(), x[x > 0] * 2),
    "arithmetic": lambda m, x, w, v: (x[x > 0] * 2 + 1).square(),
    "one mask twice": lambda m, x, w, v: x[x > 0] * w[x > 0],
    "functions of rows": lambda m, x, w, v: x[w[:, 0] > 0].relu() @ w.t(),
    "rows at positions": lambda m, x, w, v: m.cat([x, w])[(v[:8] > 0).nonzero()[:, 0]],
    "a mask of what a mask chose": lambda m, x, w, v: (y := x[w > 0])[y > 0],
    "rows of rows": lambda m, x, w, v: (y := x[w[:, 0] > 0])[y[:, 0] > 0],
    "nonzero of what a mask chose": lambda m, x, w, v: (x[w > 0] > 0).nonzero(),
    "masked_select of what a mask chose": lambda m, x, w, v: (y := x[w > 0]).masked_select(y > 0),
    "unique": lambda m, x, w, v: x.unique(),
    "unique, inverse and counts": lambda m, x, w, v: m.unique(x, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda m, x, w, v: m.unique_consecutive(v, return_inverse=True, return_counts=True),
    "unique_consecutive of rows": lambda m, x, w, v: m.unique_consecutive(x.clamp(min=0, max=0) + v[:4].view(4, 1), dim=0),
    "how many": lambda m, x, w, v: (x > 0).sum() if m is torch else sl.extent(x[x > 0], 0),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_as_long_as_in_torch(name):  # ACT-23
    check(RESULTS[name])


def assigned(change):
    def run(m, x, w, v):
        y = x.clone()
        change(m, y, w, v)
        return y

    return run


def set_item(y, index, value):
    y[index] = value


ASSIGNED = {
    "one value": lambda m, y, w, v: set_item(y, w > 0, 7),
    "a tensor without axes": lambda m, y, w, v: set_item(y, w > 0, v[0]),
    "one value for rows": lambda m, y, w, v: set_item(y, w[:, 0] > 0, 7),
    "a row": lambda m, y, w, v: set_item(y, w[:, 0] > 0, v[:5]),
    "a row with an axis": lambda m, y, w, v: set_item(y, w[:, 0] > 0, v[None, :5]),
    "columns": lambda m, y, w, v: set_item(y, (slice(None), v[:5] > 0), v[:4].view(4, 1)),
    "what it chose": lambda m, y, w, v: set_item(y, w > 0, y[w > 0] * 2 + 1),
    "rows that it chose": lambda m, y, w, v: set_item(y, w[:, 0] > 0, y[w[:, 0] > 0] * 2 + 1),
    "columns that it chose": lambda m, y, w, v: set_item(y, (slice(None), v[:5] > 0), -y[:, v[:5] > 0]),
    "with an index": lambda m, y, w, v: set_item(y, (w[:, 0] > 0, 1), 3.0),
    "to a part": lambda m, y, w, v: set_item(y[1:3], w[1:3] > 0, 7),
    "added": lambda m, y, w, v: y.__setitem__(w > 0, y[w > 0] + w[w > 0]),
}


def clipped(m, x, w, v):
    y = x[w[:, 0] > 0] * 1
    y[y > 0] = 1
    y[y[:, 1] > 0] = v[:5]
    y[y < 0] = y[y < 0] * 3
    return y


def test_what_a_mask_chose_is_assigned_to():
    check(clipped)


@pytest.mark.parametrize("name", ASSIGNED)
def test_what_a_mask_chooses_is_replaced(name):
    check(assigned(ASSIGNED[name]))


def test_gradients_are_those_of_torch():
    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(5, 3)
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

        def build(self, x, keep):
            rows = self.net(x)[keep > 0]
            there = (sl.arange(4) < sl.extent(rows, 0)).unsqueeze(1)
            loss = sl.where(there, (rows - 1) ** 2, 0).sum()
            loss.backward()
            return loss

    graph = Train()
    theirs = torch.nn.Linear(5, 3)
    with torch.no_grad():
        for ours, other in zip(graph.net.parameters(), theirs.parameters()):
            other.copy_(torch.tensor(ours.detach().numpy()))
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for step in STEPS:
        x, keep = step["x"], step["w"][:, 0]
        loss = graph(sl.tensor(x), sl.tensor(keep))
        expected = ((theirs(torch.tensor(x))[torch.tensor(keep) > 0] - 1) ** 2).sum()
        sgd.zero_grad()
        expected.backward()
        sgd.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
        for ours, other in zip(graph.net.parameters(), theirs.parameters()):
            assert np.allclose(ours.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


REFUSED = {
    "a sum": (lambda x, w, v: x[x > 0].sum(), "sum: mixes rows of dim 'index'"),
    "masks that differ": (lambda x, w, v: x[x > 0] + w[w > 0], "meet rows of dim 'index'"),
    "two masks": (lambda x, w, v: x[w[:, 0] > 0, v[:5] > 0], "two masks"),
    "a mask and many indices": (lambda x, w, v: x[w[:, 0] > 0, sl.arange(4)], "beside a mask"),
    "a mask and another": (lambda x, w, v: x[w[:, 0] > 0, v[:4].long()[v[:4] > 0]], "beside a mask"),
    "other rows assigned": (lambda x, w, v: set_item(x.clone(), w[:, 0] > 0, v[:4].view(4, 1) * x), "rows that the same mask has chosen"),
    "assigned to a mask and indices": (lambda x, w, v: set_item(x.clone(), (w[:, 0] > 0, sl.tensor([1])), 3.0), "and other indices"),
    "in a branch": (lambda x, w, v: sl.cond(v.sum() > 0, lambda a: a[a > 0], lambda a: a + 1, (v,)), "mixes rows of dim 'index'"),
    "in a loop": (lambda x, w, v: sl.while_loop(lambda i: i.sum() < 3, lambda i: (i[i > 0].nonzero().float().view(-1) + 1,), (v,)),
                  "loop: its body makes a value that is as long as the data say"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name):
    fn, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=message):
        graph_of(lambda m, x, w, v: fn(x, w, v))(*[sl.tensor(a) for a in STEPS[0].values()])


def test_a_bundle_gives_results_of_their_lengths(tmp_path):
    graph = graph_of(RESULTS["a mask of rows"])
    graph(*[sl.tensor(a) for a in STEPS[0].values()])
    sl.save(graph, tmp_path / "net")
    loaded = sl.load_graph(tmp_path / "net")
    for step in STEPS:
        expected = RESULTS["a mask of rows"](torch, *[torch.tensor(a) for a in step.values()])
        assert np.array_equal(loaded(*[sl.tensor(a) for a in step.values()]).numpy(), expected.numpy())


def test_on_another_device():
    class Net(nn.Graph):
        def build(self, x, w):
            with sl.device("sim:0"):
                return x.to("sim:0")[w.to("sim:0") > 0] * 2

    graph = Net()
    for step in STEPS:
        expected = torch.tensor(step["x"])[torch.tensor(step["w"]) > 0] * 2
        assert np.array_equal(graph(sl.tensor(step["x"]), sl.tensor(step["w"])).cpu().numpy(), expected.numpy())


def test_bytes_that_are_true_without_being_one_count_once():
    """As from a buffer or another library. They led beyond the results."""
    data = bytes([2, 0, 255, 1] * 5000)
    ours, theirs = (m.frombuffer(bytearray(data), dtype=m.bool) for m in (sl, torch))
    assert np.array_equal(ours.nonzero().numpy(), theirs.nonzero().numpy())
    assert np.array_equal(sl.arange(20000)[ours].numpy(), torch.arange(20000)[theirs].numpy())
    graph = graph_of(lambda m, x, w, v: sl.arange(20000)[ours | (v[0] > 100)])
    assert graph(*[sl.tensor(a) for a in STEPS[0].values()]).shape == (15000,)


def test_a_shape_that_is_read_while_the_graph_is_built_warns():
    def fn(m, x, w, v):
        y = x[x > 0]
        with pytest.warns(UserWarning, match=r"shape: dim 0 is as long in each step as 'index' makes it.*says 20.*extent\(x, 0\)") as told:
            assert y.shape == (20,) and y.size(0) == 20 and len(y) == 20
        assert len(told) == 3 and all(t.filename == __file__ for t in told)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert x.shape == (4, 5)
            nn.functional.dropout(y, 0.0).reshape(4, 5)
        return x

    graph_of(fn)(*[sl.tensor(a) for a in STEPS[0].values()])


def test_compile_leaves_it_to_eager_code():
    """Whether the program reads the shape is not known there."""
    def mean(x):
        y = x[x > 0]
        return y.sum() / max(y.shape[0], 1)

    compiled = sl.compile(mean)
    for step in STEPS:
        x = sl.tensor(step["x"])
        assert compiled(x).item() == mean(x).item()
    assert any("an index by a bool mask" in reason for reason in sl.compile.explain(mean)(sl.tensor(STEPS[0]["x"])).break_reasons)
