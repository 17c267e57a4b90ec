"""Loops that stay loops in a plan: scan() and while_loop()."""

from typing import Any, Callable

from sluice import _C
from sluice._C import fn, Tensor
from sluice._base.structure import Structure, difference, flatten
from sluice._base.grad_mode import no_grad


def scan(f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> tuple[Any, Any]:
    """f(state, x) -> (state, y), row by row of `xs`: the last state, and all y, stacked. jax.lax.scan.

    init, xs and what f returns are tensors, or nests of them. A row is x[i] of each tensor of `xs`, whose first axes are
    equally long; without `xs` there are `length` turns, and x is None. States keep their structure, shapes and dtypes
    (TypeError otherwise). `reverse` begins with the last row; y has the place of its row.

    An eager program calls f for each row. A graph traces f once, and its plan holds the loop: it is as large for any number
    of turns. Gradients flow through it, to whatever f used, as a loop backwards over what the turns have saved; with
    `utils.checkpoint.checkpoint` in f that is the states alone. In a graph f must not write in place to its state, its row
    or tensors from outside, nor draw random numbers.
    """
    if not callable(f):
        raise TypeError(f"scan: f is {f!r:.80}; must be callable")
    states: list = []
    rows: list = []
    state_structure = flatten(init, "init", states, names := [])
    row_structure = flatten(xs, "xs", rows, row_names := [])
    steps = _steps(rows, row_names, length)
    made: list[Structure] = []

    def step(taken):
        result = f(state_structure.build(iter(taken[:len(states)])), row_structure.build(iter(taken[len(states):])))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"scan: f gives {type(result).__name__}; must give a tuple of the next state and y")
        given: list = []
        _check_states("scan: f", state_structure, flatten(result[0], "init", given, []), states, given, names)
        ys: list = []
        made.append(flatten(result[1], "y", ys, []))
        if made[-1] != made[0]:
            raise TypeError("scan: f gives y of another structure than before; it must be the same in all turns")
        return given + ys

    if _C.is_tracing():
        outputs = _C.trace_scan(states, rows, steps, reverse, step)
    else:
        outputs = _eager_scan(step, states, rows, steps, reverse)
    return state_structure.build(iter(outputs[:len(states)])), made[0].build(iter(outputs[len(states):]))


def _steps(rows, names, length):
    sizes = {}
    for name, row in zip(names, rows):
        if row.dim() == 0:
            raise _C.ValueError(f"scan: {name} is a scalar; it is taken apart along its first axis")
        sizes.setdefault(row.shape[0], name)
    if length is not None:
        sizes.setdefault(length, "length")
    if len(sizes) != 1:
        found = ", ".join(f"{name}: {size}" for size, name in sizes.items()) or "neither xs nor length"
        raise _C.ValueError(f"scan: numbers of turns: {found}; give xs of equally long first axes, or a length")
    return next(iter(sizes))


def _check_states(who, expected, got, before, after, names):
    if expected != got:
        text = difference(expected, got, "")
        text = text.replace("argument '", "state '") if text else "it is another"
        raise TypeError(f"{who} changes the structure of its state: {text}")
    for name, a, b in zip(names, before, after):
        if a.dtype is not b.dtype or a.shape != b.shape:
            raise TypeError(f"{who} changes the type of its state '{name}': from {a.dtype} of shape {tuple(a.shape)} to "
                            f"{b.dtype} of shape {tuple(b.shape)}; it must stay as at first")


def _eager_scan(step, states, rows, steps, reverse):
    stacked = [None] * steps
    for i in reversed(range(steps)) if reverse else range(steps):
        given = step(states + [row[i] for row in rows])
        states, stacked[i] = given[:len(states)], given[len(states):]
    if steps == 0:  # what y is like, f tells of any row
        with no_grad():
            given = step(states + [row.new_zeros(row.shape[1:]) for row in rows])
        return states + [y.new_zeros((0, *y.shape)) for y in given[len(states):]]
    return states + [fn.stack(ys) for ys in zip(*stacked)]


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """body_fn's results, which are its next arguments, as long as cond_fn of them is true. torch.while_loop.

    cond_fn gives a bool or a bool tensor of one element, body_fn a tuple of as many tensors as it takes, of equal shapes and
    dtypes. In a graph, where cond_fn gives a tensor, both are traced once, and each step runs the loop as often as its values
    say; neither may write in place to tensors from outside, nor draw random numbers. Such a loop has no gradient: use scan().
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError(f"Expect cond_fn and body_fn to be callable, but got {cond_fn!r:.80} and {body_fn!r:.80}")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple of possibly nested tensors, but got {type(carried_inputs)}")
    carried = tuple(carried_inputs)
    leaves: list = []
    structure = flatten(carried, "carried_inputs", leaves, [])

    def step(carried):
        made = body_fn(*carried)
        if not isinstance(made, (tuple, list)):
            raise RuntimeError(f"body_fn should return a tuple but got {type(made)}")
        found: list = []
        if flatten(tuple(made), "body_fn", found, []) != structure:
            raise RuntimeError("body_fn should return as many tensors as it takes, in the same structure")
        for i, (a, b) in enumerate(zip(found, leaves)):
            if a.dtype is not b.dtype or a.shape != b.shape:
                raise RuntimeError(f"body_fn: result {i} is {a.dtype} of shape {tuple(a.shape)}; must be {b.dtype} of shape "
                                   f"{tuple(b.shape)}, "
                                   "as what it takes")
        return tuple(made), found

    go_on = _decision(cond_fn(*carried))
    while isinstance(go_on, bool) or not _C.is_tracing():
        if not go_on:
            return carried
        carried, leaves = step(carried)
        go_on = _decision(cond_fn(*carried))

    def traced(taken):
        made, found = step(structure.build(iter(taken[1:])))
        goes_on = _decision(cond_fn(*made))
        if isinstance(goes_on, bool):
            raise RuntimeError("cond_fn must return a boolean scalar tensor, as it did before the first turn, "
                               "but got a boolean")
        return [goes_on.reshape(()), *found]

    return structure.build(iter(_C.trace_while([go_on.detach().reshape(()), *leaves], traced)[1:]))


def _decision(go_on):
    if isinstance(go_on, Tensor):
        if go_on.dtype is not _C.bool or go_on.numel() != 1:
            raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {go_on.dtype} of shape "
                               f"{tuple(go_on.shape)}")
    elif not isinstance(go_on, bool):
        raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {type(go_on)}")
    return go_on
