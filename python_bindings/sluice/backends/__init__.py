"""Settings of what computes, by torch's names."""

from sluice.backends import cuda

__all__ = ["cuda"]
