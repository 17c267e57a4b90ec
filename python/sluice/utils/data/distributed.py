"""DistributedSampler: each rank's share of a dataset."""

from __future__ import annotations

from typing import Any, Iterator

from sluice import distributed as dist
from sluice._C import Generator
from sluice._tensor.creation import randperm
from sluice.errors import ValueError  # noqa: A004
from sluice.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """Iterates over this rank's indices of a dataset: shares are disjoint, of equal size, and together all of it.

    If the size does not divide evenly, the first indices come twice; with `drop_last` the last ones are left out instead.
    `shuffle` permutes by `seed` and the epoch, alike in all ranks: call set_epoch(e) before each epoch. `num_replicas` and
    `rank` are the job's unless given (see distributed.init).
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        self.num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        self.rank = dist.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: rank is {self.rank}, num_replicas is {self.num_replicas}; ranks are 0 to "
                             "num_replicas - 1")
        if len(dataset) == 0:
            raise ValueError("DistributedSampler: the dataset is empty; it must have at least one sample")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0

    @property
    def num_samples(self) -> int:
        return len(self)

    @property
    def total_size(self) -> int:
        return len(self) * self.num_replicas

    def __len__(self) -> int:
        """Samples of each rank."""
        n = len(self.dataset)
        return n // self.num_replicas if self.drop_last else -(-n // self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        n, total = len(self.dataset), self.total_size
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = randperm(n, generator=generator).tolist()
        else:
            order = list(range(n))
        return iter([order[i % n] for i in range(self.rank, total, self.num_replicas)])

    def set_epoch(self, epoch: int) -> None:
        """Chooses another permutation."""
        self.epoch = epoch
