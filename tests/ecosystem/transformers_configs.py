"""Configs of transformers made small: two layers, few heads, small images."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

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
    10: "num_queries",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim attention_head_dim d_head kv_channels",
    99: "vocab_size vocab_size_per_layer_input",
}
IMAGE = 64  # pixels
Change = tuple[tuple[str, ...], str, int]  # the part of a config, by the names that lead there, an attribute, and its value


def of(config: Any, name: str) -> Any:
    """An attribute; None where the config has none, or one for each layer."""
    try:
        return getattr(config, name, None)
    except Exception:  # of a class of transformers' own
        return None


def without_cache(config: Any) -> None:
    """Keys and values of earlier tokens are no result."""
    if type(of(config, "use_cache")) is bool:
        with contextlib.suppress(Exception):
            config.use_cache = False


def small(config: Any, level: int) -> Any:
    """The config with smaller sizes; each level leaves more as it is."""
    for child in vars(config).values():
        if hasattr(child, "model_type"):
            small(child, level)
    without_cache(config)
    stages = isinstance(of(config, "depths"), (list, tuple))  # their sizes belong together; one layer each
    before = {name: getattr(config, name) for name in LAYERS if type(of(config, name)) is int and not stages}
    for name, value in before.items():
        with contextlib.suppress(Exception):  # some derive it
            setattr(config, name, min(2, value))
    for name, value in list(vars(config).items()):
        if isinstance(value, (list, tuple)) and len(value) > 2 and len(value) in before.values():
            kinds = list(dict.fromkeys(value)) if all(isinstance(v, str) for v in value) else list(value)
            setattr(config, name, (kinds + [value[-1]])[:2])
        if name == "depths" and isinstance(value, (list, tuple)):
            setattr(config, name, type(value)(1 for _ in value))
    sizes = {0: SIZES, 1: {size: names for size, names in SIZES.items() if size != 8}, 2: {99: SIZES[99]}}[2 if stages else level]
    for size, names in sizes.items():
        for name in names.split():
            if type(of(config, name)) is int:
                with contextlib.suppress(Exception):
                    setattr(config, name, int(size))
    if level < 2 and type(of(config, "kv_lora_rank")) is int and not stages:  # all heads share what is of low rank
        with contextlib.suppress(Exception):
            config.num_key_value_heads = config.num_attention_heads
    for name, value in (("num_experts_per_tok", 2), ("num_key_value_heads", of(config, "num_attention_heads"))):
        if value and hasattr(config, name) and of(config, name) is None and level < 2:
            with contextlib.suppress(Exception):
                setattr(config, name, value)
    if level == 0 and all(type(of(config, name)) is int for name in ("expand", "num_heads", "head_dim", "hidden_size")):
        config.num_heads = config.expand * config.hidden_size // config.head_dim
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        if isinstance(of(config, name), (int, list)):
            setattr(config, name, {"pad_token_id": 0}.get(name, 1))
    for rope in (of(config, "rope_parameters"), of(config, "rope_scaling")):
        if isinstance(rope, dict) and level == 0:  # also where it is not said: models have a default that is of their heads' size
            rope["mrope_section"] = [1, 1, 2]
    if level < 2 and type(of(config, "image_size")) is int:
        config.image_size = IMAGE
        if type(of(config, "patch_size")) is int:
            config.patch_size = 16
    return config


def parts(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The config and the configs within it."""
    yield path, config
    for name, child in vars(config).items():
        if hasattr(child, "model_type"):
            yield from parts(child, (*path, name))


def changed(config: Any, changes: list[Change]) -> Any:
    by_path = dict(parts(config))
    for path, name, value in changes:
        with contextlib.suppress(Exception):  # some derive it
            setattr(by_path[path], name, value)
    return config


def smaller(config: Any, parameters: list[Any]) -> list[Change]:
    """What makes the largest of these parameters smaller: attributes that are one of its dims, wherever the config has that number."""
    for p in sorted(parameters, key=lambda p: -p.numel())[:20]:
        for dim in sorted(p.shape, reverse=True):
            if dim <= 64:
                break
            found = [(path, name, 64 if dim <= 1024 else 128 if dim <= 8192 else 256) for path, part in parts(config)
                     for name, value in vars(part).items() if type(value) is int and value == dim and not name.endswith("_id")]
            if found:
                return found
    return []
