"""Reading the pickle of a checkpoint: restricted to an allow-list, or in full."""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
from typing import Any, Callable

from sluice.serialization import _names

# The restricted unpickler reads data, and calls of what find_class allows. Not: persistent ids as text, instances of classes
# by their names (INST, OBJ), the extension registry, and buffers of a size that the file only claims.
_REFUSED = ("PERSID", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER")
_OPCODES = {op.name: op.code for op in pickletools.opcodes}


def refusal(name: str) -> str:
    safe = sorted(_names.safe_globals_by_name())
    allowed = [*sorted(n for n in _names.PYTHON if not n.startswith("__")), *sorted(_names.TORCH), *safe]
    if name.startswith(("torch.nn.", "torch.optim.")):
        return f"it has {name}, a class of torch; save its state_dict() in torch instead"
    if name.startswith("torch."):
        return (f"it has {name}, which Sluice does not have; only strided tensors of these dtypes can be read: "
                + ", ".join(sorted(dtype.name for dtype in _names.STORAGES)))
    return (f"it calls {name}, which is not on the allow-list of weights_only=True. If you trust it, add it by "
            f"sluice.serialization.add_safe_globals([{name.rpartition('.')[2]}]); weights_only=False runs whatever code "
            "the file names. "
            f"Allowed are: {', '.join(allowed)}")


class Restricted(pickle._Unpickler):  # type: ignore[name-defined]  # Python's own, since C's allocates what a file only claims
    """Reads data, and calls what is on the allow-list. Everything else is refused by name, and nothing of it is imported."""

    dispatch = {code: f for code, f in pickle._Unpickler.dispatch.items()  # type: ignore[attr-defined]
                if code not in [ord(_OPCODES[name]) for name in _REFUSED]}

    def __init__(self, data: bytes, persistent_load: Callable, encoding: str) -> None:
        super().__init__(io.BytesIO(data), encoding=encoding)
        self.persistent_load = persistent_load
        self._found: dict[int, Any] = {}  # what may be called, by id

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        for table in (_names.TORCH, _names.PYTHON, _names.safe_globals_by_name()):
            if full in table:
                found = table[full]
                if table is not _names.TORCH or isinstance(found, _names.Allowed):  # others are only named
                    self._found[id(found)] = found
                return found
        raise pickle.UnpicklingError(refusal(full))

    def _check_call(self, function: Any) -> None:
        if self._found.get(id(function)) is not function:
            raise pickle.UnpicklingError(f"it calls a {type(function).__name__}, which is no function of the allow-list")

    def load_reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack[-1]
        self._check_call(function)
        self.stack[-1] = function(*args)

    def load_newobj(self) -> None:
        args = self.stack.pop()
        self._new(self.stack.pop(), args, {})

    def load_newobj_ex(self) -> None:
        kwargs, args = self.stack.pop(), self.stack.pop()
        self._new(self.stack.pop(), args, kwargs)

    def _new(self, cls: Any, args: Any, kwargs: Any) -> None:
        self._check_call(cls)
        self.append(cls.__new__(cls, *args, **kwargs))

    def load_build(self) -> None:
        state, instance = self.stack.pop(), self.stack[-1]
        if type(instance) is collections.OrderedDict:
            instance.__dict__.update(state)
        elif type(instance) in _names.safe_globals_by_name().values():
            self.stack.append(state)
            super().load_build()
        else:
            raise pickle.UnpicklingError(f"it sets the state of a {type(instance).__name__}, which is not on the "
                                         "allow-list of weights_only=True; "
                                         "see sluice.serialization.add_safe_globals")

    def _check_top(self, kind: type, depth: int) -> None:
        if not isinstance(self.stack[depth], kind):
            raise pickle.UnpicklingError(f"it adds items to a {type(self.stack[depth]).__name__}; must be a {kind.__name__}")

    def load_append(self) -> None:
        self._check_top(list, -2)
        super().load_append()

    def load_appends(self) -> None:
        items = self.pop_mark()
        self._check_top(list, -1)
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        self._check_top(dict, -3)
        super().load_setitem()

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self._check_top(dict, -1)
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_additems(self) -> None:
        items = self.pop_mark()
        self._check_top(set, -1)
        self.stack[-1].update(items)

    for _name in ("reduce", "newobj", "newobj_ex", "build", "append", "appends", "setitem", "setitems", "additems"):
        dispatch[ord(_OPCODES[_name.upper()])] = locals()["load_" + _name]


def full(module: Any, data: bytes, persistent_load: Callable, encoding: str, **options: Any) -> Any:
    """Reads everything, and so runs any code that the file names; torch's names are those of Sluice."""

    class Unpickler(module.Unpickler):
        def find_class(self, package: str, name: str) -> Any:
            found = _names.TORCH.get(f"{package}.{name}")
            if found is not None:
                return found
            if package == "torch" or package.startswith("torch."):
                raise pickle.UnpicklingError(refusal(f"{package}.{name}"))
            return super().find_class(package, name)

        def persistent_load(self, pid: Any) -> Any:
            return persistent_load(pid)

    return Unpickler(io.BytesIO(data), encoding=encoding, **options).load()


def globals_of(data: bytes) -> list[str]:
    """The names in a pickle, without running it."""
    found, texts = [], []
    for op, argument, _ in pickletools.genops(data):
        if op.name == "GLOBAL":
            found.append(argument.replace(" ", "."))
        elif op.name == "STACK_GLOBAL":
            found.append(".".join(texts[-2:]))
        elif isinstance(argument, str) and "UNICODE" in op.name:
            texts.append(argument)
    return found
