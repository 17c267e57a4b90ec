"""The fields of the vocabulary's templates, drawn for one statement."""

from __future__ import annotations

import re

import torch

OPERAND = re.compile(r"\{(x|i|v|m[234])\}")


class Retry(Exception):
    """The statement cannot be made of what there is."""


class Fields(dict):
    """A template is filled with these: `template.format_map(fields)`. A field is drawn when it is first read."""

    def __init__(self, draft, template):
        super().__init__()
        self.draft, self.draw = draft, draft.draw
        found = OPERAND.search(template)
        self.name = draft.pick(self._kind(found[1])) if found else draft.pick(lambda t: t.is_floating_point())
        self.t = draft.tensors[self.name]
        if found:
            self[found[1]] = self.name

    def __missing__(self, key):
        if OPERAND.fullmatch("{" + key + "}"):
            value = self.draft.pick(self._kind(key))
        else:
            value = getattr(self, "_" + key)()
        self[key] = value
        return value

    @staticmethod
    def _kind(key):
        if key == "i":
            return lambda t: not t.is_floating_point() and t.dtype != torch.bool
        if key == "v":
            return lambda t: True
        if key == "x":
            return lambda t: t.is_floating_point()
        return lambda t: t.is_floating_point() and t.ndim == int(key[1])

    # Other operands

    def _broadcasts(self, t):
        try:
            shape = torch.broadcast_shapes(t.shape, self.t.shape)
        except RuntimeError:
            return False
        return shape == self.t.shape or self.draw.random() < 0.3

    def _find(self, wanted, otherwise):
        try:
            return self.draft.pick(wanted)
        except Retry:
            return otherwise

    def _y(self):
        return self._find(lambda t: t.is_floating_point() and self._broadcasts(t), self.name)

    def _z(self):
        same = lambda t: t.shape == self.t.shape and t.dtype == self.t.dtype  # noqa: E731
        return self._find(same, f"({self.name} * 0.5)")

    def _b(self):
        return self._find(lambda t: t.dtype == torch.bool and self._broadcasts(t), f"({self.name} > {self['s']})")

    def _b_same(self):
        return self._find(lambda t: t.dtype == torch.bool and t.shape == self.t.shape, f"({self.name} > 0)")

    def _j(self):
        return self._find(lambda t: self._kind("i")(t) and self._broadcasts(t), str(self.draw.choice([1, 2, 3])))

    def _right(self):
        rows = self.t.shape[1]
        return self._find(lambda t: t.dtype == self.t.dtype and t.ndim in (1, 2) and t.shape[0] == rows, f"{self.name}.t()")

    def _weight(self):
        if not self.t.ndim:
            raise Retry
        return self._find(lambda t: t.dtype == self.t.dtype and t.ndim == 2 and t.shape[1] == self.t.shape[-1],
                          f"{self.name}.reshape(-1, {self.t.shape[-1]})")

    def _leaf(self):
        return self.draft.pick(lambda t: t.requires_grad and t.is_leaf)

    def _module(self):
        return self.draft.module_name

    # Numbers

    def _s(self):
        return self.draw.choice(["0.5", "-1.5", "2", "3", "-1", "0", "1", "1.0", "0.25", "True" if self.draw.random() < 0.1 else "-0.5"])

    def _p(self):
        return self.draw.choice(["0.5", "2", "3", "1.5"])

    def _n(self):
        return str(self.draw.randint(-3, 3))

    def _k(self):
        return str(self.draw.randint(1, 4))

    def _f(self):
        return self.draw.choice(["float64", "float64", "float32", "int64", "int32", "bool", "int8", "uint8", "float16", "bfloat16"])

    def _dtype(self):
        return self.draft.program["dtype"]

    # Axes and shapes of the operand

    def _axis(self):
        n = max(self.t.ndim, 1)
        return self.draw.randint(-n, n - 1)

    def _d(self):
        return str(self._axis())

    _d2 = _d

    def _db(self):
        return "0"

    def _d0(self):
        if not self.t.ndim:
            raise Retry
        return str(self.draw.randrange(self.t.ndim))

    def _size(self):
        return str(self.t.shape[int(self["d0"])])

    def _D(self):  # noqa: N802
        return str(self.draw.randint(-self.t.ndim - 1, self.t.ndim))

    def _ds(self):
        if not self.t.ndim:
            raise Retry
        axes = self.draw.sample(range(self.t.ndim), self.draw.randint(1, min(2, self.t.ndim)))
        return str(tuple(a - self.t.ndim if self.draw.random() < 0.3 else a for a in axes))

    def _shape(self):
        return str(tuple(self.t.shape))

    def _last_extent(self):
        if not self.t.ndim:
            raise Retry
        return str(self.t.shape[-1])

    def _last(self):
        return f"({self['last_extent']},)"

    def _channels(self):
        return str(self.t.shape[1])

    def _perm(self):
        return str(tuple(self.draw.sample(range(self.t.ndim), self.t.ndim)))

    def _newshape(self):
        shape, n = list(self.t.shape), self.t.numel()
        choices = [(-1,), (1, n), (n, 1), tuple(reversed(shape)), (*shape, 1)]
        if len(shape) > 1:
            at = self.draw.randrange(len(shape) - 1)
            choices += [(*shape[:at], shape[at] * shape[at + 1], *shape[at + 2:]), (shape[0], -1)] * 2
        choices += [(d, n // d) for d in (2, 3) if n % d == 0]
        return str(self.draw.choice([c for c in choices if n or -1 not in c]))

    def _expanded(self):
        shape = [self.draw.randint(1, 3) if d == 1 else self.draw.choice([d, -1]) for d in self.t.shape]
        if self.draw.random() < 0.4:
            shape.insert(0, self.draw.randint(1, 3))
        return str(tuple(shape)) if shape else "(2,)"

    def _reps(self):
        reps = [self.draw.choice([1, 1, 2]) for _ in range(self.t.ndim)]
        return str(tuple([self.draw.choice([1, 2]), *reps] if self.draw.random() < 0.4 else reps)) if reps else "(2,)"

    def _narrow(self):
        size = int(self["size"])
        start = self.draw.randrange(size) if size else 0
        return f"{start}, {self.draw.randint(1, size - start) if size else 0}"

    def _slice(self):
        items = []
        for size in self.t.shape[:self.draw.randint(1, max(self.t.ndim, 1))]:
            choices = [":", "1:", ":-1", "::2", ":1", "1::2"]
            if size:
                choices += [str(self.draw.randrange(size)), str(-self.draw.randint(1, size))] * 2
            items.append(self.draw.choice(choices))
        if len(items) < self.t.ndim and self.draw.random() < 0.2:
            items.append("...")
        if self.draw.random() < 0.15:
            items.insert(self.draw.randrange(len(items) + 1), "None")
        return ", ".join(items) or "..."

    # Index tensors

    def _indices(self, size, count=None):
        """An index tensor of one dim with values below `size`: a literal, or computed."""
        if not size:
            raise Retry
        if count is None and self.draw.random() < 0.4:
            found = self._find(lambda t: t.dtype == torch.int64 and 0 < t.numel() <= 8, None)
            if found:
                return f"({found}.flatten() % {size})"
        count = self.draw.randint(1, 4) if count is None else count
        low = -size if self.draw.random() < 0.2 and self.key_allows_negative else 0
        return f"torch.tensor({[self.draw.randint(low, size - 1) for _ in range(count)]})"

    key_allows_negative = False

    def _axis_index(self, axis):
        if self.t.ndim <= axis:
            raise Retry
        self.key_allows_negative = True
        try:
            return self._indices(self.t.shape[axis])
        finally:
            self.key_allows_negative = False

    def _at(self):
        return self._indices(int(self["size"]))

    def _at0(self):
        return self._axis_index(0)

    def _at1(self):
        return self._axis_index(1)

    def _at1_same(self):
        if self.t.ndim < 2:
            raise Retry
        return self._indices(self.t.shape[1], 1)

    def _at_last(self):
        return self._axis_index(max(self.t.ndim - 1, 0))

    def _at_all(self):
        return self._indices(int(self["size"]), int(self["size"]))

    def _at_once(self):
        if not self.t.ndim or not self.t.shape[0]:
            raise Retry
        return f"torch.tensor({self.draw.sample(range(self.t.shape[0]), self.draw.randint(1, self.t.shape[0]))})"

    def _gather(self):
        size = int(self["size"])
        found = self._find(lambda t: t.dtype == torch.int64 and t.shape == self.t.shape, None)
        if found and size:
            return f"({found} % {size})"
        return f"(torch.arange({self.t.numel()}).reshape({self['shape']}) % {size})"

    def _gather_once(self):
        axis, size = int(self["d0"]), int(self["size"])
        column = [1] * self.t.ndim
        column[axis] = size
        return f"torch.arange({size}).flip(0).reshape({tuple(column)}).expand({self['shape']})"

    def _classes(self):
        return self._indices(self.t.shape[1], self.t.shape[0])

    def _small_index(self):
        return self._indices(5)
