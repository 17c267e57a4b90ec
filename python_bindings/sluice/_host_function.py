"""Python functions as actors on host streams."""

import itertools
import weakref

from sluice import _C
from sluice._C import Tensor
from sluice._device import device, stream as stream_scope

functions = {}  # by name, as graphs refer to them
_names = weakref.WeakKeyDictionary()
_counter = itertools.count()


def _name_of(fn):
    name = _names.get(fn)
    if name is None:
        base = getattr(fn, "__name__", type(fn).__name__)
        name = base if base not in functions else f"{base}_{next(_counter)}"
        _names[fn] = name
        functions[name] = fn
        _C.register_host_function(name, fn)
    return name


def host_function(fn, *tensors, out, stream="host"):
    """Calls `fn(*arrays)` with numpy views of `tensors`; returns tensors of the declared types.

    out: (shape, dtype) of the result, or a list of them. `fn` returns one numpy array, or a tuple, of these types.
    In a graph this is an actor on `stream` ("host", "host:1", ...) that runs beside the compute stream; an exception
    in `fn` fails that step with fn's traceback. It may keep state: it is called once per step, in order.
    """
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"host_function: argument {i} of {_name_of(fn)} is {type(t).__name__}; must be a Tensor")
    single = isinstance(out, tuple)
    declared = [(tuple(shape), dtype) for shape, dtype in ([out] if single else out)]
    with device("cpu"), stream_scope(stream):
        results = _C.call_host_function(list(tensors), _name_of(fn), declared)
    return results[0] if single else tuple(results)
