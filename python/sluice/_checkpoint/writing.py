"""Saving: a snapshot at once, and a thread that writes it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import zlib
from typing import Any

from sluice import serialization
from sluice._C import Tensor
from sluice._base.job import state as job
from sluice._checkpoint import files, ranks
from sluice._checkpoint.pieces import in_parts, mine, pieces_of, shared_out, span_of
from sluice._checkpoint.trees import Tree, model_prefix
from sluice._tensor.components import cut
from sluice._tensor.pickling import bytes_of, check_concrete
from sluice.distributed import _failure
from sluice.errors import RuntimeError, TimeoutError, TypeError, ValueError  # noqa: A004
from sluice.utils import safetensors

_LOOK = 0.01  # seconds between two looks whether the others have written
_LIMIT = 1800.0  # seconds for others to write what they have


def save(state: dict[str, Any], path: Any) -> None:
    """Writes `state` to the folder `path`, which all ranks of a job must reach: each writes a part of what it has.

    state: by name modules, optimizers, graphs and whatever else has state_dict(); tensors; nests of numbers, texts and tensors. Of
        what all ranks have, as local tensors, they must have the same, and rank 0's counts for what is no tensor.

    The folder has what it had, or all of the new, whatever happens. All ranks must call it, and if it fails on one of them, all
    raise an error. Its files are of safetensors: tensors of the model that are whole have their own names there, so that other
    programs find them; export() writes all of them whole.
    """
    async_save(state, path).wait()


def async_save(state: dict[str, Any], path: Any) -> Saving:
    """The same, but returns once this rank has a copy of what it is to write: a thread writes it. torch's async_save.

    Training may go on at once. wait() on all ranks tells when it is done.
    """
    return Saving(state, os.path.abspath(os.fspath(path)))


class Saving:
    """A checkpoint on its way to the disk."""

    def __init__(self, state: dict[str, Any], path: str) -> None:
        self.path, self.seconds_written = path, None
        self._error: BaseException | None = None
        self._rank, self._n, self._world = job.rank, ranks.count(), job.world
        tree, listed = ranks.together("checkpoint", lambda: self._looked_at(state))
        _check_alike(listed)
        self._folder = ranks.of_the_first(ranks.together("checkpoint", lambda: files.begun(path) if self._rank == 0 else ""))
        self._id = os.path.basename(self._folder)[-16:]
        self._plan(tree, model_prefix(state))
        self._config = _config(state) if self._rank == 0 else None
        self._thread = threading.Thread(target=self._run, name="checkpoint")
        self._thread.start()

    def _looked_at(self, state: Any) -> tuple[Tree, list[str]]:
        """The nest, and a line for each tensor, which must be the same on all ranks."""
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise ValueError(f"checkpoint: {self.path}: is a file; must be a folder, or nothing")
        if os.path.isdir(self.path) and os.listdir(self.path) and not os.path.exists(os.path.join(self.path, files.INDEX)):
            raise ValueError(f"checkpoint: {self.path}: a folder that is no checkpoint; it is not replaced")
        tree = Tree(state, "checkpoint")
        for name, t in tree.tensors.items():
            check_concrete(f"checkpoint: '{name}'", mine(t))
            if t.dtype not in safetensors._NAMES:
                raise TypeError(f"checkpoint: '{name}' is {t.dtype.name}; safetensors has no such dtype")
        return tree, [self.path, *(_line(name, t, self._n) for name, t in tree.tensors.items())]

    def _plan(self, tree: Tree, model: str | None) -> None:
        """Shares out the writing, as all ranks know it, and copies what this one writes."""
        found = {name: pieces_of(t, name) for name, t in tree.tensors.items()}
        writers = shared_out(found, {name: t.dtype.itemsize for name, t in tree.tensors.items()})
        self._mine: dict[str, dict[str, Tensor]] = {}
        self._index: dict[str, Any] = {}
        for name, t in tree.tensors.items():
            pieces = []
            for number, (piece, writer) in enumerate(zip(found[name], writers[name])):
                whole = len(found[name]) == 1 and model is not None and name.startswith(model)
                file = files.shard("model" if whole else "parts", writer, self._n)
                key = name[len(model or ""):] if whole else f"{name}#{number}"
                pieces.append({"file": file, "key": key, "spans": [list(span) for span in piece.spans]})
                if writer == self._rank:
                    self._mine.setdefault(file, {})[key] = _copy(t, name, piece.spans, self._rank)
            self._index[name] = {"dtype": safetensors._NAMES[t.dtype], "shape": list(t._shape), "pieces": pieces}
            if model is not None and name.startswith(model):
                self._index[name]["model"] = name[len(model):]
        self._rest = tree.rest

    def done(self) -> bool:
        """Whether this rank has written its part; of rank 0, whether all have."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Returns when the checkpoint is there, on every rank. Raises on all of them what went wrong on one."""
        ranks.together("checkpoint", self._joined)

    def _joined(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    # In the thread

    def _run(self) -> None:
        start = time.perf_counter()
        try:
            for name, tensors in self._mine.items():
                with files.synced(self._folder, name) as file:
                    safetensors.write(tensors, file, {"format": "pt", "checkpoint": self._id})
            self._mine = {}
            self._tell("")
            if self._rank == 0:
                self._finish()
        except BaseException as error:  # noqa: BLE001 wait() raises it
            self._error = error
            self._tell(f"{type(error).__name__}: {error}")
            if self._rank == 0:
                shutil.rmtree(self._folder, ignore_errors=True)
        self.seconds_written = time.perf_counter() - start

    def _mark(self, rank: int) -> str:
        return os.path.join(self._folder, f"written-{rank}")

    def _tell(self, error: str) -> None:
        """This rank has written what it has, or why it could not."""
        try:
            with open(self._mark(self._rank) + ".part", "w", encoding="utf-8") as file:
                file.write(error)
            os.replace(file.name, self._mark(self._rank))
        except OSError:  # the folder is gone, since rank 0 has given up
            pass

    def _finish(self) -> None:
        """Rank 0, once all have written: the index last, and then the folder's name."""
        for rank in range(self._n):
            text = self._heard(rank)
            if text:
                raise RuntimeError(f"checkpoint: {self.path}: rank {rank} could not write its part: {text}")
        for rank in range(self._n):
            os.remove(self._mark(rank))
        with files.synced(self._folder, files.REST) as file:
            serialization.save(self._rest, file)
        unsafe = serialization.get_unsafe_globals_in_checkpoint(os.path.join(self._folder, files.REST))
        if unsafe:
            raise TypeError(f"checkpoint: the state has objects of {', '.join(unsafe)}, which loading would refuse; leave them out, or give "
                            "them as numbers, texts, lists and dicts")
        if self._config is not None:
            with files.synced(self._folder, "config.json") as file:
                file.write(self._config.encode())
        whole = {piece["key"]: piece["file"] for entry in self._index.values() for piece in entry["pieces"]
                 if piece["file"].startswith("model-")}
        if whole:
            _write_json(self._folder, files.MODEL_INDEX, {"metadata": {"total_size": sum(
                os.path.getsize(os.path.join(self._folder, name)) for name in set(whole.values()))}, "weight_map": whole})
        sizes = {name: os.path.getsize(os.path.join(self._folder, name)) for name in sorted(os.listdir(self._folder))}
        _write_json(self._folder, files.INDEX, {"format": files.FORMAT, "id": self._id, "ranks": self._n, "files": sizes,
                                                "tensors": self._index})
        files.commit(self._folder, self.path)

    def _heard(self, rank: int) -> str:
        """Waits for what a rank tells, and gives it."""
        deadline = time.monotonic() + _LIMIT
        while not os.path.exists(self._mark(rank)):
            failed = self._world is not None and job.world is self._world and self._world.failed_rank >= 0
            if failed or _failure.of_this_process():
                raise RuntimeError(f"checkpoint: {self.path}: the job failed before rank {rank} had written its part")
            if time.monotonic() > deadline:
                raise TimeoutError(f"checkpoint: {self.path}: rank {rank} has not written its part in {_LIMIT:g} s")
            time.sleep(_LOOK)
        with open(self._mark(rank), encoding="utf-8") as file:
            return file.read()


def _line(name: str, t: Tensor, n: int) -> str:
    """A line that ranks must have alike of a tensor; a local one's contents count, too."""
    if in_parts(t):
        return f"{name} {t.dtype.name} {tuple(t._shape)} {t._global}"
    contents = f" with contents {zlib.crc32(bytes_of(_cpu(t))):08x}" if n > 1 else ""
    return f"{name} {t.dtype.name} {tuple(t._shape)}{contents}"


def _check_alike(own: list[str]) -> None:
    """Raises on every rank where one has something else than rank 0."""
    text = "\n".join(own)
    sums = ranks.gathered(f"{zlib.crc32(text.encode()):08x} {len(text)}")
    if len(set(sums)) == 1:
        return
    first, *others = [listed.split("\n") for listed in ranks.gathered(text)]
    for rank, theirs in enumerate(others, 1):
        for i in range(max(len(first), len(theirs))):
            a, b = (lines[i] if i < len(lines) else "nothing" for lines in (first, theirs))
            if a != b:
                raise ValueError(f"checkpoint: rank 0 saves '{a}', rank {rank} '{b}'; what is local must be the same on all ranks. Lay out "
                                 "what they have in parts as a global tensor (to_global)")


def _cpu(t: Tensor) -> Tensor:
    return mine(t).cpu().contiguous()


def _copy(t: Tensor, name: str, spans: Any, rank: int) -> Tensor:
    own = span_of(t, name, rank)
    assert own is not None
    return cut(mine(t), spans, own).cpu().contiguous().clone()


def _config(state: dict[str, Any]) -> str | None:
    """The configuration of a model of transformers, which other programs read beside the weights."""
    values = [m for value in state.values() for m in (value, *getattr(value, "_blocks", {}).values())]
    texts = [value.config.to_json_string() for value in values if hasattr(getattr(value, "config", None), "to_json_string")]
    return texts[0] if len(texts) == 1 else None


def _write_json(folder: str, name: str, content: Any) -> None:
    with files.synced(folder, name) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())
