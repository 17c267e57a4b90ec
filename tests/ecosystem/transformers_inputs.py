"""Inputs that may suit a model of transformers."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterator

import numpy as np

from ecosystem.transformers_configs import IMAGE, of

LENGTH = 7  # tokens


def first(config: Any, names: str, default: Any) -> Any:
    """The first of these attributes that the config, or a part of it, has."""
    parts = [config, *(child for child in vars(config).values() if hasattr(child, "model_type"))]
    for name in names.split():
        for part in parts:
            if of(part, name) is not None:
                return getattr(part, name)
    return default


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs that may suit, of those that the model names; the likeliest first."""
    config, draw = model.config, np.random.default_rng(3)
    words, channels = first(config, "vocab_size", 99), first(config, "num_channels in_channels in_chans", 3)
    size, bands = first(config, "image_size", IMAGE), first(config, "num_mel_bins feature_size num_mel_bins input_dim", 80)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2] if isinstance(size, (list, tuple)) else (IMAGE, IMAGE)

    def normal(*shape: int) -> Any:
        return draw.normal(size=shape).astype(np.float32)

    ids, more = (draw.integers(5, max(words - 1, 6), size=(2, LENGTH)) for _ in range(2))
    images, frames = normal(2, channels, height, width), normal(1, first(config, "num_frames frames_per_clip", 8), channels, height, width)
    patch = first(config, "patch_size", 14)
    patch = patch if isinstance(patch, int) else patch[0]
    width_of = first(config, "hidden_size d_model n_embd", 32)
    asked = inspect.signature(model.forward).parameters
    fixed = {name: False for name in ("use_cache",) if name in asked}
    more_of: dict[str, Callable[[], Any]] = {  # arguments that are asked for beside these, as far as they are known
        "attention_mask": lambda: np.ones((2, LENGTH), np.int64), "bbox": lambda: np.tile(np.array([1, 2, 8, 9]), (2, LENGTH, 1)),
        "position_ids": lambda: np.tile(np.arange(LENGTH), (2, 1)), "cache_position": lambda: np.arange(LENGTH),
        "pixel_mask": lambda: np.ones((2, height, width), np.int64), "freq": lambda: np.zeros((2, 1), np.int64),
        "decoder_input_ids": lambda: more, "input_ids": lambda: ids, "pixel_values": lambda: images,
        "prompt_pixel_values": lambda: images, "prompt_masks": lambda: images[::-1].copy(),
        "past_values_padding": lambda: np.zeros((2, first(config, "context_length", 32)), np.float32),
        "past_observed_mask": lambda: np.ones((2, first(config, "context_length", 32)), np.float32),
        "grid_thw": lambda: np.array([[1, 4, 4]]), "image_grid_thw": lambda: np.array([[1, 4, 4]]),
        "speech_ids": lambda: ids, "encoder_hidden_states": lambda: normal(2, LENGTH, width_of), "hidden_states": lambda: normal(2, LENGTH, width_of),
        "inputs_embeds": lambda: normal(2, LENGTH, width_of), "spatial_shapes": lambda: np.array([[height // 16, width // 16]] * 2),
        "padding_mask": lambda: np.zeros((2, LENGTH), bool), "timestep": lambda: np.array([1.0, 2.0], np.float32),
        "input_features": lambda: normal(2, bands, 128), "input_values": lambda: normal(2, 4000)}
    required = [name for name, p in asked.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    found = [{"input_ids": ids}, {"pixel_values": images}, {"input_ids": ids, "pixel_values": images},
             {"input_ids": ids, "decoder_input_ids": more}, {"pixel_values": images, "decoder_input_ids": more},
             {"input_values": normal(2, 4000)}, {"input_values": normal(2, 4000), "decoder_input_ids": more},
             {"input_values": normal(2, 1, 4000)}, {"input_values": normal(2, 1024, bands)},
             *({"input_features": features, **extra} for features in (normal(2, 64, bands), normal(2, bands, 128), normal(2, bands, 3000))
               for extra in ({}, {"decoder_input_ids": more})),
             {"pixel_values": frames}, {"pixel_values_videos": frames}, {"inputs_embeds": normal(2, LENGTH, width_of)},
             *({name: normal(16, channels * first(config, "temporal_patch_size", 1) * patch ** 2),
                "grid_thw": np.array([[1, 4, 4]])} for name in ("hidden_states", "pixel_values")),
             {"past_values": normal(2, first(config, "context_length", 32), first(config, "num_input_channels", 1))}]
    named = [one for one in found if one.keys() <= asked.keys()]
    main = model.main_input_name
    named.sort(key=lambda one: not one.keys() & ({main} if isinstance(main, str) else set(main)))
    others = {name: more_of[name]() for name in required if name in more_of}
    for one in [*named, *([] if named else [{}])]:
        yield {**others, **one, **fixed}
