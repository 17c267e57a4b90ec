"""Datasets, samplers and loaders: torch.utils.data."""

from sluice.utils.data.collate import default_collate as default_collate, default_convert as default_convert
from sluice.utils.data.dataloader import DataLoader as DataLoader, get_worker_info as get_worker_info
from sluice.utils.data.datapipes import (IterDataPipe as IterDataPipe, MapDataPipe as MapDataPipe,
                                         functional_datapipe as functional_datapipe,
                                         guaranteed_datapipes_determinism as guaranteed_datapipes_determinism,
                                         non_deterministic as non_deterministic)
from sluice.utils.data.dataset import (ChainDataset as ChainDataset, ConcatDataset as ConcatDataset, Dataset as Dataset,
                                       IterableDataset as IterableDataset, StackDataset as StackDataset, Subset as Subset,
                                       TensorDataset as TensorDataset, random_split as random_split)
from sluice.utils.data.distributed import DistributedSampler as DistributedSampler
from sluice.utils.data.sampler import (BatchSampler as BatchSampler, RandomSampler as RandomSampler, Sampler as Sampler,
                                       SequentialSampler as SequentialSampler, SubsetRandomSampler as SubsetRandomSampler,
                                       WeightedRandomSampler as WeightedRandomSampler)

_LEFT_OUT = {"DFIterDataPipe": "use IterDataPipe", "DataChunk": "use a list", "argument_validation": "check types in __init__",
             "runtime_validation": "check samples in __iter__", "runtime_validation_disabled": "check samples in __iter__"}


def __getattr__(name: str) -> object:
    if name in _LEFT_OUT:
        raise AttributeError(f"module 'sluice.utils.data' has no '{name}': {_LEFT_OUT[name]}")
    raise AttributeError(f"module 'sluice.utils.data' has no attribute '{name}'")
