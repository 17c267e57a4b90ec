"""Whether calls are recorded for gradients: torch.autograd.grad_mode."""

from sluice._base.grad_mode import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
    set_multithreading_enabled as set_multithreading_enabled)
