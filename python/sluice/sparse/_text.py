"""`repr` of a sparse tensor, as torch's."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._tensor.printing import contents_text, get_printoptions

_INDENT = len("tensor(")


def _part(name: str, t: Any) -> str:
    head = f"{name}=tensor("
    if t._traced:
        return f"{head}..., size={tuple(t._shape)})"
    with no_grad():
        text = contents_text(t.detach().cpu(), _INDENT + len(head)) if t.numel() else "[]"
    return f"{head}{text}{'' if t.numel() else f', size={tuple(t._shape)}'})"


def sparse_text(t: Any, parts: Any) -> str:
    """parts: (name, dense tensor)."""
    notes = [] if t._traced or t.is_cpu else [f"device='{t.device}'"]
    notes += [f"size={tuple(t.shape)}", f"nnz={t._nnz()}"]
    if t.dtype not in (_C.get_default_dtype(), _C.get_default_dtype().to_complex(), _C.int64, _C.bool):
        notes.append(f"dtype={t.dtype}")
    notes.append(f"layout={t.layout!r}")
    if t.grad_fn is not None:
        notes.append(f"grad_fn=<{t.grad_fn.name()}>")
    elif t.requires_grad:
        notes.append("requires_grad=True")
    text = "tensor(" + (",\n" + " " * _INDENT).join(_part(name, part) for name, part in parts)
    used, fresh, width = len(text) - text.rfind("\n") + 1, t.layout == "sparse_coo", get_printoptions()["linewidth"]
    for note in notes:
        fits = not fresh and used + len(note) + 2 <= width
        text += ", " + note if fits else ",\n" + " " * _INDENT + note
        used, fresh = (used + len(note) + 2 if fits else _INDENT + len(note)), False
    return text + ")"
