"""Datasets: by index, as streams, of tensors, and made of others."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from typing import Any, Generic, Iterator, Sequence, TypeVar

from sluice import _C
from sluice._tensor import creation
from sluice._C import Tensor
from sluice._tensor.creation import randperm
from sluice.errors import ValueError  # noqa: A004

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Samples by index: subclasses define `__getitem__`, and `__len__` unless the sampler does not need it.

    With `__getitems__(indices)`, which returns a list of samples, a loader asks for a whole batch at once.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__}: subclasses of Dataset define __getitem__(index)")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Samples as a stream: subclasses define `__iter__`. Each worker has a copy; get_worker_info() says which share is its own."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: subclasses of IterableDataset define __iter__()")

    def __add__(self, other: Dataset) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Sample i is a tuple of row i of each tensor."""

    def __init__(self, *tensors: Any) -> None:
        if any(len(t) != len(tensors[0]) for t in tensors):
            raise AssertionError(f"TensorDataset: Size mismatch between tensors: got {[len(t) for t in tensors]} rows; "
                                 "must be equal")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> Any:
        return tuple(tensor[index] for tensor in self.tensors)

    def collated(self, indices: Sequence[Any]) -> list[Any] | None:
        """The rows of each tensor that default_collate would make of the samples, gathered at once. None where it takes the
        samples."""
        if type(self).__getitem__ is not TensorDataset.__getitem__ or not all(isinstance(t, Tensor)
                                                                              for t in self.tensors):
            return None
        n = len(self)
        if not all(type(i) is int and 0 <= i < n for i in indices):
            return None
        rows = creation.tensor(list(indices), dtype=_C.int64)
        return [t.index_select(0, rows.to(t.device)) for t in self.tensors]

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset):
    """Sample i is a tuple, or a dict for keyword arguments, of sample i of each dataset."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("StackDataset: got datasets by position and by keyword; give all as tuple- (args) or all "
                             "as dict-like (kwargs)")
        if not args and not kwargs:
            raise ValueError("StackDataset: at least one dataset should be passed; got none")
        self.datasets: Any = args or kwargs
        self._length = len(self._parts()[0])
        if any(len(d) != self._length for d in self._parts()):
            raise ValueError(f"StackDataset: Size mismatch between datasets: got {[len(d) for d in self._parts()]}; "
                             "must be equal")

    def _parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _together(self, parts: Any) -> Any:
        return dict(zip(self.datasets, parts)) if isinstance(self.datasets, dict) else tuple(parts)

    def __getitem__(self, index: Any) -> Any:
        return self._together(d[index] for d in self._parts())

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        parts = []
        for dataset in self._parts():
            samples = _samples(dataset, indices)
            if len(samples) != len(indices):
                raise ValueError("StackDataset: nested dataset's output size mismatch: __getitems__ gave "
                                 f"{len(samples)} samples "
                                 f"for {len(indices)} indices; must be one for each")
            parts.append(samples)
        return [self._together(sample) for sample in zip(*parts)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset):
    """The samples of several datasets, one after the other."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset: datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset: does not support IterableDataset; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"ConcatDataset: absolute value of index should not exceed dataset length: got {idx}, "
                                 f"length is {len(self)}")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        if which == len(self.datasets):
            raise IndexError(f"ConcatDataset: index {idx} is out of range; there are {len(self)} samples")
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, one after the other."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset: only supports IterableDataset: got {type(dataset).__name__}; use "
                                     "ConcatDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`."""

    def __init__(self, dataset: Any, indices: Sequence[Any]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        return _samples(self.dataset, [self.indices[i] for i in indices])

    def collated(self, indices: Sequence[Any]) -> list[Any] | None:
        """As TensorDataset.collated, of a subset of one."""
        if type(self).__getitems__ is not Subset.__getitems__ or not hasattr(self.dataset, "collated"):
            return None
        return self.dataset.collated([self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def _samples(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """Several samples of a dataset, at once where it can."""
    at_once = getattr(dataset, "__getitems__", None)
    return at_once(indices) if callable(at_once) else [dataset[i] for i in indices]


def random_split(dataset: Any, lengths: Sequence[Any], generator: Any = None) -> list[Subset]:
    """Subsets of the given lengths, disjoint and random; the same as torch's for the same state of the generator.

    lengths: numbers that sum to len(dataset), or fractions that sum to 1; what rounding leaves goes to the first ones.
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        sizes = []
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"random_split: Fraction at index {i} is {fraction}; must be between 0 and 1")
            sizes.append(int(math.floor(total * fraction)))
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if size == 0:
                warnings.warn(f"random_split: Length of split at index {i} is 0. This might result in an empty "
                              "dataset.", stacklevel=2)
        lengths = sizes
    if sum(lengths) != total:
        raise ValueError("random_split: Sum of input lengths does not equal the length of the input dataset: got "
                         f"{sum(lengths)}, "
                         f"length is {total}")
    order = randperm(total, generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length:end]) for end, length in zip(ends, lengths)]
