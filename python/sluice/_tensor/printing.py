"""Prints tensors as torch prints them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from sluice import _C
from sluice._C import Tensor, fn
from sluice._base.grad_mode import no_grad


class Options(NamedTuple):
    """torch.set_printoptions: digits, when large tensors are shortened to `edgeitems` per end, width of a line."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: Any = None


PROFILES = {"default": Options(), "short": Options(precision=2, edgeitems=2), "full": Options(threshold=math.inf)}
options = Options()


def set_printoptions(precision: Any = None, threshold: Any = None, edgeitems: Any = None, linewidth: Any = None, profile: Any = None,
                     sci_mode: Any = None) -> None:
    """How tensors are printed from now on; torch.set_printoptions. Options that are not given stay."""
    global options
    if profile is not None:
        if profile not in PROFILES:
            raise _C.ValueError(f"set_printoptions: profile is {profile!r}; must be one of {list(PROFILES)}")
        options = PROFILES[profile]._replace(linewidth=options.linewidth)
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    options = options._replace(sci_mode=sci_mode, **{name: value for name, value in given.items() if value is not None})


def get_printoptions() -> dict:
    return options._asdict()


class _ComplexNumbers:
    """How complex numbers are written: either part as if it were alone."""

    def __init__(self, numbers):
        self.real, self.imag = (_Numbers([getattr(n, part) for n in numbers], True) for part in ("real", "imag"))
        self.width = self.real.width + self.imag.width + 1

    def text(self, number):
        imag = (self.imag.text(number.imag) + "j").lstrip()
        return self.real.text(number.real) + ("" if imag[0] in "+-" else "+") + imag


class _Numbers:
    """How all numbers of one tensor are written: equally wide, floats all with or without an exponent."""

    def __init__(self, numbers, floating):
        self.floating, self.whole, self.scientific, self.width = floating, True, False, 1
        plain = [n for n in numbers if math.isfinite(n) and n != 0] if floating else numbers
        if floating and plain:
            sizes = [abs(n) for n in plain]
            least, most = min(sizes), max(sizes)
            self.whole = all(n == int(n) for n in plain)
            far_apart = most / least > 1000 or most > 1e8 or least < 1e-4
            self.scientific = far_apart if options.sci_mode is None else options.sci_mode
        self.width = max((len(self._plain(n)) for n in plain), default=1)

    def _plain(self, number):
        if not self.floating:
            return str(number)
        if self.scientific:
            return f"{number:.{options.precision}e}"
        if not self.whole:
            return f"{number:.{options.precision}f}"
        return f"{number:.0f}." if math.isfinite(number) else f"{number:.0f}"

    def text(self, number):
        return self._plain(number).rjust(self.width)


def _ends(tensor, dim):
    """The first and the last entries of each dim from `dim` on that has more than are shown."""
    edge = options.edgeitems
    if dim < tensor.ndim and tensor._shape[dim] > 2 * edge:
        size = tensor._shape[dim]
        tensor = fn.cat([tensor.narrow(dim, 0, edge), tensor.narrow(dim, size - edge, edge)], dim)
    return tensor if dim >= tensor.ndim else _ends(tensor, dim + 1)


def _row(entries, cut, indent, numbers):
    texts = [numbers.text(n) for n in entries]
    if cut:
        texts[options.edgeitems:options.edgeitems] = [" ..."]
    per_line = max(1, (options.linewidth - indent) // (numbers.width + 2))
    lines = [", ".join(texts[i:i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(entries, cuts, indent, numbers):
    """The text of nested lists, of which `cuts` says per dim whether the middle is left out."""
    if not cuts:
        return numbers.text(entries)
    if len(cuts) == 1:
        return _row(entries, cuts[0], indent, numbers)
    parts = [_nested(e, cuts[1:], indent + 1, numbers) for e in entries]
    if cuts[0]:
        parts[options.edgeitems:options.edgeitems] = ["..."]
    return "[" + ("," + "\n" * (len(cuts) - 1) + " " * (indent + 1)).join(parts) + "]"


def _flat(entries, dims):
    return [entries] if dims == 0 else entries if dims == 1 else [n for e in entries for n in _flat(e, dims - 1)]


def contents_text(tensor: Any, indent: int) -> str:
    """The elements in brackets; indent: how far the first one stands from the left."""
    shortened = tensor.numel() > options.threshold
    cuts = [shortened and size > 2 * options.edgeitems for size in tensor._shape]
    entries = (_ends(tensor, 0) if shortened else tensor).tolist()
    flat = _flat(entries, tensor.ndim)
    numbers = _ComplexNumbers(flat) if tensor.dtype.is_complex else _Numbers(flat, tensor.dtype.is_floating_point)
    return _nested(entries, cuts, indent, numbers)


def tensor_text(tensor: Any) -> str:
    """`repr` of a tensor."""
    if tensor._traced:
        return f"tensor(..., size={tuple(tensor._shape)}, dtype={tensor.dtype}, traced)"
    kind = type(tensor)
    text, notes = "tensor(" if kind.__module__.startswith("sluice") else f"{kind.__name__}(", []
    if not tensor.is_cpu:
        notes.append(f"device='{tensor.device}'")
    own = (_C.get_default_dtype(),)
    if tensor.numel():
        own += (_C.get_default_dtype().to_complex(), _C.int64, _C.bool)
    with no_grad():
        if tensor.is_meta:
            contents = "..."
        elif tensor.numel():
            contents = contents_text((tensor._to_local() if tensor._global else Tensor.detach(tensor)).cpu(), len(text))
        else:
            contents = "[]"
    if tensor.is_meta or (tensor.numel() == 0 and tensor.ndim != 1) or tensor._is_component:
        notes.append(f"size={tuple(tensor._shape)}")
    if tensor.dtype not in own:
        notes.append(f"dtype={tensor.dtype}")
    if tensor._global:
        notes.append(f"placement={tensor.placement!r}, sbp={tensor.sbp!r}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    indent, text = len(text), text + contents
    used = len(text) - text.rfind("\n") + 1  # of the last line
    for note in notes:
        fits = used + len(note) + 2 <= options.linewidth
        text += ", " + note if fits else ",\n" + " " * indent + note
        used = used + len(note) + 2 if fits else indent + len(note)
    return text + ")"
