"""sluice.library: ops written in Python; torch.library is the oracle."""

import gc
import itertools
import re
from typing import List, Optional, Sequence, Tuple, Union

import numpy as np
import pytest
import torch

import sluice as sl
from sluice.library import custom_op, opcheck

_numbers = itertools.count()


def name():
    return f"testlib::op{next(_numbers)}"


def run_in_graph(function, *args):
    class G(sl.nn.Graph):
        def build(self, *tensors):
            return function(*tensors)

    return G()(*args)


# Schemas: of either library, from one source of annotations


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


# One op in both libraries


def both(build):
    """The result of `build(lib, custom_op)` with either library; the op has one name in both."""
    qualified = name()
    return [build(lib, lambda *a, **k: lib.library.custom_op(qualified, *a, **{"mutates_args": (), **k}))
            for lib in (sl, torch)]


def cube_of(lib, make):
    def cube(x, weight=1.0):
        return lib.from_numpy(np.asarray(x.numpy() ** 3 * weight, x.numpy().dtype))

    cube.__annotations__ = {"x": lib.Tensor, "weight": float, "return": lib.Tensor}
    op = make(cube)
    op.register_fake(lambda x, weight=1.0: lib.empty_like(x))

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.weight = inputs[1]
        ctx.needs = ctx.needs_input_grad

    op.register_autograd(lambda ctx, g: (g * 3 * ctx.saved_tensors[0] ** 2 * ctx.weight, None), setup_context=setup_context)
    return op


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


# Kinds of arguments


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


# Errors


def raised(case, kind):
    texts = []
    for lib in (sl, torch):
        with pytest.raises(kind) as error:
            both_name = name()
            case(lib, lambda *a, **k: lib.library.custom_op(both_name, *a, **{"mutates_args": (), **k}))
        texts.append(str(error.value))
    return texts


def plain(lib, make, body=lambda x, y: x * y):
    def f(x, y=1.0):
        return body(x, y)

    f.__annotations__ = {"x": lib.Tensor, "y": float, "return": lib.Tensor}
    return make(f)


@pytest.mark.parametrize("call, says", [
    (lambda lib, f, x: f(1), "Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"),
    (lambda lib, f, x: f(x, "a"), "Expected a value of type 'float' for argument 'y' but instead found type 'str'"),
    (lambda lib, f, x: f(x, 1, 2), "expected at most 2 argument(s) but received 3 argument(s)"),
    (lambda lib, f, x: f(x, z=2), "Unknown keyword argument 'z' for operator"),
    (lambda lib, f, x: f(), "is missing value for argument 'x'"),
    (lambda lib, f, x: f(x.requires_grad_()).sum().backward(), "no autograd formula was registered. Please use "
     "register_autograd"),
    (lambda lib, f, x: lib.library.register_fake("testlib::nosuch", lambda x: x), "operator testlib::nosuch does not exist")])
def test_misuse_is_refused_as_in_torch(call, says):
    for text in raised(lambda lib, make: call(lib, plain(lib, make), lib.ones(3)), RuntimeError):
        assert says in text


def test_results_that_alias_arguments_are_refused():
    for body in (lambda x, y: x, lambda x, y: x[1:]):
        for text in raised(lambda lib, make, body=body: plain(lib, make, body)(lib.ones(3)), RuntimeError):
            assert "must not also be an input" in text
    with pytest.raises(sl.Error, match="must not also be an input"):
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), lambda x, y: x)
        op.register_fake(lambda x, y=1.0: sl.empty_like(x))
        run_in_graph(op, sl.ones(3)).tolist()


def test_no_tensor_as_result_is_refused():
    for text in raised(lambda lib, make: plain(lib, make, lambda x, y: 3)(lib.ones(3)), RuntimeError):
        assert "Unable to cast 3 to Tensor" in text


def test_a_kernel_that_is_not_there_is_named():
    def case(lib, make):
        return plain(lib, lambda f: make(f, device_types="cuda"))(lib.ones(3))

    for text in raised(case, NotImplementedError):
        assert "with arguments from the 'CPU' backend" in text


def test_autograd_of_an_op_that_writes_is_refused():
    def case(lib, make):
        def f(x):
            x.add_(1)

        f.__annotations__ = {"x": lib.Tensor, "return": None}
        make(f, mutates_args={"x"}).register_autograd(lambda ctx: None)

    for text in raised(case, RuntimeError):
        assert "Cannot register autograd formula for non-functional operator" in text


def test_wrong_numbers_of_gradients_are_refused_and_none_may_be_left_out():
    for found in [lambda ctx, g: (g,), lambda ctx, g: g, lambda ctx, g: (g, None, None)]:
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
        op.register_autograd(found)
        op(x := sl.ones(2, requires_grad=True)).sum().backward()
        assert x.grad.tolist() == [1, 1]
    for found in [lambda ctx, g: (), lambda ctx, g: (g, g), lambda ctx, g: (g, None, g)]:
        op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
        op.register_autograd(found)
        with pytest.raises(RuntimeError, match="backward returned"):
            op(sl.ones(2, requires_grad=True)).sum().backward()


def test_a_graph_needs_a_fake_and_a_true_one():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    with pytest.raises(sl.Error, match="no fake impl registered.*register_fake"):
        run_in_graph(op, sl.ones(3))
    op.register_fake(lambda x, y=1.0: sl.empty(2))
    with pytest.raises(sl.Error, match=r"the kernel returned .*shape \(3,\), its fake .* \(2,\)"):
        run_in_graph(op, sl.ones(3)).tolist()


def test_an_undeclared_write_in_a_graph_is_refused():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()), lambda x, y: x.add_(1).clone())
    op.register_fake(lambda x, y=1.0: sl.empty_like(x))
    with pytest.raises(sl.Error, match="read-only"):
        run_in_graph(op, sl.ones(3)).tolist()


def test_results_that_are_numbers_have_no_value_in_a_graph():
    @custom_op(name(), mutates_args=())
    def count(x: sl.Tensor) -> int:
        return int((x > 0).sum())

    count.register_fake(lambda x: 0)
    assert count(sl.ones(3)) == 3
    with pytest.raises(sl.Error, match="no value while a graph is built"):
        run_in_graph(lambda x: x + count(x), sl.ones(3))


@pytest.mark.parametrize("wrong", ["f", "::f", "a::", "a b::f", "a::b::c"])
def test_names_without_a_namespace_are_refused(wrong):
    with pytest.raises(ValueError, match="namespace::name"):
        custom_op(wrong, mutates_args=())


def test_a_default_of_none_may_be_left_out():
    def case(lib, make):
        def f(x, dtype=None, scale=None):
            return x.to(dtype or lib.float64) * (scale or 3)

        f.__annotations__ = {"x": lib.Tensor, "dtype": Optional[lib.dtype], "scale": Optional[float],
                             "return": lib.Tensor}
        op = make(f)
        results = [op(lib.ones(1)), op(lib.ones(1), lib.int64, 2), op(lib.ones(1), scale=2)]
        return [(r.tolist(), str(r.dtype).rpartition(".")[2]) for r in results]

    ours, theirs = both(case)
    assert ours == theirs


def test_what_is_left_out_says_what_to_use():
    for missing in ("triton_op", "wrap_triton", "fallthrough_kernel", "get_kernel", "register_torch_dispatch", "get_ctx"):
        with pytest.raises(AttributeError, match="custom_op and register_kernel"):
            getattr(sl.library, missing)
    with pytest.raises(ValueError, match="is an op of Sluice"):
        custom_op("relu::f", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")


# define, impl, Library, devices


def test_ops_by_schema_and_impl():
    qualified = name()
    for lib in (sl, torch):
        lib.library.define(qualified, "(Tensor x, int n=2) -> Tensor")
        lib.library.impl(qualified, "cpu", lambda x, n=2: x * n)
        lib.library.register_fake(qualified, lambda x, n=2, lib=lib: lib.empty_like(x))
        lib.library.register_autograd(qualified, lambda ctx, g: (g * 7, None))
        op = getattr(lib.ops.testlib, qualified.split("::")[1])
        x = lib.ones(2, requires_grad=True)
        op(x, 5).sum().backward()
        assert op(x).tolist() == [2, 2] and op.default(x, n=3).tolist() == [3, 3] and x.grad.tolist() == [7, 7]
    assert run_in_graph(sl.library._find(qualified), sl.ones(2)).tolist() == [2, 2]


def test_a_library_has_ops():
    results = []
    for lib in (sl, torch):
        library = lib.library.Library("testfragment", "FRAGMENT")
        library.define("add3(Tensor x, *, int n=3) -> Tensor")
        library.define("made(Tensor x) -> Tensor")
        library.impl("add3", lambda x, n=3: x + n, "CompositeExplicitAutograd")
        library.impl("made", lambda x: x.exp() * 2, "CompositeImplicitAutograd")
        x = lib.zeros(2, requires_grad=True)
        lib.ops.testfragment.made(x).sum().backward()
        results.append((lib.ops.testfragment.add3(lib.ones(2)).tolist(), x.grad.tolist()))
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="Unsupported kind"):
        sl.library.Library("x", "OTHER")
    with pytest.raises(ValueError, match="register_autograd"):
        sl.library.Library("testfragment", "IMPL").impl("add3", lambda x: x, "AutogradCPU")
    with pytest.raises(AttributeError, match="has no op 'nosuch'"):
        sl.ops.testfragment.nosuch


def test_kernels_of_kinds_of_devices():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    op.register_kernel("cpu", lambda x, y=1.0: x * 10)
    assert op(sl.ones(1)).tolist() == [10]
    with op.set_kernel_enabled("cpu", False):
        assert op(sl.ones(1)).tolist() == [1]
    assert op(sl.ones(1)).tolist() == [10]


def test_autocast_casts_arguments():
    op = plain(sl, lambda f: custom_op(name(), f, mutates_args=()))
    op.register_autocast("cpu", sl.float32)
    x = sl.ones(2, dtype=sl.bfloat16)
    assert op(x).dtype is sl.bfloat16
    with sl.autocast("cpu"):
        assert op(x).dtype is sl.float32


# opcheck


def test_opcheck_passes_a_right_op():
    op = cube_of(sl, lambda f: sl.library.custom_op(name(), f, mutates_args=()))
    found = opcheck(op, (sl.randn(3, 2, requires_grad=True), 2.0))
    assert set(found.values()) == {"SUCCESS"} and set(found) >= {"test_schema", "test_autograd_registration", "test_faketensor",
                                                                 "test_aot_dispatch_dynamic", "test_gradients", "test_dtypes"}

    @custom_op(name(), mutates_args={"y"})
    def add(x: sl.Tensor, y: sl.Tensor) -> None:
        y.add_(x)

    add.register_fake(lambda x, y: None)
    assert set(opcheck(add, (sl.ones(2), sl.zeros(2))).values()) == {"SUCCESS"}


def wrong_op(fake=lambda x: sl.empty_like(x), backward=lambda ctx, g: g * 2, kernel=lambda x: x * 2):
    def f(x: sl.Tensor) -> sl.Tensor:
        return kernel(x)

    op = custom_op(name(), f, mutates_args=())
    op.register_fake(fake)
    if backward is not None:
        op.register_autograd(backward)
    return op


def in_float16(x):
    return (x * 2).float() if x.dtype is sl.float16 else x * 2


@pytest.mark.parametrize("wrong, test, says", [
    (dict(fake=lambda x: sl.empty(3, 3)), "test_faketensor", r"Shapes \(4,\) and \(3, 3\) are not equal"),
    (dict(fake=lambda x: sl.empty(4, dtype=sl.int64)), "test_faketensor", "Dtypes .* are not equal"),
    (dict(backward=lambda ctx, g: g * 3), "test_gradients", "Jacobian mismatch"),
    (dict(backward=None), "test_autograd_registration", "register_autograd"),
    (dict(kernel=lambda x: x.mul_(2).clone()), "test_schema", "was mutated"),
    (dict(kernel=lambda x: sl.from_numpy(x.numpy().__imul__(2).copy())), "test_schema", "was mutated"),
    (dict(kernel=lambda x: x), "test_schema", "must not also be an input"),
    (dict(kernel=in_float16), "test_dtypes", "float16"),
    (dict(kernel=lambda x, calls=itertools.count(): x * next(calls)), "test_aot_dispatch_dynamic", "graph against eager"),
    (dict(kernel=lambda x: (x * 2).float()), "test_gradients", "too coarse")])
def test_opcheck_finds(wrong, test, says):
    op, x = wrong_op(**wrong), sl.randn(4, requires_grad=True)
    with pytest.raises(sl.library._check.OpCheckError, match=f"(?s){test} failed with .*{says}"):
        opcheck(op, (x,), test_utils=test)
    found = opcheck(op, (x,), raise_exception=False)
    assert isinstance(found[test], Exception)


def test_opcheck_refuses_what_is_no_op():
    with pytest.raises(ValueError, match="must be an op of sluice.library"):
        opcheck(sl.relu, (sl.ones(1),))
    with pytest.raises(ValueError, match="test_utils"):
        opcheck(wrong_op(), (sl.ones(1),), test_utils="test_nosuch")
