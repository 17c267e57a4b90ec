"""Samplers: in which order a loader takes samples. Orders are torch's for the same state of the generator."""

from __future__ import annotations

import itertools
from numbers import Integral
from typing import Any, Generic, Iterator, Sequence, TypeVar

from sluice import _C
from sluice._C import Generator
from sluice._tensor.creation import as_tensor, rand, randint, randperm
from sluice._base.numbers import numpy as lazy_numpy
from sluice.errors import RuntimeError, TypeError, ValueError  # noqa: A004

T_co = TypeVar("T_co", covariant=True)


def draw_seed(generator: Any = None) -> int:
    """A seed of 63 bits; as `torch.empty((), dtype=torch.int64).random_(generator=generator)` draws it."""
    drawn = randint(-2**63, 2**63 - 1, (), generator=generator).item()
    return (drawn + 2**63) % 2**63


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and value > 0


class Sampler(Generic[T_co]):
    """Subclasses define `__iter__` over indices, or over lists of them for a batch sampler, and `__len__` where it is known."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: subclasses of Sampler define __iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A permutation, or with `replacement` independent draws; `num_samples` (default: all) may be more than there are.

    Without `generator`, every epoch draws the seed of its own from the default generator.
    """

    def __init__(self, data_source: Any, replacement: bool = False, num_samples: int | None = None,
                 generator: Any = None) -> None:
        self.data_source, self.replacement, self._num_samples, self.generator = data_source, replacement, num_samples, generator
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement should be a boolean value, but got replacement={replacement!r}")
        if not _is_count(self.num_samples):
            raise ValueError("RandomSampler: num_samples should be a positive integer value, but got "
                             f"num_samples={self.num_samples!r}")

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, count, generator = len(self.data_source), self.num_samples, self.generator
        if generator is None:
            generator = Generator()
            generator.manual_seed(draw_seed())
        if self.replacement:
            for start in range(0, count, 32):
                yield from randint(0, n, (min(32, count - start),), generator=generator).tolist()
            return
        for _ in range(count // n):
            yield from randperm(n, generator=generator).tolist()
        yield from randperm(n, generator=generator).tolist()[:count % n]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """A permutation of `indices`."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with probabilities in proportion to `weights`.

    With replacement, the order is torch's. Without, the distribution is, but not the order: torch draws exponential numbers there by
    a generator of the library that it was built with.
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None) -> None:
        if not _is_count(num_samples):
            raise ValueError("WeightedRandomSampler: num_samples should be a positive integer value, but got "
                             f"num_samples={num_samples!r}")
        if not isinstance(replacement, bool):
            raise ValueError("WeightedRandomSampler: replacement should be a boolean value, but got "
                             f"replacement={replacement!r}")
        self.weights = as_tensor(weights, dtype=_C.float64)
        if self.weights.ndim != 1:
            raise ValueError("WeightedRandomSampler: weights should be a 1d sequence but given weights have shape "
                             f"{tuple(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        np = lazy_numpy()
        weights = self.weights.numpy()
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
            raise RuntimeError("WeightedRandomSampler: weights contain inf, nan or an element < 0, or sum to 0; must be "
                               "probabilities")
        if self.replacement:
            steps = np.cumsum(weights)
            steps /= steps[-1]
            steps[-1] = 1.0
            drawn = rand(self.num_samples, dtype=_C.float64, generator=self.generator).numpy()
            return iter(np.searchsorted(steps, drawn).tolist())
        if self.num_samples > len(weights):
            raise RuntimeError("WeightedRandomSampler: cannot sample n_sample > the number of weights without "
                               "replacement: got "
                               f"{self.num_samples} of {len(weights)}")
        uniform = rand(len(weights), dtype=_C.float64, generator=self.generator).numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            times = -np.log1p(-uniform) / weights  # the first to come are drawn, each at the rate of its weight; 0 comes last
        return iter(np.argsort(times, kind="stable")[:self.num_samples].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of `batch_size` indices of `sampler`; the last one is shorter, or with `drop_last` left out."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        if not _is_count(batch_size):
            raise ValueError(f"BatchSampler: batch_size should be a positive integer value, but got batch_size={batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last should be a boolean value, but got drop_last={drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
