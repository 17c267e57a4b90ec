"""Gradient clipping and flat views of parameters."""

from __future__ import annotations

from typing import Any

from sluice.nn.utils.clip_grad import (
    clip_grad_norm as clip_grad_norm,
    clip_grad_norm_ as clip_grad_norm_,
    clip_grad_value_ as clip_grad_value_,
    clip_grads_with_norm_ as clip_grads_with_norm_,
    get_total_norm as get_total_norm,
)
from sluice.nn.utils.convert_parameters import (
    parameters_to_vector as parameters_to_vector, vector_to_parameters as vector_to_parameters)


def __getattr__(name: str) -> Any:
    """Submodules and functions that need modules, which need this package."""
    import importlib

    places = {"rnn": None, "parametrize": None, "parametrizations": None, "prune": None, "stateless": None, "fusion": None,
              "weight_norm": "_weight_norm", "remove_weight_norm": "_weight_norm", "spectral_norm": "_spectral_norm",
              "remove_spectral_norm": "_spectral_norm", "skip_init": "init", "init": None, "fuse_conv_bn_eval": "fusion",
              "fuse_conv_bn_weights": "fusion", "fuse_linear_bn_eval": "fusion", "fuse_linear_bn_weights": "fusion",
              "memory_format": None, "convert_conv2d_weight_memory_format": "memory_format",
              "convert_conv3d_weight_memory_format": "memory_format"}
    if name not in places:
        from sluice._names.left_out import missing

        raise missing("sluice.nn.utils", name)
    place = places[name]
    module = importlib.import_module(f"sluice.nn.utils.{place or name}")
    return getattr(module, name) if place else module
