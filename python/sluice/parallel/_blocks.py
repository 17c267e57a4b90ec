"""Blocks of experts of transformers' models as parallel.MoE. Theirs look at values to find out which tokens an expert has, which a graph
cannot; the numbers are the same."""

from __future__ import annotations

from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.grad_mode import no_grad
from sluice.nn.modules.module import Module
from sluice.parallel._experts import MoE
from sluice.parallel._plan import EXPERTS, _pattern, _plan_of

#: The classes of blocks that are known, and the names of an expert's layers: to the wide middle, back, and the factor.
_BLOCKS = {"MixtralSparseMoeBlock": ("w1", "w2", "w3"), "Qwen3MoeSparseMoeBlock": ("gate_proj", "down_proj", "up_proj"),
           "OlmoeSparseMoeBlock": ("gate_proj", "down_proj", "up_proj")}
_ACTIVATIONS = {"SiLU": "silu", "SiLUActivation": "silu", "GELUActivation": "gelu", "GELU": "gelu", "ReLU": "relu"}


class Block(MoE):
    """A MoE that gives what a block of transformers gives: the result, and the logits of the router (tokens, experts)."""

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        y, _ = super().forward(hidden_states)
        return y, self.gate(hidden_states.reshape(-1, self.hidden_size))


def _made_of(name: str, block: Any, capacity_factor: float | None) -> Block:
    act = type(block.experts[0].act_fn).__name__
    if act not in _ACTIVATIONS:
        raise _C.ValueError(f"convert_experts: '{name}' has the activation {act}; must be one of {', '.join(sorted(_ACTIVATIONS))}")
    if getattr(block, "jitter_noise", 0) > 0:
        raise _C.ValueError(f"convert_experts: '{name}' has jitter_noise {block.jitter_noise}; must be 0")
    up, down, factor = _BLOCKS[type(block).__name__]
    first = getattr(block.experts[0], up).weight
    made = Block(first._shape[1], first._shape[0], len(block.experts), block.top_k, capacity_factor=capacity_factor, gated=True,
                 activation=_ACTIVATIONS[act], normalize=getattr(block, "norm_topk_prob", True), dtype=first.dtype)
    with no_grad():
        made.gate.weight.copy_(block.gate.weight)
        for own, theirs in ((made.w1, up), (made.w2, down), (made.w3, factor)):
            for i, expert in enumerate(block.experts):
                own[i].copy_(getattr(expert, theirs).weight)
    return made.train(block.training)


def convert_experts(model: Module, capacity_factor: float | None = None) -> list[str]:
    """Makes each block of experts of a transformers model (Mixtral, Qwen3-MoE, OLMoE) a parallel.MoE in place, with the same weights, and
    returns their names. The plan that the model carries then says "experts" of them. Their parameters have other names: save and load
    states before, or convert both.

    capacity_factor: as of MoE; None drops no token, as the blocks of transformers do. Raises ValueError, before anything is changed,
    for a model without such blocks, and for blocks of other kinds.
    """
    blocks = {name: block for name, block in model.named_modules() if name and hasattr(block, "gate") and hasattr(block, "experts")}
    unknown = sorted({type(block).__name__ for block in blocks.values()} - set(_BLOCKS))
    if unknown or not blocks:
        raise _C.ValueError(f"convert_experts: the model has {', '.join(unknown) or 'no blocks of experts'}; must have blocks of "
                            f"{', '.join(_BLOCKS)}")
    made = {name: _made_of(name, block, capacity_factor) for name, block in blocks.items()}
    inside = {f"{name}.{own}" for name, block in blocks.items() for own, _ in block.named_modules() if own}
    stay = [name for name, _ in model.named_modules() if name not in inside]
    plan = {key: word for key, word in _plan_of(model).items() if any(_pattern(key).fullmatch(name) for name in stay)}
    for name, block in made.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, block)
    if plan:
        model._tp_plan = {**plan, **dict.fromkeys(made, EXPERTS)}
    return list(made)
