"""Derivatives of functions of tensors: torch.autograd.functional.

`func` takes the tensors of `inputs` and gives a tensor or a tuple of tensors. The results of a call are nested as its
inputs and outputs are: a tensor for a tensor, a tuple for a tuple. Without `create_graph` nothing given has a history. With
`strict` it is an error that an output does not depend on an input; else such derivatives are zeros.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from sluice._C import fn, Tensor
from sluice._tensor.creation import eye
from sluice._base.grad_mode import enable_grad
from sluice.autograd.passes import grad as _grad


class Nest:
    """A tensor or a tuple of tensors, as a tuple that knows which of both it was."""

    def __init__(self, value: Any, where: str, what: str) -> None:
        self.single = not isinstance(value, tuple)
        self.tensors = (value,) if self.single else value
        for i, t in enumerate(self.tensors):
            if not isinstance(t, Tensor):
                raise TypeError(f"{where}: the {what} must be either a Tensor or a tuple of Tensors: got "
                                f"{type(value if self.single else t).__name__}{'' if self.single else f' at index {i}'}")

    def like(self, tensors: Sequence[Any]) -> Any:
        return tensors[0] if self.single else tuple(tensors)


def prepared(tensors: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """`tensors` as what is differentiated by: with their histories where results are to have them."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in tensors)


def pulled_back(outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor], create_graph: bool,
                retain_graph: bool = True) -> list[Any]:
    """The vector-Jacobian products; None where no output depends on an input."""
    taken = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad]
    if not taken:
        return [None] * len(inputs)
    chosen, seeds = zip(*taken)
    return list(_grad(chosen, inputs, seeds, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True))


class _Call:
    """A call of the user's function, and what there is to say when derivatives are missing."""

    def __init__(self, where: str, func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool) -> None:
        self.where, self.create_graph, self.strict = where, create_graph, strict
        self.inputs = Nest(inputs, where, "inputs")
        self.given = prepared(self.inputs.tensors, create_graph)
        self.outputs = Nest(func(*self.given), where, "outputs of the user-provided function")
        for i, o in enumerate(self.outputs.tensors):
            if strict and not o.requires_grad:
                raise RuntimeError(f"{where}: Output {i} of the user-provided function does not require gradients. The outputs must "
                                   "be computed in a differentiable manner from the input when running in strict mode.")

    def single_output(self) -> Tensor:
        if not self.outputs.single:
            raise RuntimeError(f"{self.where}: The output of the user-provided function should be a single Tensor")
        (output,) = self.outputs.tensors
        if output.numel() != 1:
            raise RuntimeError(f"{self.where}: The Tensor returned by the user-provided function should contain a single element: "
                               f"got {tuple(output.shape)}")
        return output

    def vectors(self, v: Any, like: Nest, of: str) -> tuple[Tensor, ...]:
        if v is None:
            if not like.single or like.tensors[0].numel() != 1:
                raise RuntimeError(f"{self.where}: The vector v can only be None if {of} is a single Tensor with a single element")
            return (like.tensors[0].detach().new_ones(like.tensors[0].shape),)
        vectors = Nest(v, self.where, "v").tensors
        if len(vectors) != len(like.tensors):
            raise RuntimeError(f"{self.where}: v is a tuple of invalid length: should be {len(like.tensors)} but got {len(vectors)}")
        for i, (a, t) in enumerate(zip(vectors, like.tensors)):
            if tuple(a.shape) != tuple(t.shape):
                raise RuntimeError(f"{self.where}: v has invalid size: should be {tuple(t.shape)} but got {tuple(a.shape)}: entry {i}")
        return vectors

    def filled(self, grads: Sequence[Any], likes: Sequence[Tensor], missing: str) -> tuple[Tensor, ...]:
        """Zeros for what is missing, and no history unless it is asked for."""
        for i, g in enumerate(grads):
            if g is None and self.strict:
                raise RuntimeError(f"{self.where}: {missing.format(i)} This is not allowed in strict mode.")
            if self.strict and self.create_graph and not g.requires_grad:
                raise RuntimeError(f"{self.where}: the derivative for entry {i} is independent of the inputs. This is not allowed in "
                                   "strict mode when create_graph=True.")
        return self.cut([t.new_zeros(t.shape) if g is None else g for g, t in zip(grads, likes)])

    def cut(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(tensors) if self.create_graph else tuple(t.detach() for t in tensors)

    def outputs_given(self) -> Any:
        return self.outputs.like(self.cut(self.outputs.tensors))


_NO_INPUT = "The output of the user-provided function is independent of input {}."


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, the products of `v`, shaped as the outputs, and the Jacobian)."""
    with enable_grad():
        call = _Call("vjp", func, inputs, create_graph, strict)
        vectors = call.vectors(v, call.outputs, "the user-provided function's result")
        found = pulled_back(call.outputs.tensors, call.given, vectors, create_graph)
    return call.outputs_given(), call.inputs.like(call.filled(found, call.inputs.tensors, _NO_INPUT))


def pushed_forward(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Callable[..., Any]:
    """A function from tangents of `inputs` to those of `outputs` (None: independent), by differentiating twice.

    The vector-Jacobian product is linear in its vector, so its derivative by that, in a direction, is the product of the
    Jacobian and the direction.
    """
    dummies = [o.detach().new_zeros(o.shape).requires_grad_() for o in outputs]
    products = pulled_back(outputs, inputs, dummies, True)

    def push(tangents: Sequence[Tensor], create_graph: bool) -> list[Any]:
        taken = [(p, t) for p, t in zip(products, tangents) if p is not None]
        if not taken:
            return [None] * len(dummies)
        return pulled_back([p for p, _ in taken], dummies, [t for _, t in taken], create_graph)

    return push


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(outputs, the products of the Jacobian and `v`, shaped as the inputs), by differentiating backward twice."""
    with enable_grad():
        call = _Call("jvp", func, inputs, create_graph, strict)
        vectors = call.vectors(v, call.inputs, "the input to the user-provided function")
        found = pushed_forward(call.outputs.tensors, call.given)(vectors, create_graph)
    return call.outputs_given(), call.outputs.like(call.filled(found, call.outputs.tensors, "Output {} of the user-provided "
                                                               "function is independent of the inputs."))


def jacobian_rows(output: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Any]:
    """Per input: d output / d input of the shape of both; None where no element depends on it. A pass per element."""
    n = output.numel()
    if not output.requires_grad or n == 0:
        return [None] * len(inputs)
    seeds = eye(n, dtype=output.dtype, device=None if output._traced else output._device).reshape((n, *output.shape))
    rows = [pulled_back([output], inputs, [seed], create_graph) for seed in seeds.unbind(0)]
    return [None if column[0] is None else fn.stack(column).reshape((*output.shape, *column[0].shape)) for column in zip(*rows)]


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The Jacobian: of each output and input, a tensor of the shape of the output and the input.

    There is a backward pass for each element of the outputs, whatever `vectorize` and `strategy` say.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian: Expected strategy to be either 'forward-mode' or 'reverse-mode': got {strategy!r}")
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError("jacobian: strategy='forward-mode' needs vectorize=True, as in torch")
    if vectorize and strict:
        raise RuntimeError("jacobian: `strict=True` and `vectorized=True` are not supported together; set one of them to False")
    with enable_grad():
        call = _Call("jacobian", func, inputs, create_graph, strict)
        found = []
        for i, output in enumerate(call.outputs.tensors):
            likes = [t.new_zeros((*output.shape, *t.shape)) for t in call.inputs.tensors]
            rows = jacobian_rows(output, call.given, create_graph)
            found.append(call.inputs.like(call.filled(rows, likes, f"Output {i} of the user-provided function is independent of "
                                                      "input {}.")))
    return call.outputs.like(found)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The Hessian of a function with one element: of each pair of inputs, a tensor of the shapes of both."""
    nest = Nest(inputs, "hessian", "inputs")

    def gradient(*given: Tensor) -> Any:
        call = _Call("hessian", func, given, True, strict)
        found = pulled_back([call.single_output()], call.given, [call.outputs.tensors[0].new_ones(call.outputs.tensors[0].shape)], True)
        found = call.filled(found, call.inputs.tensors, _NO_INPUT)
        return found[0] if nest.single else found

    return jacobian(gradient, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize, strategy=outer_jacobian_strategy)


def _second_order(where: str, func: Any, inputs: Any, v: Any, create_graph: bool, strict: bool, product: Any) -> Any:
    with enable_grad():
        call = _Call(where, func, inputs, create_graph, strict)
        output = call.single_output()
        vectors = call.vectors(v, call.inputs, "the input to the user-provided function")
        first = pulled_back([output], call.given, [output.new_ones(output.shape)], True)
        for i, g in enumerate(first):
            if strict and (g is None or not g.requires_grad):
                raise RuntimeError(f"{where}: The jacobian of the user-provided function is independent of input {i}. This is not "
                                   "allowed in strict mode.")
        pairs = [(g, t, a) for g, t, a in zip(first, vectors, call.given) if g is not None and g.requires_grad]
        found = product(call, pairs) if pairs else [None] * len(call.given)
    return call.outputs_given(), call.inputs.like(call.filled(found, call.inputs.tensors, _NO_INPUT))


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, the product of `v`, shaped as the inputs, and the Hessian)."""

    def product(call: _Call, pairs: Any) -> Any:
        return pulled_back([g for g, _, _ in pairs], call.given, [t for _, t, _ in pairs], create_graph)

    return _second_order("vhp", func, inputs, v, create_graph, strict, product)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(output, the product of the Hessian and `v`, shaped as the inputs). vhp is faster, and the same where derivatives are
    continuous."""

    def product(call: _Call, pairs: Any) -> Any:
        everything = {id(a): t for t, a in zip(call.vectors(v, call.inputs, "the input"), call.given)}
        pushed = pushed_forward([g for g, _, _ in pairs], call.given)([everything[id(a)] for a in call.given], create_graph)
        by_input = {id(a): p for (_, _, a), p in zip(pairs, pushed)}
        return [by_input.get(id(a)) for a in call.given]

    return _second_order("hvp", func, inputs, v, create_graph, strict, product)
