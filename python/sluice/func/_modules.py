"""Modules as functions of their parameters: torch.func.stack_module_state, replace_all_batch_norm_modules_."""

from __future__ import annotations

from typing import Any, Sequence

from sluice._C import fn, Tensor


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of several modules of one kind, stacked: for vmap over functional_call."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1 or len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class and to have the same training/eval mode.")

    def stacked(kind: str) -> dict[str, Tensor]:
        columns = [dict(getattr(m, kind)()) for m in models]
        found = {}
        for name in columns[0]:
            column = [c[name] for c in columns]
            if len({t.requires_grad for t in column}) > 1:
                raise RuntimeError(f"stack_module_state: Expected {name} from each model to have the same .requires_grad")
            found[name] = fn.stack([t.detach() for t in column]).requires_grad_(column[0].requires_grad)
        return found

    return stacked("named_parameters"), stacked("named_buffers")


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Takes their running statistics from the batch norms of a module, so that nothing is written in vmap; the module itself."""
    from sluice.nn.modules.norm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
