"""Which samples a process trains on: torch.utils.data."""

from sluice.utils.data.distributed import DistributedSampler as DistributedSampler
