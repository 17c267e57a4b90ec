"""Names of what nodes call: as text for people, and as an expression that finds the same object in generated code."""

from __future__ import annotations

import builtins
import importlib
import keyword
import math
import operator
import re
import sys
from typing import Any, Callable, Optional

from sluice._base.device import device
from sluice._base.recorded import _assert

# Functions whose calls are kept, used or not.
SIDE_EFFECTS: list[Any] = [_assert, operator.setitem]

# The modules whose functions generated code names by torch's names; the first that has a function by its name counts.
PUBLIC = ("sluice", "sluice.nn.functional", "sluice.linalg", "sluice.special", "sluice.fft", "sluice.sparse", "sluice.nn.init", "sluice.func")

# How operators are written: {} stand for the arguments.
INFIX = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}", "mod": "{} % {}",
         "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}",
         "matmul": "{} @ {}", "getitem": "{}[{}]", "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}",
         "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}"}
IN_PLACE = {"iadd": "{} += {}", "isub": "{} -= {}", "imul": "{} *= {}", "ifloordiv": "{} //= {}", "itruediv": "{} /= {}", "imod": "{} %= {}",
            "ipow": "{} **= {}", "ilshift": "{} <<= {}", "irshift": "{} >>= {}", "iand": "{} &= {}", "ior": "{} |= {}", "ixor": "{} ^= {}",
            "imatmul": "{} @= {}"}


def sluice_root() -> Any:
    return importlib.import_module("sluice")


def public_name(value: Any) -> Optional[str]:
    """The name by which `import sluice as torch` has it, such as "torch.nn.functional.relu"; None: there is none."""
    name = getattr(value, "__name__", None)
    if not isinstance(name, str):
        return None
    for place in PUBLIC:
        module = sys.modules.get(place)
        try:
            found = getattr(module, name, None)
        except Exception:  # a name that is refused with an error of its own
            continue
        if found is value:
            return "torch" + place.removeprefix("sluice") + "." + name
    return None


def name_of_function(func: Callable[..., Any]) -> str:
    """For people: with its module."""
    name = getattr(func, "__name__", None)
    if (known := public_name(func)) is not None:
        return known
    module = getattr(func, "__module__", None)
    if name is None:
        return repr(func)
    return f"{module.replace('_operator', 'operator')}.{name}" if module else name


def target_text(target: Any) -> str:
    """The name that a target gives its node: Conv2d -> conv2d, __getitem__ -> getitem, layer1.0 stays."""
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    if len(name) > 4 and name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def is_name(text: str) -> bool:
    """Whether code may have it as a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


# Generated code may use these without an import of its own.
def standard_globals() -> dict[str, Any]:
    return {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": sluice_root(), "device": device}


_STANDARD = ("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree")


class Namespace:
    """Names that are given once: relu, relu_1, relu_2.

    *Invariant*: no name is a keyword, a builtin's or a standard global's, unless it stands for just that object.
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A free name like the candidate. obj: whom it is for, who gets the same name again; None: nobody."""
        if obj is not None and id(obj) in self._names:
            return self._names[id(obj)]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
        match = re.fullmatch(r"(.*)_(\d+)", candidate, re.DOTALL)
        base, number = (match[1], int(match[2])) if match is not None else (candidate, None)
        while candidate in self._used or self._is_taken(candidate, obj):
            number = 1 if number is None and base not in self._counts else (self._counts.get(base, 0) if number is None else number) + 1
            candidate = f"{base}_{number}"
        if number is not None:
            self._counts[base] = number
        self._used.add(candidate)
        if obj is not None:
            self._names[id(obj)] = candidate
        return candidate

    def associate(self, name: str, obj: Any) -> None:
        """The object has this name, which create_name() has made for nobody."""
        self._names[id(obj)] = name

    def _is_taken(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name):
            return True
        if hasattr(builtins, name):
            return obj is None or obj is not getattr(builtins, name)
        return name in _STANDARD and (obj is None or obj is not standard_globals().get(name))

    def _rename_object(self, obj: Any, name: str) -> None:
        self._names[id(obj)] = name
