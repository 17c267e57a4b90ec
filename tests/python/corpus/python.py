"""The language and the libraries of Python around tensors."""

import abc
import collections
import copy
import dataclasses
import functools
import itertools
import json
import math
import operator
import re
import string
import types
import typing
import warnings

import numpy
import torch


@dataclasses.dataclass(frozen=True)
class Setting:
    scale: float = 2.0
    names: typing.Tuple[str, ...] = ("a", "b")


class Base(abc.ABC):
    factor = 2

    @abc.abstractmethod
    def apply(self, x):
        ...

    def __call__(self, x):
        return self.apply(x) * self.factor


class Child(Base):
    factor = 3

    def apply(self, x):
        return x + 1


class Box:
    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2

    @staticmethod
    def half(x):
        return x / 2

    @classmethod
    def of(cls, x):
        return cls(x)

    def __add__(self, other):
        return Box(self.value + other.value)

    def __getitem__(self, i):
        return self.value[i]

    def __len__(self):
        return self.value.shape[0]


class Slots:
    __slots__ = ("x",)


class Chain:
    def __init__(self, x):
        self.x = x

    def add(self, y):
        self.x = self.x + y
        return self

    def mul(self, y):
        self.x = self.x * y
        return self


class Lazy:
    def __init__(self, x):
        self._x = x

    def __getattr__(self, name):
        if name == "value":
            return self._x * 5
        raise AttributeError(name)


SETTING = Setting()


def dataclass_field(x, y):
    return x * SETTING.scale


def dataclass_replaced(x, y):
    return x * dataclasses.replace(SETTING, scale=5.0).scale


def abstract_class(x, y):
    return Child()(x)


def property_and_static(x, y):
    return Box.half(Box.of(x).doubled) + y


def operator_of_a_class(x, y):
    return (Box(x) + Box(y)).value


def item_of_a_class(x, y):
    box = Box(x)
    return box[1] * len(box)


def slots(x, y):
    s = Slots()
    s.x = x
    return s.x * y


def chained_methods(x, y):
    return Chain(x).add(y).mul(2).x


def attribute_by_getattr(x, y):
    return Lazy(x).value + getattr(Box(y), "doubled")


def missing_attribute(x, y):
    return x if hasattr(Box(x), "nothing") else y


def attribute_set(x, y):
    box = types.SimpleNamespace(x=x)
    setattr(box, "z", y * 2)
    return box.x + box.z


def partial(x, y):
    return functools.partial(torch.add, x, alpha=2)(y)


def cached(x, y):
    @functools.lru_cache
    def scale(n):
        return n * 2
    return x * scale(3) * scale(3)


def wrapped(x, y):
    def twice(f):
        @functools.wraps(f)
        def inner(*a, **k):
            return f(f(*a, **k))
        return inner

    @twice
    def step(t):
        return t * 2 + 1
    return step(x)


def operators(x, y):
    return operator.mul(operator.add(x, y), operator.itemgetter(0)([2, 3]))


def method_caller(x, y):
    return operator.methodcaller("clamp", min=0.0)(x)


def lambdas(x, y):
    steps = [lambda t, k=k: t * k for k in (1, 2, 3)]
    return sum(step(x) for step in steps)


def star_arguments(x, y):
    def add(*parts, scale=1, **more):
        return sum(parts) * scale + more["bias"]
    return add(*[x, y], **{"scale": 2, "bias": 0.5})


def positional_only(x, y, /, z=3):
    return x * z + y


def default_arguments(x, y, shape=(4, 3), scale=0.5):
    return x.reshape(shape) * scale


def unpacking(x, y):
    first, *middle, last = x.unbind(1)
    return first + sum(middle) * last


def swap(x, y):
    x, y = y, x
    return x - y


def nonlocal_count(x, y):
    n = 0

    def step(t):
        nonlocal n
        n += 1
        return t * n
    return step(step(step(x)))


def generator(x, y):
    def parts():
        for i in range(3):
            yield x[i] * i
    return torch.stack(list(parts()))


def generator_with_from(x, y):
    def inner():
        yield from (x, y)
    return torch.cat(list(inner()))


def generator_that_is_sent_to(x, y):
    def scale():
        value = yield
        yield value * 2
    g = scale()
    next(g)
    return g.send(x)


def iterators(x, y):
    it = iter([x, y])
    return next(it) - next(it)


def map_and_filter(x, y):
    return sum(map(lambda t: t * 2, filter(lambda t: t is not None, [x, None, y])))


def set_of_names(x, y):
    names = {"a", "b", "a"}
    return x * len(names)


def dict_comprehension(x, y):
    return {f"row{i}": row for i, row in enumerate(x)}


def dict_merged(x, y):
    return {**{"x": x}, "y": y} | {"z": x * y}


def dict_defaults(x, y):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["a"].append(y)
    return torch.cat(d["a"])


def ordered_dict(x, y):
    return collections.OrderedDict(b=x * 2, a=y)


def counter(x, y):
    c = collections.Counter("abca")
    return x * c["a"]


def deque(x, y):
    d = collections.deque([x], maxlen=2)
    d.appendleft(y)
    return d[0] - d[1]


def named_tuple(x, y):
    Pair = collections.namedtuple("Pair", "a b")
    p = Pair(x, y)._replace(a=y)
    return p.a + p.b


def list_methods(x, y):
    parts = [x]
    parts.extend([y, x * y])
    parts.insert(0, y)
    parts.pop()
    parts.reverse()
    return torch.stack(parts)


def list_slices(x, y):
    parts = list(x.unbind(0))
    parts[0:1] = [y[0], y[1]]
    del parts[-1]
    return torch.stack(parts)


def sorted_by_key(x, y):
    return torch.cat(sorted([x, y[:2]], key=lambda t: t.shape[0]))


def chain_and_islice(x, y):
    return torch.stack(list(itertools.islice(itertools.chain(x, y), 1, 5)))


def accumulate(x, y):
    return list(itertools.accumulate(x, lambda a, b: a * b))[-1]


def combinations(x, y):
    return sum(a * b for a, b in itertools.combinations(x.unbind(0), 2))


def formatted_shape(x, y):
    return x * len(f"{tuple(x.shape)}-{x.dtype}".replace("torch.", "").replace("sluice.", ""))


def regular_expression(x, y):
    return x * int(re.match(r"w(\d+)", "w12").group(1))


def json_read(x, y):
    return x * json.loads('{"scale": [1, 2.5]}')["scale"][1]


def string_template(x, y):
    return x * float(string.Template("$n.5").substitute(n=1))


def mathematics(x, y):
    return x * math.sqrt(x.shape[1]) + math.pi * y


def integers(x, y):
    return x * (7 // 2) + y * (7 % 4) ** 2 - (1 << 3)


def numpy_scalar(x, y):
    return x * numpy.float32(2.5) + numpy.pi


def numpy_array_of_a_constant(x, y):
    return x * torch.from_numpy(numpy.arange(4, dtype=numpy.float32))


def numpy_of_an_input(x, y):
    return x + torch.from_numpy(numpy.tanh(y.detach().numpy()))


def to_list(x, y):
    return x * sum(y.tolist()[0])


def float_of_a_tensor(x, y):
    return x * float(y.sum())


def int_of_a_tensor(x, y):
    return x[: int(y.abs().sum()) % 3 + 1]


def length_of_a_tensor(x, y):
    return x * len(y)


def contains(x, y):
    return x * ("a" in {"a": 1}) + y * (5 in (1, 2))


def copied(x, y):
    nest = copy.copy([x, [y]])
    nest[0] = y
    return nest[0] * nest[1][0]


def typed(x: torch.Tensor, y: typing.Optional[torch.Tensor] = None) -> torch.Tensor:
    scale: typing.List[int] = [1, 2]
    return x * scale[1]


def warned(x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hidden")
        return x + y


def type_of_a_tensor(x, y):
    return type(x)(x) * 2 if type(x) is not torch.Tensor else x * 3


def identity_of_tensors(x, y):
    z = x
    return z * 2 if z is x else y


def ids_as_keys(x, y):
    seen = {id(x): 2, id(y): 3}
    return x * seen[id(x)]


def boolean_arithmetic(x, y):
    return x * True + y * (not False)


def deleted(x, y):
    z = x * 2
    del x
    return z
