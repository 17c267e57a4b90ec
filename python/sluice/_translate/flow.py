"""The functions that translated code calls: Python's control flow, or a graph's where a value of the graph decides."""

from __future__ import annotations

import builtins
import itertools
import operator
from typing import Any, Callable


from sluice import _C
from sluice._C import Tensor
from sluice._tensor.creation import from_numpy, full_like, tensor, zeros, zeros_like
from sluice._tensor.dtypes import result_type
from sluice._tensor.each_step import each_step
from sluice._base.structure import Structure, flatten
from sluice._translate.called import called as called

NAME = "_sl_flow"


class Unset:
    """A name that has no value yet."""

    def __init__(self, name: str) -> None:
        self.__dict__["name"] = name

    def _read(self, *_: Any, **__: Any) -> Any:
        raise UnboundLocalError(f"'{self.name}' has no value here: it is set in one branch, or in a loop, that a value of the "
                                "graph decides about; set it before")

    __getattr__ = __setattr__ = __getitem__ = __setitem__ = __call__ = __iter__ = __bool__ = __len__ = _read
    __float__ = __int__ = _read
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __neg__ = _read
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __pow__ = __mod__ = __rmod__ = __floordiv__ = _read  # type: ignore
    __hash__ = None  # type: ignore[assignment]


def unset(name: str) -> Unset:
    return Unset(name)


def result(value: Any, returned: Any) -> Any:
    """The result that a function returns."""
    return None if isinstance(value, Unset) else value


def _decides(value: Any) -> bool:
    return isinstance(value, Tensor) and _C.touches_graph(value)


def _truth(value: Tensor) -> Tensor:
    if value.numel() != 1:
        raise RuntimeError(f"a condition is {value.dtype} of shape {tuple(value.shape)}; must have one element: use .any() or "
                           ".all()")
    value = value.detach().reshape(())
    return value if value.dtype is _C.bool else value != 0


# Logic. If a value of the graph decides, the code behind it is traced as a branch, of which a step runs one.


def and_(*parts: Callable[[], Any]) -> Any:
    """`a and b`: the first that is false, or the last."""
    return _first_that(parts, False)


def or_(*parts: Callable[[], Any]) -> Any:
    """`a or b`: the first that is true, or the last."""
    return _first_that(parts, True)


def _first_that(parts: tuple[Callable[[], Any], ...], truth: bool) -> Any:
    value = parts[0]()
    for i, part in enumerate(parts[1:], 1):
        if _decides(value):
            here, rest = lambda value=value: value, lambda rest=parts[i:]: _first_that(rest, truth)
            return choose(value, here, rest) if truth else choose(value, rest, here)
        if bool(value) is truth:
            return value
        value = part()
    return value


def both(*parts: tuple[Callable[[], Any], bool]) -> Any:
    """Whether `a and b`. Each part comes with whether it does nothing but compute, so that it may be computed at once."""
    return _truth_of(parts, False)


def either(*parts: tuple[Callable[[], Any], bool]) -> Any:
    """Whether `a or b`; see both()."""
    return _truth_of(parts, True)


def _truth_of(parts: Any, truth: bool) -> Any:
    value = parts[0][0]()
    for i, (part, _) in enumerate(parts[1:], 1):
        if _decides(value):
            rest = parts[i:]
            if all(only_computes for _, only_computes in rest):
                other = _flag_of(_truth_of(rest, truth))
                return _truth(value) | other if truth else _truth(value) & other
            here, there = lambda: truth, lambda rest=rest: _flag_of(_truth_of(rest, truth))
            return choose(value, here, there) if truth else choose(value, there, here)
        if bool(value) is truth:
            return value
        value = part()
    return value


def _flag_of(value: Any) -> Any:
    return _truth(value) if isinstance(value, Tensor) else bool(value)


def not_(value: Any) -> Any:
    return ~_truth(value) if _decides(value) else not value


def choose(test: Any, true: Callable[[], Any], false: Callable[[], Any]) -> Any:
    if not _decides(test):
        return true() if test else false()
    return if_(test, lambda _: (true(),), lambda _: (false(),), (None,))[0]


_COMPARISONS = {"Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq, "NotEq": operator.ne,
                "Is": operator.is_, "IsNot": operator.is_not, "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b}


def compare(left: Any, *rest: tuple[str, Callable[[], Any], bool]) -> Any:
    """`a < b < c`: each operand is computed once, and those after a comparison that does not hold are not."""
    kind, operand, _ = rest[0]
    right = operand()
    value = _COMPARISONS[kind](left, right)
    if len(rest) == 1:
        return value
    if _decides(value) and all(only_computes for _, _, only_computes in rest[1:]):
        other = compare(right, *rest[1:])
        if isinstance(other, Tensor) and other.dtype is _C.bool and value.shape == other.shape and value.numel() == 1:
            return value & other
        return and_(lambda: value, lambda: other)
    return and_(lambda: value, lambda: compare(right, *rest[1:]))


def any_(function: Any, items: Any, *more: Any, **named: Any) -> Any:
    """A call of any() or all(), or of what has its name here."""
    if function not in (builtins.any, builtins.all) or more or named:
        return function(items, *more, **named)
    truth = function is builtins.any
    if isinstance(items, Tensor) and _decides(items) and items.dim() == 1 and len(items) > 0:
        return (items != 0).any() if truth else (items != 0).all()
    return _any_of(iter(items), truth)


def _any_of(items: Any, truth: bool) -> Any:
    """Whether one of the items, that are taken one by one, is as `truth` says."""
    for item in items:
        if _decides(item):
            here, rest = lambda: truth, lambda: _any_of(items, truth)
            return choose(item, here, rest) if truth else choose(item, rest, here)
        if bool(item) is truth:
            return truth
    return not truth


# Branches.


def if_(test: Any, true: Callable[..., tuple], false: Callable[..., tuple], values: tuple) -> tuple:
    if not _decides(test):
        return true(*values) if test else false(*values)
    branches = _C.Branches(_truth(test), 2)
    taken: list[tuple[list[Structure | None], list[Tensor]]] = []

    def run(function: Callable[..., tuple]) -> Callable[[], list[Tensor]]:
        def traced() -> list[Tensor]:
            structures, leaves = [], []
            for value in function(*values):
                structures.append(None if isinstance(value, Unset) else flatten(value, "value", leaves, [], others=True))
            taken.append((structures, leaves))
            return leaves

        return traced

    leaves = [branches.run(0, run(false)), branches.run(1, run(true))]
    # Values that differ become tensors of equal structure, in both.
    iterators = [iter(side) for side in leaves]
    merged: list[Structure | None] = []
    sides: list[list[Any]] = [[], []]
    for before, structures in zip(values, zip(*(structures for structures, _ in taken))):
        # A branch may leave a name without a value. Then the name has none behind the branches, unless it is the
        # function's result, which the code behind never reads on that path.
        known = [s for s in structures if s is not None]
        found = [None if s is None else s.build(iterator) for s, iterator in zip(structures, iterators)]
        # Only the result of a function may be set in one branch alone: nobody reads it where it is not.
        if not known or (len(known) == 1 and before.name != "the result"):
            merged.append(None)
            continue
        values_ = [found[1 - k] if s is None else found[k] for k, s in enumerate(structures)]
        given = [s is not None for s in structures]
        pairs: list[tuple[Any, Any]] = []
        merged.append(_merge(known[0], known[-1], values_, pairs))
        for pair in pairs:
            for k in range(2):
                # A side that does not set the result gives zeros in its place: both branches of a graph have the same
                # outputs.
                sides[k].append(pair[k] if given[k] else zeros_like(pair[k].detach()))
    outside = [branches.run(k, lambda side=side: side) for k, side in enumerate(sides)]
    joined = iter(branches.join(outside))
    names = iter(values)
    return tuple(next(names) if s is None else (next(names), s.build(joined))[1] for s in merged)


def _merge(a: Structure, b: Structure, values: list[Any], pairs: list[tuple[Any, Any]]) -> Structure:
    """The structure of both values; appends their tensors."""
    leaf = Structure("tensor")
    if a.kind == b.kind == "constant" and (values[0] is values[1] or a == b):
        return a
    if a.kind in ("tensor", "constant") and b.kind in ("tensor", "constant"):
        pairs.append(_alike(*values))
        return leaf
    if a.kind != b.kind or a.value != b.value or len(a.children) != len(b.children):
        raise TypeError(f"branches give different structures for one name: {a.kind} and {b.kind}; a graph needs one")
    items = [list(v.values()) if a.kind == "dict" else list(v) for v in values]
    children = tuple(_merge(x, y, [p, q], pairs) for x, y, p, q in zip(a.children, b.children, *items))
    return Structure(a.kind, a.value, children)


def _alike(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two values, tensors or numbers, as tensors of one type."""
    for value in (a, b):
        if not isinstance(value, (Tensor, bool, int, float)):
            raise TypeError(f"branches give {a!r:.60} and {b!r:.60} for one name; a graph chooses between tensors and numbers")
    if isinstance(a, Tensor) and not isinstance(b, Tensor):
        b = full_like(a.detach(), b, dtype=result_type(a, b))
    elif isinstance(b, Tensor) and not isinstance(a, Tensor):
        a = full_like(b.detach(), a, dtype=result_type(a, b))
    elif not isinstance(a, Tensor):
        a, b = tensor(a), tensor(b)
    dtype = _C.promote_types(a.dtype, b.dtype)
    if a.shape != b.shape:
        raise TypeError(f"branches give tensors of shapes {tuple(a.shape)} and {tuple(b.shape)} for one name; they must be "
                        "equal")
    return a.to(dtype), b.to(dtype)


# Loops.


def while_(test: Callable[..., Any], step: Callable[..., tuple], values: tuple) -> tuple:
    goes_on = test(*values)
    # As long as Python decides, the turns are unrolled as Python runs them. The first condition that is a value of the
    # graph makes a loop of the rest.
    while not _decides(goes_on):
        if not goes_on:
            return values
        values = step(*values)
        goes_on = test(*values)
    return _loop(test, step, values)


def _loop(test: Callable[..., Any], step: Callable[..., tuple], values: tuple) -> tuple:
    """A loop of the graph. Names that are not set before are a step's own, but for results, which begin as zeros."""
    states = [_as_state(value) for value in values]
    # A result that is set only within the loop has no state before it. The first trace finds its structure, and the
    # second one starts it with zeros.
    for _ in range(2):
        made: list[Any] = []

        def traced(taken: list[Tensor], states: list[Any] = states, made: list[Any] = made) -> list[Tensor]:
            rest = iter(taken[1:])
            now = tuple(s if isinstance(s, Unset) else s[0].build(rest) for s in states)
            after = step(*now)
            made[:] = after
            leaves: list[Tensor] = []
            for state, value in zip(states, after):
                if not isinstance(state, Unset):
                    leaves += _as_before(state, value)
            return [_flag(test(*after)), *leaves]

        leaves = list(itertools.chain.from_iterable(s[1] for s in states if not isinstance(s, Unset)))
        first = test(*(s if isinstance(s, Unset) else s[0].build(iter(s[1])) for s in states))
        results = _C.trace_while([_flag(first), *leaves], traced)
        late = [i for i, (s, value) in enumerate(zip(states, made))
                if isinstance(s, Unset) and s.name == "the result" and not isinstance(value, Unset)]
        if not late:
            break
        for i in late:
            structure = flatten(made[i], "result", found := [], [], others=True)
            states[i] = structure, [zeros(t.shape, dtype=t.dtype) for t in found]
    rest = iter(results[1:])
    return tuple(s if isinstance(s, Unset) else s[0].build(rest) for s in states)


def _flag(value: Any) -> Tensor:
    return _truth(value) if isinstance(value, Tensor) else tensor(bool(value))


def _as_state(value: Any) -> Any:
    """(structure, tensors): numbers become tensors."""
    if isinstance(value, Unset):
        return value
    leaves: list[Tensor] = []
    if isinstance(value, (bool, int, float)):
        value = tensor(value)
    return flatten(value, "state", leaves, [], others=True), leaves


def _as_before(state: tuple[Structure, list[Tensor]], value: Any) -> list[Tensor]:
    if isinstance(value, (bool, int, float)):
        value = tensor(value)
    leaves: list[Tensor] = []
    if isinstance(value, Unset) or flatten(value, "state", leaves, [], others=True) != state[0]:
        raise TypeError("a loop that a value of the graph decides about changes what one of its names is; it must stay of one "
                        "structure")
    for before, after in zip(state[1], leaves):
        if before.shape != after.shape:
            raise TypeError(f"a loop that a value of the graph decides about changes a shape: from {tuple(before.shape)} to "
                            f"{tuple(after.shape)}; it must stay")
    return [after.to(before.dtype) for before, after in zip(state[1], leaves)]


class Range:
    """range() of which a value of the graph says an end."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step


def range_(*arguments: Any) -> Any:
    if not any(map(_decides, arguments)):
        return range(*(int(a) for a in arguments))
    start, stop, step = (0, *arguments, 1) if len(arguments) == 1 else (*arguments, 1) if len(arguments) == 2 else arguments
    if _decides(step):
        raise TypeError("range: its step is a value of the graph; must be a number")
    return Range(start, stop, int(step))


def for_(items: Any, test: Callable[..., Any], step: Callable[..., tuple], values: tuple) -> tuple:
    if isinstance(items, Range):
        ahead = (lambda i: i < items.stop) if items.step > 0 else (lambda i: i > items.stop)
        start = items.start if isinstance(items.start, Tensor) else tensor(items.start)
        return _for(lambda i: i, ahead, start, items.step, test, step, values)
    if isinstance(items, Tensor) and _decides(items) and len(items) > 0:
        row = lambda i: items.index_select(0, i.reshape(1)).squeeze(0)
        return _for(row, lambda i: i < len(items), tensor(0), 1, test, step, values)
    for item in items:
        goes_on = test(*values)
        if _decides(goes_on):
            values = if_(goes_on, lambda *v, item=item: step(item, *v), lambda *v: v, values)
        elif not goes_on:
            break
        else:
            values = step(item, *values)
    return values


def _for(item: Callable[[Tensor], Any], ahead: Callable[[Tensor], Any], start: Tensor, stride: int, test: Callable[..., Any],
         step: Callable[..., tuple], values: tuple) -> tuple:
    # The number of the turn is a state in front of the others. It is not shown to the code behind the loop.
    go_on = lambda i, *v: both((lambda: test(*v), True), (lambda: ahead(i), True))
    after = lambda i, *v: (i + stride, *step(item(i), *v))
    return _loop(go_on, after, (start, *values))[1:]


# Statements.

_UPDATES = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floordiv", "Mod": "mod", "Pow": "pow",
            "MatMult": "matmul", "BitAnd": "and_", "BitOr": "or_", "BitXor": "xor", "LShift": "lshift", "RShift": "rshift"}


def update(kind: str, value: Any, by: Any) -> Any:
    """`value += by` and its like: of a value of the graph a new one, since branches and loops write to none from outside."""
    name = _UPDATES[kind]
    if _decides(value) or (_decides(by) and not isinstance(value, Tensor)):
        return getattr(operator, name)(value, by)
    return getattr(operator, "i" + name.rstrip("_"))(value, by)


def assert_(test: Any, message: Callable[[], Any]) -> None:
    if not _decides(test):
        if not test:
            text = message()
            raise AssertionError(*(() if text is None else (text,)))
        return
    text = message()

    def checked(value: Any) -> None:
        if not value:
            raise AssertionError(*(() if text is None else (text,)))

    each_step(checked, _truth(test))


def print_(*values: Any, **options: Any) -> None:
    if not any(map(_decides, values)):
        builtins.print(*values, **options)
        return
    decided = [_decides(value) for value in values]

    def shown(*arrays: Any) -> None:
        rest = iter(arrays)
        builtins.print(*(from_numpy(next(rest).copy()) if d else value for value, d in zip(values, decided)), **options)

    each_step(shown, *(value.detach() for value, d in zip(values, decided) if d))
