"""The order of samples: a pure function of the seed, the epoch and the position, so that any place is reached at once."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np

from sluice._C import Generator, fn
from sluice._tensor.creation import randperm
from sluice.utils.data.sampler import RandomSampler, draw_seed

mixed = fn.mixed
_BLOCK = 4096  # positions whose order is made together


def permuted(positions: Any, n: int, key: int) -> Any:
    """Where a permutation of 0 to n - 1 leads from these positions. REQUIRES: 0 <= positions < n."""
    out = np.array(positions, np.uint64)
    fn.permute_positions(out.reshape(-1), n, key)
    return out.astype(np.int64)


class Chosen:
    """The samples with these numbers alone."""

    fixed = True

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def ids(self, epoch: int, places: Any) -> Any:
        return self._numbers[places]


class Interleaved:
    """Samples of several orders in turn, each in its own order: `block` of each; or so that at any place each has had its share, which is
    that of its weight. Those that have more go on among themselves."""

    def __init__(self, orders: list[Order], begins: Any, weights: Any, block: int) -> None:
        self._orders, self._begins = orders, begins
        which = np.concatenate([np.full(o.length, k, np.int32) for k, o in enumerate(orders)])
        place = np.concatenate([np.arange(o.length) for o in orders])
        turn = place // block if weights is None else (place + 0.5) / np.asarray(weights, np.float64)[which]
        sequence = np.lexsort((place, which, turn))
        self._which, self._place, self.count = which[sequence], place[sequence], len(sequence)
        self.fixed = all(o.fixed for o in orders)

    def ids(self, epoch: int, places: Any) -> Any:
        which, inner, out = self._which[places], self._place[places], np.empty(len(places), np.int64)
        for k, order in enumerate(self._orders):
            mine = which == k
            out[mine] = order.ids(epoch, inner[mine]) + self._begins[k]
        return out


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Samples of like length together: of each `pool` batches of the order before, which are sorted, and of a shuffle come in any order."""

    lengths: Any
    pool: int
    size: int = 0  # of a batch

    def ids(self, order: Order, epoch: int, positions: Any) -> Any:
        span, out = self.size * self.pool, np.empty(len(positions), np.int64)
        for number in np.unique(positions // span).tolist():
            begin = number * span
            ids = order.plain_ids(epoch, np.arange(begin, min(begin + span, order.length)))
            ids = ids[np.argsort(self.lengths[ids], kind="stable")]
            batches = len(ids) // self.size
            if order.shuffled and batches > 1:
                moved = permuted(np.arange(batches), batches, mixed(order.seed, epoch, number, 0xB0C))
                ids[:batches * self.size] = ids[:batches * self.size].reshape(batches, self.size)[moved].reshape(-1)
            here = positions // span == number
            out[here] = ids[positions[here] - begin]
        return out


class TorchOrder:
    """The permutations that torch draws: of one rank those of DataLoader(shuffle=True, generator=g) with g.manual_seed(seed), an epoch after
    the other; of several those of DistributedSampler(seed=seed). It keeps one permutation; an earlier epoch begins at the seed again."""

    def __init__(self, seed: int) -> None:
        self._seed, self._lock, self._key = seed, threading.Lock(), (0, -1, 1)
        self._kept: Any = None
        self._generator: Any = None

    def __getstate__(self) -> Any:
        return self._seed

    def __setstate__(self, seed: int) -> None:
        self.__init__(seed)  # type: ignore[misc]

    def permutation(self, n: int, epoch: int, world: int) -> Any:
        with self._lock:
            if self._key != (n, epoch, world):
                self._kept, self._key = self._drawn(n, epoch, world), (n, epoch, world)
            return self._kept

    def _drawn(self, n: int, epoch: int, world: int) -> Any:
        if world > 1:
            return randperm(n, generator=Generator().manual_seed(self._seed + epoch)).numpy()
        count, at, of = self._key
        if (count, of) != (n, world) or at >= epoch or self._generator is None:
            self._generator, at = Generator().manual_seed(self._seed), -1
        for _ in range(epoch - at):
            draw_seed(self._generator)  # as a loader does for its workers
            drawn = list(RandomSampler(range(n), generator=self._generator))
        return np.array(drawn, np.int64)


@dataclasses.dataclass(frozen=True)
class Order:
    """Which sample comes where. Filters, skip and take choose from all samples, before they are shared among ranks."""

    count: int  # samples of the source, or of `chosen`
    seed: int = 0
    shuffled: bool = False
    torchs: TorchOrder | None = None  # which then shuffles
    rank: int = 0
    world: int = 1
    uneven: str = "pad"
    skipped: int = 0
    taken: int | None = None
    inner: Any = None  # Chosen or Interleaved: which samples `count` counts
    buckets: Buckets | None = None

    @property
    def whole(self) -> int:
        """Samples of an epoch on all ranks together, each counted once."""
        left = max(self.count - self.skipped, 0)
        return left if self.taken is None else min(left, self.taken)

    @property
    def length(self) -> int:
        """Samples of an epoch on this rank: equally many on all."""
        if self.uneven == "drop":
            return self.whole // self.world
        return -(-self.whole // self.world)

    def ids(self, epoch: int, positions: Any) -> Any:
        """The samples at these positions of an epoch. REQUIRES: 0 <= positions < length."""
        return self.plain_ids(epoch, positions) if self.buckets is None else self.buckets.ids(self, epoch, np.asarray(positions, np.int64))

    def plain_ids(self, epoch: int, positions: Any) -> Any:
        """ids() without buckets."""
        places = (np.asarray(positions, np.int64) * self.world + self.rank) % max(self.whole, 1) + self.skipped
        if self.shuffled and places.size:
            places = (permuted(places, self.count, mixed(self.seed, epoch)) if self.torchs is None else
                      self.torchs.permutation(self.count, epoch, self.world)[places])
        return places if self.inner is None else self.inner.ids(epoch, places)

    @property
    def fixed(self) -> bool:
        """Whether it is the same in all epochs, and of no rank."""
        return not self.shuffled and self.world == 1 and self.buckets is None and (self.inner is None or self.inner.fixed)

    def key(self, epoch: int) -> int:
        """The first half of the keys of an epoch's samples, as int64; the other half is the sample's id."""
        return int(np.uint64(mixed(self.seed, epoch, 0x5EED)).view(np.int64))


class Walk:
    """Positions one after the other, over the borders of epochs, with their samples. Made in blocks, which cost less."""

    def __init__(self, order: Order, epoch: int, position: int) -> None:
        self.order, self.epoch, self.position = order, epoch, position
        self._ids, self._begin, self._of = np.empty(0, np.int64), 0, -1

    def next(self, n: int) -> tuple[Any, Any]:
        """The ids and keys of the next n samples; none where the epochs have none."""
        ids, keys = [], []
        while n > 0 and self.order.length > 0:
            if self.position >= self.order.length:
                self.epoch, self.position = self.epoch + 1, 0
            some = self._block(min(n, self.order.length - self.position))
            ids.append(some)
            keys.append(np.stack([np.full(len(some), self.order.key(self.epoch)), some], 1))
            self.position += len(some)
            n -= len(some)
        return (np.concatenate(ids), np.concatenate(keys)) if ids else (np.empty(0, np.int64), np.empty((0, 2), np.int64))

    def _block(self, n: int) -> Any:
        at = self.position
        if self._of != self.epoch or not self._begin <= at < self._begin + len(self._ids):
            end = min(at + _BLOCK, self.order.length)
            self._ids, self._begin, self._of = self.order.ids(self.epoch, np.arange(at, end)), at, self.epoch
        return self._ids[at - self._begin:at - self._begin + n]
