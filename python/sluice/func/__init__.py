"""Transformations of functions: torch.func.

They compose with each other and with backward(): what they give can be differentiated again, by arguments and by whatever
else the function reads that requires gradients.
"""

from typing import Any

from sluice.func._derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from sluice.func._modules import replace_all_batch_norm_modules_, stack_module_state
from sluice.func._rearrange import rearrange
from sluice.func._vmap import vmap
from sluice.nn.utils.stateless import functional_call

__all__ = ["functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "rearrange",
           "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]


def functionalize(func: Any, *, remove: str = "mutations") -> Any:
    """`func` itself: what is traced has no in-place writes here (sluice.lower shows the graph), and eager calls need no other form.
    torch.func.functionalize."""
    if not callable(func):
        raise TypeError(f"functionalize: got {type(func).__name__}; must be callable")
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid "
                           "options are:"
                           "\n     remove='mutations': all inplace and out= operators will be removed"
                           "\n     remove='mutations_and_views': also all view operators")
    return func
