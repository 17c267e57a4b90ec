"""The values that a tape keeps, and those who listen to it: torch.autograd.graph."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from sluice import _C
from sluice._C import GradNode as Node
from sluice._C import Tensor
from sluice.autograd.passes import at_end

__all__ = ["Node", "disable_saved_tensors_hooks", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """A value that is saved for backward passes inside is given to `pack_hook(tensor)`; the hook's result is kept instead.

    A backward pass gives it to `unpack_hook`, which must give a tensor of the same shape and dtype. If they nest, the
    innermost is asked. It is not noticed when a packed tensor is written in place.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _disabled:
            raise RuntimeError(_disabled[-1])
        _C.push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: Any) -> None:
        _C.pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keeps what is saved inside in the host's memory, and copies it back for the backward pass."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        if pin_memory:
            raise NotImplementedError("save_on_cpu: pin_memory=True is not supported; copies go through pinned memory by themselves")
        super().__init__(lambda t: (t._device, t.cpu()), lambda packed: packed[1].to(packed[0]))


_disabled: list[str] = []


class disable_saved_tensors_hooks:
    """Inside, saved_tensors_hooks raises a RuntimeError of `error_message`."""

    def __init__(self, error_message: str) -> None:
        self._message = error_message

    def __enter__(self) -> None:
        _disabled.append(self._message)

    def __exit__(self, *exc: Any) -> None:
        _disabled.pop()


class _Handle:
    def __init__(self, handles: Any) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = ()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all") -> Any:
    """Calls `fn` once in each backward pass that reaches one of `tensors`; returns a handle with remove().

    mode: "all" gives a list of their gradients, with None for those that have none: as soon as all are known, else at the
    end of the pass. "any" gives the first gradient that is known.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: Expects mode to be one of ('all', 'any'), got {mode!r}")
    tensors = list(tensors)
    passed: dict[str, Any] = {}

    def give() -> None:
        grads = passed.pop("grads")
        passed["given"] = True
        fn([grads.get(i) for i in range(len(tensors))])

    def end(succeeded: bool) -> None:
        if succeeded and "grads" in passed:
            give()
        passed.clear()

    def seen(i: int, grad: Tensor) -> None:
        if not passed:
            at_end(end)
            passed["grads"] = {}
            if mode == "any":
                passed["given"] = True
                del passed["grads"]
                fn(grad)
        if "grads" in passed:
            passed["grads"][i] = grad
            if len(passed["grads"]) == len(tensors):
                give()

    return _Handle([t.register_hook(lambda grad, i=i: seen(i, grad)) for i, t in enumerate(tensors)])
