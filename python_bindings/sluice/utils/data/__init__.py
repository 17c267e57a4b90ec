"""Datasets, samplers and loaders: torch.utils.data."""

from sluice.utils.data.collate import default_collate as default_collate, default_convert as default_convert
from sluice.utils.data.dataloader import DataLoader as DataLoader, get_worker_info as get_worker_info
from sluice.utils.data.dataset import (ChainDataset as ChainDataset, ConcatDataset as ConcatDataset, Dataset as Dataset,
                                       IterableDataset as IterableDataset, StackDataset as StackDataset, Subset as Subset,
                                       TensorDataset as TensorDataset, random_split as random_split)
from sluice.utils.data.distributed import DistributedSampler as DistributedSampler
from sluice.utils.data.sampler import (BatchSampler as BatchSampler, RandomSampler as RandomSampler, Sampler as Sampler,
                                       SequentialSampler as SequentialSampler, SubsetRandomSampler as SubsetRandomSampler,
                                       WeightedRandomSampler as WeightedRandomSampler)
