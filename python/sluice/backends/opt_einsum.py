"""The package opt_einsum, which `einsum` does not use (`torch.backends.opt_einsum`)."""

from __future__ import annotations

from typing import Any

#: Whether `einsum` asks it for an order of products, and how; neither.
enabled = False
strategy = None


def is_available() -> bool:
    """False: `einsum` finds its order of products by itself."""
    return False


def get_opt_einsum() -> Any:
    """None."""
    return None
