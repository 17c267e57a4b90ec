"""torch.special: special functions."""

from sluice._C.special import *  # noqa: F403
