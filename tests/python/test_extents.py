"""Values that a step makes shorter than there is room for: dims of host functions, and what becomes of them."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F

ROWS = sl.Dim("rows", max=8)
ALL = np.arange(11 * 3, dtype=np.float32).reshape(11, 3)


def batches(size=4):
    """11 rows: two whole batches and a part."""
    for start in range(0, len(ALL), size):
        yield ALL[start : start + size]


def made_of(fn):
    """A graph of build(): fn()."""

    class Made(nn.Graph):
        def build(self):
            return fn()

    return Made(name="made")


def source(sizes, width=3):
    """A source of as many rows as `sizes` says, step by step; a row is its number, from 1."""
    steps = iter(sizes)

    def rows():
        n = next(steps)
        return np.arange(1, n + 1, dtype=np.float32).reshape(n, 1).repeat(width, 1)

    return rows


def rows_of(sizes, width=3, dim=ROWS):
    return sl.host_function(source(sizes, width), out=((dim, width), sl.float32))


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
    assert "sluice.where(" in text and "< sluice.extent(x, " in text and "test_extents.py:" in text


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


def test_what_a_buffer_keeps_must_be_all_there():
    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", sl.zeros(8, 3))

    class Net(nn.Graph):
        def __init__(self, masked):
            super().__init__()
            self.kept, self.masked = Kept(), masked

        def build(self):
            x = rows_of([3])
            self.kept.last.copy_(sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0) if self.masked else x)
            return x

    with pytest.raises(NotImplementedError, match="variable 'kept.last': its update varies in length: axis 0 is of dim 'rows'"):
        Net(False)()
    graph = Net(True)
    assert len(graph().numpy()) == 3
    graph.synchronize()
    assert graph.kept.last.numpy()[:, 0].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


def test_training_on_batches_of_any_length_is_as_with_each_alone():
    def one(sizes, rows, masked=True):
        sl.manual_seed(0)
        model = nn.Linear(3, 1)

        class Train(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.01))

            def build(self):
                x = sl.host_function(source(sizes), out=((rows, 3), sl.float32))
                n = sl.extent(x, 0)
                mask = (sl.arange(x.shape[0]) < n).reshape(-1, 1)
                x = sl.where(mask, x, 0) if masked else x
                errors = (self.model(x) - 1) ** 2
                loss = sl.where(mask, errors, 0).sum() / n
                loss.backward()
                return loss

        return Train(), model

    together, trained = one([5, 8, 2], ROWS)
    losses = [together().item() for _ in range(3)]
    alone = nn.Linear(3, 1)
    alone.load_state_dict(one([1], ROWS)[1].state_dict())
    optimizer = sl.optim.SGD(alone.parameters(), lr=0.01)
    for n, loss in zip([5, 8, 2], losses):
        x = sl.tensor(np.arange(1, n + 1, dtype=np.float32).reshape(n, 1).repeat(3, 1))
        expected = ((alone(x) - 1) ** 2).mean()
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    together.synchronize()
    np.testing.assert_allclose(trained.weight.detach().numpy(), alone.weight.detach().numpy(), rtol=1e-5)
    # A gradient that would take in what is not there is refused, at the line of its forward call.
    with pytest.raises(NotImplementedError, match="mixes rows of dim 'rows'"):
        one([5], ROWS, masked=False)[0]()


def test_gradients_reach_parameters_through_a_function_that_has_one():
    class Scale(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return sl.host_function(lambda a: a * 2, x, out=((ROWS, 3), sl.float32))

        @staticmethod
        def backward(ctx, grad):
            return sl.host_function(lambda a: a * 2, grad, out=((8, 3), sl.float32))

    weight = nn.Linear(3, 3, bias=False)

    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.fc = weight

        def build(self, x):
            y = Scale.apply(self.fc(x))
            masked = sl.where((sl.arange(8) < sl.extent(y, 0)).reshape(-1, 1), y, 0)
            masked.sum().backward()
            return y, self.fc.weight.grad

    y, grad = Net()(sl.ones(8, 3))
    assert tuple(y.shape) == (8, 3) and grad.numpy().tolist() == [[16.0] * 3] * 3


def test_micro_batches_each_have_their_own_extent():
    sizes = [3, 8, 1, 2]

    class Net(nn.Graph):
        def __init__(self, result):
            super().__init__()
            self.result = result
            self.config.set_gradient_accumulation_steps(2)

        def build(self):
            x = rows_of(sizes)
            return self.result(x)

    graph = Net(lambda x: (sl.extent(x, 0), sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0).sum()))
    for pair in ([3, 8], [1, 2]):
        extents, sums = graph()
        assert extents.numpy().tolist() == pair
        assert sums.numpy().tolist() == [3 * n * (n + 1) / 2 for n in pair]
    with pytest.raises(NotImplementedError, match="pack: mixes rows of dim 'rows'"):
        Net(lambda x: x)()


def test_over_several_devices_of_one_process():
    place = sl.placement("sim", [0, 1])

    def build(masked):
        x = rows_of([3, 8])
        if masked:
            x = sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), x, 0)
        return x.to_global(place, sl.sbp.split(0)).sum(), x * 2

    with pytest.raises(NotImplementedError, match="to_global: mixes rows of dim 'rows'"):
        made_of(lambda: build(False))()
    graph = made_of(lambda: build(True))
    assert [graph()[0].item() for _ in range(2)] == [18, 108]


def test_on_another_device_and_back():
    def build():
        x = rows_of([3, 8, 0])
        with sl.device("sim:0"):
            y = x * 2
            total = sl.where((sl.arange(8) < sl.extent(x, 0)).reshape(-1, 1), y, 0).sum()
        return y, total

    graph = made_of(build)
    for n in (3, 8, 0):
        y, total = graph()
        assert y.numpy().tolist() == [[2.0 * (i + 1)] * 3 for i in range(n)] and total.item() == 3 * n * (n + 1)


def test_families_have_dims_of_both_kinds():
    sizes = []

    def pick():
        return np.full((sizes[-1],), 7, np.float32)

    class Net(nn.Graph):
        def __init__(self, fit):
            super().__init__(name="both")
            self.config.set_dims({"x": {0: sl.Dim("batch", max=4, buckets=[2, 4], fit=fit)}})

        def build(self, x):
            y = sl.host_function(pick, out=((ROWS,), sl.float32))
            return x.reshape(-1, 1) * y

    graph = Net("pad")
    for n, m in [(3, 5), (1, 8), (2, 0), (4, 2)]:
        sizes.append(m)
        x = np.arange(n, dtype=np.float32)
        assert graph(sl.tensor(x)).numpy().tolist() == [[7 * v] * m for v in x]
    graph = Net("split")  # each part of a call is a step, with an extent of its own
    sizes.append(5)
    assert tuple(graph(sl.ones(4)).shape) == (4, 5)


@pytest.mark.parametrize("call", ["call", "try_call", "run_async"])
def test_every_way_to_call(call):
    import asyncio

    graph = made_of(lambda: rows_of([2, 5]))
    graph.compile()
    for n in (2, 5):
        if call == "run_async":
            y = asyncio.run(graph.run_async())
        else:
            y = graph() if call == "call" else graph.try_call()
        assert tuple(y.shape) == (n, 3)


def test_a_failed_step_is_told_by_the_call_and_the_next_one_runs():
    steps = iter([1, 0, 2])

    def fails():
        n = next(steps)
        if n == 0:
            raise RuntimeError("no rows today")
        return np.ones((n, 3), np.float32)

    graph = made_of(lambda: sl.host_function(fails, out=((ROWS, 3), sl.float32)))
    assert len(graph().numpy()) == 1
    with pytest.raises(sl.Error, match="no rows today"):
        graph()
    assert len(graph().numpy()) == 2


def test_bundles_give_results_as_long_as_they_are(tmp_path):
    sizes = [3, 8, 0]

    def rows():
        yield from (np.full((n, 3), n, np.float32) for n in sizes)

    class Net(nn.Graph):
        def build(self):
            x = sl.host_function(rows, out=((ROWS, 3), sl.float32))
            return {"double": x * 2, "extent": sl.extent(x, 0)}

    graph = Net(name="rows")
    graph.compile()
    sl.save(graph, tmp_path / "bundle")
    loaded = sl.load_graph(tmp_path / "bundle", functions={"rows": rows})
    assert [(name, shape) for name, _, shape in loaded.outputs] == [("double", (8, 3)), ("extent", ())]
    for _ in range(2):
        for n in sizes:
            out = loaded()
            assert out["extent"].item() == n and out["double"].numpy().tolist() == [[2.0 * n] * 3] * n
        with pytest.raises(sl.EndOfData):
            loaded()
        loaded.reset()


def test_bundles_that_are_planned_anew_keep_it(tmp_path, without_digest):
    graph = made_of(lambda: rows_of([1]))
    graph.compile()
    sl.save(graph, tmp_path / "bundle")
    without_digest(tmp_path / "bundle")
    plan = (tmp_path / "bundle" / "plan.json").read_text()
    target = graph.plan["target"]
    (tmp_path / "bundle" / "plan.json").write_text(plan.replace(target, "another machine"))
    with pytest.warns(UserWarning, match="compiled anew from graph.txt"):
        loaded = sl.load_graph(tmp_path / "bundle", functions={"rows": source([3, 1])})
    assert [len(loaded().numpy()) for _ in range(2)] == [3, 1]


def test_a_result_may_be_called_as_an_extent_is():
    def build():
        x = rows_of([1])
        return {"x": x, "x[0=rows]": sl.extent(x, 0)}

    results = made_of(build)()
    assert len(results["x"].numpy()) == 1 and results["x[0=rows]"].item() == 1


def test_a_plan_is_verified_and_counted_as_any_other():
    graph = made_of(lambda: rows_of([2]) * 2)
    graph.compile()
    registers = {r["name"]: r["bytes"] for r in graph.plan["registers"]}
    assert 8 in registers.values()  # the extent is a register like others
    assert [o.get("extent_of") for o in graph.plan["outputs"]] == [None, {"output": "output", "axis": 0, "dim": "rows"}]
    assert len(graph().numpy()) == 2


@pytest.mark.parametrize("attrs, message", [
    ({"dims": ["n"], "output_dims": [0, 1, 0]}, "dims: output 0 has no axis 1; one of dim 'n' must be there"),
    ({"dims": ["n"], "output_dims": [0, 0]}, "output_dims: 2 numbers; must be a tensor, an axis and a dim for each"),
    ({"dims": ["n"], "output_dims": [0, 0, 1]}, r"output_dims: \(0, 0, 1\); must be a tensor, an axis of it and one of 1 dims"),
    ({"dims": ["n", "m"], "output_dims": [0, 0, 0]}, "dims: no output has an axis of 'm'; one must"),
    ({"dims": ["n"], "input_dims": [0, 0, 0]}, r"dims: input 0 is float32\(4,\); an extent must be int64\(\)"),
    ({"dims": ["n"], "output_dims": [0, 0, 0, 1, 0, 0]}, "dims: axis 0 of output 1 has room for 2 of dim 'n', and another for 4; must be equal"),
])
def test_attributes_that_contradict_are_refused(attrs, message):
    with pytest.raises(sl.Error, match="host_function: " + message):
        sl.ops.host_function([sl.ones(4)], name="f", outputs=[(sl.float32, (4,)), (sl.float32, (2,))], **attrs)
