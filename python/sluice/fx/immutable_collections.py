"""Lists and dicts that refuse to be changed: arguments of nodes, whose uses are counted when they are set."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(f"{type(self).__name__}: arguments of a node were written in place; must be assigned anew, as in "
                              "node.args = (...), or node.update_arg(index, value)")


class immutable_list(list):
    """A list that cannot be changed."""

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return immutable_list, (list(self),)


class immutable_dict(dict):
    """A dict that cannot be changed."""

    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]
    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return immutable_dict, (dict(self),)
