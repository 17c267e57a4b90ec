"""Gradients against finite differences: torch.autograd.gradcheck."""

from __future__ import annotations

import warnings
from typing import Any, Callable

from sluice._C import fn, Tensor
from sluice._tensor.creation import from_numpy, tensor
from sluice._base.numbers import numpy as lazy_numpy
from sluice.autograd.functional import pulled_back
from sluice._base.grad_mode import enable_grad, no_grad


class GradcheckError(RuntimeError):
    """The exception of gradcheck() and gradgradcheck()."""


def _listed(nest: Any) -> list[Any]:
    return list(nest) if isinstance(nest, (tuple, list)) else [nest]


def _refuse(**asked: Any) -> None:
    why = {"check_batched_grad": "batched gradients are computed row by row, so there is nothing to check",
           "check_batched_forward_grad": "there is no forward mode", "check_forward_ad": "there is no forward mode",
           "check_fwd_over_rev": "there is no forward mode"}
    for name, on in asked.items():
        if on:
            raise NotImplementedError(f"gradcheck: {name}=True is not supported: {why[name]}; leave it out")


class _Check:
    """One function at one point: its Jacobians, by differences and by backward passes."""

    def __init__(self, func: Callable[..., Any], inputs: Any) -> None:
        self.func, self.inputs = func, _listed(inputs)
        self.places = [i for i, t in enumerate(self.inputs) if isinstance(t, Tensor) and t.requires_grad]
        if not self.places:
            raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have "
                             "requires_grad=True.")
        for i in self.places:
            if self.inputs[i].dtype.name != "float64":
                warnings.warn(f"Input #{i} requires gradient and is not a double precision floating point. This check will likely "
                              "fail if all the inputs are not of double precision floating point.", stacklevel=4)
        self.leaves = [t.detach().requires_grad_() if i in self.places else t for i, t in enumerate(self.inputs)]
        with enable_grad():
            made = _listed(func(*self.leaves))
        floating = [i for i, o in enumerate(made) if isinstance(o, Tensor) and o.dtype.is_floating_point]
        differentiable = [i for i in floating if made[i].requires_grad]
        self.outputs = [made[i] for i in differentiable]
        self.compared = differentiable or floating  # where there are none, all differences must be zero

    def given(self) -> list[Tensor]:
        return [self.leaves[i] for i in self.places]

    def values_at(self, place: int, moved: Any) -> list[Any]:
        """The outputs, as flat float64 arrays, with the input at `place` moved by an array."""
        point = [t.detach().clone() if isinstance(t, Tensor) else t for t in self.inputs]
        point[place] = point[place] + tensor(moved).to(point[place])
        with no_grad():
            made = _listed(self.func(*point))
        return [made[i].detach().double().cpu().numpy().reshape(-1) for i in self.compared]

    def numerical(self, place: int, direction: Any, eps: float) -> list[Any]:
        up, down = self.values_at(place, eps * direction), self.values_at(place, -eps * direction)
        return [(a - b) / (2 * eps) for a, b in zip(up, down)]

    def analytical(self, output: Tensor, seed: Any) -> list[Any]:
        seed = tensor(seed.reshape(tuple(output.shape))).to(output)
        return pulled_back([output], self.given(), [seed], False)

    def rows(self, output: Tensor) -> list[Any]:
        """The Jacobians of `output` by the inputs, (inputs' elements, output's elements), as float64 arrays."""
        np, n = lazy_numpy(), output.numel()
        found = [np.zeros((t.numel(), n)) for t in self.given()]
        for j in range(n):
            for jacobian, g in zip(found, self.analytical(output, np.eye(1, n, j))):
                if g is not None:
                    jacobian[:, j] = g.detach().double().cpu().numpy().reshape(-1)
        return found


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
              check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
              masked: bool | None = None) -> bool:
    """Whether gradients of `func(*inputs)` equal central differences of step `eps`, for inputs that require gradients.

    Raises GradcheckError where they do not, or gives False without `raise_exception`. fast_mode compares one random
    direction in place of whole Jacobians. Gradients always have the dtype of their inputs (check_grad_dtypes), and no
    tensor is sparse (masked).
    """
    _refuse(check_batched_grad=check_batched_grad, check_batched_forward_grad=check_batched_forward_grad,
            check_forward_ad=check_forward_ad)
    check = _Check(func, inputs)
    if not check_backward_ad:
        raise ValueError("gradcheck: Expected at least one of check_forward_ad or check_backward_ad to be True")
    try:
        (_compare_directions if fast_mode else _compare_jacobians)(check, eps, atol, rtol, nondet_tol)
        if check_undefined_grad:
            _check_undefined(check)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _mismatch(i: int, place: int, numerical: Any, analytical: Any) -> GradcheckError:
    return GradcheckError(f"Jacobian mismatch for output {i} with respect to input {place},\nnumerical:{numerical}\n"
                          f"analytical:{analytical}\n")


def _deterministic(first: Any, again: Any, tolerance: float) -> None:
    if any(abs(a - b).max(initial=0) > tolerance for a, b in zip(first, again)) or any(
            lazy_numpy().isnan(a).any() != lazy_numpy().isnan(b).any() for a, b in zip(first, again)):
        raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                             f"different values, although analytical gradient matches numerical gradient. The tolerance is {tolerance}.")


def _compare_jacobians(check: _Check, eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    np = lazy_numpy()
    numerical = {}
    for place in check.places:
        shape, n = tuple(check.inputs[place].shape), check.inputs[place].numel()
        columns = [check.numerical(place, np.eye(1, n, k).reshape(shape), eps) for k in range(n)]
        numerical[place] = [np.stack(c) for c in zip(*columns)]
    _need_outputs(check, [j for found in numerical.values() for j in found])
    for i, output in enumerate(check.outputs):
        analytical = check.rows(output)
        for place, a in zip(check.places, analytical):
            n = numerical[place][i] if numerical[place] else a
            if not np.allclose(a, n, rtol, atol):
                raise _mismatch(i, place, n, a)
        _deterministic(analytical, check.rows(output), nondet_tol)


def _need_outputs(check: _Check, differences: Any) -> None:
    if not check.outputs and any((j != 0).any() for j in differences):
        raise GradcheckError("Numerical gradient for function expected to be zero: no output requires a gradient")


def _compare_directions(check: _Check, eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    np = lazy_numpy()
    draw = np.random.default_rng(0)

    def unit(t: Any) -> Any:
        v = draw.standard_normal(tuple(t.shape))
        return v / max(np.linalg.norm(v), 1e-30)

    directions = [unit(t) for t in check.given()]
    moved = [check.numerical(place, d, eps) for place, d in zip(check.places, directions)]
    _need_outputs(check, [j for found in moved for j in found])
    for i, output in enumerate(check.outputs):
        seed = unit(output)

        def products() -> list[Any]:
            found = check.analytical(output, seed)
            return [np.asarray(0.0 if g is None else (g.detach().double().cpu().numpy() * d).sum()) for g, d in zip(found, directions)]

        analytical = products()
        for place, a, found in zip(check.places, analytical, moved):
            n = found[i] @ seed.reshape(-1)
            if not np.allclose(a, n, rtol, atol):
                raise _mismatch(i, place, n, a)
        _deterministic(analytical, products(), nondet_tol)


def _check_undefined(check: _Check) -> None:
    """Checks for several outputs that a gradient which is left out is one of zeros."""
    np = lazy_numpy()
    if len(check.outputs) < 2:
        return
    for output in check.outputs:
        zeros = [o.detach() if o is output else o.new_zeros(o.shape) for o in check.outputs]
        alone = pulled_back([output], check.given(), [output.detach()], False)
        for pair in zip(alone, pulled_back(check.outputs, check.given(), zeros, False)):
            a, b = (np.asarray(0.0 if g is None else g.detach().double().cpu().numpy()) for g in pair)
            if not (abs(a - b) <= 1e-9 + 1e-6 * abs(b)).all():
                raise GradcheckError("Expected backward function to handle undefined output grads: the gradients with the others left "
                                     "out differ from those with zeros in their places")


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
                  rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
                  check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """gradcheck() of the gradients of `func`, by inputs and by `grad_outputs` (random where None)."""
    _refuse(check_fwd_over_rev=check_fwd_over_rev)
    if not check_rev_over_rev:
        raise ValueError("gradgradcheck: Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    check = _Check(func, inputs)
    if grad_outputs is None:
        draw = lazy_numpy().random.default_rng(0)
        seeds = [from_numpy(lazy_numpy().asarray(draw.standard_normal(tuple(o.shape)))).to(o).requires_grad_()
                 for o in check.outputs]
        if gen_non_contig_grad_outputs:
            seeds = [fn.stack([s.detach(), s.detach()], -1)[..., 0].requires_grad_() for s in seeds]
    else:
        seeds = [None if g is None else g for g in _listed(grad_outputs)]
    count = len(check.inputs)

    def gradient(*args: Any) -> Any:
        point = [a * 1 if i in check.places else a for i, a in enumerate(args[:count])]
        made = [o for o in _listed(func(*point)) if isinstance(o, Tensor) and o.dtype.is_floating_point and o.requires_grad]
        by = [point[i] for i in check.places]
        found = pulled_back(made, by, [a.detach() if g is None else g for a, g in zip(made, args[count:])], True)
        return tuple(t.new_zeros(t.shape) if g is None else g for g, t in zip(found, by))

    def recorded(*args: Any) -> Any:
        with enable_grad():  # differences are taken without gradients, of gradients
            args = [a if not isinstance(a, Tensor) or a.requires_grad or not a.dtype.is_floating_point else a.detach().requires_grad_()
                    for a in args]
            return gradient(*args)

    return gradcheck(recorded, (*check.inputs, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
                     nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
                     check_batched_grad=check_batched_grad, fast_mode=fast_mode, masked=masked)
