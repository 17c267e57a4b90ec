"""Calls of different sizes: which of them a plan of a larger size may serve, filled up."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import fn
from sluice._base.dim import Dim

from sluice._compile import rows
from sluice._compile.breaks import Break


class Exact:
    """Arguments as they are."""

    group: Any = None
    cuts: Any = None

    def __init__(self, arguments: Any) -> None:
        self.tensors, self.key, self.objects, self.build = arguments.tensors, arguments.key, arguments.objects, arguments.build


class Padded(Exact):
    """Arguments whose dim is filled up, with copies of their last rows, to `size`: what depends on it row by row stays finite."""

    def __init__(self, arguments: Any, group: Group, n: int, size: int) -> None:
        super().__init__(arguments)
        self.given, self.group, self.n = arguments, group, n
        self.cuts = [(axis, n) for axis in group.axes]
        self.tensors = list(arguments.tensors)
        for i, axis in group.places:
            self.tensors[i] = _filled(self.tensors[i], axis, size)

    def cut(self, outputs: list[Any]) -> list[Any]:
        """Results without what was filled up."""
        return [t if axis is None else _cut(t, axis, n) for t, (axis, n) in zip(outputs, self.cuts)]


def _filled(t: Any, axis: int, size: int) -> Any:
    shape = list(t._shape)
    more = size - shape[axis]
    shape[axis] = more
    return fn.cat([t, t.detach().narrow(axis, t._shape[axis] - 1, 1).expand(shape)], axis)


def _cut(t: Any, axis: int, n: int) -> Any:
    t = t.narrow(axis, 0, n)
    return t if axis == 0 else t.contiguous()


class Group:
    """Calls that differ in the size of one dim: the axes `places` of the arguments, and of each result its axis, if any."""

    def __init__(self, shapes: list[Any]) -> None:
        self.shapes = shapes
        self.places: list[tuple[int, int]] = []
        self.axes: list[int | None] = []
        self.dim: Dim | None = None
        self.refused = ""

    def size_of(self, tensors: list[Any]) -> int:
        """-1: the arguments do not agree on it."""
        sizes = {tensors[i]._shape[axis] for i, axis in self.places}
        return sizes.pop() if len(sizes) == 1 else -1


class Sizes:
    """The sizes of one region. REQUIRES, of all but fitted(): the tracing lock."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._groups: dict[Any, Group] = {}

    @staticmethod
    def _key(arguments: Any, modules: list[Any]) -> Any:
        specs = tuple([(t.dtype, t.ndim, t._device, t.requires_grad) for t in arguments.tensors])
        return arguments.key, _C.is_grad_enabled(), tuple([m.training for m in modules]), specs

    def fitted(self, arguments: Any, modules: list[Any]) -> Any:
        """The arguments as some plan takes them."""
        if not self._groups:
            return Exact(arguments)
        group = self._groups.get(self._key(arguments, modules))
        if group is None or group.dim is None or group.refused:
            return Exact(arguments)
        n = group.size_of(arguments.tensors)
        if not 1 <= n <= group.dim.max:
            return Exact(arguments)
        size = next(b for b in group.dim.buckets if b >= n)
        made = Exact(arguments) if n == size else Padded(arguments, group, n, size)
        made.group = group
        return made

    def seen(self, arguments: Any, region: Any, environment: Any) -> None:
        """Before a call is compiled: decides which dim its sizes share with calls before it."""
        if self._settings.dynamic is False or not arguments.tensors:
            return
        key, shapes = self._key(arguments, region.modules), [t._shape for t in arguments.tensors]
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(shapes)
            if not self._settings.dynamic:
                return
        if group.dim is not None or group.refused:
            return
        group.places = _places(group.shapes, shapes) if group.shapes != shapes else _batch(shapes) if self._settings.dynamic else []
        if not group.places:
            return
        try:
            group.axes = rows.axes_of(region.function, arguments, environment, group.places, region.name)
            group.dim = Dim("size", max=self._settings.options["max_size"])
        except Break as found:
            group.refused = str(found).splitlines()[0]

    def check(self, region: Any, fitted: Any) -> bool:
        """Whether filling up gives the rows that the code itself gives for these arguments; False: never again."""
        if not isinstance(fitted, Padded):
            return True
        wrong = rows.difference(region.run_plainly, fitted)
        if wrong:
            fitted.group.refused = wrong
        return not wrong

    def count(self, programs: Any, owners: Any) -> int:
        """The number of programs for calls with the same modules as arguments; all sizes of a dim count as one."""
        every = [p for of_key in programs.values() for p in of_key if p.owners == owners]
        return len({id(p.group) if p.group is not None else id(p) for p in every})

    def notes(self) -> list[str]:
        """For the report."""
        return [f"sizes of {', '.join(f'axis {axis} of tensor {i}' for i, axis in g.places)}: " +
                (f"one graph for up to {g.dim.max}" if g.dim and not g.refused else f"a graph for each: {g.refused}")
                for g in self._groups.values() if g.places]


def _places(before: list[Any], now: list[Any]) -> list[tuple[int, int]]:
    """The axes that differ, if they are one dim."""
    changed = {(i, axis): (a, b) for i, (then, shape) in enumerate(zip(before, now)) for axis, (a, b) in enumerate(zip(then, shape)) if a != b}
    one_dim = len(set(changed.values())) == 1 and len({i for i, _ in changed}) == len(changed)
    return list(changed) if one_dim else []


def _batch(shapes: list[Any]) -> list[tuple[int, int]]:
    """Axis 0 of the arguments that are as long as the first one there."""
    n = next((shape[0] for shape in shapes if shape), None)
    return [(i, 0) for i, shape in enumerate(shapes) if shape and shape[0] == n]
