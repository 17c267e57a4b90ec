"""Pruning: parameters times masks that a hook applies before forward; torch.nn.utils.prune."""

from __future__ import annotations

import abc
import numbers
from typing import Any

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import ones_like, rand, rand_like, tensor
from sluice._base.numbers import numpy as lazy_numpy


def _values(t: Tensor) -> Any:
    """As a NumPy array: masks are made on the host."""
    t = t.detach().cpu()
    return (t.float() if t.dtype in (_C.bfloat16, _C.float16) else t).numpy()


def _mask(values: Any, like: Tensor) -> Tensor:
    return tensor(values).to(device=like.device, dtype=like.dtype)


class BasePruningMethod(abc.ABC):
    """A way to prune. Subclasses define compute_mask() and PRUNING_TYPE: unstructured, structured (with `dim`) or global."""

    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask, 0 where elements of t go, on top of `default_mask`."""

    def apply_mask(self, module: Any) -> Tensor:
        """The original times the mask."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> BasePruningMethod:
        """Prunes a parameter: `<name>_orig` is the parameter, `<name>_mask` a buffer. Again: what is left is pruned further."""
        before = [(id, hook) for id, hook in module._forward_pre_hooks.items()
                  if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        if original is None:
            raise TypeError(f"prune: '{name}' of {module} is None; there is nothing to prune")
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}, got "
                                 f"{importance_scores.shape} vs {original.shape}")
        scores = original if importance_scores is None else importance_scores
        if before:
            (id, old), = before
            method_now = old if isinstance(old, PruningContainer) else PruningContainer(old)
            count = len(method_now)
            method_now.add_pruning_method(method)
            try:
                mask = method_now.compute_mask(scores, getattr(module, name + "_mask").detach().clone())
            except Exception:
                method_now._pruning_methods = method_now._pruning_methods[:count]
                raise
            del module._forward_pre_hooks[id]
            method = method_now
        else:
            mask = method.compute_mask(scores, ones_like(original.detach()))
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
        module.register_buffer(name + "_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Any = None, importance_scores: Any = None) -> Tensor:
        """t times the mask that this method computes of it."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}")
        default_mask = ones_like(t.detach()) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, default_mask)

    def remove(self, module: Any) -> None:
        """Makes the pruning permanent: the parameter has zeros, and no mask."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = pruned.detach()
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that have pruned one tensor, one after the other."""

    PRUNING_TYPE = "container"

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                             f"{self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, computed of what the others have left."""
        method, np = self._pruning_methods[-1], lazy_numpy()
        mask = _values(default_mask).copy()
        if method.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
            if not -t.dim() <= method.dim < t.dim():
                raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
            dim = method.dim % t.dim()
            kept = mask.sum(tuple(d for d in range(t.dim()) if d != dim)) != 0
            where = (slice(None),) * dim + (kept,)
        elif method.PRUNING_TYPE == "global":
            where = ...
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        part = method.compute_mask(_mask(np.ascontiguousarray(_values(t)[where]), t),
                                   _mask(np.ascontiguousarray(mask[where]), default_mask))
        mask[where] = _values(part)
        return _mask(mask, default_mask)


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> BasePruningMethod:
        return super().apply(module, name)


class _ByAmount(BasePruningMethod):
    """amount: how many units go, or which share of them."""

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        whole = isinstance(amount, numbers.Integral)
        if amount < 0 or (not whole and amount > 1):
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount = amount

    def _count(self, units: int) -> int:
        if not isinstance(self.amount, numbers.Integral):
            return round(self.amount * units)
        if self.amount > units:
            raise ValueError(f"amount={self.amount} should be smaller than the number of parameters to prune={units}")
        return int(self.amount)

    @staticmethod
    def _without(mask: Tensor, gone: Any) -> Tensor:
        """The mask with the elements of these flat indices 0."""
        values = _values(mask).copy()
        values.reshape(-1)[gone] = 0
        return _mask(values, mask)


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        if count == 0:
            return default_mask.clone()
        drawn = _values(rand_like(t.detach())).reshape(-1)
        return self._without(default_mask, (-drawn).argsort(kind="stable")[:count])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> BasePruningMethod:
        return super().apply(module, name, amount=amount)


class L1Unstructured(_ByAmount):
    """Prunes the elements that are smallest in magnitude."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return self._without(default_mask, abs(_values(t)).reshape(-1).argsort(kind="stable")[:self._count(t.numel())])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, importance_scores: Any = None) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(_ByAmount):
    """Prunes channels along `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _checked(self, t: Tensor) -> int:
        """How many channels go."""
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                             f"{t.shape} with {t.dim()} dims")
        if self.dim >= t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        return self._count(t.shape[self.dim])

    def _channels(self, t: Tensor, default_mask: Tensor, gone: Any) -> Tensor:
        keep = _values(default_mask).copy()
        lazy_numpy().moveaxis(keep, self.dim, 0)[gone] = 0
        return _mask(keep, default_mask)


class RandomStructured(_Structured):
    """Prunes channels at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._checked(t)
        if count == 0:
            return default_mask
        drawn = _values(rand(t.shape[self.dim]))
        return self._channels(t, default_mask, drawn.argsort(kind="stable")[:count])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the channels with the smallest n-norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._checked(t)
        if count == 0:
            return default_mask
        rows = lazy_numpy().moveaxis(_values(t), self.dim, 0).reshape(t.shape[self.dim], -1)
        order = 2 if self.n == "fro" else self.n
        if not isinstance(order, numbers.Real):
            raise ValueError(f"LnStructured: n is {self.n!r}; must be a number, inf, -inf or 'fro'")
        sizes = lazy_numpy().linalg.norm(rows, ord=float(order), axis=1)
        return self._channels(t, default_mask, sizes.argsort(kind="stable")[:count])

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes what a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape!r} must match self.mask shape {self.mask.shape!r}")
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> BasePruningMethod:
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Masks a parameter with ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes elements at random: so many (int), or a share (float)."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prunes the elements that are smallest in magnitude, or in `importance_scores`."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes channels along dim at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prunes the channels along dim with the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes a parameter where `mask` is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prunes (module, name) parameters as if they were one tensor; importance_scores: by (module, name)."""
    if not hasattr(parameters, "__iter__"):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters, scores = list(parameters), importance_scores or {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    flat = fn.cat([scores.get(p, getattr(*p)).detach().reshape(-1) for p in parameters])
    masks = [getattr(m, n + "_mask", None) for m, n in parameters]
    before = fn.cat([ones_like(getattr(*p).detach()).reshape(-1) if mask is None else mask.detach().reshape(-1)
                     for p, mask in zip(parameters, masks)])
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type '
                        f"{method.PRUNING_TYPE}")
    method._tensor_name = "temp"
    mask, start = PruningContainer(method).compute_mask(flat, before), 0
    for module, name in parameters:
        shape = getattr(module, name).shape
        custom_from_mask(module, name, mask[start:start + shape.numel()].reshape(shape))
        start += shape.numel()


def remove(module: Any, name: str) -> Any:
    """Makes the pruning of a parameter permanent, and removes its hook."""
    for id, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[id]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """True when a hook of this module or one in it prunes."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
