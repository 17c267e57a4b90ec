"""A batch norm folded into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice.nn.parameter import Parameter


def _folded(weight: Tensor, bias: Any, mean: Tensor, var: Tensor, eps: float, scale: Any, shift: Any, channel: int) -> Any:
    """Weight and bias of a layer that does what the layer and the norm do; channel: the weight's dim of output channels."""
    with no_grad():
        factor = (var + eps).rsqrt() if scale is None else scale * (var + eps).rsqrt()
        shape = [-1 if d == channel else 1 for d in range(weight.dim())]
        shifted = (-mean if bias is None else bias - mean) * factor
        shifted = shifted if shift is None else shifted + shift
        folded = (weight * factor.reshape(shape)).to(weight.dtype)
    grads = weight.requires_grad, weight.requires_grad if bias is None else bias.requires_grad
    return Parameter(folded, grads[0]), Parameter(shifted.to(weight.dtype if bias is None else bias.dtype), grads[1])


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Any, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Any, bn_b: Any,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the convolution with the norm in it; transpose: of a transposed one."""
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Any, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor,
                           bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """(weight, bias) of the linear layer with the norm in it."""
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fused(layer: Any, bn: Any, fold: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = fold(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does in eval mode what `conv` and then `bn` do."""
    return _fused(conv, bn, lambda *args: fuse_conv_bn_weights(*args, transpose=transpose))


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does in eval mode what `linear` and then `bn` do."""
    if not linear.training and not bn.training and bn.num_features not in (1, linear.out_features):
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
                             f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}")
    return _fused(linear, bn, fuse_linear_bn_weights)
