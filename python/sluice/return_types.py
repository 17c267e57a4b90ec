"""torch.return_types: the types of results with names."""

from sluice._C.return_types import *  # noqa: F403
