"""sluice.library: ops written in Python compute and differentiate as torch.library's do."""

import gc
import re
from typing import List, Optional, Sequence, Tuple, Union

import numpy as np
import pytest
import torch

import sluice as sl
from sluice.library import custom_op
from library_ops import both, cube_of, name, plain, run_in_graph


def schema_of(lib, source, **options):
    names = {"Tensor": lib.Tensor, "lib": lib, "Optional": Optional, "Sequence": Sequence, "List": List, "Tuple": Tuple,
             "Union": Union, "Dtype": lib.dtype, "Device": lib.device}
    exec(f"def f{source}: ...", names)
    options.setdefault("mutates_args", ())
    return lib.library.infer_schema(names["f"], **options)


SCHEMAS = [
    "(x: Tensor) -> Tensor", "(x: Tensor, y: Optional[Tensor], z: Sequence[Tensor], n: int = 3, f: float = 2.5) -> Tensor",
    "(x: Tensor, s: str = 'a', b: bool = False, d: Dtype = None) -> Tensor", "(x: Tensor) -> None",
    "(x: Tensor) -> List[Tensor]",
    "(x: Tensor, n: Sequence[int], f: List[float], d: Optional[Device] = None, c: Union[int, float, bool] = 1, *, k: int) "
    "-> Tuple[Tensor, Tensor]",
    "(x: Tensor, t: List[Optional[Tensor]], n: Optional[List[int]] = None) -> Tensor", "(*, x: Tensor) -> int",
    "(x: Tensor, d: Optional[Dtype] = lib.float32) -> Tuple[Tensor, int]"]


@pytest.mark.parametrize("source", SCHEMAS)
def test_schemas_are_torchs(source):
    assert schema_of(sl, source) == schema_of(torch, source)
    assert schema_of(sl, source, op_name="my::f") == schema_of(torch, source, op_name="my::f")


@pytest.mark.parametrize("source", SCHEMAS)
def test_schemas_are_read_as_they_are_written(source):
    text = schema_of(sl, source)
    assert str(sl.library._schema.parse(text)) == text


@pytest.mark.parametrize("mutates", [{"x"}, ["x", "y"], "unknown"], ids=str)
def test_mutated_arguments_are_marked_as_torchs(mutates):
    source = "(x: Tensor, y: Tensor, n: int) -> None"
    ours = schema_of(sl, source, mutates_args=mutates)
    assert ours == schema_of(torch, source, mutates_args=mutates)
    assert str(sl.library._schema.parse(ours)).count("!") == ours.count("!")


@pytest.mark.parametrize("source, options, says", [
    ("(x, n: int) -> Tensor", {}, "Parameter x must have a type annotation"), ("(x: Tensor)", {}, "No return type annotation"),
    ("(x: Tensor, *args) -> Tensor", {}, "varargs"), ("(x: Tensor, d: dict) -> Tensor", {}, "Parameter d has unsupported type"),
    ("(x: Tensor) -> dict", {}, "Return has unsupported type"),
    ("(x: Tensor, n: int = (1,)) -> Tensor", {}, "unsupported default"),
    ("(x: Tensor) -> None", {"mutates_args": {"q"}}, "not found in the custom op's signature"),
    ("(x: Tensor, n: int) -> None", {"mutates_args": {"n"}}, "only Tensors"),
    ("(x: Tensor) -> None", {"mutates_args": "x"}, "'unknown'")])
def test_annotations_that_are_no_schema_are_refused_as_in_torch(source, options, says):
    for lib in (sl, torch):
        with pytest.raises(ValueError, match=re.escape(says)):
            schema_of(lib, source, **options)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_an_op_computes_and_differentiates_as_in_torch(shape, dtype):
    values = np.random.default_rng(0).standard_normal(shape)

    def case(lib, make):
        op = cube_of(lib, make)
        x = lib.tensor(values, dtype=getattr(lib, dtype), requires_grad=True)
        y = op(x, weight=2.0)
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        (gg,) = lib.autograd.grad(g.sum(), x)
        return [t.detach().numpy() for t in (y, g, gg)]

    for ours, theirs in zip(*both(case)):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("dtype", [sl.float32, sl.float64, sl.float16, sl.bfloat16, sl.int64, sl.bool], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 3)], ids=str)
def test_an_op_in_a_graph_is_the_eager_one_in_every_dtype(dtype, shape):
    @custom_op(name(), mutates_args=())
    def twice(x: sl.Tensor) -> Tuple[sl.Tensor, sl.Tensor]:
        return x + x, x.float().sum()

    twice.register_fake(lambda x: (sl.empty_like(x), sl.empty(())))
    x = sl.tensor(np.random.default_rng(1).integers(0, 5, shape)).to(dtype)
    for ours, eager in zip(run_in_graph(twice, x), twice(x)):
        assert ours.dtype is eager.dtype and ours.shape == eager.shape and sl.equal(ours, eager)


def test_gradients_in_a_graph_are_the_eager_ones():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))
    net = sl.nn.Linear(3, 3)

    def step(x):
        return sl.autograd.grad(op(net(x), 0.5).sum(), [x, net.weight])

    class G(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net

        def build(self, x):
            return step(x)

    x = sl.randn(4, 3, requires_grad=True)
    for ours, eager in zip(G()(x), step(x)):
        assert sl.allclose(ours, eager, rtol=1e-5)


def test_training_in_a_graph_goes_through_an_op():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = sl.nn.Linear(3, 1)
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.01))

        def build(self, x):
            loss = (op(self.net(x) + 1) - 0.125).square().mean()
            loss.backward()
            return loss

    sl.manual_seed(0)
    train, x = Train(), sl.ones(8, 3)
    losses = [train(x).item() for _ in range(20)]
    assert losses[-1] < losses[0] * 0.5


def test_lists_options_and_keywords_reach_the_function_and_its_backward():
    def case(lib, make):
        def f(xs, y, n=2, *, k=1.0):
            return [x * n * k + (0 if y is None else y) for x in xs]

        f.__annotations__ = {"xs": List[lib.Tensor], "y": Optional[lib.Tensor], "n": int, "k": float,
                             "return": List[lib.Tensor]}
        op, seen = make(f), []

        def setup_context(ctx, inputs, keyword_only_inputs, output):
            ctx.n, ctx.k, ctx.has_y = inputs[2], keyword_only_inputs["k"], inputs[1] is not None
            seen.append((len(inputs[0]), sorted(keyword_only_inputs), len(output)))

        def backward(ctx, grads):
            return [g * ctx.n * ctx.k for g in grads], sum(grads) if ctx.has_y else None, None

        op.register_autograd(backward, setup_context=setup_context)
        op.register_fake(lambda xs, y, n=2, *, k=1.0: [lib.empty_like(x) for x in xs])
        a, b, y = (lib.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]))
        out = op([a, b], y, 3, k=2.0)
        (out[0].sum() + 2 * out[1].sum()).backward()
        without = op([a], None)
        return [t.tolist() for t in (*out, *without, a.grad, b.grad, y.grad)], seen

    assert len({str(r) for r in both(case)}) == 1


def test_needs_input_grad_is_nested_as_the_arguments_are():
    def case(lib, make):
        def f(x, ys, n):
            return x * n + sum(ys)

        f.__annotations__ = {"x": lib.Tensor, "ys": List[lib.Tensor], "n": int, "return": lib.Tensor}
        op, seen = make(f), []
        op.register_autograd(lambda ctx, g: (seen.append(ctx.needs_input_grad), (g * ctx.n, [g, g], None))[1],
                             setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[2]))
        a, b = lib.ones(2, requires_grad=True), lib.ones(2)
        y = op(b, [a, b], 3)
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return a.grad.tolist(), [tuple(tuple(v) if isinstance(v, list) else v for v in n) for n in seen[-1:]]

    ours, theirs = both(case)
    assert ours == theirs


def test_an_op_calls_an_op():
    inner = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    inner.register_fake(lambda x, y=1.0: sl.empty_like(x))
    outer = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), lambda x, y: inner(x, 2.0) + y)
    outer.register_fake(lambda x, y=1.0: inner(x, y) + 1)
    assert outer(sl.ones(2)).tolist() == run_in_graph(outer, sl.ones(2)).tolist() == [3, 3]


def test_an_exception_keeps_its_type_eagerly_and_its_text_in_a_graph():
    def wrong(x, y):
        raise KeyError("boom")

    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), wrong)
    op.register_fake(lambda x, y=1.0: sl.empty_like(x))
    with pytest.raises(KeyError, match="boom"):
        op(sl.ones(2))
    with pytest.raises(sl.Error, match="raised KeyError: 'boom'"):
        run_in_graph(op, sl.ones(2)).tolist()


def test_lists_in_a_graph():
    @custom_op(name(), mutates_args=())
    def parts(xs: Sequence[sl.Tensor], y: Optional[sl.Tensor] = None) -> List[sl.Tensor]:
        return [x + 1 if y is None else x + y for x in xs]

    parts.register_fake(lambda xs, y=None: [sl.empty_like(x) for x in xs])
    a, b = sl.ones(2), sl.zeros(3)
    got = run_in_graph(lambda a, b: parts([a, b]), a, b)
    assert isinstance(got, list) and [t.tolist() for t in got] == [[2, 2], [1, 1, 1]]
    assert run_in_graph(lambda a, b: parts([a], y=b), a, sl.ones(2) * 3)[0].tolist() == [4, 4]


@pytest.mark.parametrize("through", ["eager", "graph"])
def test_mutated_arguments_are_written(through):
    @custom_op(name(), mutates_args={"y"})
    def accumulate(x: sl.Tensor, y: sl.Tensor) -> sl.Tensor:
        y.add_(x)
        return y.sum()

    accumulate.register_fake(lambda x, y: sl.empty((), dtype=y.dtype))

    def use(x, y):
        y = y.clone()
        total = accumulate(x, y)
        return y * 2, total

    x, y = sl.arange(3).float(), sl.ones(3)
    doubled, total = use(x, y) if through == "eager" else run_in_graph(use, x, y)
    assert doubled.tolist() == [2, 4, 6] and total.item() == 6


def test_a_buffer_is_mutated_from_step_to_step():
    @custom_op(name(), mutates_args={"count"})
    def tick(count: sl.Tensor) -> None:
        count.add_(1)

    tick.register_fake(lambda count: None)

    class Counts(sl.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", sl.zeros(2))

        def forward(self, x):
            tick(self.count)
            return x + self.count

    module = Counts()

    class G(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module

        def build(self, x):
            return self.module(x)

    graph = G()
    assert [graph(sl.zeros(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert module.count.tolist() == [3, 3]


def test_an_op_without_tensors_is_a_source():
    @custom_op(name(), mutates_args=())
    def full(n: int, value: float = 2.0) -> sl.Tensor:
        return sl.full((n,), value)

    full.register_fake(lambda n, value=2.0: sl.empty(n))
    assert run_in_graph(lambda x: x + full(3), sl.ones(3)).tolist() == full(3, 3.0).tolist() == [3, 3, 3]


def test_non_contiguous_arguments():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))
    x = sl.arange(6).float().reshape(2, 3)
    assert sl.equal(run_in_graph(lambda x: op(x.t()), x), op(x.t()))
    assert sl.equal(run_in_graph(op, x.t()), x.t() ** 3)


def test_vmap_and_func_grad_go_through_an_op():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))
    op.register_vmap(lambda info, in_dims, x: None)
    x = sl.tensor([1.0, 2.0, 3.0])
    assert sl.func.vmap(lambda v: op(v))(x).tolist() == [1, 8, 27]
    assert sl.func.grad(lambda v: op(v).sum())(x).tolist() == [3, 12, 27]


def test_an_op_in_a_saved_graph(tmp_path):
    op = cube_of(sl, lambda f: sl.library.custom_op("testlib::saved", f, mutates_args=()))

    class G(sl.nn.Graph):
        def build(self, x):
            return op(x)

    graph, x = G(), sl.arange(3).float()
    graph(x)
    sl.save(graph, tmp_path / "g")
    with pytest.raises(sl.Error, match="testlib.saved"):  # a host function, which a bundle does not hold
        sl.load_graph(tmp_path / "g")(x)
    loaded = sl.load_graph(tmp_path / "g", functions={"testlib.saved": lambda a: a ** 3})
    assert loaded(x).tolist() == [0, 1, 8]


def test_a_graph_that_is_dropped_gives_its_results():
    """Nothing but the call keeps it: collected in the thread of its own host function, it could not wait for that."""
    @custom_op(name(), mutates_args=())
    def collects(x: sl.Tensor) -> sl.Tensor:
        gc.collect()
        return x * 2

    collects.register_fake(lambda x: sl.empty_like(x))
    collects.register_autograd(lambda ctx, grad: grad * 2)
    for _ in range(3):
        y = run_in_graph(lambda x: collects(x) + 1, sl.ones(3))
        z = run_in_graph(lambda x: sl.autograd.grad(collects(x).sum(), x)[0], sl.ones(3, requires_grad=True))
        assert y.tolist() == [3, 3, 3] and z.tolist() == [2, 2, 2]
