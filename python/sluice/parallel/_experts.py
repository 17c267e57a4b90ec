"""Layers of experts, of which a router chooses a few for each token, with the experts on the devices of an axis or on the ranks of a job.

A token is a line of a group, and each expert has the same number of places in every group. So the tokens on their way to the experts
are a block (groups, experts, places, hidden): its first dim lies along the axis before the experts and after them, and its second dim
while they compute. The conversions between the two are the all_to_all of expert parallelism.
"""

from __future__ import annotations

import math
from typing import Any

from sluice import _C, sbp as _sbp
from sluice._C import Tensor, fn
from sluice._tensor.creation import arange, empty, zeros, zeros_like
from sluice._tensor.global_tensors import place, placement
from sluice.nn import functional as F
from sluice.nn import init
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module
from sluice.nn.parameter import Parameter
from sluice.parallel._between_ranks import Ranks
from sluice.sbp import broadcast, split

_ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


class MoE(Module):
    """A mixture of experts: each token goes to `top_k` of them, and the result is the sum of what they make of it, by the router's
    weights (Shazeer et al. 2017; Lepikhin et al. 2020; Fedus et al. 2021). An expert is w2 @ act(w1 @ x), and with `gated`
    w2 @ (act(w1 @ x) * (w3 @ x)); the parameters of all experts are blocks (experts, out, in).

    Takes x (groups, tokens, hidden_size), or (tokens, hidden_size) as one group; a batch of sequences is such a block. Returns (y, loss):
    y has the shape of x, and loss is experts * sum(f * p), averaged over groups, where f is the share of choices of an expert and p the
    mean of its probabilities. It is 1 where all are used alike; add a small multiple of it to the loss of the model.

    capacity_factor: an expert has ceil(top_k * tokens * capacity_factor / num_experts) places in each group. First choices take their
    places before second ones, and each in the order of tokens. A choice that finds no place counts as nothing; if none of a token's
    choices finds one, its y is 0. None: there are as many places as tokens, so that every choice finds one.
    normalize: the weights of a token's choices add up to 1; by default where top_k is above 1.

    mesh, axis: the experts lie along this axis of a mesh, and so do the groups, which also lie along the axis `dp` if the mesh has it; for
    use inside nn.Graph. ep_size: in eager code, the number of ranks, of which each has its share of the experts and calls the layer
    with groups of its own. Gradients of experts are then the averages over ranks, as those that DistributedDataParallel makes of all
    other parameters; it leaves parameters alone whose `allreduce` is False, as those of experts.
    """

    def __init__(self, hidden_size: int, intermediate_size: int, num_experts: int, top_k: int = 2, *, capacity_factor: float | None = None,
                 gated: bool = False, activation: str = "gelu", normalize: bool | None = None, mesh: placement | None = None,
                 axis: str = "ep", dp: str = "dp", ep_size: int = 1, dtype: Any = None) -> None:
        super().__init__()
        for name, value in (("hidden_size", hidden_size), ("intermediate_size", intermediate_size), ("num_experts", num_experts)):
            if value < 1:
                raise ValueError(f"MoE: {name} is {value}; must be at least 1")
        if not 1 <= top_k <= num_experts:
            raise ValueError(f"MoE: top_k is {top_k}; must be from 1 to num_experts, which is {num_experts}")
        if capacity_factor is not None and not 0 < capacity_factor < math.inf:
            raise ValueError(f"MoE: capacity_factor is {capacity_factor}; must be above 0, or None for as many places as tokens")
        if activation not in _ACTIVATIONS:
            raise ValueError(f"MoE: activation is {activation!r}; must be one of {', '.join(_ACTIVATIONS)}")
        if mesh is not None and ep_size != 1:
            raise ValueError(f"MoE: mesh and ep_size={ep_size} are given; must be one: a mesh in nn.Graph, ep_size in eager code")
        self.hidden_size, self.intermediate_size, self.num_experts, self.top_k = hidden_size, intermediate_size, num_experts, top_k
        self.capacity_factor, self.gated, self.activation = capacity_factor, gated, activation
        self.normalize = top_k > 1 if normalize is None else normalize
        self.__dict__.update(mesh=None, axis=axis, dp=dp, ranks=Ranks.of(ep_size, num_experts))
        self.gate = Linear(hidden_size, num_experts, bias=False, dtype=dtype)
        self.w1 = self._made(intermediate_size, hidden_size, dtype)
        self.w2 = self._made(hidden_size, intermediate_size, dtype)
        self.w3 = self._made(intermediate_size, hidden_size, dtype) if gated else None
        if mesh is not None:
            self.check_along("MoE", mesh, axis)
            self._lay(mesh, axis, dp)

    def _made(self, out: int, into: int, dtype: Any) -> Parameter:
        """The weights of this process's experts. All are drawn, so that they do not depend on the number of ranks."""
        weights = init.uniform_(empty(self.num_experts, out, into, dtype=dtype), -1 / math.sqrt(into), 1 / math.sqrt(into))
        if self.ranks is None:
            return Parameter(weights)
        own = Parameter(self.ranks.own(weights))
        own.allreduce = False
        return own

    def check_along(self, where: str, mesh: placement, axis: str) -> None:
        """Whether the experts can lie along an axis."""
        if self.num_experts < mesh.size(axis):
            raise ValueError(f"{where}: {self.num_experts} experts for the {mesh.size(axis)} devices of axis {axis!r}; each must get one")

    def along(self, mesh: placement, axis: str, dp: str) -> None:
        """The experts lie along an axis from now on; their parameters are laid so by who calls this."""
        self.__dict__.update(mesh=mesh, axis=axis, dp=dp)

    def _lay(self, mesh: placement, axis: str, dp: str) -> None:
        self.along(mesh, axis, dp)
        for p, way in ((self.gate.weight, broadcast), *((w, {axis: split(0)}) for w in (self.w1, self.w2, self.w3) if w is not None)):
            p.data = place(p.data, mesh, _sbp.each(way, mesh.names, mesh))

    def capacity(self, tokens: int) -> int:
        """The places that an expert has for a group of so many tokens."""
        if self.capacity_factor is None:
            return tokens
        return min(tokens, math.ceil(self.top_k * tokens * self.capacity_factor / self.num_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.ranks is not None:
            if _C.is_tracing():
                raise NotImplementedError("MoE: ep_size is for eager code; inside nn.Graph give a mesh, or use parallelize() with 'experts'")
            self.ranks.check(x, self.extra_repr())
        if x.ndim not in (2, 3) or x._shape[-1] != self.hidden_size:
            raise ValueError(f"MoE: x is {tuple(x._shape)}; must be (groups, tokens, {self.hidden_size}), or (tokens, {self.hidden_size})")
        lines = x if x.ndim == 3 else x.unsqueeze(0)
        groups, tokens = lines._shape[:2]
        if self.mesh is not None:
            n = math.prod(self.mesh.size(axis) for axis in {self.axis, self.dp} if axis in self.mesh.names)
            if groups < n:
                raise ValueError(f"MoE: x is {tuple(x._shape)}, of {groups} groups for {n} devices of {self.mesh}; each must get one")
            lines = self._laid(lines, 0, 0)
        if not groups * tokens:
            raise ValueError(f"MoE: x is {tuple(x._shape)}; must have tokens")
        weights, slots, source, loss = self._routed(lines)
        places = self.capacity(tokens)
        sent = _taken(lines, source - 1)
        sent = fn.where((source > 0).unsqueeze(2), sent, zeros_like(sent)).reshape(groups, self.num_experts, places, -1)
        made = self._exchanged(sent).reshape(groups, self.num_experts * places, -1)
        found = _taken(made, slots) * weights.unsqueeze(2).to(x.dtype)
        kept = (slots < self.num_experts * places).unsqueeze(2)
        parts = fn.where(kept, found, zeros_like(found)).reshape(groups, self.top_k, tokens, -1).unbind(1)
        return sum(parts[1:], parts[0]).reshape(*x._shape), loss

    def _routed(self, lines: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Decides on the choices (groups, top_k * tokens), first ones first. Gives their weights, and their slots, which are places of
        experts, or the one behind the last; for each slot the token that it has, counted from 1, or 0; and the loss."""
        groups, tokens, experts, k = *lines._shape[:2], self.num_experts, self.top_k
        places = self.capacity(tokens)
        shares = self.gate(lines).float().softmax(-1)
        weights, chosen = shares.topk(k, -1)
        if self.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        chosen = chosen.transpose(1, 2).reshape(groups, k * tokens)
        picked = (chosen.unsqueeze(2) == arange(experts)).long()
        place_ = (picked.cumsum(1) * picked).sum(2) - 1
        end = zeros_like(chosen) + experts * places
        slots = fn.where(place_ < places, chosen * places + place_, end)
        numbers = (arange(k * tokens) % tokens + 1).unsqueeze(0).expand(groups, k * tokens)
        source = fn.scatter(zeros(groups, experts * places + 1, dtype=_C.int64), 1, slots, numbers).narrow(1, 0, experts * places)
        loss = (picked.float().mean(1) * shares.mean(1)).sum(1) * experts
        if self.mesh is not None:  # added up in the order of groups, wherever they are
            loss = loss.to_global(self.mesh, broadcast if len(self.mesh.shape) == 1 else (broadcast,) * len(self.mesh.shape))
        return weights.transpose(1, 2).reshape(groups, k * tokens), slots, source, loss.mean()

    def _laid(self, block: Tensor, dim: int, back: int) -> Tensor:
        """The block with dim 0 along `dp`, and `dim` along the axis of the experts; and its gradient with `back` along that."""
        ways = [{**({self.dp: split(0)} if self.dp in self.mesh.names else {}), self.axis: split(d)} for d in (dim, back)]
        return block.to_global(self.mesh, ways[0], grad_sbp=ways[1] if _C.touches_graph(block) else None)

    def _exchanged(self, sent: Tensor) -> Tensor:
        """Sends a block (groups, experts, places, hidden) through the experts, on their devices."""
        if self.mesh is not None:
            return self._laid(self._experts(self._laid(sent, 1, 0)), 0, 1)
        return self._experts(sent) if self.ranks is None else self.ranks.exchanged(sent, self._experts)

    def _experts(self, block: Tensor) -> Tensor:
        groups, experts, places, hidden = block._shape
        x, act = block.transpose(0, 1).reshape(experts, groups * places, hidden), _ACTIVATIONS[self.activation]
        w1, w2, w3 = (w if w is None or self.ranks is None else self.ranks.averaged(w) for w in (self.w1, self.w2, self.w3))
        h = act(x @ w1.transpose(1, 2))
        h = h if w3 is None else h * (x @ w3.transpose(1, 2))
        return (h @ w2.transpose(1, 2)).reshape(experts, groups, places, hidden).transpose(0, 1)

    def extra_repr(self) -> str:
        return (f"hidden_size={self.hidden_size}, intermediate_size={self.intermediate_size}, num_experts={self.num_experts}, "
                f"top_k={self.top_k}, capacity_factor={self.capacity_factor}, gated={self.gated}, activation={self.activation!r}")


def _taken(lines: Tensor, index: Tensor) -> Tensor:
    """Takes the lines of these numbers out of each group (lines, width); a number that no line has gives any line."""
    groups, count, width = lines._shape
    return fn.gather(lines, 1, index.clamp(0, count - 1).unsqueeze(2).expand(groups, index._shape[1], width))
