"""Transformations of functions: torch.func.

They compose with each other and with backward(): what they give can be differentiated again, by arguments and by whatever
else the function reads that requires gradients.
"""

from typing import Any

from sluice.func._derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from sluice.func._modules import stack_module_state
from sluice.func._vmap import vmap
from sluice.nn.utils.stateless import functional_call

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "stack_module_state", "vjp",
           "vmap"]

_ELSEWHERE = {"functionalize": "nn.Graph traces functions without in-place writes by itself; sluice.lower shows the graph",
              "replace_all_batch_norm_modules_": "give BatchNorm track_running_stats=False"}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise AttributeError(f"module 'sluice.func' has no attribute '{name}': {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'sluice.func' has no attribute '{name}'")
