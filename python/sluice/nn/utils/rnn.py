"""Sequences of several lengths in one tensor: padded, or packed step by step; torch.nn.utils.rnn."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import full, tensor

_Fields = namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


class PackedSequence(_Fields):
    """Sequences, longest first, as rows ordered by step: batch_sizes[t] of them have a step t.

    sorted_indices: of each row of a step, the sequence it is of; unsorted_indices is its inverse. Made by
    pack_padded_sequence() and pack_sequence().
    """

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None) -> Any:
        if batch_sizes is None:
            if not isinstance(data, (tuple, list)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if not batch_sizes.is_cpu:
            raise ValueError(f"batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                             f"They should be instantiated by functions like pack_sequence and pack_padded_sequence: got "
                             f"{batch_sizes.device}")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequence with data.to(...); the indices follow to the device, batch_sizes stay."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = (None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices))
        return type(self)(data, self.batch_sizes, *moved)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to("cuda" if not args else args[0], **kwargs)

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def double(self) -> PackedSequence:
        return self.to(_C.float64)

    def float(self) -> PackedSequence:
        return self.to(_C.float32)

    def half(self) -> PackedSequence:
        return self.to(_C.float16)

    def long(self) -> PackedSequence:
        return self.to(_C.int64)

    def int(self) -> PackedSequence:
        return self.to(_C.int32)

    def short(self) -> PackedSequence:
        return self.to(_C.int16)

    def char(self) -> PackedSequence:
        return self.to(_C.int8)

    def byte(self) -> PackedSequence:
        return self.to(_C.uint8)

    @property
    def is_cuda(self) -> bool:
        """True when the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """False: plans pin what they copy; tensors are not pinned one by one."""
        return False

    def pin_memory(self) -> PackedSequence:
        raise NotImplementedError("pin_memory: plans copy through pinned memory of their own; pass the tensors as they are")


def sizes_of_steps(sequence: PackedSequence) -> list[int]:
    return _ints("PackedSequence", "batch_sizes", sequence.batch_sizes)


def _ints(where: str, what: str, values: Any) -> list[int]:
    """Sizes that must be known when a graph is built."""
    if isinstance(values, Tensor):
        if values._traced:
            raise RuntimeError(f"{where}: {what} is an input of the graph, or computed in it; plans have fixed sizes: pack inside of "
                               "build(), with lengths that are a list")
        values = values.tolist()
    return [int(v) for v in values]


def invert_permutation(permutation: Any) -> Any:
    """The inverse p of a permutation q: p[q[i]] = i. None stays None."""
    if permutation is None:
        return None
    return _indices(_inverse(_ints("invert_permutation", "permutation", permutation)), permutation)


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _indices(values: list[int], like: Tensor) -> Tensor:
    return tensor(values, dtype=_C.int64, device=None if like._traced else like.device)


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Packs a padded (time, batch, ...) tensor; lengths: of each sequence, a list or a tensor.

    enforce_sorted: lengths must fall; else they are sorted, and unpacking restores the order.
    """
    if isinstance(lengths, Tensor) and lengths.dim() != 1:
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} "
                           f"{lengths.dtype} tensor")
    lengths = _ints("pack_padded_sequence", "lengths", lengths)
    if input.dim() < 2:
        raise IndexError(f"pack_padded_sequence: input has {input.dim()} dims; must be (time, batch, ...), or (batch, time, ...) with "
                         "batch_first")
    if batch_first:
        input = input.transpose(0, 1)
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    steps, batch = input.shape[:2]
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})")
    if min(lengths) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if max(lengths) > steps:
        raise RuntimeError(f"pack_padded_sequence: a length is {max(lengths)}; the input has {steps} steps")
    order = None
    if not enforce_sorted:
        order = sorted(range(batch), key=lambda i: -lengths[i])
        lengths = [lengths[i] for i in order]
    elif any(a < b for a, b in zip(lengths, lengths[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
            "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability.")
    sizes = [sum(length > t for length in lengths) for t in range(lengths[0])]
    rows = [t * batch + (i if order is None else order[i]) for t, size in enumerate(sizes) for i in range(size)]
    data = input.reshape(steps * batch, *input.shape[2:]).index_select(0, _indices(rows, input))
    return PackedSequence(data, tensor(sizes, dtype=_C.int64), None if order is None else _indices(order, input))


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """The padded (time, batch, ...) tensor and the lengths (int64); total_length: steps there are to be, at least."""
    sizes, data = sizes_of_steps(sequence), sequence.data
    steps, batch = len(sizes), sizes[0]
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                             f"total_length={total_length} and max sequence length being {steps}")
        steps = total_length
    lengths = [sum(size > i for size in sizes) for i in range(batch)]
    order = list(range(batch))
    if sequence.unsorted_indices is not None:
        order = _ints("pad_packed_sequence", "unsorted_indices", sequence.unsorted_indices)
        lengths = [lengths[i] for i in order]
    starts = [sum(sizes[:t]) for t in range(len(sizes))]
    padding = data.shape[0]  # the row after the last
    rows = [starts[t] + i if t < len(sizes) and i < sizes[t] else padding for t in range(steps) for i in order]
    if padding in rows:
        data = fn.cat([data, _filled(data, 1, padding_value)])
    padded = data.index_select(0, _indices(rows, data)).reshape(steps, batch, *data.shape[1:])
    return padded.transpose(0, 1) if batch_first else padded, tensor(lengths, dtype=_C.int64)


def _filled(like: Tensor, rows: int, value: float) -> Tensor:
    device = None if like._traced else like.device
    return full((rows, *like.shape[1:]), value, dtype=like.dtype, device=device)


def pad_sequence(sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Stacks (length, ...) tensors to (time, batch, ...), filled up to the longest; padding_side: left or right."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not isinstance(sequences, Tensor) and not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest, padded = max(len(s) for s in sequences), []
    for s in sequences:
        if s.shape[1:] != sequences[0].shape[1:]:
            raise RuntimeError(f"pad_sequence: a sequence has shape {tuple(s.shape)}, the first {tuple(sequences[0].shape)}; all dims "
                               "but the first must be equal")
        if len(s) < longest:
            fill = _filled(s, longest - len(s), padding_value)
            s = fn.cat([fill, s] if padding_side == "left" else [s, fill])
        padded.append(s)
    return fn.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded (time, batch, ...) tensor, each of its length."""
    dim = 0 if batch_first else 1
    lengths = _ints("unpad_sequence", "lengths", lengths)
    if len(lengths) != padded_sequences.shape[dim]:
        raise ValueError(f"unpad_sequence: got {len(lengths)} lengths; there are {padded_sequences.shape[dim]} sequences")
    return [s[:length] for s, length in zip(padded_sequences.unbind(dim), lengths)]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Packs (length, ...) tensors; enforce_sorted: they must be given longest first."""
    lengths = [s.size(0) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one, in their order before."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def __getattr__(name: str) -> Any:
    from sluice._names.left_out import missing

    raise missing("sluice.nn.utils.rnn", name)
