"""assert_close: torch.testing.assert_close for Sluice's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import tensor

# (rtol, atol) by dtype, as torch has them; other dtypes must be equal.
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
                 check_stride: bool = False, msg: str | Callable[[str], str] | None = None) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere; torch.testing.assert_close.

    Tensors, numbers, NumPy arrays, and sequences and mappings of them. rtol and atol are given both or not at all; then
    they follow from the dtypes.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be either specified or unspecified, but got rtol={rtol} and atol={atol} "
                         "instead.")
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_device": check_device, "check_dtype": check_dtype,
               "check_stride": check_stride}
    text = _difference(actual, expected, options, "")
    if text is not None:
        raise AssertionError(msg(text) if callable(msg) else msg or text)


def _difference(actual: Any, expected: Any, options: dict[str, Any], path: str) -> str | None:
    """The difference, in words; None when there is none."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            missing, extra = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
            return ("The keys of the mappings do not match:\n"
                    f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {extra}") + _at(path)
        keys: Sequence[Any] = list(expected)
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The length of the sequences do not match: {len(actual)} != {len(expected)}" + _at(path)
        keys = range(len(expected))
    else:
        text = _leaf_difference(actual, expected, options)
        return None if text is None else text + _at(path)
    for key in keys:
        text = _difference(actual[key], expected[key], options, f"{path}[{key!r}]")
        if text is not None:
            return text
    return None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _at(path: str) -> str:
    return f"\n\nThe failure occurred for item {path}" if path else ""


def _leaf_difference(actual: Any, expected: Any, options: dict[str, Any]) -> str | None:
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    scalars = isinstance(actual, (bool, int, float)) and isinstance(expected, (bool, int, float))
    a, b = _tensor(actual), _tensor(expected)
    if not scalars:
        checks = [("shape", a.shape, b.shape, True), ("device", a.device, b.device, options["check_device"]),
                  ("dtype", a.dtype, b.dtype, options["check_dtype"]),
                  ("stride()", a.stride(), b.stride(), options["check_stride"])]
        for name, x, y, wanted in checks:
            if wanted and x != y:
                return f"The values for attribute '{name}' do not match: {x} != {y}."
    rtol, atol = options["rtol"], options["atol"]
    if rtol is None:
        kinds = [_TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (a, b)]
        rtol, atol = max(k[0] for k in kinds), max(k[1] for k in kinds)
    x, y = _array(a), _array(b)
    if x.dtype.kind == y.dtype.kind == "i" and rtol == atol == 0:
        close = np.equal(x, y)
    else:
        with np.errstate(invalid="ignore"):
            close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=options["equal_nan"])
    if bool(close.all()):
        return None
    word = "equal" if rtol == atol == 0 else "close"
    with np.errstate(invalid="ignore", divide="ignore"):
        kind = np.result_type(x, y) if "f" in (x.dtype.kind, y.dtype.kind) else np.dtype(np.float64)
        absolute = np.abs(x.astype(kind) - y.astype(kind))
        relative = absolute / np.abs(y.astype(kind))
    if scalars:
        return _scalar_text(actual, expected, word, float(absolute), float(relative), rtol, atol)
    if x.ndim == 0:
        return _scalar_text(x.item(), y.item(), word, float(absolute), float(relative), rtol, atol)
    bad = int((~close).sum())
    lines = [f"Tensor-likes are not {word}!", "", f"Mismatched elements: {bad} / {x.size} ({bad / x.size:.1%})"]
    for name, values, allowed in (("absolute", absolute, atol), ("relative", relative, rtol)):
        # As torch: elements that are close do not count.
        counted = np.where(close, 0.0, values)
        at = np.unravel_index(int(np.argmax(np.where(np.isnan(counted), np.inf, counted))), counted.shape)
        limit = "" if word == "equal" else f" (up to {allowed} allowed)"
        whole = name == "absolute" and x.dtype.kind in "iub" and y.dtype.kind in "iub"
        value = int(counted[at]) if whole else float(counted[at])
        lines.append(f"Greatest {name} difference: {value} at index {tuple(map(int, at))}{limit}")
    return "\n".join(lines)


def _scalar_text(actual: Any, expected: Any, word: str, absolute: float, relative: float, rtol: float, atol: float) -> str:
    def limit(allowed: float) -> str:
        return "" if word == "equal" else f" (up to {allowed} allowed)"

    whole = all(isinstance(v, int) for v in (actual, expected))
    difference = int(absolute) if whole else absolute
    return (f"Scalars are not {word}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {difference}{limit(atol)}\nRelative difference: {relative}{limit(rtol)}")


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, float):
        return tensor(value, dtype=_C.float64)
    return tensor(value)


def _array(t: Tensor) -> Any:
    t = t.cpu()
    return (t.float() if t.dtype is _C.bfloat16 else t).numpy()
