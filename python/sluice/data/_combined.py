"""Sources made of other sources: chosen samples of one, several side by side or in turn, and windows of neighbours."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np

from sluice.data import _index
from sluice.data._sources import Files, Source, padded


def _parts_of(sample: Any) -> tuple[Any, ...]:
    return tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)


def _digest(fingerprint: str, sources: Iterable[Source]) -> str:
    return _index.fingerprint(fingerprint, *(s.digest() for s in sources))


class Selected(Source):
    """The samples of another source that have these numbers."""

    def __init__(self, source: Source, ids: Any) -> None:
        self._source, self._ids, self.count = source, ids, len(ids)
        self.images, self.direct, self.workers, self.random = source.images, source.direct, source.workers, source.random
        self.boxes = source.boxes
        self.classes, self.room = getattr(source, "classes", None), getattr(source, "room", None)
        self.fingerprint = _index.fingerprint("selected", source.fingerprint, ids)

    def digest(self) -> str:
        return _digest(self.fingerprint, (self._source,))

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return self._source.parts(batch)

    def read(self, ids: Any, batch: int) -> list[Any]:
        return self._source.read(self._ids[ids], batch)

    def name(self, i: int) -> str:
        return self._source.name(int(self._ids[i]))

    def sample(self, i: int, key: int = 0) -> Any:
        return self._source.sample(int(self._ids[i]), key)

    def entries(self, ids: Any) -> Any:
        return self._source.entries(self._ids[ids])  # type: ignore[attr-defined] where there is room


class Zipped(Source):
    """Samples of several sources side by side; as many as the shortest has."""

    def __init__(self, sources: list[Source]) -> None:
        for i, source in enumerate(sources[1:], 1):
            if source.images:
                raise ValueError(f"data.zip: part {i} has encoded images; must be the first, of which decode() makes pixels")
        self._sources, self.count = sources, min(s.count for s in sources)
        self.boxes = any(s.boxes for s in sources)
        self.images, self.direct = sources[0].images, all(s.direct for s in sources)
        self.workers, self.random = max(s.workers for s in sources), any(s.random for s in sources)
        self.classes = getattr(sources[0], "classes", None)
        self.fingerprint = _index.fingerprint("zipped", *(s.fingerprint for s in sources))

    def digest(self) -> str:
        return _digest(self.fingerprint, self._sources)

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [part for source in self._sources for part in source.parts(batch)]

    def read(self, ids: Any, batch: int) -> list[Any]:
        return [array for source in self._sources for array in source.read(ids, batch)]

    def name(self, i: int) -> str:
        return self._sources[0].name(i)

    def sample(self, i: int, key: int = 0) -> Any:
        return tuple(part for source in self._sources for part in _parts_of(source.sample(i, key)))


class Joined(Source):
    """Samples of several sources, numbered one source after the other."""

    def __init__(self, sources: list[Source]) -> None:
        if len({s.images for s in sources}) > 1:
            raise ValueError("data.interleave: some parts have encoded images, others none; all must be alike")
        self.direct, self.images = all(s.direct for s in sources), sources[0].images
        if self.direct and not self.images:
            kinds = [[(shape[1:], dtype) for shape, dtype in s.parts(1)] for s in sources]
            for i, kind in enumerate(kinds):
                if kind != kinds[0]:
                    raise ValueError(f"data.interleave: part {i} has samples of {kind}, part 0 of {kinds[0]}; all must be alike")
        self._sources, self.workers, self.random = sources, max(s.workers for s in sources), any(s.random for s in sources)
        self._begins = np.cumsum([0, *(s.count for s in sources)])
        self.count = int(self._begins[-1])
        names = [getattr(s, "classes", None) for s in sources]
        self.classes = names[0] if all(n == names[0] for n in names) else None
        self.fingerprint = _index.fingerprint("joined", *(s.fingerprint for s in sources))

    def digest(self) -> str:
        return _digest(self.fingerprint, self._sources)

    @property
    def begins(self) -> Any:
        """The number of each source's first sample."""
        return self._begins[:-1]

    def _of(self, i: int) -> tuple[int, int]:
        which = int(np.searchsorted(self._begins, i, "right")) - 1
        return which, i - int(self._begins[which])

    def _rows(self, ids: Any) -> Any:
        """For each source that has some of these samples: it, where they stand among `ids`, and their numbers there."""
        which = np.searchsorted(self._begins, ids, "right") - 1
        for w in np.unique(which).tolist():
            rows = np.flatnonzero(which == w)
            yield self._sources[w], rows, ids[rows] - self._begins[w]

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return self._sources[0].parts(batch)

    def read(self, ids: Any, batch: int) -> list[Any]:
        out: list[Any] = []
        for source, rows, inner in self._rows(ids):
            arrays = source.read(inner, len(inner))
            out = out or [np.zeros((batch, *a.shape[1:]), a.dtype) for a in arrays]
            for whole, some in zip(out, arrays):
                whole[rows] = some
        return out

    def name(self, i: int) -> str:
        which, inner = self._of(i)
        return self._sources[which].name(inner)

    def sample(self, i: int, key: int = 0) -> Any:
        which, inner = self._of(i)
        return self._sources[which].sample(inner, key)


class JoinedFiles(Joined, Files):
    """The same of encoded images, whose files are entries of one table."""

    def __init__(self, sources: list[Any]) -> None:
        Joined.__init__(self, sources)
        if any(getattr(s, "room", None) is None for s in sources):
            raise ValueError("data.interleave: encoded images beside other values; put zip() behind interleave()")
        self.room = max(s.room for s in sources)

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return Files.parts(self, batch)

    def read(self, ids: Any, batch: int) -> list[Any]:
        return Files.read(self, ids, batch)

    def entries(self, ids: Any) -> Any:
        texts, places, labels = [b""] * len(ids), np.zeros((len(ids), 2), np.int64), np.zeros(len(ids), np.int64)
        for source, rows, inner in self._rows(ids):
            some, places[rows], labels[rows] = source.entries(inner)
            for row, text in zip(rows.tolist(), some):
                texts[row] = text
        return texts, places, labels


class Windowed(Source):
    """`size` samples that stand `stride` places apart as one sample, which has one axis more; each begins `shift` behind the last."""

    def __init__(self, source: Source, size: int, shift: int, stride: int) -> None:
        if source.images:
            raise ValueError("window: of encoded images; decode them by map() before")
        self._source, self._shift, self._within = source, shift, stride * np.arange(size)
        self.count = max((source.count - 1 - stride * (size - 1)) // shift + 1, 0)
        self.direct, self.workers, self.random = source.direct, source.workers, source.random
        self.fingerprint = _index.fingerprint("windowed", source.fingerprint, np.array([size, shift, stride]))

    def digest(self) -> str:
        return _digest(self.fingerprint, (self._source,))

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return [((batch, len(self._within), *shape[1:]), dtype) for shape, dtype in self._source.parts(1)]

    def read(self, ids: Any, batch: int) -> list[Any]:
        inner = (ids[:, None] * self._shift + self._within).reshape(-1)
        arrays = self._source.read(inner, len(inner))
        return [padded(a.reshape(len(ids), len(self._within), *a.shape[1:]), batch) for a in arrays]

    def name(self, i: int) -> str:
        return f"window of {self._source.name(i * self._shift)}"

    def sample(self, i: int, key: int = 0) -> Any:
        samples = [_parts_of(self._source.sample(i * self._shift + int(w), key)) for w in self._within]
        return tuple(np.stack([np.asarray(part) for part in parts]) for parts in zip(*samples))
