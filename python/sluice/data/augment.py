"""Augmentations: functions of batches for Pipeline.map() behind batch(), made of ops, so that they are kernels of the plan.

    pipeline.decode(224).map(augment.colour_jitter(0.4, 0.4, 0.4)).normalize(MEAN, STD).map(augment.random_erasing())

Images are uint8, or floats of 0 to 1, (N, C, height, width); what computes colours gives floats of 0 to 1. Each sample has random numbers
of its own, which come from its key. An augmentation that is used twice needs another `salt` the second time.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Callable

from sluice import _C
from sluice._C import fn
from sluice._tensor import creation
from sluice.data._order import mixed
from sluice.nn import functional as F

__all__ = ["colour_jitter", "cutmix", "flip", "gaussian_blur", "gaussian_noise", "grayscale", "mixup", "pad", "random_crop",
           "random_erasing", "uniform"]

_GRAY = (0.299, 0.587, 0.114)


def uniform(keys: Any, count: int = 1, *, name: str = "", salt: int = 0) -> Any:
    """Numbers in [0, 1), float32 (N, count), of keys, int64 (N,): each row comes of its key alone.

    name, salt: functions that differ in one of them draw numbers that have nothing to do with each other.
    """
    return _C.ops.numbers_of_keys(keys, count=count, salt=mixed(*name.encode(), salt) >> 1)


def _per_image(values: Any) -> Any:
    return values.reshape(-1, 1, 1, 1)


def _floats(x: Any) -> Any:
    return x.float() / 255 if x.dtype == _C.uint8 else x


def _probability(where: str, p: float) -> float:
    if not 0 <= p <= 1:
        raise ValueError(f"{where}: p: {p}; must be a probability, in [0, 1]")
    return float(p)


def _with(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of images and keys as one of batches, whose other values stay as they are."""

    def apply(x: Any, *rest: Any, keys: Any) -> Any:
        return (function(x, keys), *rest)

    return apply


def _luma(x: Any) -> Any:
    return _GRAY[0] * x[:, 0:1] + _GRAY[1] * x[:, 1:2] + _GRAY[2] * x[:, 2:3]


def flip(p: float = 0.5, *, vertical: bool = False, salt: int = 0) -> Callable[..., Any]:
    """Flips images left to right, or upside down, with probability p; torchvision's RandomHorizontalFlip and RandomVerticalFlip."""
    p = _probability("flip", p)
    return _with(lambda x, keys: fn.where(_per_image(uniform(keys, 1, name=f"flip{vertical}", salt=salt)) < p, x.flip(2 if vertical else 3), x))


def grayscale(p: float = 0.1, *, salt: int = 0) -> Callable[..., Any]:
    """Takes the colours away with probability p; torchvision's RandomGrayscale."""
    p = _probability("grayscale", p)

    def apply(x: Any, keys: Any) -> Any:
        x = _floats(x)
        return fn.where(_per_image(uniform(keys, 1, name="grayscale", salt=salt)) < p, _luma(x).expand(x.shape), x)

    return _with(apply)


def _shifted_hue(x: Any, by: Any) -> Any:
    """Colours turned by a part of the circle."""
    r, g, b = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    most, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    range_ = most - least
    safe = fn.where(range_ == 0, 1.0, range_)
    hue = fn.where(most == r, (g - b) / safe, fn.where(most == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    hue = hue / 6 + by
    hue = (hue - hue.floor()) * 6
    saturation = range_ / fn.where(most == 0, 1.0, most)

    def channel(n: float) -> Any:
        k = hue + n
        k = k - (k / 6).floor() * 6
        return most * (1 - saturation * fn.minimum(k, 4 - k).clamp(0, 1))

    return fn.cat([channel(5), channel(3), channel(1)], 1)


def colour_jitter(brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0, *, salt: int = 0) -> Callable[..., Any]:
    """Changes colours, each by a factor of max(0, 1 - v) to 1 + v, and the hue by -hue to hue of the circle, in this order.

    torchvision's ColorJitter, which takes them in any order. Floats of 0 to 1.
    """
    for name, value, most in (("brightness", brightness, math.inf), ("contrast", contrast, math.inf), ("saturation", saturation, math.inf),
                              ("hue", hue, 0.5)):
        if not 0 <= value <= most:
            raise ValueError(f"colour_jitter: {name}: {value}; must be in [0, {most}]")

    def apply(x: Any, keys: Any) -> Any:
        x, u = _floats(x), uniform(keys, 4, name="colour", salt=salt)

        def factor(i: int, v: float) -> Any:
            least = max(0.0, 1 - v)
            return _per_image(least + u[:, i] * (1 + v - least))

        if brightness:
            x = (x * factor(0, brightness)).clamp(0, 1)
        if contrast:
            f = factor(1, contrast)
            x = (x * f + _luma(x).mean((1, 2, 3), keepdim=True) * (1 - f)).clamp(0, 1)
        if saturation:
            f = factor(2, saturation)
            x = (x * f + _luma(x) * (1 - f)).clamp(0, 1)
        return _shifted_hue(x, _per_image((2 * u[:, 3] - 1) * hue)) if hue else x

    return _with(apply)


def gaussian_blur(size: int, sigma: tuple[float, float] = (0.1, 2.0), *, p: float = 1.0, salt: int = 0) -> Callable[..., Any]:
    """Blurs with probability p, over `size` pixels, which is odd; torchvision's GaussianBlur. Images are mirrored at their borders."""
    p = _probability("gaussian_blur", p)
    if size < 1 or size % 2 == 0 or not 0 < sigma[0] <= sigma[1]:
        raise ValueError(f"gaussian_blur: size {size}, sigma {sigma}; must be an odd number of pixels, and positive numbers in order")

    def apply(x: Any, keys: Any) -> Any:
        x, u, half = _floats(x), uniform(keys, 2, name="blur", salt=salt), size // 2
        width = (sigma[0] + u[:, 0] * (sigma[1] - sigma[0])).reshape(-1, 1)
        at = creation.arange(size).float() - half
        weights = fn.exp(-0.5 * (at / width) ** 2)
        weights = weights / weights.sum(1, keepdim=True)
        padded = F.pad(x, (half, half, half, half), mode="reflect")
        high, wide = x.shape[2], x.shape[3]
        rows = sum(padded[:, :, i:i + high] * _per_image(weights[:, i]) for i in range(size))
        both = sum(rows[:, :, :, i:i + wide] * _per_image(weights[:, i]) for i in range(size))
        return fn.where(_per_image(u[:, 1]) < p, both, x)

    return _with(apply)


def gaussian_noise(std: float, *, salt: int = 0) -> Callable[..., Any]:
    """Adds noise of this standard deviation to each value; torchvision's v2.GaussianNoise."""
    if std < 0:
        raise ValueError(f"gaussian_noise: std: {std}; must not be negative")

    def apply(x: Any, keys: Any) -> Any:
        x = _floats(x)
        n = math.prod(x.shape[1:])
        u = uniform(keys, 2 * n, name="noise", salt=salt)
        noise = fn.sqrt(-2 * fn.log(1 - u[:, :n])) * fn.cos(2 * math.pi * u[:, n:])
        return (x + std * noise.reshape(x.shape)).clamp(0, 1)

    return _with(apply)


def random_erasing(p: float = 0.5, scale: tuple[float, float] = (0.02, 0.33), ratio: tuple[float, float] = (0.3, 3.3), value: float = 0,
                   *, salt: int = 0) -> Callable[..., Any]:
    """A rectangle of `value` with probability p; torchvision's RandomErasing. One that is too long for the image is cut off to its size."""
    p = _probability("random_erasing", p)

    def apply(x: Any, keys: Any) -> Any:
        inside = _rectangle(x, uniform(keys, 5, name="erasing", salt=salt), scale, ratio)
        chosen = _per_image(uniform(keys, 5, name="erasing", salt=salt)[:, 4]) < p
        return fn.where(fn.logical_and(chosen, inside), creation.full((), value, dtype=x.dtype), x)

    return _with(apply)


def _rectangle(x: Any, u: Any, scale: tuple[float, float], ratio: tuple[float, float]) -> Any:
    """Which pixels lie in a random rectangle: bool (N, 1, height, width)."""
    high, wide = x.shape[2], x.shape[3]
    area = (scale[0] + u[:, 0] * (scale[1] - scale[0])) * (high * wide)
    shape = fn.exp(math.log(ratio[0]) + u[:, 1] * (math.log(ratio[1]) - math.log(ratio[0])))  # of height to width
    h = fn.sqrt(area * shape).round().clamp(1, high)
    w = fn.sqrt(area / shape).round().clamp(1, wide)
    return _between(high, (u[:, 2] * (high - h + 1)).floor(), h, 2) & _between(wide, (u[:, 3] * (wide - w + 1)).floor(), w, 3)


def _between(n: int, begin: Any, length: Any, axis: int) -> Any:
    at = creation.arange(n).float().reshape(*(-1 if axis == d else 1 for d in range(4)))
    return (at >= _per_image(begin)) & (at < _per_image(begin + length))


def _beta(u: Any, alpha: float) -> Any:
    """Numbers of a Beta distribution with both parameters alpha, at most 1, by Joehnk's method: the first pair that fits."""
    tries = u.shape[1] // 2
    a, b = u[:, :tries].clamp(min=1e-12) ** (1 / alpha), u[:, tries:].clamp(min=1e-12) ** (1 / alpha)
    fits = a + b <= 1
    first = fits.float().argmax(1, keepdim=True)
    a, b = a.gather(1, first), b.gather(1, first)
    return (a / (a + b).clamp(min=1e-30)).reshape(-1)


def _alpha(where: str, alpha: float) -> float:
    if not 0.05 <= alpha <= 1:
        raise ValueError(f"{where}: alpha: {alpha}; must be in [0.05, 1]")
    return float(alpha)


def _soft(y: Any, classes: int, part: Any) -> Any:
    """Labels as probabilities, of which each sample's partner has the rest."""
    hot = F.one_hot(y, classes).float()
    part = part.reshape(-1, 1)
    return hot * part + hot.flip(0) * (1 - part)


def mixup(classes: int, alpha: float = 0.2, *, salt: int = 0) -> Callable[..., Any]:
    """Each image mixed with another of its batch; labels become probabilities (N, classes). torchvision's v2.MixUp.

    The share of each image is drawn for it alone, from a Beta distribution; its partner is the one as far from the batch's end.
    """
    alpha = _alpha("mixup", alpha)

    def apply(x: Any, y: Any, keys: Any) -> Any:
        x, part = _floats(x), _beta(uniform(keys, 64, name="mixup", salt=salt), alpha)
        share = _per_image(part)
        return x * share + x.flip(0) * (1 - share), _soft(y, classes, part)

    return apply


def cutmix(classes: int, alpha: float = 1.0, *, salt: int = 0) -> Callable[..., Any]:
    """A rectangle of each image from another of its batch; labels become probabilities (N, classes). torchvision's v2.CutMix."""
    alpha = _alpha("cutmix", alpha)

    def apply(x: Any, y: Any, keys: Any) -> Any:
        u = uniform(keys, 66, name="cutmix", salt=salt)
        high, wide = x.shape[2], x.shape[3]
        side = fn.sqrt(1 - _beta(u[:, :64], alpha))
        h, w = (side * high).floor(), (side * wide).floor()
        inside = _between(high, (u[:, 64] * (high - h + 1)).floor(), h, 2) & _between(wide, (u[:, 65] * (wide - w + 1)).floor(), w, 3)
        part = 1 - h * w / (high * wide)
        return fn.where(inside, x.flip(0), x), _soft(y, classes, part)

    return apply


def pad(pixels: int, value: float = 0, mode: str = "constant") -> Callable[..., Any]:
    """`pixels` more on each side; torchvision's Pad."""
    if pixels < 0:
        raise ValueError(f"pad: {pixels} pixels; must not be negative")
    options = {"value": value} if mode == "constant" else {}
    sides = (pixels,) * 4
    return _with(lambda x, keys: F.pad(x, sides, mode=mode, **options))


def random_crop(size: Any, padding: int = 0, *, salt: int = 0) -> Callable[..., Any]:
    """A part of this size at a random place, of an image with `padding` zeros around it; torchvision's RandomCrop."""
    height, width = (size, size) if isinstance(size, Integral) else size

    def apply(x: Any, keys: Any) -> Any:
        x = F.pad(x, (padding,) * 4) if padding else x
        n, c, high, wide = x.shape
        if height > high or width > wide:
            raise ValueError(f"random_crop: {height} x {width} of images of {high} x {wide}; must not be larger")
        u = uniform(keys, 2, name="crop", salt=salt)
        rows = (u[:, 0] * (high - height + 1)).floor().long().reshape(-1, 1) + creation.arange(height)
        columns = (u[:, 1] * (wide - width + 1)).floor().long().reshape(-1, 1) + creation.arange(width)
        x = x.gather(2, rows.reshape(n, 1, height, 1).expand(n, c, height, wide))
        return x.gather(3, columns.reshape(n, 1, 1, width).expand(n, c, height, width))

    return _with(apply)
