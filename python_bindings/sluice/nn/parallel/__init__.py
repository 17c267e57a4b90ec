"""Data parallel training: torch.nn.parallel."""

from sluice.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
