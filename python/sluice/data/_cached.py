"""Samples that are made once, and kept in memory or in a folder."""

from __future__ import annotations

import collections
import copy
import json
import os
import shutil
import tempfile
import weakref
from typing import Any

import numpy as np

from sluice.data._mapped import Mapped, standing
from sluice.data._sources import Source, padded

_FACTS = "facts.json"
_OFTEN = 64  # samples after which the folder says that they are there, at least


class _Memory:
    """Rows of arrays, and which of them have been made."""

    def __init__(self, count: int, kinds: Any) -> None:
        self.arrays = [np.empty((count, *shape), dtype) for shape, dtype in kinds]
        self.made = np.zeros(count, bool)

    def keep(self, ids: Any, rows: list[Any]) -> None:
        for array, row in zip(self.arrays, rows):
            array[ids] = row
        self.made[ids] = True


class _Folder(_Memory):
    """The same in mapped files. `made` is in memory: the file of it is written after the rows, so that none is there in part whatever
    ends the process."""

    def __init__(self, path: str, count: int, kinds: Any, fingerprint: str) -> None:
        self._path, facts = path, {"fingerprint": fingerprint, "count": count, "kinds": [[list(s), np.dtype(d).str] for s, d in kinds]}
        if not os.path.exists(os.path.join(path, _FACTS)):
            self._create(count, kinds, facts)
        with open(os.path.join(path, _FACTS)) as file:
            if (found := json.load(file)) != facts:
                raise ValueError(f"cache: {path}: is of {found}; this is {facts}; remove the folder, or name another")
        self.arrays = [np.load(os.path.join(path, f"{k}.npy"), mmap_mode="r+") for k in range(len(kinds))]
        self._marks = np.load(os.path.join(path, "made.npy"), mmap_mode="r+")
        self.made = np.array(self._marks)
        self._unmarked: list[Any] = []
        self._often = max(_OFTEN, count // 50)
        weakref.finalize(self, _mark, self._unmarked, self.arrays, self._marks)

    def _create(self, count: int, kinds: Any, facts: Any) -> None:
        parent = os.path.dirname(os.path.abspath(self._path))
        os.makedirs(parent, exist_ok=True)
        new = tempfile.mkdtemp(dir=parent)
        try:
            for k, (shape, dtype) in enumerate([*kinds, ((), np.dtype(bool))]):
                name = f"{k}.npy" if k < len(kinds) else "made.npy"
                np.lib.format.open_memmap(os.path.join(new, name), "w+", dtype, (count, *shape))
            with open(os.path.join(new, _FACTS), "w") as file:
                json.dump(facts, file)
            os.rename(new, self._path)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            if not os.path.exists(os.path.join(self._path, _FACTS)):  # which another process has made meanwhile
                raise

    def keep(self, ids: Any, rows: list[Any]) -> None:
        super().keep(ids, rows)
        self._unmarked.append(ids)
        if sum(map(len, self._unmarked)) >= self._often or self.made.all():
            _mark(self._unmarked, self.arrays, self._marks)


def _mark(unmarked: list[Any], arrays: list[Any], marks: Any) -> None:
    for array in arrays:
        array.flush()
    for ids in unmarked:
        marks[ids] = True
    marks.flush()
    unmarked.clear()


class Cached(Source):
    """Samples of another source, each of which is made once."""

    def __init__(self, source: Mapped, path: Any) -> None:
        if source.random:
            raise ValueError("cache: behind a function with random numbers, of which each epoch has others; put it before")
        self._inner, self._path, self._store = source, None if path is None else os.fspath(path), [None]
        self.count, self.fingerprint, self.workers = source.count, source.fingerprint, source.workers
        self._settled: Any = (None, [])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": [None]}

    @property
    def kept(self) -> int:  # type: ignore[override]
        kinds = [] if self._path is not None else self._inner.known_kinds()
        return self.count * sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds)

    def parts(self, batch: int) -> list[tuple[tuple[int, ...], Any]]:
        return self._inner.parts(batch)

    def name(self, i: int) -> str:
        return self._inner.name(i)

    def sample(self, i: int, key: int = 0) -> Any:
        store = self._stored()
        return tuple(array[i] for array in store.arrays) if store.made[i] else self._inner.sample(i, key)

    def _stored(self) -> _Memory:
        """What all copies of this source share."""
        if self._store[0] is None:
            kinds = self._inner.known_kinds()
            self._store[0] = (_Memory(self.count, kinds) if self._path is None else
                              _Folder(self._path, self.count, kinds, self._inner.digest()))
        return self._store[0]

    def begin(self, coming: Any, policy: str) -> None:
        store = self._stored()
        self._policy, self._planned = policy, store.made.copy()
        self._missing: collections.deque[Any] = collections.deque()
        self._inner = copy.copy(self._inner)
        self._whole = bool(store.made.all())
        if not self._whole:
            self._inner.begin(self._wanted(coming), "raise" if policy == "raise" else "skip")

    def _wanted(self, coming: Any) -> Any:
        """Those of each batch that have not been made, nor are being made: none of many a batch."""
        for ids, keys in coming:
            rows = np.flatnonzero(~self._planned[ids])
            rows = rows[np.sort(np.unique(ids[rows], return_index=True)[1])]
            self._planned[ids[rows]] = True
            self._missing.append(rows)
            yield ids[rows], keys[rows]

    def read(self, ids: Any, batch: int) -> list[Any]:
        store, bad = self._stored(), {} if self._whole else self._fill(ids)
        causes = sorted(bad.items())
        rows = np.array(standing(len(ids), causes, self._policy), np.int64)
        self._settled = (rows, causes) if causes else (None, [])
        return [padded(array[ids[rows]], batch) for array in store.arrays]

    def _fill(self, ids: Any) -> dict[int, str]:
        """Keeps what is missing; the rows of samples that cannot be made, with causes."""
        try:
            arrays = self._inner.read(ids, 0)
        finally:
            rows = self._missing.popleft()
        store, (stand, failed) = self._stored(), self._inner.settled()
        good = rows if stand is None else rows[stand]
        if len(good):
            store.keep(ids[good], arrays)
        causes = {int(ids[rows[k]]): cause for k, cause in failed}
        for i in np.unique(ids[~store.made[ids]]).tolist():
            if i not in causes:  # it, or its batch, has failed before
                made = self._inner.made_now(i, self._policy)
                if isinstance(made, str):
                    causes[i] = made
                else:
                    store.keep(np.array([i]), [array[None] for array in made])
        return {row: causes[i] for row, i in enumerate(ids.tolist()) if i in causes}

    def settled(self) -> tuple[Any, list[tuple[int, str]]]:
        return self._settled
