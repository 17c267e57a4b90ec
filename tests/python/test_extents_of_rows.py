"""Extents of rows: which ops keep them, and which mix rows and are refused."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn.functional as F
from extent_sources import made_of, rows_of

MIXING = {
    "sum": lambda x: x.sum(),
    "sum over the axis": lambda x: x.sum(0),
    "mean": lambda x: x.mean(0, keepdim=True),
    "max": lambda x: x.max(),
    "argmax": lambda x: sl.argmax(x, 0),
    "cumsum": lambda x: sl.cumsum(x, 0),
    "softmax": lambda x: F.softmax(x, 0),
    "contraction": lambda x: x.t() @ x,
    "flatten": lambda x: x.flatten(),
    "other rows": lambda x: x.reshape(4, 6),
    "flip": lambda x: x.flip(0),
    "narrow": lambda x: x[:4],
    "cat": lambda x: sl.cat([x, x]),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "norm over all": lambda x: F.layer_norm(x, (8, 3)),
    "gather": lambda x: x[sl.tensor([0, 1])],
    "mean loss": lambda x: F.mse_loss(x, sl.zeros(8, 3)),
}


@pytest.mark.parametrize("op", MIXING)
def test_what_mixes_rows_is_refused_with_the_line_and_the_way_out(op):
    def build():
        x = rows_of([1])
        return MIXING[op](x)

    with pytest.raises(NotImplementedError) as refused:
        made_of(build)()
    text = str(refused.value)
    assert ": mixes rows of dim 'rows' (axis " in text and "of which there may be fewer than 8" in text
    assert "sluice.where(" in text and "< sluice.extent(x, " in text and "test_extents_of_rows.py:" in text


def test_the_way_out_that_is_told_works():
    with pytest.raises(NotImplementedError) as refused:
        made_of(lambda: rows_of([1]).sum())()
    told = str(refused.value).split("mask them before: ")[1].split("  (")[0]
    assert told == "x = sluice.where((sluice.arange(8) < sluice.extent(x, 0)).reshape(-1, 1), x, 0)"

    def build():
        names = {"x": rows_of([5]), "sluice": sl}
        exec(told, names)
        return names["x"].sum()

    assert made_of(build)().item() == 45


KEEPING = {
    "elementwise": lambda x: sl.exp(x) * 2 - sl.ones(3),
    "rows of a constant": lambda x: x + sl.arange(8).reshape(8, 1),
    "linear": lambda x: F.linear(x, sl.ones(4, 3)),
    "softmax of rows": lambda x: F.softmax(x, -1),
    "sum of rows": lambda x: x.sum(1),
    "layer norm": lambda x: F.layer_norm(x, (3,)),
    "argmax of rows": lambda x: sl.argmax(x, 1),
    "cumsum of rows": lambda x: sl.cumsum(x, 1),
    "reshape beside it": lambda x: x.reshape(8, 3, 1).expand(8, 3, 2),
    "transposed": lambda x: x.t(),
    "columns": lambda x: x[:, :2],
    "joined columns": lambda x: sl.cat([x, x * 2], 1),
    "cast": lambda x: x.to(sl.int64),
    "pairs": lambda x: x @ x.t(),
    "outer": lambda x: x[:, :1] - x[:, :1].t(),
}


@pytest.mark.parametrize("op", KEEPING)
def test_what_computes_row_by_row_keeps_the_dim(op):
    graph = made_of(lambda: KEEPING[op](rows_of([8, 3, 0])))
    whole = graph().numpy()
    for n in (3, 0):
        part = tuple(slice(n) if size == 8 else slice(None) for size in whole.shape)
        np.testing.assert_allclose(graph().numpy(), whole[part], rtol=1e-6)


def test_a_dead_mixture_is_nobodys_business():
    def build():
        x = rows_of([2])
        x.sum()
        return x

    assert len(made_of(build)().numpy()) == 2
