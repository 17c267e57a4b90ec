"""Whether code computes row by row along a dim, so that a call may be filled up with rows that nobody reads."""

from __future__ import annotations

import re
import sys
from typing import Any

from sluice._C import fn, Tensor
from sluice._base.dim import Dim
from sluice._tensor.host_function import host_function
from sluice._base.trace import tracing_lock

from sluice._compile.breaks import as_break, Break, draws_of_python, is_ours, refusing
from sluice._compile.capture import compiling, Traced
from sluice._compile.contents import Attributes
from sluice._compile.nests import Results
from sluice._base.size import Size
from sluice._base.grad_mode import no_grad

_SIZE = 7919  # of the dim in a trace: a prime, so that sizes that come from it are known by it
_LENGTHS = re.compile(r'^  output "(output\d+)\[(\d+)=rows[^\]]*\]\'*" = ', re.M)


class _Symbol(int):
    """A size of the dim, or one made of it. It may be passed on as a size; that Python decides by it is a Break."""

    def _decides(self, other: Any) -> Any:
        raise Break("size", "the code decides by a size, or computes with it")

    def __eq__(self, other: Any) -> bool:
        return int.__eq__(self, other) if isinstance(other, _Symbol) or other == -1 else self._decides(other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __lt__ = __le__ = __gt__ = __ge__ = __truediv__ = __rtruediv__ = __mod__ = __pow__ = __divmod__ = _decides  # type: ignore[assignment]
    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        return True  # of no rows nothing is compiled

    def __float__(self) -> float:
        return self._decides(0.0)

    def __mul__(self, other: Any) -> Any:
        return _Symbol(int(self) * int(other)) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        quotient, rest = divmod(int(self), int(other))
        return _size(quotient) if not rest else self._decides(other)


def _size(n: int) -> int:
    return _Symbol(n) if n and n % _SIZE == 0 else n


class _Sizes:
    """While it is open, the sizes that user code of this thread reads are symbols. REQUIRES: the tracing lock."""

    def __enter__(self) -> None:
        self._before = {name: vars(Tensor)[name] for name in ("shape", "size", "__len__")}
        plain = self._before

        def shape(t: Tensor) -> Any:
            found = plain["shape"].__get__(t)
            return Size(map(_size, found)) if t._traced and not _asked_by_us() else found

        def size(t: Tensor, dim: Any = None) -> Any:
            found = plain["size"].__get__(t)() if dim is None else plain["size"].__get__(t)(dim)
            if not t._traced or _asked_by_us():
                return found
            return Size(map(_size, found)) if dim is None else _size(found)

        def length(t: Tensor) -> int:
            found = plain["__len__"].__get__(t)()
            return found if _size(found) is found or _asked_by_us() else _Symbol(found)._decides(0)

        Tensor.shape, Tensor.size, Tensor.__len__ = property(shape), size, length  # type: ignore[assignment, method-assign]

    def __exit__(self, *exc: Any) -> None:
        for name, plain in self._before.items():
            setattr(Tensor, name, plain)


def _asked_by_us() -> bool:
    return is_ours(sys._getframe(2).f_code.co_filename)


def axes_of(function: Any, arguments: Any, environment: Any, places: list[tuple[int, int]], name: str) -> list[int | None]:
    """The axis of each result that has the dim, where `function` gives rows that depend on the same rows of the arguments alone.

    Raises Break where it does not, or where that is not known. The arguments come from a host function that makes any number of
    rows, so that the trace refuses what would mix them (ADR 25).
    """
    dim, axis_of = Dim("rows", max=_SIZE), dict(places)
    tensors = arguments.tensors
    types = [(tuple(dim if axis_of[i] == a else n for a, n in enumerate(tensors[i]._shape)), tensors[i].dtype) for i in axis_of]
    others = [t for i, t in enumerate(tensors) if i not in axis_of]
    found: list[Any] = []

    def build(inputs: Any) -> Any:
        made, rest = iter(host_function(lambda: (), out=types)), iter(inputs)
        leaves = [next(made) if i in axis_of else next(rest) for i in range(len(tensors))]
        for leaf, t in zip(leaves, tensors):
            if t.requires_grad and not leaf.requires_grad:
                leaf.requires_grad_(True)
        before = [leaf._version for leaf in leaves]
        args, kwargs = arguments.build(iter(leaves))
        with refusing(), draws_of_python(), compiling(), _Sizes():
            results = Results(function(*args, **kwargs), name).tensors
        if any(t._version != version for t, version in zip(leaves, before)) or any(t is leaf for t in results for leaf in leaves):
            raise Break("size", "the code writes to an argument, or returns one")
        if any(not t._traced for t in results):
            raise Break("size", "a result does not depend on the arguments")
        found.extend(results)
        return results

    modules = [m for module in environment.modules.values() for m in module.modules()]
    attributes = Attributes(modules)
    outer = {n: t for n, t in environment.tensors.items() if t.is_contiguous() and not t._is_view()}
    inside = {id(t) for m in environment.modules.values() for t in (*m.parameters(), *m.buffers())}
    try:
        with tracing_lock:
            graph = Traced(f"{name}_rows", environment.modules, {n: t for n, t in outer.items() if id(t) not in inside}, build, environment)
            captured = graph.traced(others).captured
    except Exception as error:
        raise as_break(error) from error
    finally:
        if attributes.changed() or environment.changed():
            attributes.restore()
            environment.restore()
    variables = captured.variables()
    if any(v["updated"] or v_name.startswith("generator") for v_name, v in variables.items()):
        raise Break("size", "the code writes to a buffer, or draws random numbers")
    axes = {int(output[6:]): int(axis) for output, axis in _LENGTHS.findall(captured.text())}
    for i, t in enumerate(found):
        if sum(n % _SIZE == 0 for n in t._shape) != (i in axes):
            raise Break("size", f"result {i} has the size in a way that is not row by row")
    return [axes.get(i) for i in range(len(found))]


def difference(run: Any, padded: Any) -> str:
    """Runs the code on arguments as they are, and filled up: "" where the rows are the same but for rounding, else what is not."""
    with no_grad():
        args, kwargs = padded.given.build(iter(padded.given.tensors))
        exact = Results(run(*args, **kwargs), "").tensors
        args, kwargs = padded.build(iter(padded.tensors))
        filled = padded.cut(Results(run(*args, **kwargs), "").tensors)
    for i, (a, b) in enumerate(zip(exact, filled)):
        if a._shape != b._shape or not fn.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-5, equal_nan=True):
            return f"result {i} depends on the size itself"
    return ""

