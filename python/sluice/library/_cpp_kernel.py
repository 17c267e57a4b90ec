"""Kernels of C++ text, which the machine's compiler compiles when they are first called (ADR 38)."""

from __future__ import annotations

import math
import shutil
import threading
from typing import Any, Optional, Sequence

from sluice import _C
from sluice._C import Tensor
from sluice.library._cpp_source import RESERVED, TYPES, Texts, generated

_lock = threading.Lock()
_loaded: dict[str, str] = {}  # by name of an op, the file of its library


def _check_names(where: str, kind: str, names: Any, seen: set[str]) -> None:
    for name in names:
        if not (isinstance(name, str) and name.isascii() and name.isidentifier()) or "_" in (name[:1], name[-1:]) or "__" in name:
            raise _C.ValueError(f"{where}: {kind}: {name!r:.80}; must be letters, digits and single '_' between them")
        if name in RESERVED or name in seen:
            raise _C.ValueError(f"{where}: {kind}: {name!r}; must be a name that C++ does not have and nothing else here has")
        seen.update((name, f"{name}_t", f"{name}_shape", f"{name}_ndim", f"{name}_size"))


def _text(where: str, what: str, text: Any) -> str:
    if not isinstance(text, str):
        raise _C.TypeError(f"{where}: {what}: got {type(text).__name__}; must be a text of C++")
    if any(c == "\0" or 0xD800 <= ord(c) < 0xE000 for c in text):
        raise _C.ValueError(f"{where}: {what}: has a character that no source has; must be a text of C++")
    return text


class CppKernel:
    """A function of tensors whose body is C++ text; `cpp_kernel` makes one."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self.__name__, self.__doc__ = texts.name, f"The kernel of C++ text '{texts.name}'."
        self._ops: dict[Any, str] = {}  # by dtypes of inputs and outputs
        self._last = ""  # the op of the last call

    def __repr__(self) -> str:
        return f"<CppKernel({self._texts.name}: {', '.join(self._texts.inputs)} -> {', '.join(self._texts.outputs)})>"

    def __call__(self, *inputs: Any, output_shapes: Optional[Sequence[Any]] = None, output_dtypes: Optional[Sequence[Any]] = None,
                 **parameters: Any) -> Any:
        """The result, or a tuple of several. output_shapes and output_dtypes, one for each output; those of the first input
        where they are left out. Raises RuntimeError with the compiler's message where it refuses the text."""
        texts, where = self._texts, f"cpp_kernel '{self._texts.name}'"
        if len(inputs) != len(texts.inputs) or not all(isinstance(t, Tensor) for t in inputs):
            raise _C.TypeError(f"{where}: got {[type(t).__name__ for t in inputs]}; must be tensors {', '.join(texts.inputs)}")
        if _C.is_grad_enabled() and any(t.requires_grad for t in inputs):
            raise _C.RuntimeError(f"{where}: an input requires grad, and C++ text has no gradient; call it in the forward() of a "
                                  "sluice.autograd.Function, or with detach()")
        shapes = self._each(where, "output_shapes", output_shapes, tuple(inputs[0]._shape) if inputs else None)
        dtypes = self._each(where, "output_dtypes", output_dtypes, inputs[0].dtype if inputs else None)
        for what, found in (("input", [t.dtype for t in inputs]), ("output_dtypes", dtypes)):
            if wrong := [d for d in found if d not in TYPES]:
                raise _C.TypeError(f"{where}: {what}: {wrong[0]}; must be one of {', '.join(d.name for d in TYPES)}: use to()")
        options = {f"{name}_shape": _shape(where, shape) for name, shape in zip(texts.outputs, shapes)}
        results = getattr(_C.ops, self._op([t.dtype for t in inputs], dtypes))(*inputs, **options, **self._numbers(where, parameters))
        return tuple(results) if isinstance(results, (tuple, list)) else results

    def _each(self, where: str, what: str, given: Any, default: Any) -> list[Any]:
        outputs = self._texts.outputs
        if given is None:
            if default is None:
                raise _C.TypeError(f"{where}: {what}: left out; must be given, since there is no input whose it could be")
            return [default] * len(outputs)
        if not isinstance(given, (list, tuple)) or len(given) != len(outputs):
            raise _C.ValueError(f"{where}: {what}: {given!r:.80}; must be a list of one for each of {', '.join(outputs)}")
        return list(given)

    def _numbers(self, where: str, given: dict[str, Any]) -> dict[str, Any]:
        known = self._texts.parameters
        for name, value in given.items():
            if name not in known:
                raise _C.TypeError(f"{where}: got {name!r}; its parameters are {', '.join(known) or 'none'}")
            kind = type(known[name])
            if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
                raise _C.TypeError(f"{where}: {name}: {value!r:.80}; must be {kind.__name__}, as its default {known[name]!r}")
        return {name: type(known[name])(value) for name, value in given.items()}

    def _op(self, given: list[Any], made: list[Any]) -> str:
        """The op for these dtypes, which is compiled when it is first asked for."""
        key = (*given, *made)
        with _lock:
            if key not in self._ops:
                name, source = generated(self._texts, given, made)
                if name not in _loaded:
                    _loaded[name] = _compiled(self._texts.name, source)
                self._ops[key] = name
            self._last = self._ops[key]
            return self._last

    def save_library(self, path: Any) -> None:
        """Copies the library for the dtypes that the kernel was called with last: `sluice.ops.load_library`, `engine.load_extension` and
        `--extension` of the programs take it, for bundles whose graphs call the kernel."""
        if not self._last:
            raise _C.RuntimeError(f"cpp_kernel '{self._texts.name}': save_library: not compiled yet; call it once before")
        shutil.copyfile(_loaded[self._last], path)


def _compiled(name: str, source: str) -> str:
    try:
        path = _C.compile_extension(source)
    except _C.Error as error:
        raise type(error)(f"cpp_kernel '{name}': {error}") from None
    _C.ops.load_library(path)
    return path


def _shape(where: str, shape: Any) -> list[int]:
    dims = [shape] if isinstance(shape, int) else list(shape) if isinstance(shape, (list, tuple)) else None
    if dims is None or not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63 for n in dims):
        raise _C.ValueError(f"{where}: output_shapes: {shape!r:.80}; must be tuples of sizes of at least 0")
    return [int(n) for n in dims]


def cpp_kernel(name: str, source: str, *, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",),
               parameters: Optional[dict[str, Any]] = None, header: str = "") -> CppKernel:
    """An op on the CPU whose kernel is C++ text; eagerly, in graphs and in bundles.

        double_it = sluice.library.cpp_kernel("double_it", "for (int64_t i = 0; i < x_size; ++i) y[i] = 2 * x[i];")
        double_it(sluice.ones(3))

    source: the body of a function. It has for each tensor `x` of inputs and outputs: the contiguous elements `x`, their type `x_t`,
        `x_size`, `x_ndim` and `x_shape`; and each parameter by its name, as bool, int64_t or double. It writes all elements of the
        outputs, keeps no state, and may throw, which fails the step. It runs as the program does: an index beyond the end is not caught.
    parameters: numbers by name, with their defaults, which decide the types. header: what stands before: includes, functions.
    Elements are bool, integers, float32, float64 or complex; each combination that it is called with is compiled once, by $CXX or g++,
    and kept in the cache's folder (SLUICE_CACHE=off: in this process). The message of the compiler is that of a RuntimeError.
    """
    where = "cpp_kernel"
    seen: set[str] = set()
    _check_names(where, "name", [name], set())
    where = f"cpp_kernel '{name}'"
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(names, str) or not isinstance(names, (list, tuple)):
            raise _C.TypeError(f"{where}: {what}: got {type(names).__name__}; must be a list of names")
        _check_names(where, what, names, seen)
    if not outputs:
        raise _C.ValueError(f"{where}: outputs: none; must be at least one name")
    numbers = dict(parameters or {})
    _check_names(where, "parameters", numbers, seen)
    for key, value in numbers.items():
        if type(value) not in (bool, int, float) or isinstance(value, float) and not math.isfinite(value) or abs(value) >= 2**63:
            raise _C.TypeError(f"{where}: parameters: {key} is {value!r:.80}; must be a bool, an int or a finite float")
    return CppKernel(Texts(name, tuple(inputs), tuple(outputs), numbers, _text(where, "source", source), _text(where, "header", header)))
