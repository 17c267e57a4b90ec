"""Nested inputs and outputs: lists, tuples, named tuples, dicts, tensors, and constants (None, numbers, strings)."""

from sluice import _C
from sluice._base.parts import has_parts, is_dense


class Structure:
    """The shape of a nest: tensors are numbered leaves, everything else is part of the structure."""

    __slots__ = ("kind", "value", "children")

    def __init__(self, kind, value=None, children=()):
        self.kind, self.value, self.children = kind, value, children

    def __eq__(self, other):
        return (isinstance(other, Structure) and self.kind == other.kind and type(self.value) is type(other.value)
                and self.value == other.value and self.children == other.children)

    def build(self, leaves):
        """The nest with `leaves` (an iterator) in place of its tensors."""
        if self.kind == "tensor":
            return next(leaves)
        if self.kind == "constant":
            return self.value
        items = [child.build(leaves) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.value, items))
        if self.kind == "namedtuple":
            return self.value(*items)
        if self.kind == "parts":
            return self.value[0]._of_parts(self.value[1], items)
        return items if self.kind == "list" else tuple(items)

    def to_json(self):
        if self.kind in ("namedtuple", "parts"):
            return {"kind": "tuple", "children": [c.to_json() for c in self.children]}
        value = {"value": self.value} if self.value is not None else {}
        return {"kind": self.kind, **value, "children": [c.to_json() for c in self.children]}

    def tensors(self):
        """How many there are."""
        return (self.kind == "tensor") + sum(child.tensors() for child in self.children)

    def constants(self):
        """All of them, in order."""
        return [self.value] if self.kind == "constant" else [c for child in self.children for c in child.constants()]

    @staticmethod
    def from_json(data):
        """Reads the result of to_json(). Throws ValueError for anything else."""
        if not isinstance(data, dict) or not {"kind", "children"} <= set(data) <= {"kind", "value", "children"}:
            raise _C.ValueError(f"{data!r:.80}; a structure is an object of kind, children and perhaps value")
        kind, value, children = data["kind"], data.get("value"), data["children"]
        if kind not in ("tensor", "constant", "dict", "list", "tuple") or not isinstance(children, list):
            raise _C.ValueError(f"a structure of kind {kind!r:.80} with children {children!r:.80}; kinds are tensor, constant, "
                                "dict, list and tuple, children a list")
        if kind == "dict":
            value = tuple(value) if isinstance(value, list) else () if value is None else value
            if not isinstance(value, tuple) or any(isinstance(key, (dict, list)) for key in value) or len(set(value)) != len(value):
                raise _C.ValueError(f"a dict with keys {value!r:.80}; must be a list of different ones")
            if len(value) != len(children):
                raise _C.ValueError(f"a dict with {len(value)} keys and {len(children)} values; must be equally many")
        elif kind == "constant":
            if isinstance(value, (dict, list)):
                raise _C.ValueError(f"constant {value!r:.80}; must be null, a bool, a number or a string")
        elif value is not None:
            raise _C.ValueError(f"a {kind} with value {value!r:.80}; only dicts and constants have one")
        if kind in ("tensor", "constant") and children:
            raise _C.ValueError(f"a {kind} with {len(children)} children; it has none")
        return Structure(kind, value, tuple(map(Structure.from_json, children)))


_TENSOR = Structure("tensor")


def flatten(nest, name, leaves, names, others=False):
    """Appends the tensors of `nest` and their names ("batch.images", "x.0"); returns the structure.

    others: objects of other types are constants, too, in place of an error.
    """
    if is_dense(nest):
        leaves.append(nest)
        names.append(name)
        return _TENSOR
    if has_parts(nest):
        parts, kind = nest._to_parts()
        return Structure("parts", (type(nest), kind), tuple(flatten(t, _join(name, part), leaves, names) for part, t in parts.items()))
    if nest is None or isinstance(nest, (bool, int, float, str)):
        return Structure("constant", nest)
    if isinstance(nest, dict):
        children = tuple(flatten(v, _join(name, k), leaves, names, others) for k, v in nest.items())
        return Structure("dict", tuple(nest), children)
    if isinstance(nest, (list, tuple)):
        fields = getattr(nest, "_fields", range(len(nest)))
        children = tuple(flatten(v, _join(name, f), leaves, names, others) for f, v in zip(fields, nest))
        if isinstance(nest, tuple) and hasattr(nest, "_fields"):
            return Structure("namedtuple", type(nest), children)
        return Structure("list" if isinstance(nest, list) else "tuple", None, children)
    if others:
        return Structure("constant", nest)
    raise TypeError(f"{name}: got {type(nest).__name__}; a graph takes and returns tensors, None, numbers, strings, and lists, "
                    "tuples and dicts of them")


def _join(name, part):
    return f"{name}.{part}" if name else str(part)


def difference(expected, got, name):
    """The difference of two structures, in words: 'argument 'x' is ...; expected ...'. None when they are equal."""
    if expected.kind != got.kind:
        return f"argument '{name}' is {_describe(got)}; expected {_describe(expected)}"
    if expected.kind == "constant" and expected != got:
        return f"argument '{name}' is {got.value!r}; expected {expected.value!r}, as when the graph was compiled"
    if expected.kind == "dict" and expected.value != got.value:
        return f"argument '{name}' has keys {list(got.value)}; expected {list(expected.value)}"
    if expected.kind == "parts" and expected.value != got.value:
        return f"argument '{name}' is {_describe(got)}; expected {_describe(expected)}, as when the graph was compiled"
    if len(expected.children) != len(got.children):
        return f"argument '{name}' has {len(got.children)} entries; expected {len(expected.children)}"
    keys = expected.value if expected.kind == "dict" else range(len(expected.children))
    for key, a, b in zip(keys, expected.children, got.children):
        text = difference(a, b, _join(name, key))
        if text:
            return text
    return None


def _describe(structure):
    if structure.kind == "tensor":
        return "a Tensor"
    if structure.kind == "parts":
        return f"a {structure.value[0].__name__} of {structure.value[1]}"
    return repr(structure.value) if structure.kind == "constant" else f"a {structure.kind} of {len(structure.children)}"
