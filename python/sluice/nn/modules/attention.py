"""Attention of several heads as a layer."""

from __future__ import annotations

from typing import Any

from sluice._C import Tensor
from sluice._tensor.creation import empty
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear; torch's name of the output projection's class."""


class MultiheadAttention(Module):
    """Attention of num_heads heads; torch.nn.MultiheadAttention.

    kdim, vdim: widths of keys and values, embed_dim by default; add_bias_kv: learned rows are appended to both;
    add_zero_attn: rows of zeros, too.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: Any = None, vdim: Any = None, batch_first: bool = False, device: Any = None,
                 dtype: Any = None) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                             "instead")
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def made(*shape):
            return Parameter(empty(shape, device=device, dtype=dtype))

        same = self._qkv_same_embed_dim
        for name, width in (("q_proj_weight", embed_dim), ("k_proj_weight", self.kdim), ("v_proj_weight", self.vdim)):
            self.register_parameter(name, None if same else made(embed_dim, width))
        self.register_parameter("in_proj_weight", made(3 * embed_dim, embed_dim) if same else None)
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, made(1, 1, embed_dim) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        weights = [self.in_proj_weight] if self._qkv_same_embed_dim else [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        for weight in weights:
            init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None); see functional.multi_head_attention_forward. batch_first: N comes before L and S."""
        swapped = self.batch_first and query.dim() == 3 and key.dim() == 3 and value.dim() == 3
        if swapped:  # what was one tensor stays one
            known: dict[int, Tensor] = {}
            query, key, value = (known.setdefault(id(x), x.transpose(0, 1)) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights,
            attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal)
        return output.transpose(0, 1) if swapped else output, weights

    def merge_masks(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                    query: Tensor) -> tuple[Tensor | None, int | None]:
        """One mask of both, and its kind: None, 1 (key_padding_mask alone, as it is) or 2 (batch, num_heads, L, L)."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length = query.shape[:2]
        shape = (batch, -1, length, length) if attn_mask.dim() == 3 else (1, 1, length, length)
        merged = attn_mask.reshape(shape).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.reshape(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2
