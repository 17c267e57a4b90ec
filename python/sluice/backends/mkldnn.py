"""oneDNN, which torch calls by its earlier name: always there, and used where it is the fastest (`torch.backends.mkldnn`)."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from sluice.errors import NotImplementedError  # noqa: A004

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2

#: That it is used; kernels are chosen by what they cost.
enabled = True


def is_available() -> bool:
    """True: every build has it."""
    return True


@contextlib.contextmanager
def flags(enabled: bool = True, deterministic: Any = None, allow_tf32: Any = None, fp32_precision: Any = None) -> Iterator[None]:
    """A block in which it is used, as everywhere. Results do not depend on the order in which threads run, so `deterministic` is
    always so. Without it (`enabled=False`) nothing runs: that is refused."""
    if not enabled:
        raise NotImplementedError("mkldnn.flags: enabled=False: products and convolutions have no other library here; leave it out")
    yield
