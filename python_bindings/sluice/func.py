"""Functions of functions: torch.func."""

from sluice.nn.utils.stateless import functional_call as functional_call
