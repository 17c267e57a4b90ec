"""torch.utils._pytree: nests of containers, taken apart and put together."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from typing import Any, Callable, Iterable, NamedTuple, Optional

from sluice.mock_torch._private.made import module


class MappingKey(NamedTuple):
    """The way to a value of a dict."""

    key: Any

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(NamedTuple):
    """The way to an item of a list or tuple."""

    idx: int

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class GetAttrKey(NamedTuple):
    """The way to an attribute."""

    name: str

    def get(self, thing: Any) -> Any:
        return getattr(thing, self.name)

    def __str__(self) -> str:
        return f".{self.name}"


class NodeDef(NamedTuple):
    """A kind of container: how it is taken apart and put together."""

    type: type
    flatten_fn: Callable[..., Any]  # to a list of children, and what else there is to know
    unflatten_fn: Callable[..., Any]
    flatten_with_keys_fn: Optional[Callable[..., Any]] = None  # to pairs of a key and a child


def _dict_flatten(d: Any) -> Any:
    return list(d.values()), list(d)


def _dict_unflatten(values: Any, keys: Any) -> Any:
    return dict(zip(keys, values))


def _dict_flatten_with_keys(d: Any) -> Any:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _list_flatten(items: Any) -> Any:
    return list(items), None


def _list_flatten_with_keys(items: Any) -> Any:
    return [(SequenceKey(i), v) for i, v in enumerate(items)], None


def _ordered_unflatten(values: Any, keys: Any) -> Any:
    return OrderedDict(zip(keys, values))


def _default_flatten(d: Any) -> Any:
    return list(d.values()), [d.default_factory, list(d)]


def _default_flatten_with_keys(d: Any) -> Any:
    return [(MappingKey(k), v) for k, v in d.items()], [d.default_factory, list(d)]


def _default_unflatten(values: Any, context: Any) -> Any:
    return defaultdict(context[0], zip(context[1], values))


def _named_flatten(nt: Any) -> Any:
    return list(nt), type(nt)


def _named_flatten_with_keys(nt: Any) -> Any:
    return [(GetAttrKey(field), v) for field, v in zip(type(nt)._fields, nt)], type(nt)


# By type; all namedtuples are one kind, under this name.
namedtuple = type("namedtuple", (), {})
SUPPORTED_NODES: dict[type, NodeDef] = {node.type: node for node in (
    NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    NodeDef(OrderedDict, _dict_flatten, _ordered_unflatten, _dict_flatten_with_keys),
    NodeDef(defaultdict, _default_flatten, _default_unflatten, _default_flatten_with_keys),
    NodeDef(list, _list_flatten, lambda values, _: list(values), _list_flatten_with_keys),
    NodeDef(tuple, _list_flatten, lambda values, _: tuple(values), _list_flatten_with_keys),
    NodeDef(deque, lambda d: (list(d), d.maxlen), lambda values, maxlen: deque(values, maxlen=maxlen), _list_flatten_with_keys),
    NodeDef(namedtuple, _named_flatten, lambda values, kind: kind(*values), _named_flatten_with_keys))}


class TreeSpec(NamedTuple):
    """A nest without its leaves."""

    type: Any
    context: Any
    children_specs: list[Any]

    def is_leaf(self) -> bool:
        return self.type is None

    @property
    def num_leaves(self) -> int:
        return 1 if self.is_leaf() else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return tree_unflatten(leaves, self)


def LeafSpec() -> TreeSpec:
    """The place of a leaf."""
    return TreeSpec(None, None, [])


def register_pytree_node(cls: type, flatten_fn: Any, unflatten_fn: Any, *, flatten_with_keys_fn: Any = None, **options: Any) -> None:
    """Objects of this class are containers from here on."""
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _node(tree: Any, is_leaf: Any) -> Optional[NodeDef]:
    """How this is taken apart; None: it is a leaf."""
    if is_leaf is not None and is_leaf(tree):
        return None
    kind = type(tree)
    if kind not in SUPPORTED_NODES and isinstance(tree, tuple) and hasattr(kind, "_fields"):
        kind = namedtuple
    return SUPPORTED_NODES.get(kind)


def _children(node: NodeDef, tree: Any) -> tuple[list[Any], list[Any], Any]:
    """The keys of the children, the children, and the rest."""
    if node.flatten_with_keys_fn is not None:
        pairs, context = node.flatten_with_keys_fn(tree)
        return [k for k, _ in pairs], [v for _, v in pairs], context
    children, context = node.flatten_fn(tree)
    children = list(children)
    return [SequenceKey(i) for i in range(len(children))], children, context


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """(path, leaf) of each leaf, and the nest without them."""
    found: list[Any] = []

    def walk(part: Any, path: tuple[Any, ...]) -> TreeSpec:
        node = _node(part, is_leaf)
        if node is None:
            found.append((path, part))
            return LeafSpec()
        keys, children, context = _children(node, part)
        return TreeSpec(node.type, context, [walk(child, (*path, key)) for key, child in zip(keys, children)])

    return found, walk(tree, ())


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    return [leaf for _, leaf in pairs], spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The nest with these leaves, as many as it has."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds "
                         f"{treespec.num_leaves} items ({treespec}).")
    items = iter(leaves)

    def build(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return next(items)
        return SUPPORTED_NODES[spec.type].unflatten_fn([build(child) for child in spec.children_specs], spec.context)

    return build(treespec)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Any = None) -> Any:
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map_with_path(function: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The nest with function(path, leaf, ...) for each leaf; the other nests are at least as deep as the first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [_up_to(spec, rest) for rest in rests]
    return tree_unflatten([function(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others)], spec)


def _up_to(spec: TreeSpec, tree: Any) -> list[Any]:
    """The parts of a nest where the spec has leaves."""
    if spec.is_leaf():
        return [tree]
    node = _node(tree, None)
    if node is None or node.type is not spec.type:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    children = _children(node, tree)[1]
    if len(children) != len(spec.children_specs):
        raise ValueError(f"Node arity mismatch; expected {len(spec.children_specs)}, but got {len(children)}.")
    return [leaf for child, part in zip(spec.children_specs, children) for leaf in _up_to(child, part)]


def tree_map(func: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The nest with func(leaf, ...) for each leaf."""
    return tree_map_with_path(lambda path, *leaves: func(*leaves), tree, *rests, is_leaf=is_leaf)


def tree_map_(func: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kind: Any, func: Any, tree: Any, is_leaf: Any = None) -> Any:
    """As tree_map, for leaves of this type or these types, or that this function chooses."""
    chosen = (lambda leaf: isinstance(leaf, kind)) if isinstance(kind, (type, tuple)) else kind
    return tree_map(lambda leaf: func(leaf) if chosen(leaf) else leaf, tree, is_leaf=is_leaf)


def tree_any(pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all(pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any_only(kind: Any, pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kind))


def tree_all_only(kind: Any, pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, kind))


def key_get(obj: Any, kp: Any) -> Any:
    """What lies at the end of a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


def keystr(kp: Any) -> str:
    """A path as text: ['a'][0].b"""
    return "".join(map(str, kp))


_PLAIN = {"dict": dict, "list": list, "tuple": tuple}


def treespec_dumps(treespec: TreeSpec, protocol: Any = None) -> str:
    """The spec as text: of dicts, lists and tuples."""
    def plain(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return None
        name = spec.type.__name__
        if _PLAIN.get(name) is not spec.type:
            raise NotImplementedError(f"treespec_dumps: got a container of type {spec.type.__name__}; must be dicts, lists and tuples")
        return [name, spec.context, [plain(child) for child in spec.children_specs]]

    return json.dumps([1, plain(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """Reads the text of treespec_dumps()."""
    def spec(data: Any) -> TreeSpec:
        return LeafSpec() if data is None else TreeSpec(_PLAIN[data[0]], data[1], [spec(child) for child in data[2]])

    version, data = json.loads(serialized)
    if version != 1:
        raise NotImplementedError(f"treespec_loads: got a text of version {version}; must be one of treespec_dumps, version 1")
    return spec(data)


_NAMES = """MappingKey SequenceKey GetAttrKey NodeDef SUPPORTED_NODES TreeSpec LeafSpec register_pytree_node tree_flatten_with_path tree_flatten
tree_unflatten tree_leaves tree_iter tree_structure tree_map_with_path tree_map tree_map_ tree_map_only tree_any tree_all tree_any_only
tree_all_only key_get keystr treespec_dumps treespec_loads _dict_flatten _dict_unflatten _dict_flatten_with_keys""".split()
PYTREE = module("torch.utils._pytree", **{name: globals()[name] for name in _NAMES}, _register_pytree_node=register_pytree_node,
                Context=object, PyTree=Any, KeyPath=tuple, _list_flatten=_list_flatten, _list_flatten_with_keys=_list_flatten_with_keys,
                _get_node_type=lambda tree: type(tree) if _node(tree, None) is None else _node(tree, None).type,
                _is_leaf=lambda tree, is_leaf=None: _node(tree, is_leaf) is None)
