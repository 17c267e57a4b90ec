"""Settings of what computes, by torch's names."""

from sluice.backends import cuda, cudnn

__all__ = ["cuda", "cudnn"]
