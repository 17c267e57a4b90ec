"""transformers' model types, each from its own config made small: two layers, few heads, small images."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import warnings
from typing import Any, Iterator

import numpy as np
import torch

import sluice as sl
from ecosystem.beside import modules, on_path
from ecosystem.compare import Excluded, at_most, check, on, state_of, text_of

LAYERS = """num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers depth
    num_attention_layers encoder_num_hidden_layers decoder_num_hidden_layers num_hidden_groups prediction_layers""".split()
# Sizes that attributes of a config are given, where it has them; sizes of heads are the quotients.
SIZES = {
    32: """hidden_size d_model n_embd dim embed_dim embedding_size encoder_hidden_size decoder_hidden_size hidden_dim d_embed emb_dim
        projection_dim cross_attention_hidden_size out_hidden_size""",
    4: """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads encoder_num_attention_heads
        decoder_num_attention_heads num_experts n_routed_experts num_local_experts moe_num_experts rotary_dim""",
    2: """num_key_value_heads num_experts_per_tok num_kv_heads top_k_experts moe_topk""",
    64: """intermediate_size d_ff ffn_dim n_inner encoder_ffn_dim decoder_ffn_dim dim_feedforward mlp_dim ffn_hidden_size
        encoder_intermediate_size decoder_intermediate_size max_position_embeddings n_positions max_source_positions
        max_target_positions n_ctx""",
    16: "moe_intermediate_size shared_expert_intermediate_size q_lora_rank kv_lora_rank",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim attention_head_dim d_head kv_channels",
    99: "vocab_size vocab_size_per_layer_input",
}
TYPES = 622  # of the pinned version
IMAGE, LARGEST, LENGTH = 64, 60_000_000, 7  # pixels, parameters, tokens


def _of(config: Any, name: str) -> Any:
    """An attribute; None where the config has none, or one for each layer."""
    try:
        return getattr(config, name, None)
    except Exception:  # of a class of transformers' own
        return None


def small(config: Any, level: int) -> Any:
    """The config with smaller sizes; each level leaves more as it is."""
    for child in vars(config).values():
        if hasattr(child, "model_type"):
            small(child, level)
    stages = isinstance(_of(config, "depths"), (list, tuple))  # their sizes belong together; one layer each
    before = {name: getattr(config, name) for name in LAYERS if type(_of(config, name)) is int and not stages}
    for name, value in before.items():
        with contextlib.suppress(Exception):  # some derive it
            setattr(config, name, min(2, value))
    for name, value in list(vars(config).items()):
        if isinstance(value, (list, tuple)) and len(value) > 2 and len(value) in before.values():
            kinds = list(dict.fromkeys(value)) if all(isinstance(v, str) for v in value) else list(value)
            setattr(config, name, (kinds + [value[-1]])[:2])
        if name == "depths":
            setattr(config, name, type(value)(1 for _ in value))
    sizes = {0: SIZES, 1: {size: names for size, names in SIZES.items() if size != 8}, 2: {99: SIZES[99]}}[2 if stages else level]
    for size, names in sizes.items():
        for name in names.split():
            if type(_of(config, name)) is int:
                with contextlib.suppress(Exception):
                    setattr(config, name, int(size))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        if isinstance(_of(config, name), (int, list)):
            setattr(config, name, {"pad_token_id": 0}.get(name, 1))
    for rope in (_of(config, "rope_parameters"), _of(config, "rope_scaling")):
        if isinstance(rope, dict) and "mrope_section" in rope and level == 0:
            rope["mrope_section"] = [1, 1, 2]
    if level < 2 and type(_of(config, "image_size")) is int:
        config.image_size = IMAGE
        if type(_of(config, "patch_size")) is int:
            config.patch_size = 16
    return config


def _first(config: Any, names: str, default: Any) -> Any:
    """The first of these attributes that the config, or a part of it, has."""
    parts = [config, *(child for child in vars(config).values() if hasattr(child, "model_type"))]
    for name in names.split():
        for part in parts:
            if _of(part, name) is not None:
                return getattr(part, name)
    return default


def inputs(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs that may suit, of those that the model names; the likeliest first."""
    config, draw = model.config, np.random.default_rng(3)
    words, channels = _first(config, "vocab_size", 99), _first(config, "num_channels in_channels in_chans", 3)
    size, bands = _first(config, "image_size", IMAGE), _first(config, "num_mel_bins feature_size num_mel_bins input_dim", 80)
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2] if isinstance(size, (list, tuple)) else (IMAGE, IMAGE)

    def normal(*shape: int) -> Any:
        return draw.normal(size=shape).astype(np.float32)

    ids, more = (draw.integers(5, max(words - 1, 6), size=(2, LENGTH)) for _ in range(2))
    images, frames = normal(2, channels, height, width), normal(1, _first(config, "num_frames frames_per_clip", 8), channels, height, width)
    width_of = _first(config, "hidden_size d_model n_embd", 32)
    asked = inspect.signature(model.forward).parameters
    fixed = {name: False for name in ("use_cache",) if name in asked}
    found = [{"input_ids": ids}, {"pixel_values": images}, {"input_ids": ids, "pixel_values": images},
             {"input_ids": ids, "decoder_input_ids": more}, {"pixel_values": images, "decoder_input_ids": more},
             {"input_values": normal(2, 4000)}, {"input_values": normal(2, 4000), "decoder_input_ids": more},
             {"input_values": normal(2, 1, 4000)}, {"input_values": normal(2, 1024, bands)},
             *({"input_features": features, **extra} for features in (normal(2, 64, bands), normal(2, bands, 128), normal(2, bands, 3000))
               for extra in ({}, {"decoder_input_ids": more})),
             {"pixel_values": frames}, {"pixel_values_videos": frames}, {"inputs_embeds": normal(2, LENGTH, width_of)},
             *({name: normal(16, channels * _first(config, "temporal_patch_size", 1) * _first(config, "patch_size", 14) ** 2),
                "grid_thw": np.array([[1, 4, 4]])} for name in ("hidden_states", "pixel_values")),
             {"past_values": normal(2, _first(config, "context_length", 32), _first(config, "num_input_channels", 1))}]
    named = [one for one in found if one.keys() <= asked.keys()]
    named.sort(key=lambda one: model.main_input_name not in one)
    for one in named:
        yield {**one, **fixed}


@functools.cache
def both() -> tuple[Any, Any]:
    modules("transformers.modeling_utils")  # which uses torch, so that there are two
    return modules("transformers")


@contextlib.contextmanager
def side(lib: Any) -> Iterator[None]:
    """Here its modules are those that are imported: it imports them when they are used."""
    with sl.mock_torch(lazy=True) if lib is both()[0] else contextlib.nullcontext(), on_path():
        yield


@functools.cache
def _names() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """By model type: the config, the model, and the model that goes on with text."""
    with on_path():
        auto = both()[1].models.auto
    return auto.configuration_auto.CONFIG_MAPPING_NAMES, auto.modeling_auto.MODEL_MAPPING_NAMES, auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


class Cases:
    """The model types, which are read when they are first asked for: that takes a while."""

    def __init__(self, only_texts: bool = False) -> None:
        self._only_texts = only_texts

    def __iter__(self) -> Iterator[str]:
        _, models, texts = _names()
        return iter(sorted(texts if self._only_texts else models))


def _class(lib: Any, kind: str) -> Any:
    _, models, texts = _names()
    name = texts.get(kind, models.get(kind))
    return getattr(lib, name if isinstance(name, str) else name[0])


def _model(lib: Any, kind: str, level: int) -> Any:
    with side(lib), contextlib.redirect_stderr(io.StringIO()):
        return _class(lib, kind)(small(getattr(lib, _names()[0][kind])(), level))


def _drawn(model: Any) -> Any:
    """Weights that all matter: a new model's are small, and some are zero."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(std=p[0].numel() ** -0.5)
            else:
                p.add_(torch.randn_like(p) * 0.1)
    return model


def chosen(kind: str) -> tuple[int, dict[str, Any]]:
    """The level and the inputs with which torch's model computes; Excluded where there are none."""
    why, theirs = "", both()[1]
    for level in (0, 1, 2):
        try:
            with torch.device("meta"):
                count = sum(p.numel() for p in _model(theirs, kind, level).parameters())
            if count > LARGEST:
                why = f"{count / 1e6:.0f} million parameters"
                continue
            model = _drawn(_model(theirs, kind, level)).eval()
        except Exception as error:  # of any kind: it is what is told
            why = text_of(error)
            continue
        for given in inputs(model):
            try:
                with torch.no_grad():
                    one, other = (model(**on(torch, given)) for _ in range(2))
            except Exception as error:
                why = text_of(error)
                continue
            if str(one) != str(other):
                raise Excluded("results are random")
            return level, given
    raise Excluded(f"torch's does not compute when it is small: {why}"[:200])


def run(kind: str, seconds: int = 240) -> dict[str, str]:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    level, given = chosen(kind)
    ours, theirs = both()
    return check(lambda: _model(ours, kind, level), lambda: _drawn(_model(theirs, kind, level)), (), given, seconds=seconds,
                 around=lambda: side(ours))


WAYS = {"greedy": {"do_sample": False}, "sampled": {"do_sample": True, "top_k": 1}, "beams": {"do_sample": False, "num_beams": 3},
        "without a cache": {"do_sample": False, "use_cache": False}}


def generate(kind: str, seconds: int = 240) -> dict[str, str]:
    """Texts that the model goes on with, in several ways, each step with the keys and values of those before."""
    torch.manual_seed(0)
    ours, theirs = both()
    level, _ = chosen(kind)
    there = _drawn(_model(theirs, kind, level)).eval()
    here = _model(ours, kind, level).eval()
    here.load_state_dict(state_of(there))
    ids, found = np.random.default_rng(3).integers(5, 90, size=(1, LENGTH)), {}
    for way, options in WAYS.items():
        options = {"max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0, **options}
        try:
            with side(theirs):
                expected = there.generate(torch.from_numpy(ids), **options).numpy()
        except Exception as error:
            raise Excluded(f"torch's does not generate: {text_of(error)}"[:200]) from error
        try:
            with at_most(seconds), side(ours):
                got = here.generate(sl.tensor(ids), **options).numpy()
            found[way] = "" if np.array_equal(got, expected) else f"{got.tolist()}; torch's is {expected.tolist()}"
        except Exception as error:  # of any kind: it is what is told
            found[way] = text_of(error)
    return found
