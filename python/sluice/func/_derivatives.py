"""Derivatives of functions: torch.func.grad and its relatives."""

from __future__ import annotations

import functools
from numbers import Integral
from typing import Any, Callable

from sluice import _C
from sluice._C import fn, Tensor
from sluice._tensor.creation import eye
from sluice.autograd.functional import jacobian_rows, pulled_back, pushed_forward
from sluice._base.grad_mode import enable_grad
from sluice.func._nests import Nest, check_tensors


class _Level:
    """A call of `func` whose results can be differentiated by `inputs`, a nest."""

    def __init__(self, where: str, func: Callable[..., Any], call: Callable[[Any], Any], inputs: Any, has_aux: bool) -> None:
        self.where = where
        self.inputs = check_tensors(where, inputs, "the arguments to differentiate by")
        for t in self.inputs.tensors:
            if not (t.dtype.is_floating_point or t.dtype.is_complex):
                raise RuntimeError(f"{where}: only Tensors of floating point dtype can require gradients: got {t.dtype}")
        tracked = [t.requires_grad for t in self.inputs.tensors]
        self.recording = _C.is_grad_enabled()
        with enable_grad():
            # Each level differentiates by tensors of its own. A view keeps the history of an argument that an outer
            # level tracks; others become leaves, so that nothing is added to the caller's `.grad`.
            self.given = [t.view_as(t) if r else t.detach().requires_grad_() for t, r in zip(self.inputs.tensors, tracked)]
            made = call(self.inputs.build(self.given))
        self.aux = None
        if has_aux:
            if not isinstance(made, tuple) or len(made) != 2:
                raise RuntimeError(f"{where}: output of function should be a tuple: (output, aux) if has_aux is True: got "
                                   f"{type(made).__name__}")
            made, self.aux = made
        self.outputs = check_tensors(where, made, "the function's results")
        # Whether derivatives depend on anything that whoever called asked gradients of.
        self.differentiable = self.recording and (any(tracked) or _reads_others(self.outputs.tensors, self.given))

    def scalar(self) -> Tensor:
        if len(self.outputs.tensors) != 1 or self.outputs.structure.kind != "tensor":
            raise RuntimeError(f"{self.where}: Expected the function to return a Tensor: got a {self.outputs.structure.kind}")
        (output,) = self.outputs.tensors
        if output.ndim != 0:
            raise RuntimeError(f"{self.where}: Expected f(*args) to return a scalar tensor, got tensor with {output.ndim} dims")
        return output

    def pull(self, grads: Any, create_graph: bool, retain_graph: bool = True) -> list[Tensor]:
        with enable_grad():
            found = pulled_back(self.outputs.tensors, self.given, grads, create_graph, retain_graph)
        return filled(found, self.given)

    def result(self, nest: Nest | None = None) -> Any:
        """The result of the function, with the history that it has for whoever called."""
        nest = self.outputs if nest is None else nest
        return nest.build([t if self.differentiable else t.detach() for t in nest.tensors])

    def aux_result(self) -> Any:
        return self.result(Nest(self.aux))


def filled(found: Any, likes: Any) -> list[Tensor]:
    return [t.new_zeros(t.shape) if g is None else g for g, t in zip(found, likes)]


def _reads_others(outputs: Any, given: Any) -> bool:
    """Some leaf other than `given` has a part in `outputs`."""
    own = set()
    for t in given:
        if t.is_leaf:
            own.add(t.view_as(t).grad_fn.next_functions[0][0])
    # Walks back from the results; a leaf that is none of the given tensors belongs to somebody outside.
    stack, seen = [o.grad_fn for o in outputs if o.grad_fn is not None], set()
    if any(o.is_leaf and o.requires_grad and all(o._impl != t._impl for t in given) for o in outputs):
        return True
    while stack:
        node = stack.pop()
        if node in seen or node in own:
            continue
        seen.add(node)
        following = [n for n, _ in node.next_functions if n is not None]
        if not node.next_functions:
            return True
        stack.extend(following)
    return False


def _chosen(where: str, args: tuple[Any, ...], argnums: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The arguments at `argnums`, and a function that puts others in their places."""
    single = isinstance(argnums, Integral)
    places = (argnums,) if single else tuple(argnums)
    if not places or any(not isinstance(p, Integral) or isinstance(p, bool) for p in places):
        raise RuntimeError(f"{where}: argnums must be an int or a tuple of ints: got {argnums!r}; there must be one at least")
    for p in places:
        if not -len(args) <= p < len(args):
            raise RuntimeError(f"{where}: Got argnum={p}, but only {len(args)} positional inputs")
    places = tuple(p % len(args) for p in places)
    if len(set(places)) != len(places):
        raise RuntimeError(f"{where}: argnums elements must be unique, got {argnums!r}")

    def replaced(values: Any) -> tuple[Any, ...]:
        values = (values,) if single else values
        return tuple(values[places.index(i)] if i in places else a for i, a in enumerate(args))

    chosen = tuple(args[p] for p in places)
    return chosen[0] if single else chosen, replaced


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives (gradients by the arguments at `argnums`, the 0-d result); with has_aux (gradients, (result, aux))."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen, replaced = _chosen("grad", args, argnums)
        level = _Level("grad", func, lambda given: func(*replaced(given), **kwargs), chosen, has_aux)
        output = level.scalar()
        found = level.pull([output.detach().new_ones(())], level.differentiable, level.differentiable)
        found = level.inputs.build(found)
        return (found, (level.result(), level.aux_result())) if has_aux else (found, level.result())

    return wrapped


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradients of `func`, whose result is 0-d, by the arguments at `argnums`; with has_aux also aux."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(results, a function from cotangents, nested as the results, to a tuple of gradients by `primals`); with has_aux also aux."""
    level = _Level("vjp", func, lambda given: func(*given), primals, has_aux)

    def pull(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        value = cotangents[0] if len(cotangents) == 1 else cotangents
        nest = _matching("vjp", "cotangents", value, level.outputs)
        tracked = level.differentiable or (_C.is_grad_enabled() and any(t.requires_grad for t in nest.tensors))
        create = tracked if create_graph is None else create_graph
        return level.inputs.build(level.pull(nest.tensors, create, retain_graph or create))

    return (level.result(), pull, level.aux_result()) if has_aux else (level.result(), pull)


def _matching(where: str, what: str, value: Any, like: Nest) -> Nest:
    nest = check_tensors(where, value, what)
    if nest.structure != like.structure:
        raise RuntimeError(f"{where}: Expected {what} to have the same structure: {_structure(nest)}; must be {_structure(like)}")
    for t, l in zip(nest.tensors, like.tensors):
        if tuple(t.shape) != tuple(l.shape):
            raise RuntimeError(f"{where}: {what} have shape {tuple(t.shape)}; must be {tuple(l.shape)}")
    return nest


def _structure(nest: Nest) -> str:
    return str(nest.structure.build(iter(["*"] * len(nest.tensors))))


def _push(level: _Level, tangents: Nest, push: Any = None) -> list[Tensor]:
    with enable_grad():
        push = push or pushed_forward(level.outputs.tensors, level.given)
        tracked = level.differentiable or (level.recording and any(t.requires_grad for t in tangents.tensors))
        return filled(push(tangents.tensors, tracked), level.outputs.tensors)


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(results, the products of the Jacobian and `tangents`, nested as the results), by differentiating backward twice."""
    _need_tuple("jvp", "primals", primals)
    _need_tuple("jvp", "tangents", tangents)
    level = _Level("jvp", func, lambda given: func(*given), primals, has_aux)
    nest = _matching("jvp", "tangents", tangents, level.inputs)
    if strict and any(not o.requires_grad for o in level.outputs.tensors):
        raise RuntimeError("jvp: an output is independent of the inputs; must not be with strict=True")
    pushed = level.outputs.build(_push(level, nest))
    return (level.result(), pushed, level.aux_result()) if has_aux else (level.result(), pushed)


def _need_tuple(where: str, what: str, value: Any) -> None:
    if not isinstance(value, tuple) or not value:
        raise RuntimeError(f"{where}: Expected {what} to be a tuple of one argument at least: got {type(value).__name__}")


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """(results, a function from tangents to products of the Jacobian, which it has differentiated once for all)."""
    level = _Level("linearize", func, lambda given: func(*given), primals, False)
    with enable_grad():
        push = pushed_forward(level.outputs.tensors, level.given)

    def linear(*tangents: Any) -> Any:
        return level.outputs.build(_push(level, _matching("linearize", "tangents", tangents, level.inputs), push))

    return level.result(), linear


def jacrev(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False,
           chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that gives the Jacobian by the arguments at `argnums`: a backward pass for each element of the results.

    Nested as the results, and in them as the arguments; a tensor has the shape of the result and the argument.
    `chunk_size` changes nothing: passes run one by one.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"jacrev: `chunk_size` should be greater than 0: got {chunk_size}")
    return _jacobian("jacrev", func, argnums, has_aux, _rows)


def _rows(level: _Level) -> list[list[Any]]:
    return [jacobian_rows(output, level.given, level.differentiable) for output in level.outputs.tensors]


def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *,
           randomness: str = "error") -> Callable[..., Any]:
    """jacrev by columns: a pass for each element of the arguments. `randomness` changes nothing: the function is called once."""
    return _jacobian("jacfwd", func, argnums, has_aux, _columns)


def _columns(level: _Level) -> list[list[Any]]:
    push = pushed_forward(level.outputs.tensors, level.given)
    found: list[list[Any]] = [[None] * len(level.given) for _ in level.outputs.tensors]
    for k, t in enumerate(level.given):
        n = t.numel()
        if n == 0:
            continue
        basis = eye(n, dtype=t.dtype, device=None if t._traced else t._device).reshape((n, *t.shape))
        zeros = [g.new_zeros(g.shape) for g in level.given]
        columns = [push([e if i == k else z for i, z in enumerate(zeros)], level.differentiable) for e in basis.unbind(0)]
        for row, column, output in zip(found, zip(*columns), level.outputs.tensors):
            if column[0] is not None:
                row[k] = fn.stack(column, -1).reshape((*output.shape, *t.shape))
    return found


def _jacobian(where: str, func: Any, argnums: Any, has_aux: bool, make: Any) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        chosen, replaced = _chosen(where, args, argnums)
        level = _Level(where, func, lambda given: func(*replaced(given), **kwargs), chosen, has_aux)
        with enable_grad():
            found = make(level)
        rows = [level.inputs.build([t.new_zeros((*o.shape, *t.shape)) if j is None else j for j, t in zip(row, level.given)])
                for row, o in zip(found, level.outputs.tensors)]
        result = level.outputs.build(rows)
        return (result, level.aux_result()) if has_aux else result

    return wrapped


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives: jacfwd of jacrev."""
    return jacfwd(jacrev(func, argnums), argnums)
