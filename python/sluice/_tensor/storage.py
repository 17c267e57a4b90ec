"""torch.UntypedStorage by name, for programs that ask whether something is one."""

from __future__ import annotations

from typing import Any

from sluice.errors import NotImplementedError  # noqa: A004


class UntypedStorage:
    """The memory of a tensor as an object, which there is none of: nothing is an instance of this class. A tensor's `data_ptr()`,
    `nbytes` and `view(dtype)` say what is asked of storages mostly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("UntypedStorage: the memory of tensors is no object here; sluice.empty(n, dtype=sluice.uint8) has n "
                                  "bytes, and t.view(dtype) sees the same memory otherwise")
