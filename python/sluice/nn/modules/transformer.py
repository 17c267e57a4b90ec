"""Encoders and decoders of attention: torch.nn.Transformer and its parts."""

from __future__ import annotations

import copy
import math
from typing import Any, Callable

from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import full
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn._attention import dtype_of, float_mask
from sluice.nn.modules.activation import GELU, ReLU
from sluice.nn.modules.attention import MultiheadAttention
from sluice.nn.modules.container import ModuleList
from sluice.nn.modules.dropout import Dropout
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module
from sluice.nn.modules.norm import LayerNorm

_Activation = Any  # "relu", "gelu" or a function of a tensor


def _activation_of(given: Any) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return getattr(F, given)


def _clones(layer: Module, n: int) -> ModuleList:
    if not isinstance(layer, Module):
        raise TypeError(f"Transformer: a layer is {type(layer).__name__}; must be a Module")
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


class _Layer(Module):
    """The common part of encoder and decoder layers: `attentions` blocks of attention, a feed-forward block, a norm for each."""

    def __init__(self, attentions: tuple, d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: Any,
                 layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, device: Any, dtype: Any) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        for name in attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **made))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        blocks = range(1, len(attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation_of(activation)

    def _residual(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Tensor:
        return self.dropout1(self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
                                            is_causal=is_causal)[0])

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward net, each with a residual and a norm; torch.nn.TransformerEncoderLayer."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: _Activation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                         norm_first, bias, device, dtype)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        padding = float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, dtype_of(src_mask), "src_mask")
        mask = float_mask(src_mask, "src_mask", src.dtype)
        x = self._residual(src, self.norm1, lambda x: self._sa_block(x, mask, padding, is_causal))
        return self._residual(x, self.norm2, self._ff_block)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward net; torch.nn.TransformerDecoderLayer."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: _Activation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__(("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                         batch_first, norm_first, bias, device, dtype)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        x = self._residual(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._residual(x, self.norm2, lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self._residual(x, self.norm3, self._ff_block)

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Tensor:
        return self.dropout2(self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                                                 is_causal=is_causal, need_weights=False)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """num_layers copies of a layer, and a norm; torch.nn.TransformerEncoder.

    As torch, positions that src_key_padding_mask leaves out are 0 before the norm where torch computes without them: in
    evaluation, without gradients, of a batch that comes first and whose padding is at the ends. enable_nested_tensor=False:
    they have values always; mask_check=False: wherever the padding is.
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        super().__init__()
        self.layers, self.num_layers, self.norm = _clones(encoder_layer, num_layers), num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = enable_nested_tensor and isinstance(encoder_layer, TransformerEncoderLayer) and (
            _can_leave_out(encoder_layer))

    def _padded(self, src: Tensor, mask: Any, padding: Any) -> Tensor | None:
        """Which positions of the output are 0."""
        if not self.use_nested_tensor or padding is None or mask is not None or src.dim() != 3 or self.layers[0].training:
            return None
        if _C.is_grad_enabled() and any(t.requires_grad for t in (src, *self.layers[0].parameters())):
            return None
        padded = padding != 0
        if self.mask_check:
            padded = padded & (padded[:, 1:] | ~padded[:, :-1]).all()
        return padded.unsqueeze(-1)

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        padding = float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype, dtype_of(mask), "mask")
        mask = float_mask(mask, "mask", src.dtype)
        padded = self._padded(src, mask, padding)
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=padding)
        if padded is not None:
            src = src.masked_fill(padded, 0.0)
        return src if self.norm is None else self.norm(src)


def _can_leave_out(layer: TransformerEncoderLayer) -> bool:
    """Whether torch has kernels for the layer that leave padding out."""
    attention, activation = layer.self_attn, layer.activation
    return (not layer.norm_first and attention.batch_first and attention.in_proj_bias is not None and attention.num_heads % 2 == 0
            and (activation in (F.relu, F.gelu) or isinstance(activation, (ReLU, GELU))) and layer.norm1.eps == layer.norm2.eps)


class TransformerDecoder(Module):
    """num_layers copies of a layer, and a norm; torch.nn.TransformerDecoder."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers, self.num_layers, self.norm = _clones(decoder_layer, num_layers), num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal),
                        memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder; torch.nn.Transformer.

    src: (S, N, d_model), tgt: (T, N, d_model); batch_first: N before them; or both without N. Gives what tgt has.
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: _Activation = F.relu, custom_encoder: Any = None,
                 custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()

        def made(layer, stack, n):
            one = layer(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device,
                        dtype)
            return stack(one, n, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype))

        self.encoder = made(TransformerEncoderLayer, TransformerEncoder, num_encoder_layers) if custom_encoder is None else custom_encoder
        self.decoder = made(TransformerDecoderLayer, TransformerDecoder, num_decoder_layers) if custom_decoder is None else custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        n = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(n) != tgt.size(n):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                            memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask: 0 up to the diagonal, -inf above it."""
        if dtype is None:
            dtype = _C.get_default_dtype()
        return full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
