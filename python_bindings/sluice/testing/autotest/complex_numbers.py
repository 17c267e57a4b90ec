"""Which ops are drawn with complex numbers."""

from __future__ import annotations


def share(op: str) -> float:
    """Of the cases whose numbers may be floating, how many have complex ones."""
    return 0.4 if op.startswith("fft.") else 0.0
