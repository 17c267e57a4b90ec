"""Embeddings: tables of rows by index."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice._base.trace import running
from sluice._base.grad_mode import no_grad
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn._rows import lookup
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class _Table(Module):
    """A table (num_embeddings, embedding_dim), whose row padding_idx is zeros and stays so."""

    _may_be_sparse = False

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: Any, max_norm: Any, norm_type: float,
                 scale_grad_by_freq: bool, sparse: bool, weight: Any, freeze: bool, device: Any, dtype: Any) -> None:
        super().__init__()
        if sparse and not self._may_be_sparse:
            raise NotImplementedError(f"{self._get_name()}: sparse=True is not supported; use nn.Embedding(sparse=True), or sparse=False, "
                                      "whose gradient is a dense tensor")
        if sparse and scale_grad_by_freq:
            raise NotImplementedError(f"{self._get_name()}: scale_grad_by_freq=True with sparse=True; one must be False, since the gradient "
                                      "of a row is the sum of what comes to it")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        num_embeddings = int(num_embeddings)  # NumPy's may have no sign
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(f"Padding_idx must be within num_embeddings: got {padding_idx} of {num_embeddings}")
            padding_idx %= num_embeddings
        self.padding_idx, self.max_norm, self.norm_type = padding_idx, max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if weight is None:
            table = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not freeze)
            self.reset_parameters()
        else:
            if list(weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError(f"Shape of weight does not match num_embeddings and embedding_dim: got {list(weight.shape)}")
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _shared_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        return text + (f", scale_grad_by_freq={self.scale_grad_by_freq}" if self.scale_grad_by_freq else "")


class Embedding(_Table):
    """Rows of a (num_embeddings, embedding_dim) table by index.

    sparse: eagerly, weight.grad is a sparse tensor of the rows that were looked up, for SparseAdam, SGD and Adagrad.
    """

    _may_be_sparse = True

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: Any = None, max_norm: Any = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None,
                 _freeze: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
                         _freeze, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: Any = None, max_norm: Any = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        return cls(*embeddings.shape, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight=embeddings,
                   _freeze=freeze)

    def forward(self, input: Any) -> Tensor:
        if running.now.tables is not None and running.now.tables.has(self.weight):
            return running.now.tables.lookup(self, input)
        if self.sparse:
            if self.max_norm is not None:
                with no_grad():
                    F.embedding(input, self.weight, None, self.max_norm, self.norm_type)
            rows = lookup(self.weight, input, self.padding_idx)
            if rows is not None:
                return rows
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        shared = self._shared_repr().removeprefix(text)
        text += ("" if self.padding_idx is None else f", padding_idx={self.padding_idx}") + shared
        return text + ", sparse=True" if self.sparse else text


class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of rows of a table."""

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: Any = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Any = None,
                 include_last_offset: bool = False, padding_idx: Any = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
                         False, device, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, max_norm: Any = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                        include_last_offset: bool = False, padding_idx: Any = None) -> Any:
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        module = cls(*embeddings.shape, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
                     padding_idx)
        module.weight.requires_grad = not freeze
        return module

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
                               False, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self._shared_repr()}, mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
