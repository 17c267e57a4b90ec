"""Softmax over many classes, of which few are frequent."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from sluice._C import fn, Tensor
from sluice.nn import functional as F
from sluice.nn.modules.container import ModuleList, Sequential
from sluice.nn.modules.linear import Linear
from sluice.nn.modules.module import Module

_Result = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Frequent classes, below cutoffs[0], have logits of their own; those of each cluster after them share one and have
    logits of a projection within it. Returns (output, loss): log-probabilities of the targets, and minus their mean.

    Grave et al., 2017: Efficient softmax approximation for GPUs.
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Any, div_value: float = 4.0, head_bias: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        whole = all(int(c) == c and 0 < c < n_classes for c in cutoffs)
        if not whole or cutoffs != sorted(set(cutoffs)):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where "
                             "each value is between 1 and n_classes-1")
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            inner = int(in_features // div_value ** (i + 1))
            pair = Linear(in_features, inner, bias=False, **made), Linear(inner, high - low, bias=False, **made)
            self.tail.append(Sequential(*pair))

    def reset_parameters(self) -> None:
        for layer in (self.head, *(layer for pair in self.tail for layer in pair)):
            layer.reset_parameters()

    def forward(self, input_: Any, target_: Any) -> Any:
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input_.dim() != target_.dim() + 1:
            raise RuntimeError(f"{target_.dim()}D target tensor expects {target_.dim() + 1}D input tensors, but found inputs "
                               f"with size {tuple(input_.shape)}")
        if target_.dim() == 1 and input_.shape[0] != target_.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if not target_._traced and target_.numel() and not bool(((target_ >= 0) & (target_ < self.n_classes)).all()):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{int(target_.min())}, {int(target_.max())}] were found. ")
        input, target = (input_, target_) if target_.dim() else (input_.unsqueeze(0), target_.unsqueeze(0))
        slot, within = target, 0.0
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            mine = (target >= low) & (target < high)
            slot = fn.where(mine, self.shortlist_size + i, slot)
            at = fn.where(mine, target - low, 0).unsqueeze(1)
            chosen = F.log_softmax(self.tail[i](input), 1).gather(1, at).squeeze(1)
            within = within + fn.where(mine, chosen, 0.0)
        output = F.log_softmax(self.head(input), 1).gather(1, slot.unsqueeze(1)).squeeze(1) + within
        return _Result(output if target_.dim() else output.squeeze(0), (-output).mean())

    def log_prob(self, input: Any) -> Tensor:
        """Log-probabilities of all classes, (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, :self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return fn.cat(parts, 1)

    def predict(self, input: Any) -> Tensor:
        """The most probable class of each row."""
        return self.log_prob(input).argmax(1)
