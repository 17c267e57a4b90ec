"""Data parallel training: torch.nn.parallel."""

from sluice.nn.parallel.data_parallel import DataParallel as DataParallel, data_parallel as data_parallel
from sluice.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
