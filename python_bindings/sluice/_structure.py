"""Nested inputs and outputs: lists, tuples, named tuples, dicts, tensors, and constants (None, numbers, strings)."""

from sluice._C import Tensor


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
        return items if self.kind == "list" else tuple(items)

    def to_json(self):
        if self.kind == "namedtuple":
            return {"kind": "tuple", "children": [c.to_json() for c in self.children]}
        value = {"value": self.value} if self.value is not None else {}
        return {"kind": self.kind, **value, "children": [c.to_json() for c in self.children]}

    @staticmethod
    def from_json(data):
        value = data.get("value")
        return Structure(data["kind"], tuple(value) if isinstance(value, list) else value,
                         tuple(map(Structure.from_json, data["children"])))


_TENSOR = Structure("tensor")


def flatten(nest, name, leaves, names):
    """Appends the tensors of `nest` and their names ("batch.images", "x.0"); returns the structure."""
    if isinstance(nest, Tensor):
        leaves.append(nest)
        names.append(name)
        return _TENSOR
    if nest is None or isinstance(nest, (bool, int, float, str)):
        return Structure("constant", nest)
    if isinstance(nest, dict):
        children = tuple(flatten(v, _join(name, k), leaves, names) for k, v in nest.items())
        return Structure("dict", tuple(nest), children)
    if isinstance(nest, (list, tuple)):
        fields = getattr(nest, "_fields", range(len(nest)))
        children = tuple(flatten(v, _join(name, f), leaves, names) for f, v in zip(fields, nest))
        if isinstance(nest, tuple) and hasattr(nest, "_fields"):
            return Structure("namedtuple", type(nest), children)
        return Structure("list" if isinstance(nest, list) else "tuple", None, children)
    raise TypeError(f"{name}: got {type(nest).__name__}; a graph takes and returns tensors, None, numbers, strings, and lists, "
                    "tuples and dicts of them")


def _join(name, part):
    return f"{name}.{part}" if name else str(part)


def difference(expected, got, name):
    """Where two structures differ, in words: 'argument 'x' is ...; expected ...'. None when they are equal."""
    if expected.kind != got.kind:
        return f"argument '{name}' is {_describe(got)}; expected {_describe(expected)}"
    if expected.kind == "constant" and expected != got:
        return f"argument '{name}' is {got.value!r}; expected {expected.value!r}, as when the graph was compiled"
    if expected.kind == "dict" and expected.value != got.value:
        return f"argument '{name}' has keys {list(got.value)}; expected {list(expected.value)}"
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
    return repr(structure.value) if structure.kind == "constant" else f"a {structure.kind} of {len(structure.children)}"
