"""torchvision's transforms as stages: those that are known become kernels; the others, and those before them, stay functions of Python."""

from __future__ import annotations

import io
import random
import sys
from typing import Any, Callable

import numpy as np

from sluice import _C
from sluice._tensor.creation import get_rng_state, manual_seed, set_rng_state
from sluice.data import augment
from sluice.data._mapped import arrays_of
from sluice.data._stages import central_crop, random_resized_crop

Stage = Callable[[Any], Any]  # of a pipeline behind batch()


def known(transform: Any) -> bool:
    """Whether it is a transform of torchvision, by its class: torchvision need not be imported here."""
    return type(transform).__module__.startswith("torchvision.transforms")


def members(transform: Any) -> list[Any]:
    if known(transform) and type(transform).__name__ == "Compose":
        return [m for inner in transform.transforms for m in members(inner)]
    return [transform]


def _pair(size: Any) -> tuple[int, int] | None:
    """(height, width), where it says both."""
    numbers = [size] if isinstance(size, int) else list(size)
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def _square(size: Any) -> tuple[int, int]:
    return _pair(size) or ((size, size) if isinstance(size, int) else (size[0], size[0]))


def _bilinear(t: Any) -> bool:
    mode = getattr(t, "interpolation", None)
    return getattr(mode, "value", mode) == "bilinear" and getattr(t, "antialias", True) in (True, None, "warn")


def decoding(chain: list[Any]) -> tuple[dict[str, Any], int] | None:
    """What decode() does of the first transforms of encoded images, and how many these are; None, where it cannot."""
    names = [type(t).__name__ if known(t) else "" for t in chain]
    if names[:1] in (["ToImage"], ["PILToTensor"]):  # which change how images are held, not what they are
        rest = decoding(chain[1:])
        return None if rest is None else (rest[0], rest[1] + 1)
    if names[:1] == ["RandomResizedCrop"] and _bilinear(chain[0]):
        options, used = {"size": _square(chain[0].size), "crop": random_resized_crop(tuple(chain[0].scale), tuple(chain[0].ratio))}, 1
    elif names[:2] == ["Resize", "CenterCrop"] and _bilinear(chain[0]) and _pair(chain[0].size) is None and chain[0].max_size is None:
        shorter = _square(chain[0].size)[0]
        options, used = {"size": _square(chain[1].size), "crop": central_crop(shorter)}, 2
        if max(options["size"]) > shorter:
            return None  # torchvision puts zeros around it
    elif names[:1] == ["Resize"] and _bilinear(chain[0]) and _pair(chain[0].size) is not None:
        options, used = {"size": _pair(chain[0].size)}, 1
    else:
        return None
    if names[used:used + 1] == ["RandomHorizontalFlip"]:
        options, used = {**options, "flip": float(chain[used].p)}, used + 1
    return options, used


def _mapped(fn: Callable[..., Any]) -> Stage:
    return lambda pipeline: pipeline.map(fn)


def _floats(x: Any, *others: Any) -> Any:
    return (x.float() / 255 if x.dtype == _C.uint8 else x, *others)


def _strength(limits: Any, center: float) -> float | None:
    """By how much a factor goes both ways; None, where it is no such range."""
    if limits is None:
        return 0.0
    low, high = (float(v) for v in limits)
    by = high - center
    return by if abs(low - (max(0.0, center - by) if center else -by)) < 1e-9 else None


def _jitter(t: Any, salt: int) -> Stage | None:
    by = [_strength(t.brightness, 1), _strength(t.contrast, 1), _strength(t.saturation, 1), _strength(t.hue, 0)]
    return None if any(v is None for v in by) else _mapped(augment.colour_jitter(*by, salt=salt))  # type: ignore[arg-type]


def _normalized(t: Any, salt: int) -> Stage:
    mean, std = ([float(v) for v in values] for values in (t.mean, t.std))
    return lambda pipeline: pipeline.normalize(mean, std)


def _crop(t: Any, salt: int) -> Stage | None:
    padding = t.padding or 0
    plain = isinstance(padding, int) and not t.pad_if_needed and t.padding_mode == "constant" and t.fill == 0
    return _mapped(augment.random_crop(_square(t.size), padding, salt=salt)) if plain else None


def _erasing(t: Any, salt: int) -> Stage | None:
    if not isinstance(t.value, (int, float)):
        return None
    return _mapped(augment.random_erasing(t.p, tuple(t.scale), tuple(t.ratio), t.value, salt=salt))


def _blur(t: Any, salt: int) -> Stage | None:
    sizes = set(_square(t.kernel_size))
    return _mapped(augment.gaussian_blur(sizes.pop(), tuple(t.sigma), salt=salt)) if len(sizes) == 1 else None


def _dtype(t: Any, salt: int) -> Stage | None:
    name = str(getattr(t, "dtype", "")).rpartition(".")[2]
    return _mapped(_floats) if name == "float32" and getattr(t, "scale", True) else None


def _same(t: Any, salt: int) -> Stage:
    return lambda pipeline: pipeline


_STAGES: dict[str, Callable[[Any, int], Stage | None]] = {
    "ColorJitter": _jitter,
    "ConvertImageDtype": _dtype,
    "GaussianBlur": _blur,
    "Normalize": _normalized,
    "PILToTensor": _same,
    "RandomCrop": _crop,
    "RandomErasing": _erasing,
    "RandomGrayscale": lambda t, salt: _mapped(augment.grayscale(t.p, salt=salt)),
    "RandomHorizontalFlip": lambda t, salt: _mapped(augment.flip(t.p, salt=salt)),
    "RandomVerticalFlip": lambda t, salt: _mapped(augment.flip(t.p, vertical=True, salt=salt)),
    "ToDtype": _dtype,
    "ToImage": _same,
    "ToTensor": lambda t, salt: _mapped(_floats),
}


def stages(chain: list[Any], begin: int = 0) -> list[Stage] | None:
    """The transforms as stages of batches; None, where one of them is none. `begin`: how many were before, so that each draws its own."""
    out: list[Stage] = []
    for k, t in enumerate(chain):
        make = _STAGES.get(type(t).__name__) if known(t) else None
        floats = k + 1 < len(chain) and known(t) and type(t).__name__ in ("ToTensor", "ToDtype", "ConvertImageDtype")
        if make is not None and floats and type(chain[k + 1]).__name__ == "Normalize" and make(t, 0) is not None:
            continue  # Normalize takes bytes, in one step
        stage = None if make is None else make(t, begin + k)
        if stage is None:
            return None
        out.append(stage)
    return out


_FIXES_SIZE = ("CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize")


def _first_fixed(chain: list[Any]) -> int:
    """How many transforms it takes until all images are of one size; 0, where none of them sees to it."""
    for k, t in enumerate(chain):
        if type(t).__name__ in _FIXES_SIZE and (type(t).__name__ != "Resize" or _pair(t.size) is not None):
            return k + 1
    return 0


def split(transform: Any, encoded: bool, varied: bool) -> tuple[list[Any], dict[str, Any] | None, list[Stage]]:
    """(transforms that stay functions of Python, what decode() does, stages behind it): as few of the first as there can be. `varied`: images
    may have any size before."""
    chain = members(transform)
    if encoded and (first := decoding(chain)) is not None:
        options, used = first
        if (rest := stages(chain[used:], used)) is not None:
            return [], options, rest
    begins = range(_first_fixed(chain) if varied else 0, len(chain) + 1)
    begin, rest = next((b, found) for b in begins if (found := stages(chain[b:], b)) is not None)
    return chain[:begin], None, rest


def told(chain: list[Any]) -> str:
    """The transforms that no kernel does, for errors."""
    return ", ".join(type(t).__name__ for t in chain)


class InPython:
    """Transforms of a sample's first part; an encoded image is opened by Pillow. Random numbers that they draw from torch's, NumPy's and
    Python's generators are the sample's own."""

    def __init__(self, chain: list[Any], encoded: bool) -> None:
        self._chain, self._encoded = chain, encoded

    def __call__(self, sample: Any, rng: Any) -> Any:
        value, *others = sample if isinstance(sample, (tuple, list)) else (sample,)
        if self._encoded:
            from PIL import Image

            value = Image.open(io.BytesIO(value)).convert("RGB")
        seed = int(rng.integers(2**63))
        theirs = sys.modules.get("torch")
        before = random.getstate(), np.random.get_state(), get_rng_state(), theirs and theirs.get_rng_state()  # noqa: NPY002
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002 which transforms of others draw from
            manual_seed(seed)
            if theirs:
                theirs.manual_seed(seed)
            for transform in self._chain:
                value = transform(value)
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            set_rng_state(before[2])
            if theirs:
                theirs.set_rng_state(before[3])
        return (_pixels(value), *others)


def _pixels(value: Any) -> Any:
    """Pillow's image as (C, height, width); what else there is as an array."""
    if hasattr(value, "getbands"):
        array = np.asarray(value)
        return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))
    return arrays_of(value)[0]
