"""opcheck(): what a custom op says of itself against what it does."""

from __future__ import annotations

from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import arange, zeros_like
from sluice._base.grad_mode import no_grad
from sluice.autograd.gradcheck import gradcheck
from sluice.autograd.passes import grad
from sluice.library._op import CustomOpDef, Operands, Results, check_aliases, fake_results
from sluice._graph.graph import Graph
from sluice.testing._close import assert_close


class OpCheckError(Exception):
    pass


def opcheck(op: Any, args: Any, kwargs: Any = None, *, test_utils: Any = None, raise_exception: bool = True, atol: Any = None,
            rtol: Any = None) -> dict[str, Any]:
    """Tests a custom op on one sample of arguments; torch.library.opcheck, and the gradients besides.

    test_schema: it writes to the arguments that it names and to no others, and its results share no memory with them.
    test_autograd_registration: arguments that require gradients have a gradient registered.
    test_faketensor: the fake gives the shapes and dtypes that the kernel does.
    test_aot_dispatch_dynamic: a graph gives the results and gradients of eager calls.
    test_gradients: gradients equal finite differences, in float64.
    test_dtypes: in every floating dtype that the kernel takes, fake and kernel agree.

    Returns "SUCCESS" or an exception for each of `test_utils`, by default all; raises OpCheckError for the first that fails,
    unless `raise_exception` is False.
    """
    if not isinstance(op, CustomOpDef):
        raise _C.ValueError(f"opcheck: got {op!r:.100}; must be an op of sluice.library, such as custom_op makes")
    chosen = [test_utils] if isinstance(test_utils, str) else list(_TESTS) if test_utils is None else list(test_utils)
    unknown = [t for t in chosen if t not in _TESTS]
    if unknown:
        raise _C.ValueError(f"opcheck: test_utils has {unknown}; must be a subset of {list(_TESTS)}")
    operands = Operands(op._schema, op._schema.bind(op._qualname, tuple(args), dict(kwargs or {})))
    found: dict[str, Any] = {}
    for name in chosen:
        try:
            _TESTS[name](_Sample(op, operands, atol, rtol))
            found[name] = "SUCCESS"
        except Exception as error:  # of the op's functions: anything
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            found[name] = error
    return found


class _Sample:
    def __init__(self, op: CustomOpDef, operands: Operands, atol: Any, rtol: Any) -> None:
        self.op, self.operands, self.tolerances = op, operands, {"atol": atol, "rtol": rtol}

    def fresh(self, cast: Any = None) -> list[Tensor]:
        """Leaves with the contents of the sample."""
        made = []
        for t in self.operands.tensors:
            copy = t.detach().clone()
            copy = copy.to(cast) if cast is not None and t.dtype.is_floating_point else copy
            made.append(copy.requires_grad_(t.requires_grad))
        return made

    def call(self, tensors: Any) -> list[Tensor]:
        """The op's results, flat, of such tensors."""
        return Results(self.op, self.operands.call(self.op, tensors)).tensors

    def close(self, got: Any, expected: Any, what: str) -> None:
        for i, (a, b) in enumerate(zip(got, expected)):
            assert_close(a, b, **self.tolerances, msg=lambda text, i=i: f"{what} {i}: {text}", equal_nan=True)


def _types(tensors: Any) -> list[Any]:
    return [(t.dtype, tuple(t.shape)) for t in tensors]


def _schema(sample: _Sample) -> None:
    op, operands = sample.op, sample.operands
    given = [t.detach() for t in sample.fresh()]
    before = [t.clone() for t in given]
    results = operands.call(op, given)
    for i, (t, old) in enumerate(zip(given, before)):
        if i not in operands.mutated and not _same(t, old):
            raise _C.RuntimeError(f"Argument tensor {i} is not defined as mutable but was mutated; name it in mutates_args")
    check_aliases(op, Results(op, results).tensors, given)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _registration(sample: _Sample) -> None:
    op = sample.op
    if any(t.requires_grad for t in sample.operands.tensors) and op._backward is None and op._composite is None:
        raise _C.RuntimeError(f"{op} has arguments that require gradients, and no gradient is registered; use "
                              f"register_autograd")


def _fake(sample: _Sample, cast: Any = None) -> None:
    op, operands = sample.op, sample.operands
    if op._composite is not None:
        return
    given = [t.detach() for t in sample.fresh(cast)]
    fake = _types(fake_results(op, operands, given).tensors)
    real = _types(sample.call(given))
    if len(fake) != len(real):
        raise _C.RuntimeError(f"The fake returns {len(fake)} tensors, the kernel {len(real)}")
    for i, ((fake_dtype, fake_shape), (dtype, shape)) in enumerate(zip(fake, real)):
        if fake_shape != shape:
            raise _C.RuntimeError(f"When comparing the output of {op._qualname} with its fake's: result {i}: Shapes {shape} "
                                  f"and {fake_shape} are "
                               "not equal!")
        if fake_dtype is not dtype:
            raise _C.RuntimeError(f"When comparing the output of {op._qualname} with its fake's: result {i}: Dtypes {dtype} "
                                  f"and {fake_dtype} are "
                               "not equal!")


def _gradients_of(results: Any, tensors: Any) -> Any:
    """The gradients of a sum of all results, weighted so that each entry counts differently: 0 for tensors that it does not
    reach."""
    total = None
    for r in results:
        if r.requires_grad:
            weights = (arange(r.numel()).to(r.dtype) % 7 + 1).reshape(tuple(r.shape))
            part = (r * weights).sum()
            total = part if total is None else total + part.to(total.dtype)
    asked = [t for t in tensors if t.requires_grad]
    if total is None or not asked:
        return []
    grads = grad(total, asked, allow_unused=True)
    return [zeros_like(t) if g is None else g for g, t in zip(grads, asked)]


def _graph(sample: _Sample) -> None:
    op, operands = sample.op, sample.operands
    with_gradients = op._backward is not None or op._composite is not None

    class Check(Graph):
        def build(self, *tensors: Any) -> Any:
            made = [t.clone() for t in tensors] if operands.mutated else list(tensors)
            results = sample.call(made)
            return results, [made[i] for i in operands.mutated], _gradients_of(results, tensors) if with_gradients else []

    given = sample.fresh()
    if not with_gradients:
        given = [t.detach() for t in given]
    made = [t.clone() for t in given] if operands.mutated else given
    results = sample.call(made)
    expected = results, [made[i] for i in operands.mutated], _gradients_of(results, given) if with_gradients else []
    got = Check(name=f"opcheck.{op._name}")(*sample.fresh()) if given else Check(name=f"opcheck.{op._name}")()
    for what, a, b in zip(("result", "mutated argument", "gradient"), got, expected):
        if len(a) != len(b):
            raise _C.RuntimeError(f"In a graph there are {len(a)} of {what}, eagerly {len(b)}")
        sample.close(a, b, f"graph against eager: {what}")


def _gradients(sample: _Sample) -> None:
    op = sample.op
    if op._backward is None and op._composite is None:
        return
    given = sample.fresh(_C.float64)
    if not any(t.requires_grad and t.dtype.is_floating_point for t in given):
        return

    def function(*tensors: Any) -> Any:
        return tuple(t for t in sample.call(tensors) if t.dtype.is_floating_point)

    try:
        with no_grad():
            made = function(*given)
    except Exception as error:
        raise _C.RuntimeError(f"finite differences need a kernel that takes float64, and this one says: {error}. Leave "
                              f"test_gradients out of "
                           "test_utils, or take float64") from error
    if any(t.dtype is not _C.float64 for t in made):
        raise _C.RuntimeError(f"of float64 the kernel makes {', '.join(t.dtype.name for t in made)}, too coarse for finite "
                              f"differences; make "
                           "float64, or leave test_gradients out of test_utils")
    gradcheck(function, tuple(given), check_undefined_grad=False)


def _dtypes(sample: _Sample) -> None:
    if not any(t.dtype.is_floating_point for t in sample.operands.tensors):
        return
    for dtype in (_C.float64, _C.float32, _C.float16, _C.bfloat16):
        try:
            sample.call([t.detach() for t in sample.fresh(dtype)])
        except Exception:
            continue  # a kernel may refuse a dtype
        try:
            _fake(sample, dtype)
        except Exception as error:
            raise _C.RuntimeError(f"{dtype.name}: {error}") from error


_TESTS: dict[str, Callable[[_Sample], None]] = {
    "test_schema": _schema, "test_autograd_registration": _registration, "test_faketensor": _fake,
    "test_aot_dispatch_dynamic": _graph, "test_gradients": _gradients, "test_dtypes": _dtypes}
