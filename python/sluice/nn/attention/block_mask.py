"""Masks of attention by functions, and the blocks in which they leave something: BlockMask of torch.nn.attention.flex_attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import arange, full, zeros

__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "noop_mask", "or_masks"]

Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
BLOCK = 128  # queries and keys of a block, by default


def indices(*sizes: int, device: Any) -> list[Tensor]:
    """The index along each dim, int32, of a shape that all of them broadcast to."""
    return [arange(size, dtype=_C.int32, device=device).reshape([-1 if other == dim else 1 for other in range(len(sizes))])
            for dim, size in enumerate(sizes)]


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod that leaves every score."""
    return full((), fill_value=True, dtype=_C.bool, device=batch.device)


def _joined(name: str, masks: tuple[Mask, ...], join: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    if not all(callable(mask) for mask in masks):
        raise RuntimeError(f"All inputs should be callable mask_mods: {masks}; {name} takes functions (batch, head, q, kv)")

    def mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
        first, *others = [one(batch, head, token_q, token_kv) for one in masks]
        for other in others:
            first = join(first, other)
        return first

    return mask


def and_masks(*mask_mods: Mask) -> Mask:
    """The mask_mod that leaves what all of them leave; everything, without any."""
    return _joined("and_masks", mask_mods, lambda a, b: a & b) if mask_mods else noop_mask


def or_masks(*mask_mods: Mask) -> Mask:
    """The mask_mod that leaves what any of them leaves; nothing, without any."""
    return _joined("or_masks", mask_mods or (lambda b, h, q, kv: zeros((), dtype=_C.bool, device=b.device),), lambda a, b: a | b)


def create_mask(mod_fn: Mask, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The bool tensor (B or 1, H or 1, Q_LEN, KV_LEN) of a mask_mod."""
    shape = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    mask = mod_fn(*indices(*shape, device=device))
    if mask.dtype != _C.bool:
        raise _C.ValueError(f"create_mask: mod_fn gives {mask.dtype}; a mask_mod must give bool")
    return mask.expand(shape)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many of each row of `blocks` (B, H, rows, columns) are true, and the columns with those first; int32."""
    return blocks.sum(-1).to(_C.int32), blocks.to(_C.int32).argsort(dim=-1, descending=True, stable=True).to(_C.int32)


def _unlisted(counts: Tensor, columns: Tensor, width: int) -> Tensor:
    """The inverse of _listed: bool (B, H, rows, width)."""
    taken = arange(columns.shape[-1], device=columns.device) < counts.unsqueeze(-1)
    found = zeros(*columns.shape[:-1], width + 1, dtype=_C.bool, device=columns.device)
    return found.scatter(-1, columns.to(_C.int64).where(taken, width), taken)[..., :width]


class BlockMask:
    """A mask_mod, and which blocks of BLOCK_SIZE (queries, keys) of the scores it leaves in part (`kv_*`, `q_*`) or whole (`full_*`).

    Each kind of block is listed by rows: `kv_num_blocks` (B, H, rows) of them, in the columns that `kv_indices` (B, H, rows, columns)
    begins with; `q_num_blocks` and `q_indices` list them by columns.
    """

    def __init__(self, seq_lengths: tuple[int, int], partial: Tensor, whole: Tensor | None, block_size: tuple[int, int],
                 mask_mod: Mask, by_mask: bool) -> None:
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, block_size, mask_mod
        self._partial, self._whole, self._by_mask = partial, whole, by_mask  # by_mask: the blocks say nothing more than mask_mod
        self.kv_num_blocks, self.kv_indices = _listed(partial)
        self.q_num_blocks, self.q_indices = _listed(partial.transpose(-1, -2))
        self.full_kv_num_blocks, self.full_kv_indices = (None, None) if whole is None else _listed(whole)
        self.full_q_num_blocks, self.full_q_indices = (None, None) if whole is None else _listed(whole.transpose(-1, -2))

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
                       full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = BLOCK, mask_mod: Mask | None = None,
                       seq_lengths: tuple[int, int] | None = None, compute_q_blocks: bool = True) -> BlockMask:
        """The mask of blocks that are listed by rows. seq_lengths: (queries, keys), whole blocks by default."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        rows, columns = kv_indices.shape[-2], kv_indices.shape[-1]
        partial = _unlisted(kv_num_blocks, kv_indices, columns)
        whole = None if full_kv_num_blocks is None else _unlisted(full_kv_num_blocks, full_kv_indices, columns)  # type: ignore[arg-type]
        return cls(seq_lengths or (rows * size[0], columns * size[1]), partial, whole, size, mask_mod or noop_mask, False)

    def _blocks(self) -> Tensor:
        return self._partial if self._whole is None else self._partial | self._whole

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)"""
        return (*self._partial.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many scores there are."""
        total = 1
        for size in self.shape:
            total *= size
        return total

    def sparsity(self) -> float:
        """The per cent of scores in blocks that are left out; below 0 where blocks reach far beyond the scores."""
        return 100 * (1 - int(self._blocks().sum()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """1 for each block in which something is left, (B, H, rows, columns), int32."""
        return self._blocks().to(_C.int32)

    def allowed(self, batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
        """What is left of scores with these indices, bool: a whole block, and what mask_mod leaves of one in part."""
        mask = self.mask_mod(batch, head, token_q, token_kv)
        if self._by_mask:
            return mask

        def at(blocks: Tensor) -> Tensor:
            return blocks[batch % blocks.shape[0], head % blocks.shape[1], token_q // self.BLOCK_SIZE[0], token_kv // self.BLOCK_SIZE[1]]

        return at(self._partial) & mask if self._whole is None else at(self._whole) | at(self._partial) & mask

    def to(self, device: Any) -> BlockMask:
        """The same mask on a device."""
        return BlockMask(self.seq_lengths, self._partial.to(device), None if self._whole is None else self._whole.to(device),
                         self.BLOCK_SIZE, self.mask_mod, self._by_mask)

    def __getitem__(self, index: Any) -> BlockMask:
        """Some batches, heads and rows of blocks, as torch's: mask_mod stays, so it must be replaced where rows are left out."""
        parts = index if isinstance(index, tuple) else (index,)
        kept = tuple(slice(i, i + 1 or None) if isinstance(i, int) else i for i in parts)
        partial = self._partial[kept]
        whole = None if self._whole is None else self._whole[kept]
        queries = self.seq_lengths[0] if len(parts) < 3 else partial.shape[-2] * self.BLOCK_SIZE[0]
        return BlockMask((queries, self.seq_lengths[1]), partial, whole, self.BLOCK_SIZE, self.mask_mod, False)

    def to_string(self, grid_size: int | tuple[int, int] = 20, limit: int = 4) -> str:
        """A drawing of the blocks of the first `limit` batches and heads: a square for each block with something, at most grid_size."""
        rows, columns = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        lines, blocks = [], self.to_dense().flatten(0, -3)
        for number, one in enumerate(blocks[:limit].tolist()):
            shown = [line[:: max(1, -(-len(line) // columns))] for line in one[:: max(1, -(-len(one) // rows))]]
            lines += [f"({number // self.shape[1]}, {number % self.shape[1]})", *("".join("  " if not b else "██" for b in line) for line in shown)]
        return "\n".join(lines + ([f"... and {blocks.shape[0] - limit} more"] if blocks.shape[0] > limit else []))

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%,\n{self.to_string()}\n)"

    def __repr__(self) -> str:
        return (f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, BLOCK_SIZE={self.BLOCK_SIZE}, "
                f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)})")


def create_block_mask(mask_mod: Mask, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
                      BLOCK_SIZE: int | tuple[int, int] = BLOCK, _compile: bool = False, separate_full_blocks: bool = True,
                      compute_dq_write_order: bool = False, dq_kv_order: bool = True) -> BlockMask:
    """The BlockMask of a mask_mod(batch, head, q, kv). B, H: None where the mask is the same for all batches, or heads.

    _compile, and the orders of gradients, change nothing here.
    """
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = zeros(*mask.shape[:2], rows * size[0], columns * size[1], dtype=_C.int32, device=mask.device)
    padded[..., :Q_LEN, :KV_LEN] = mask.to(_C.int32)
    counts = padded.reshape(*mask.shape[:2], rows, size[0], columns, size[1]).sum((-3, -1))
    whole = counts == size[0] * size[1]
    blocks = (counts > 0) & ~whole if separate_full_blocks else counts > 0
    return BlockMask((Q_LEN, KV_LEN), blocks, whole if separate_full_blocks else None, size, mask_mod, True)
