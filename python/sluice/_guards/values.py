"""The values of objects and containers: they tell whether they are what they were, and can be put back."""

from __future__ import annotations

import array
import collections
import hashlib
import types
from typing import Any

from sluice import _C
from sluice._C import Tensor
from sluice._base.parts import has_parts

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MISSING: Any = object()
ENTRIES = ("_parameters", "_buffers", "_modules")  # of modules


def in_class(cls: type, name: str) -> Any:
    """The attribute that a class or the first of its bases has under a name, as it lies there; MISSING: none has."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return MISSING


def own_table(thing: Any) -> Any:
    """The dict of an object's own attributes, where it has one, whatever its class says of `__dict__`."""
    try:
        table = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return table if isinstance(table, dict) else None


def is_plain(value: Any) -> bool:
    """Whether a value is what it is for good, and is compared by value."""
    if isinstance(value, PLAIN) or (isinstance(value, (tuple, frozenset)) and all(map(is_plain, value))):
        return True
    return type(value).__module__ == "numpy" and not hasattr(value, "__setitem__") and hasattr(value, "dtype")  # a scalar


def copy_of(value: Any) -> Any:
    """The copy that a later value is compared with; MISSING: it is not compared by value."""
    if is_plain(value) or isinstance(value, Tensor):
        return value
    if type(value) in (list, dict, set) and all(map(is_plain, value.values() if isinstance(value, dict) else value)):
        return value.copy()
    return MISSING


def text_of(value: Any) -> str:
    """A plain value, a nest of them, or a tensor, as a text that is the same in every process; of other objects their type."""
    if has_parts(value):
        parts, kind = value._to_parts()
        return f"{kind} of {text_of(parts)}"
    if isinstance(value, Tensor):
        content = hashlib.sha256(value.detach().cpu().contiguous().reshape(-1).view(_C.uint8).numpy()).hexdigest()
        return f"{value.dtype.name}{value._shape} with the content {content[:16]}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = list(map(text_of, value))
        return f"{type(value).__name__}({', '.join(sorted(parts) if isinstance(value, (set, frozenset)) else parts)})"
    return repr(value) if isinstance(value, (*PLAIN, _C.dtype)) else type(value).__name__


def values_differ(now: Any, then: Any) -> bool:
    """Compares a value with the result of copy_of()."""
    if now is then:
        return False
    if isinstance(now, Tensor) or isinstance(then, Tensor) or type(now) is not type(then):
        return True
    if isinstance(now, (float, complex)):
        return repr(now) != repr(then)  # NaN is itself, and -0.0 is not 0.0
    if isinstance(now, (list, tuple)):
        return len(now) != len(then) or any(map(values_differ, now, then))
    if isinstance(now, dict):
        return list(now) != list(then) or any(values_differ(value, then[key]) for key, value in now.items())
    return bool(now != then)


def differs(now: Any, then: Any) -> bool:
    """Tells whether any two objects differ: by value where they have one, else by identity."""
    if now is then or (isinstance(then, types.MethodType) and now == then):
        return False
    return copy_of(now) is MISSING or copy_of(then) is MISSING or values_differ(now, then)


def is_array(thing: Any) -> bool:
    """Tells whether it holds numbers in memory of its own: a NumPy array, without importing it, a bytearray, an array of
    Python's."""
    if isinstance(thing, (bytearray, array.array)):
        return True
    return _is_of_numpy(thing) and not thing.dtype.hasobject  # one of objects has items


def _is_of_numpy(thing: Any) -> bool:
    return any(cls.__module__ == "numpy" and cls.__name__ == "ndarray" for cls in type(thing).__mro__)


def is_container(thing: Any) -> bool:
    return isinstance(thing, (list, tuple, dict, set, collections.deque, types.MappingProxyType)) or is_array(thing) or _is_of_numpy(thing)


def is_compared_by_engine(thing: Any) -> bool:
    """Whether SameObjects takes a container: of others the order is not in the dict, or there is no memory to look at."""
    if _is_of_numpy(thing):
        return thing.dtype.kind in "?biufc" and not thing.dtype.hasobject
    if isinstance(thing, dict):
        return not isinstance(thing, collections.OrderedDict)
    return isinstance(thing, (list, set, bytearray, array.array))


def snapshot(thing: Any) -> Any:
    """A copy of a container for same_items(), as Python's own class of its kind."""
    for kind in (list, set, bytearray):
        if isinstance(thing, kind):
            return kind(thing)
    if isinstance(thing, (dict, types.MappingProxyType)):
        return dict(thing.items())
    return thing.copy() if _is_of_numpy(thing) else thing[:] if isinstance(thing, array.array) else collections.deque(thing)


def items_of(thing: Any) -> list[Any]:
    """The objects in a container, of dicts the values; none in an array of numbers."""
    if is_array(thing):
        return []
    return list(thing.values() if isinstance(thing, (dict, types.MappingProxyType)) else thing.flat if _is_of_numpy(thing) else thing)


def same_items(thing: Any, copy: Any) -> bool:
    if isinstance(thing, (bytearray, array.array)):
        return bool(thing == copy)
    if _is_of_numpy(thing):
        same = thing.shape == copy.shape and thing.dtype == copy.dtype
        return same and (all(a is b for a, b in zip(thing.flat, copy.flat)) if thing.dtype.hasobject else thing.tobytes() == copy.tobytes())
    if len(thing) != len(copy):
        return False
    if isinstance(thing, set):
        return thing == copy
    if isinstance(thing, (dict, types.MappingProxyType)):
        return all(a is b or is_equal(a, b) for a, b in zip(thing, copy)) and all(
            thing[k] is copy[k] or is_equal(thing[k], copy[k]) for k in copy)
    return all(a is b or is_equal(a, b) for a, b in zip(thing, copy))


def is_equal(a: Any, b: Any) -> bool:
    """Whether both are plain and of equal value."""
    return is_plain(a) and is_plain(b) and not values_differ(a, b)


def fill(thing: Any, copy: Any) -> None:
    """Makes a container as it was."""
    if isinstance(thing, types.MappingProxyType):
        return
    if _is_of_numpy(thing):
        thing[...] = copy
    elif isinstance(thing, (bytearray, array.array)):
        thing[:] = copy
    else:
        thing.clear()
        (thing.extend if isinstance(thing, (list, collections.deque)) else thing.update)(copy)
