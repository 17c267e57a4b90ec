"""Orders of dims in memory, and what there is besides dense memory: torch.memory_format, torch.layout."""

from __future__ import annotations


class memory_format(str):
    """An order of dims in memory."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "sluice." + str.__str__(self)

    def __reduce__(self) -> str:
        return str.__str__(self)


class layout(str):
    """How a tensor's elements are kept: all of them, `strided`, or those that are not zeros."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "sluice." + str.__str__(self)

    def __reduce__(self) -> str:
        return str.__str__(self)


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided = layout("strided")


class _SparseLayout(layout):
    """Packages compare str() of a layout with torch's name of it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "torch." + str.__str__(self)


sparse_coo, sparse_csr, sparse_csc = map(_SparseLayout, ("sparse_coo", "sparse_csr", "sparse_csc"))
