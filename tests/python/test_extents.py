"""Values that a step makes shorter than there is room for: dims of host functions."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F
from extent_sources import ROWS, made_of, rows_of

ALL = np.arange(11 * 3, dtype=np.float32).reshape(11, 3)


def batches(size=4):
    """11 rows: two whole batches and a part."""
    for start in range(0, len(ALL), size):
        yield ALL[start : start + size]


def test_the_last_batch_of_a_source_is_as_long_as_it_is():
    linear = nn.Linear(3, 2)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.fc = linear

        def build(self):
            return self.fc(sl.host_function(batches, out=((sl.Dim("rows", max=4), 3), sl.float32)))

    graph = Net()
    for _ in range(2):
        seen = [graph() for _ in range(3)]
        assert [tuple(y.shape) for y in seen] == [(4, 2), (4, 2), (3, 2)]
        expected = linear(sl.tensor(ALL)).detach().numpy()
        np.testing.assert_allclose(np.concatenate([y.detach().numpy() for y in seen]), expected, rtol=1e-6)
        with pytest.raises(sl.EndOfData):
            graph()
        graph.reset()
    assert graph.outputs[0][2] == (4, 2)  # what there is room for


def test_rows_that_are_not_there_are_zeros_and_none_of_them_is_told():
    sizes = [8, 0, 3, 5]
    graph = made_of(lambda: rows_of(sizes))
    for n in sizes:
        y = graph()
        assert tuple(y.shape) == (n, 3)
        assert y.numpy().tolist() == [[i + 1] * 3 for i in range(n)]
    # An op on all there is room for sees that nothing is left of the step before.
    everything = made_of(lambda: sl.where(sl.arange(8).reshape(8, 1) < sl.extent(x := rows_of([8, 2]), 0) + 8, x, -1))
    assert everything().sum().item() == 3 * 36
    assert everything().numpy()[:, 0].tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_texts_of_any_length_in_any_axis():
    texts = iter([["a", "bcd"], ["efghi", "j"], ["", ""]])
    words, size = sl.Dim("chars", max=6), 2

    def tokens():
        lines = next(texts)
        length = max(map(len, lines))
        return np.array([[ord(c) for c in line.ljust(length, " ")] for line in lines], np.int64).reshape(size, length)

    embedding = nn.Embedding(128, 4)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.embedding = embedding

        def build(self):
            ids = sl.host_function(tokens, out=((size, words), sl.int64))
            return {"ids": ids, "vectors": self.embedding(ids), "transposed": ids.t()}

    graph = Net()
    for lines in (["a", "bcd"], ["efghi", "j"], ["", ""]):
        length = max(map(len, lines))
        expected = np.array([[ord(c) for c in line.ljust(length)] for line in lines], np.int64).reshape(size, length)
        out = graph()
        np.testing.assert_array_equal(out["ids"].numpy(), expected)
        np.testing.assert_array_equal(out["transposed"].numpy(), expected.T)
        np.testing.assert_array_equal(out["vectors"].detach().numpy(), embedding.weight.detach().numpy()[expected])
        assert out["ids"].is_contiguous() and out["transposed"].is_contiguous()


def test_several_axes_and_results_of_one_dim():
    a, b = sl.Dim("a", max=4), sl.Dim("b", max=5)
    sizes = iter([(2, 5), (4, 0), (3, 1)])

    def grid():
        n, m = next(sizes)
        whole = np.arange(n * m, dtype=np.float32).reshape(n, m)
        return whole, whole.sum(1), np.float32(n * m)

    out = [((a, b), sl.float32), ((a,), sl.float32), ((), sl.float32)]
    graph = made_of(lambda: [y * 2 for y in sl.host_function(grid, out=out)])
    for n, m in [(2, 5), (4, 0), (3, 1)]:
        whole, sums, number = graph()
        expected = 2 * np.arange(n * m, dtype=np.float32).reshape(n, m)
        np.testing.assert_array_equal(whole.numpy(), expected)
        np.testing.assert_array_equal(sums.numpy(), expected.sum(1))
        assert number.item() == 2 * n * m


WRONG = {
    "too many": (lambda: np.zeros((9, 3), np.float32),
                 r"host function 'wrong': result 0 has 9 of dim 'rows' \(axis 0\); at most 8 were declared"),
    "another axis": (lambda: np.zeros((2, 4), np.float32), r"host function 'wrong': result 0 has shape \(2, 4\); declared was \(8, 3\)"),
    "another rank": (lambda: np.zeros((2,), np.float32), r"host function 'wrong': result 0 has shape \(2,\); declared was \(8, 3\)"),
    "another dtype": (lambda: np.zeros((2, 3)), r"host function 'wrong': result 0 has dtype float64; declared was float32"),
}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_fails_the_step_and_says_what(what, eager):
    make, message = WRONG[what]
    bad = True

    def wrong():
        return make() if bad else np.ones((2, 3), np.float32)

    def call():
        return sl.host_function(wrong, out=((ROWS, 3), sl.float32))

    graph = call if eager else made_of(call)
    with pytest.raises(sl.Error, match=message):
        graph()
    bad = False
    assert graph().numpy().tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("eager", [False, True])
def test_results_of_one_dim_must_be_equally_long(eager):
    def call():
        return sl.host_function(lambda: (np.zeros(3, np.float32), np.zeros(4, np.float32)), out=[((ROWS,), sl.float32)] * 2)

    with pytest.raises(ValueError, match=r"result 1 has 4 of dim 'rows' \(axis 0\); 3 of result 0 must be equal"):
        (call if eager else made_of(call))()


def test_eager_results_are_as_long_as_they_were_made():
    for n in (0, 3, 8):
        y = rows_of([n])
        assert tuple(y.shape) == (n, 3) and y.numpy().tolist() == [[i + 1] * 3 for i in range(n)]
        assert sl.extent(y, 0).item() == n and sl.extent(y, -1).item() == 3 and sl.extent(y, 0).dtype == sl.int64
    wide = sl.host_function(lambda x: x[:, :2], sl.ones(2, 5), out=((2, sl.Dim("wide", max=5)), sl.float32))
    assert tuple(wide.shape) == (2, 2) and wide.is_contiguous()
    with pytest.raises(IndexError, match="extent: dim"):
        sl.extent(wide, 2)


def test_another_host_function_gets_it_as_long_as_it_is():
    seen, sizes = [], [2, 8, 0, 5]

    def look(x, weights):
        seen.append((x.shape, weights.shape))
        return x * weights

    def build():
        x = rows_of(sizes) + 1
        return sl.host_function(look, x, sl.ones(3), out=((ROWS, 3), sl.float32)), x

    graph = made_of(build)
    for n in sizes:
        y, x = graph()
        assert y.numpy().tolist() == x.numpy().tolist() == [[i + 2] * 3 for i in range(n)]
    assert seen == [((n, 3), (3,)) for n in sizes]


def test_a_function_keeps_the_extent_of_the_dim_that_its_inputs_have():
    graph = made_of(lambda: sl.host_function(lambda x: x[1:], rows_of([5]), out=((ROWS, 3), sl.float32)))
    with pytest.raises(ValueError, match=r"result 0 has 4 of dim 'rows' \(axis 0\); 5 of its inputs must be equal"):
        graph()
    # One of another name is its own.
    graph = made_of(lambda: sl.host_function(lambda x: x[1:], rows_of([5, 1]), out=((sl.Dim("less", max=8), 3), sl.float32)))
    assert [len(graph().numpy()) for _ in range(2)] == [4, 0]


def test_dims_that_contradict_are_refused():
    with pytest.raises(ValueError, match=r"output 0 has a dim 'rows' of at most 9; elsewhere it is of at most 8"):
        made_of(lambda: sl.host_function(np.copy, rows_of([1]), out=((sl.Dim("rows", max=9), 3), sl.float32)))()
    with pytest.raises(ValueError, match="its inputs have two dims 'rows'"):
        made_of(lambda: sl.host_function(np.add, rows_of([1]), rows_of([1]), out=((ROWS, 3), sl.float32)))()
    with pytest.raises(NotImplementedError, match="add: rows of dim 'rows' meet rows of dim 'rows', of which there may be more or fewer"):
        made_of(lambda: rows_of([1]) + rows_of([1]))()


def test_masks_made_of_the_extent():
    sizes = [3, 8, 0, 1]

    def build():
        x = rows_of(sizes) + 1  # what is not there is 1 by now
        mask = sl.arange(8) < sl.extent(x, 0)
        there = sl.where(mask.reshape(-1, 1), x, 0)
        return {"sum": there.sum(), "mean": there.sum(0) / sl.extent(x, 0), "extent": sl.extent(x, 0),
                "largest": sl.where(mask, x[:, 0], -1).max(), "sums": sl.cumsum(there, 0), "product": there.t() @ there, "x": x * 2}

    graph = made_of(build)
    for n in sizes:
        rows = (np.arange(n, dtype=np.float32) + 2).reshape(n, 1).repeat(3, 1)
        out = graph()
        assert out["sum"].item() == rows.sum() and out["extent"].item() == n
        assert out["largest"].item() == (n + 1 if n else -1)
        assert out["sums"].shape == (8, 3) and out["sums"].numpy()[:n].tolist() == rows.cumsum(0).tolist()
        np.testing.assert_array_equal(out["product"].numpy(), rows.T @ rows)
        np.testing.assert_array_equal(out["x"].numpy(), 2 * rows)
        if n:
            np.testing.assert_allclose(out["mean"].numpy(), rows.mean(0), rtol=1e-6)


def test_attention_over_texts_needs_a_mask_of_its_keys():
    length, sizes = sl.Dim("length", max=6), [6, 2, 4]

    def build(masked):
        x = rows_of(sizes, 4, length)
        scores, values = x @ x.t(), x
        if masked:
            mask = sl.arange(6) < sl.extent(x, 0)
            scores = sl.where(mask, scores, -1e9)
            values = sl.where(mask.reshape(-1, 1), x, 0)
        return F.softmax(scores, -1) @ values

    graph = made_of(lambda: build(True))
    for n in sizes:
        x = (np.arange(n, dtype=np.float32) + 1).reshape(n, 1).repeat(4, 1)
        weights = np.exp(x @ x.T - (x @ x.T).max(1, keepdims=True))
        out = graph().numpy()
        assert out.shape == (n, 4)  # queries are as many as there are
        np.testing.assert_allclose(out, weights / weights.sum(1, keepdims=True) @ x, rtol=1e-5)
    with pytest.raises(NotImplementedError, match=r"softmax: mixes rows of dim 'length' \(axis 1 of 'x', float32\(6, 6\)\)"):
        made_of(lambda: build(False))()
