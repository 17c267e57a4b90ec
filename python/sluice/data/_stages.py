"""Stages on batches: ops of the graph that is traced."""

from __future__ import annotations

import dataclasses
import inspect
from numbers import Integral
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor, fn
from sluice._tensor.creation import arange, tensor


@dataclasses.dataclass
class Batch:
    """The values of a batch on their way through the stages."""

    values: list[Any]
    keys: Any
    ids: Any
    status: Any = None
    source: Any = None
    meter: int = 0  # under which decode counts what images take
    whole: bool = False  # no row is missing, ever

    def fill(self) -> None:
        """Puts the rows that are there again into the places of those that are not, so that functions see real rows alone."""
        if self.whole:
            return
        there = ((self.ids if self.source is None else self.source) >= 0).long().sum().clamp(min=1)
        rows = arange(self.ids.shape[0]) % there
        *self.values, self.keys = (v.index_select(0, rows) for v in (*self.values, self.keys))
        self.whole = True


@dataclasses.dataclass(frozen=True)
class Crop:
    """What is shown of an image."""

    kind: str
    numbers: tuple[float, ...]


def random_resized_crop(scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3)) -> Crop:
    """A part of random size and place; torchvision's RandomResizedCrop, in random numbers of each sample's key."""
    return Crop("random", (float(scale[0]), float(scale[1]), float(ratio[0]), float(ratio[1])))


def central_crop(shorter: float) -> Crop:
    """What torchvision's Resize(shorter) and CenterCrop(size) leave, in one step."""
    return Crop("central", (float(shorter),))


class Decode:
    """Encoded images as pixels, cut, resized, flipped and normalised by one kernel."""

    def __init__(self, size: Any, crop: Crop | None, flip: float, mode: str, limits: dict[str, int]) -> None:
        if crop is not None and not isinstance(crop, Crop):
            raise TypeError(f"decode: crop: {type(crop).__name__}; must be random_resized_crop() or central_crop()")
        if mode not in ("RGB", "GRAY"):
            raise ValueError(f"decode: mode: {mode!r}; must be 'RGB' or 'GRAY'")
        self.height, self.width = map(int, (size, size) if isinstance(size, Integral) else size)
        self.crop, self.flip, self.channels, self.limits = crop, float(flip), 3 if mode == "RGB" else 1, limits
        self.mean: list[float] = []
        self.std: list[float] = []
        self.dtype = _C.uint8

    def normalized(self, by: Normalize) -> Decode:
        """This and that in one step."""
        if self.mean:
            raise ValueError("normalize: twice; images are normalised once")
        other = Decode((self.height, self.width), self.crop, self.flip, "RGB" if self.channels == 3 else "GRAY", self.limits)
        other.mean, other.std, other.dtype = by.per_channel(self.channels, "mean"), by.per_channel(self.channels, "std"), by.dtype
        return other

    def apply(self, batch: Batch, policy: str, number: int) -> None:
        files, labels, *others = batch.values
        random = self.flip > 0 or (self.crop is not None and self.crop.kind == "random")
        images, batch.status, batch.source = _C.ops.decode_image(
            files, None, None, batch.keys if random else None, count=labels.shape[0], height=self.height, width=self.width,
            channels=self.channels, dtype=self.dtype, mean=self.mean, std=self.std, crop=self.crop.kind if self.crop else "box",
            crop_numbers=list(self.crop.numbers) if self.crop else [], flip_probability=self.flip, on_error=policy, max_scans=500, meter=batch.meter,
            **self.limits)
        if policy != "raise":
            labels, *others = (v.index_select(0, batch.source.clamp(min=0)) for v in (labels, *others))
            batch.keys = batch.keys.index_select(0, batch.source.clamp(min=0))
        batch.values = [images, labels, *others]


class Normalize:
    """(x / 255 - mean) / std of bytes, (x - mean) / std of floats."""

    def __init__(self, mean: Any, std: Any, dtype: Any) -> None:
        if dtype not in (_C.float32, _C.bfloat16):
            raise TypeError(f"normalize: dtype: {dtype}; must be float32 or bfloat16")
        self.mean, self.std, self.dtype = mean, std, dtype
        if any(s <= 0 for s in self.per_channel(0, "std")):
            raise ValueError(f"normalize: std: {std}; must be positive")

    def per_channel(self, channels: int, which: str) -> list[float]:
        """The numbers of `which`, one for each channel; channels: 0 takes them as they are."""
        given = getattr(self, which)
        numbers = [float(given)] * max(channels, 1) if not hasattr(given, "__len__") else [float(v) for v in given]
        if channels and len(numbers) != channels:
            raise ValueError(f"normalize: {which}: {len(numbers)} numbers for {channels} channels; must be one each")
        return numbers

    def apply(self, batch: Batch, policy: str, number: int) -> None:
        x = batch.values[0]
        shape = (1, -1, *[1] * (x.dim() - 2)) if x.dim() > 2 else (1, -1)
        mean, std = (tensor(self.per_channel(0, which)).reshape(shape) for which in ("mean", "std"))
        y = x.float() / 255 if x.dtype == _C.uint8 else x.float()
        batch.values = [((y - mean) / std).to(self.dtype), *batch.values[1:]]


class Function:
    """A function of the batch's tensors."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        try:
            self.takes_keys = "keys" in inspect.signature(fn).parameters
        except (TypeError, ValueError):
            self.takes_keys = False

    def apply(self, batch: Batch, policy: str, number: int) -> None:
        batch.fill()
        got = self.fn(*batch.values, keys=batch.keys) if self.takes_keys else self.fn(*batch.values)
        values = [got] if isinstance(got, Tensor) else list(got)
        for value in values:
            if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != batch.ids.shape[0]:
                raise TypeError(f"map: {self.fn!r} returned {getattr(value, 'shape', type(value).__name__)}; must be tensors with a row for "
                                f"each of {batch.ids.shape[0]} samples")
        batch.values = values


class Branches:
    """One of several functions of a batch for each row; all are computed."""

    def __init__(self, choose: Callable[..., Any], functions: Any) -> None:
        self._choose, self._functions = Function(choose), [Function(function) for function in functions]

    def apply(self, batch: Batch, policy: str, number: int) -> None:
        batch.fill()

        def values_of(function: Function) -> list[Any]:
            other = dataclasses.replace(batch)
            function.apply(other, policy, number)
            return other.values

        which, *results = values_of(self._choose)[0].reshape(-1), *(values_of(f) for f in self._functions)
        kinds = [[(tuple(v.shape), v.dtype) for v in result] for result in results]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(f"branch: functions gave {kinds}; all must give tensors of one shape and dtype")
        chosen = results[0]
        for k, result in enumerate(results[1:], 1):
            chosen = [fn.where((which == k).reshape(-1, *[1] * (old.dim() - 1)), new, old) for old, new in zip(chosen, result)]
        batch.values = list(chosen)
