"""Tables of embeddings that are larger than memory."""

from __future__ import annotations

import collections
import concurrent.futures
import inspect
import os
from typing import Any, Callable, Iterable, Iterator

import numpy as np

from sluice import _C
from sluice._base.grad_mode import no_grad
from sluice._C import Tensor
from sluice._graph.config import bytes_of
from sluice._tensor.creation import from_numpy
from sluice.data._row_cache import RowCache
from sluice.data._row_file import RowFile
from sluice.nn.parameter import Parameter
from sluice.optim import SGD, Adagrad

# By name: the optimizer, what it keeps of each element, and what users may say of it. With all of them an element whose gradient is
# zero stays as it is, so that rows that nobody has looked up need no update.
OPTIMIZERS: dict[str, tuple[Any, tuple[str, ...], tuple[str, ...]]] = {
    "sgd": (SGD, (), ("lr", "maximize")),
    "adagrad": (Adagrad, ("sum",), ("lr", "lr_decay", "eps", "initial_accumulator_value", "maximize")),
}
_BYTES_OF_A_SLOT = 40  # besides the row


class Lookup:
    """Rows of a table that a batch reads: `rows`, a tensor (n, dim) that requires gradients, and `index`, of the shape of the batch's
    ids, which says the row of each. Between DiskTable.lookup() and release() or update() they stay in memory."""

    def __init__(self, table: DiskTable, ids: Any, numbers: Any, inverse: Any, slots: Any, padded: int) -> None:
        self._table, self._numbers, self._slots = table, numbers, slots
        dim = table.dim
        values = np.zeros((max(padded, len(numbers)), dim), np.float32)
        values[:len(numbers)] = table._cache.values[slots, :dim]
        self.rows = from_numpy(values)
        self.rows.requires_grad_()
        self.index = from_numpy(inverse.reshape(ids.shape).astype(np.int64))

    def update(self, grad: Any = None) -> None:
        """One step of the table's optimizer for these rows, by `grad`, or else by `rows.grad`; then release()."""
        self._held("update")
        given = self.rows.grad if grad is None else grad
        if given is None:
            raise _C.RuntimeError("DiskTable: update: the rows have no gradient; call backward(), or give it")
        if tuple(given.shape) != tuple(self.rows.shape):
            raise _C.ValueError(f"DiskTable: update: a gradient of shape {tuple(given.shape)}; must be {tuple(self.rows.shape)}, as the rows'")
        self._table._update(self._slots, given.detach()[:len(self._numbers)])
        self.release()

    def release(self) -> None:
        """The rows may leave the memory. Nothing the second time."""
        if self._slots is not None:
            self._table._cache.unpin(self._slots)
            self._slots = None

    def _held(self, what: str) -> None:
        if self._slots is None:
            raise _C.RuntimeError(f"DiskTable: {what}: the rows were released; look them up again")

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.release()


class DiskTable:
    """A table of `rows` embeddings of float32 in a file, of which a part is in memory.

        sl.data.DiskTable.make("users.rows", rows=100_000_000, dim=64, optimizer="adagrad", lr=0.1)
        with sl.data.DiskTable("users.rows", cache="512MiB") as table:
            for batch, found in table.ahead(loader, ids=lambda batch: batch[0]):
                loss = net(nn.functional.embedding(found.index, found.rows), batch[1])
                loss.backward()
                found.update()

    ahead() brings the rows of the next batches into the cache while this one is computed. Rows are given out and updated in memory, in
    the order of the batches, so results are the bits of nn.Embedding with the same optimizer. In a graph, rows and index
    are inputs, and the gradient of the rows a result.

    path: of a file that make() or save() has written. One process at a time may write it.
    cache: bytes of memory for rows, or a text with a unit.
    recover: also open a file that was not closed, in which rows may be of different steps.
    read_only: rows are looked up, and not updated; several processes may do so.
    """

    def __init__(self, path: Any, cache: Any = "512MiB", *, recover: bool = False, read_only: bool = False) -> None:
        self._file = RowFile(path, not read_only, recover)
        header = self._file.header
        self._failed, self._read_only = False, read_only
        self.rows, self.dim, self.optimizer = header["rows"], header["dim"], header["optimizer"]
        room = bytes_of("DiskTable: cache", cache)
        capacity = min(room // (self._file.width * 4 + _BYTES_OF_A_SLOT), self.rows)
        if capacity < 1 or self.optimizer not in OPTIMIZERS:
            self._file.close(whole=not read_only)  # nothing was changed
            raise _C.ValueError(f"DiskTable: {self._file.path}: " + (
                f"a cache of {room} bytes; a row takes {self._file.width * 4 + _BYTES_OF_A_SLOT}" if capacity < 1 else
                f"its optimizer is {self.optimizer!r}; must be one of {', '.join(OPTIMIZERS)}"))
        self._cache = RowCache(self._file, int(capacity))
        self._disk = concurrent.futures.ThreadPoolExecutor(1, "sluice-rows")  # all that reads and writes the file

    @staticmethod
    def make(path: Any, rows: int, dim: int, *, optimizer: str = "sgd", **options: Any) -> None:
        """Makes the file of a table of zeros; fill it by write(). Zeros take no room on the disk.

        optimizer: "sgd" or "adagrad", of torch's semantics; options: those of it, such as lr.
        """
        for name, value in (("rows", rows), ("dim", dim)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise _C.ValueError(f"DiskTable: {name}: got {value!r}; must be an int of at least 1")
        if optimizer not in OPTIMIZERS:
            raise _C.ValueError(f"DiskTable: optimizer: got {optimizer!r}; must be one of {', '.join(OPTIMIZERS)}")
        maker, states, known = OPTIMIZERS[optimizer]
        wrong = sorted(set(options) - set(known))
        if wrong:
            raise _C.ValueError(f"DiskTable: optimizer: {optimizer} has no option {wrong[0]!r} here; it has {', '.join(known)}")
        given = {name: default.default for name, default in inspect.signature(maker).parameters.items() if name in known}
        maker([Parameter(from_numpy(np.zeros(1, np.float32)))], **options)  # refuses values that cannot be
        if options.get("initial_accumulator_value"):
            raise _C.NotImplementedError("DiskTable: optimizer: initial_accumulator_value: rows that nobody has looked up are zeros; must be 0")
        RowFile.make(path, {"rows": rows, "dim": dim, "states": len(states), "optimizer": optimizer, "options": {**given, **options}})

    # Lookups

    def lookup(self, ids: Any, padded: int = 0) -> Lookup:
        """The rows of `ids`, integers of any shape. padded: at least so many rows, the others zeros, so that those of every batch have
        one shape."""
        array, numbers, inverse = self._unique(ids)
        return Lookup(self, array, numbers, inverse, self._on_disk(self._cache.pin, numbers), padded)

    def ahead(self, batches: Iterable[Any], ids: Callable[[Any], Any] = lambda batch: batch, depth: int = 2,
              padded: int = 0) -> Iterator[tuple[Any, Lookup]]:
        """Each batch with its lookup. Up to `depth` batches are taken from `batches` before they are asked for, and their rows brought
        into memory meanwhile; they are given out as the updates of the batches before have left them."""
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise _C.ValueError(f"DiskTable: ahead: depth: got {depth!r}; must be an int of at least 0")
        return self._ahead(iter(batches), ids, depth, padded)

    def _ahead(self, batches: Iterator[Any], ids: Callable[[Any], Any], depth: int, padded: int) -> Iterator[tuple[Any, Lookup]]:
        coming: collections.deque[Any] = collections.deque()
        try:
            while True:
                while len(coming) <= depth:
                    batch = next(batches, coming)
                    if batch is coming:  # the end
                        break
                    found = self._unique(ids(batch))
                    coming.append((batch, found, self._disk.submit(self._cache.pin, found[1])))
                if not coming:
                    return
                batch, (array, numbers, inverse), slots = coming.popleft()
                yield batch, Lookup(self, array, numbers, inverse, self._result(slots), padded)
        finally:
            for _, _, slots in coming:
                if slots.cancel() or slots.exception() is not None:
                    continue
                self._cache.unpin(slots.result())

    def _unique(self, ids: Any) -> tuple[Any, Any, Any]:
        self._open("lookup")
        array = np.asarray(ids.numpy() if isinstance(ids, Tensor) else ids)
        if array.size == 0 or array.dtype.kind not in "iu":
            raise _C.ValueError(f"DiskTable: ids: got {array.size} of {array.dtype}; must be at least one integer")
        numbers, inverse = np.unique(array, return_inverse=True)
        if int(numbers[0]) < 0 or int(numbers[-1]) >= self.rows:
            wrong = int(numbers[0]) if int(numbers[0]) < 0 else int(numbers[-1])
            raise _C.IndexError(f"DiskTable: ids: got {wrong}; must be from 0 to {self.rows - 1}")
        return array, numbers.astype(np.int64), inverse

    def _on_disk(self, work: Callable[..., Any], *given: Any) -> Any:
        return self._result(self._disk.submit(work, *given))

    def _result(self, future: Any) -> Any:
        try:
            return future.result()
        except OSError:
            self._failed = True  # a row that could not be written is in no file
            raise

    # Changes

    def _update(self, slots: Any, grad: Any) -> None:
        if self._read_only:
            raise _C.RuntimeError(f"DiskTable: {self._file.path}: was opened with read_only=True; rows cannot be updated")
        maker, states, _ = OPTIMIZERS[self.optimizer]
        held = self._cache.values[slots]
        param = Parameter(from_numpy(np.ascontiguousarray(held[:, :self.dim])))
        param.grad = grad
        optimizer = maker([param], **self._file.header["options"])
        for k, name in enumerate(states):
            optimizer.state[param][name] = from_numpy(np.ascontiguousarray(held[:, (k + 1) * self.dim:(k + 2) * self.dim]))
        if "step" in optimizer.state[param]:
            with no_grad():
                optimizer.state[param]["step"].fill_(float(self._file.header["step"]))
        optimizer.step()
        parts = [param.detach().numpy(), *(optimizer.state[param][name].numpy() for name in states)]
        self._cache.change(slots, np.concatenate(parts, axis=1))
        self._file.header["step"] += 1

    def read(self, ids: Any) -> Any:
        """The rows of `ids` as an array."""
        with self.lookup(ids) as found:
            return found.rows.detach().numpy()[found.index.numpy()]

    def write(self, ids: Any, values: Any) -> None:
        """New contents of rows; what the optimizer keeps of them becomes zeros. ids: different integers; values: (len(ids), dim)."""
        array, numbers, inverse = self._unique(ids)
        values = np.asarray(values.numpy() if isinstance(values, Tensor) else values, np.float32)
        if values.shape != (array.size, self.dim) or len(numbers) != array.size:
            raise _C.ValueError(f"DiskTable: write: {array.size} ids, {len(numbers)} of them different, and values of shape {values.shape}; "
                                f"must be different ids, and ({array.size}, {self.dim})")
        if self._read_only:
            raise _C.RuntimeError(f"DiskTable: {self._file.path}: was opened with read_only=True; rows cannot be written")
        order = np.argsort(inverse)
        step = max(1, self._cache.capacity // 4)
        for start in range(0, len(numbers), step):
            some = slice(start, start + step)
            slots = self._on_disk(self._cache.pin, numbers[some])
            whole = np.zeros((len(slots), self._file.width), np.float32)
            whole[:, :self.dim] = values[order[some]]
            self._cache.change(slots, whole)
            self._cache.unpin(slots)

    # Files

    def save(self, path: Any) -> None:
        """Writes a checkpoint: a file with all rows, their optimizer's state included. It is there whole, or not at all, whenever this process
        ends. Holes stay holes. REQUIRES: no batch is between lookup and update."""
        self._open("save")
        if os.path.abspath(path) == os.path.abspath(self._file.path):
            raise _C.ValueError(f"DiskTable: save: {os.fspath(path)} is the table's own file; name another one")
        self._on_disk(self._cache.flush)
        self._disk.submit(self._file.copy_to, path).result()

    def stats(self) -> dict[str, int]:
        """Rows that lookups have found in memory (`hits`) and on the disk (`misses`), rows written back, slots, and those in use."""
        return {"hits": self._cache.hits, "misses": self._cache.misses, "written": self._cache.written,
                "slots": self._cache.capacity, "pinned": self._cache.pinned()}

    def close(self) -> None:
        """Writes what was changed. Nothing the second time."""
        if self._file._file < 0:
            return
        try:
            if not self._read_only and not self._failed:
                self._on_disk(self._cache.flush)
        finally:
            self._disk.shutdown()
            self._file.close(whole=not self._read_only and not self._failed)

    def _open(self, what: str) -> None:
        if self._file._file < 0:
            raise _C.RuntimeError(f"DiskTable: {what}: the table was closed; open it again")

    def __enter__(self) -> DiskTable:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DiskTable({self._file.path!r}, rows={self.rows}, dim={self.dim}, optimizer={self.optimizer!r})"
