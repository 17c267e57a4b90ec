"""Ways to hold a value that code reads, times ways to change it: the next call of a graph, and of compiled code, is as eager code."""

import argparse
import array
import collections
import contextvars
import dataclasses
import enum
import functools
import sys
import threading
import types
import weakref

import numpy as np
import pytest

import sluice as sl
from sluice import nn

THIS = sys.modules[__name__]
GLOBAL = 2.0
GLOBAL_TENSOR = sl.tensor([2.0])
GLOBAL_LIST = [2.0]


class Plain:
    shared = 2.0

    def __init__(self, scale=2.0):
        self.scale = scale

    @property
    def doubled(self):
        return self.scale * 2

    def times(self, x):
        return x * self.scale


@dataclasses.dataclass
class Data:
    scale: float = 2.0


class Slots:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 2.0


class Table:
    """Its attributes lie in a dict."""

    def __init__(self):
        object.__setattr__(self, "_table", {"scale": 2.0})

    def __getattr__(self, name):
        try:
            return self._table[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self._table[name] = value


class Easy(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Indexed:
    def __init__(self):
        self.rows = {0: 2.0}

    def __getitem__(self, i):
        return self.rows[i]

    def __len__(self):
        return len(self.rows)


class Colour(enum.Enum):
    RED = 2.0


class Cached:
    @functools.cached_property
    def scale(self):
        return 2.0


def scaled(x):
    return x * 2.0


@functools.lru_cache
def only_one():
    return Plain()


def chain(depth):
    holder = last = types.SimpleNamespace()
    for _ in range(depth):
        last.next = Plain()
        last = last.next
    return holder, last


def through_six_functions(x):
    return _one(x)


def _one(x):
    return _two(x)


def _two(x):
    return _three(x)


def _three(x):
    return _four(x)


def _four(x):
    return _five(x)


def _five(x):
    return x * GLOBAL


# Each: a function that gives (what to do with x, changes), all anew. `h` is what a module holds as attribute, too.


def own_number(m):
    m.h = 2.0
    return lambda x: x * m.h, [lambda: setattr(m, "h", 3.0), lambda: object.__setattr__(m, "h", 4.0), lambda: m.__dict__.update(h=5.0)]


def own_object(m):
    m.h = Plain()
    return lambda x: x * m.h.scale, [
        lambda: setattr(m.h, "scale", 3.0), lambda: object.__setattr__(m.h, "scale", 4.0), lambda: m.h.__dict__.update(scale=5.0),
        lambda: setattr(m, "h", Plain(6.0)), lambda: m.__dict__.update(h=Plain(7.0)), lambda: setattr(m.h, "__class__", Halved)]


class Halved(Plain):
    scale = property(lambda self: 0.5, lambda self, value: None)


def dataclass(m):
    m.h = Data()
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0), lambda: setattr(m, "h", dataclasses.replace(m.h, scale=4.0))]


def dataclass_as_dict(m):
    m.h = Data()
    return lambda x: x * dataclasses.asdict(m.h)["scale"], [lambda: setattr(m.h, "scale", 3.0)]


def namespace(m):
    m.h = types.SimpleNamespace(scale=2.0)
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0), lambda: vars(m.h).update(scale=4.0),
                                     lambda: setattr(m, "h", types.SimpleNamespace(scale=5.0))]


def arguments_of_a_program(m):
    m.h = argparse.Namespace(scale=2.0)
    return lambda x: x * m.h.scale * vars(m.h)["scale"], [lambda: setattr(m.h, "scale", 3.0), lambda: vars(m.h).update(scale=4.0)]


def a_name_made_at_run_time(m):
    m.h = Plain()
    return lambda x: x * getattr(m.h, "".join(("sc", "ale"))), [lambda: setattr(m.h, "scale", 3.0)]


def all_attributes(m):
    m.h = Plain()
    return lambda x: x * sum(vars(m.h).values()), [
        lambda: setattr(m.h, "scale", 3.0), lambda: setattr(m.h, "more", 4.0), lambda: delattr(m.h, "more"),
        lambda: m.h.__dict__.update(other=5.0)]


def nested(m):
    m.h, last = chain(3)
    return lambda x: x * m.h.next.next.next.scale, [lambda: setattr(last, "scale", 3.0)]


def far_away(m):
    m.h, last = chain(9)

    def function(x):
        at = m.h
        while hasattr(at, "next"):
            at = at.next
        return x * at.scale

    return function, [lambda: setattr(last, "scale", 3.0), lambda: setattr(last, "next", Plain(4.0))]


def in_list(m):
    m.h = [2.0, 1.0]
    return lambda x: x * m.h[0] * len(m.h), [
        lambda: m.h.__setitem__(0, 3.0), lambda: m.h.append(4.0), lambda: m.h.pop(), lambda: m.h.insert(0, 5.0), lambda: m.h.__delitem__(0),
        lambda: setattr(m, "h", [6.0]), lambda: m.h.clear() or m.h.append(7.0), lambda: setattr(m, "h", list(m.h)),
        lambda: m.h.append(8.0)]


def in_dict(m):
    m.h = {"scale": 2.0}
    return lambda x: x * m.h["scale"] * len(m.h) * m.h.get("late", 1.0), [
        lambda: m.h.update(scale=3.0), lambda: m.h.update(other=4.0), lambda: m.h.pop("other"), lambda: m.h.update(late=5.0),
        lambda: setattr(m, "h", {"scale": 6.0}), lambda: m.h.setdefault("late", 7.0)]


def in_an_ordered_dict(m):
    m.h = collections.OrderedDict(a=2.0, b=3.0)
    return lambda x: x * next(iter(m.h.values())), [lambda: m.h.move_to_end("a"), lambda: m.h.update(b=5.0)]


def in_set(m):
    m.h = {2.0}
    return lambda x: x * sum(m.h), [lambda: m.h.add(3.0), lambda: m.h.remove(2.0)]


def in_deque(m):
    m.h = collections.deque([2.0])
    return lambda x: x * sum(m.h), [lambda: m.h.append(3.0), lambda: m.h.rotate() or m.h.__setitem__(0, 9.0)]


def list_in_tuple(m):
    m.h = ([2.0],)
    return lambda x: x * m.h[0][0], [lambda: m.h[0].__setitem__(0, 3.0), lambda: setattr(m, "h", ([4.0],))]


def object_in_list_in_dict(m):
    m.h = {"all": [Plain()]}
    return lambda x: x * m.h["all"][-1].scale, [
        lambda: setattr(m.h["all"][0], "scale", 3.0), lambda: m.h["all"].append(Plain(4.0)), lambda: m.h["all"].__setitem__(-1, Plain(5.0)),
        lambda: setattr(m.h["all"][-1], "scale", 6.0), lambda: m.h.update(all=[Plain(7.0)])]


def tensor_in_list(m):
    m.h = [sl.tensor([2.0])]
    return lambda x: x * m.h[0], [
        lambda: m.h.__setitem__(0, sl.tensor([3.0])), lambda: m.h[0].fill_(4.0), lambda: setattr(m.h[0], "data", sl.tensor([5.0])),
        lambda: setattr(m, "h", [sl.tensor([6.0])])]


def tensor_in_dict(m):
    m.h = {"t": sl.tensor([2.0])}
    return lambda x: x * m.h["t"], [lambda: m.h.update(t=sl.tensor([3.0])), lambda: m.h["t"].fill_(4.0)]


def tensor_of_object(m):
    m.h = Plain(sl.tensor([2.0]))
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", sl.tensor([3.0])), lambda: m.h.scale.fill_(4.0)]


def tensors_appended(m):
    m.h = [sl.tensor([2.0])]
    return lambda x: x * sum(m.h), [lambda: m.h.append(sl.tensor([3.0])), lambda: m.h.pop(0)]


def module_in_list(m):
    m.h = [nn.Linear(1, 1)]
    with sl.no_grad():
        m.h[0].weight.fill_(2.0)

    def new_weight():
        m.h[0].weight = nn.Parameter(sl.full((1, 1), 5.0))

    return lambda x: m.h[0](x), [lambda: m.h.__setitem__(0, nn.Identity()), lambda: m.h.__setitem__(0, nn.Linear(1, 1)), new_weight,
                                 lambda: m.h.__setitem__(0, sl.sin)]


def global_number(m):
    THIS.GLOBAL = 2.0
    return lambda x: x * GLOBAL, [lambda: setattr(THIS, "GLOBAL", 3.0), lambda: globals().update(GLOBAL=4.0)]


def global_of_the_sixth_function(m):
    THIS.GLOBAL = 2.0
    return through_six_functions, [lambda: setattr(THIS, "GLOBAL", 3.0)]


def global_tensor(m):
    THIS.GLOBAL_TENSOR = sl.tensor([2.0])
    return lambda x: x * GLOBAL_TENSOR, [lambda: setattr(THIS, "GLOBAL_TENSOR", sl.tensor([3.0])), lambda: GLOBAL_TENSOR.fill_(4.0)]


def global_list(m):
    THIS.GLOBAL_LIST = [2.0]
    return lambda x: x * sum(GLOBAL_LIST), [lambda: GLOBAL_LIST.append(3.0), lambda: setattr(THIS, "GLOBAL_LIST", [4.0])]


def builtin_that_is_hidden(m):
    return lambda x: x * float(len("ab")), [lambda: setattr(THIS, "len", lambda s: 5), lambda: delattr(THIS, "len")]


def attribute_of_a_python_module(m):
    namespace = types.ModuleType("settings")
    namespace.__file__, namespace.SCALE = __file__, 2.0
    return lambda x: x * namespace.SCALE, [lambda: setattr(namespace, "SCALE", 3.0)]


def imported_within(m):
    THIS.GLOBAL = 2.0

    def function(x):
        import test_held_values as there
        return x * there.GLOBAL

    sys.modules["test_held_values"] = THIS
    return function, [lambda: setattr(THIS, "GLOBAL", 3.0)]


def function_that_is_replaced(m):
    THIS.scaled = lambda x: x * 2.0
    return lambda x: scaled(x), [lambda: setattr(THIS, "scaled", lambda x: x * 3.0),
                                 lambda: setattr(THIS.scaled, "__code__", (lambda x: x * 4.0).__code__)]


def closure(m):
    n = 2.0

    def change(to):
        nonlocal n
        n = to

    return lambda x: x * n, [lambda: change(3.0), lambda: change(4.0)]


def list_of_a_closure(m):
    n = [2.0]

    def change(to):
        nonlocal n
        n = to

    return lambda x: x * sum(n), [lambda: n.append(3.0), lambda: change([4.0]), lambda: change([4.0]), lambda: n.append(5.0)]


def object_of_a_closure(m):
    n = Plain()
    return lambda x: x * n.scale, [lambda: setattr(n, "scale", 3.0)]


def defaults(m):
    def function(x, n=2.0, *, more=(1.0,)):
        return x * n * more[0]

    return function, [lambda: setattr(function, "__defaults__", (3.0,)), lambda: function.__kwdefaults__.update(more=(4.0,))]


def list_as_default(m):
    def function(x, n=[2.0]):  # noqa: B006
        return x * sum(n)

    return function, [lambda: function.__defaults__[0].append(3.0)]


def attribute_of_a_function(m):
    def function(x):
        return x * function.scale

    function.scale = 2.0
    return function, [lambda: setattr(function, "scale", 3.0)]


def class_attribute(m):
    class Own(Plain):
        pass

    return lambda x: x * Own.shared, [lambda: setattr(Own, "shared", 3.0), lambda: delattr(Own, "shared"),
                                      lambda: setattr(Plain, "shared", 2.5), lambda: setattr(Plain, "shared", 2.0)]


def class_attribute_through_an_object(m):
    class Own(Plain):
        pass

    m.h = Own()
    return lambda x: x * m.h.shared, [lambda: setattr(Own, "shared", 3.0), lambda: setattr(m.h, "shared", 4.0), lambda: delattr(m.h, "shared"),
                                      lambda: delattr(Own, "shared")]


def class_attribute_of_the_module(m):
    return lambda x: x * m.of_class, [lambda: setattr(type(m), "of_class", 3.0), lambda: setattr(m, "of_class", 4.0),
                                      lambda: delattr(m, "of_class")]


def list_of_a_class(m):
    class Own:
        all = [2.0]

    return lambda x: x * sum(Own.all), [lambda: Own.all.append(3.0), lambda: setattr(Own, "all", [4.0])]


def through_a_property(m):
    m.h = Plain()
    return lambda x: x * m.h.doubled, [lambda: setattr(m.h, "scale", 3.0)]


def through_a_cached_property(m):
    m.h = Cached()
    return lambda x: x * m.h.scale, [lambda: m.h.__dict__.update(scale=3.0)]


def through_a_method(m):
    m.h = Plain()
    return lambda x: m.h.times(x), [lambda: setattr(m.h, "scale", 3.0), lambda: setattr(m.h, "times", lambda x: x * 4.0)]


def bound_method(m):
    m.h = Plain().times
    return lambda x: m.h(x), [lambda: setattr(m.h.__self__, "scale", 3.0), lambda: setattr(m, "h", Plain(4.0).times)]


def partial(m):
    m.h = functools.partial(lambda x, scale: x * scale, scale=2.0)
    return lambda x: m.h(x), [lambda: m.h.keywords.update(scale=3.0)]


def by_getattr(m):
    m.h = Table()
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0), lambda: m.h._table.update(scale=4.0),
                                     lambda: object.__setattr__(m.h, "_table", {"scale": 5.0}), lambda: m.h.__dict__.update(scale=6.0)]


def by_getattr_of_a_dict(m):
    m.h = Easy(scale=2.0)
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0), lambda: m.h.update(scale=4.0), lambda: m.h.__setitem__("scale", 5.0)]


def by_index(m):
    m.h = Indexed()
    return lambda x: x * m.h[0] * len(m.h), [lambda: m.h.rows.update({0: 3.0}), lambda: m.h.rows.update({1: 4.0})]


def by_user_dict(m):
    m.h = collections.UserDict(scale=2.0)
    return lambda x: x * m.h["scale"], [lambda: m.h.update(scale=3.0)]


def chain_map(m):
    m.h = collections.ChainMap({}, {"scale": 2.0})
    return lambda x: x * m.h["scale"], [lambda: m.h.maps[1].update(scale=3.0), lambda: m.h.update(scale=4.0)]


def slots(m):
    m.h = Slots()
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0), lambda: setattr(m, "h", Slots())]


def enumeration(m):
    m.h = Colour.RED
    return lambda x: x * m.h.value, [lambda: object.__setattr__(Colour.RED, "_value_", 3.0), lambda: object.__setattr__(Colour.RED, "_value_", 2.0)]


def scalar_of_numpy(m):
    m.h = np.float32(2.0)
    return lambda x: x * float(m.h), [lambda: setattr(m, "h", np.float32(3.0)), lambda: setattr(m, "h", np.float64(4.0)),
                                      lambda: setattr(m, "h", np.int64(5))]


def array_of_numpy(m):
    m.h = np.full(2, 2.0, np.float32)
    return lambda x: x * float(m.h[0]) * len(m.h), [
        lambda: m.h.__setitem__(0, 3.0), lambda: m.h.fill(4.0), lambda: setattr(m, "h", np.full(3, 4.0, np.float32)),
        lambda: setattr(m, "h", np.full(6, 4.0, np.float32)[::2])]


def array_with_strides(m):
    m.h = np.full((4, 2), 2.0)[:, 0]
    return lambda x: x * float(m.h.sum()), [lambda: m.h.__setitem__(3, 3.0)]


def array_of_objects(m):
    m.h = np.array([Plain(), None], dtype=object)
    return lambda x: x * m.h[0].scale, [lambda: setattr(m.h[0], "scale", 3.0), lambda: m.h.__setitem__(0, Plain(4.0))]


def array_of_python(m):
    m.h = array.array("d", [2.0])
    return lambda x: x * m.h[0], [lambda: m.h.__setitem__(0, 3.0), lambda: m.h.insert(0, 4.0)]


def bytes_that_change(m):
    m.h = bytearray(b"\x02")
    return lambda x: x * m.h[0], [lambda: m.h.__setitem__(0, 3)]


def view_of_a_dict(m):
    table = {"scale": 2.0}
    m.h = types.MappingProxyType(table)
    return lambda x: x * m.h["scale"], [lambda: table.update(scale=3.0)]


def weak_reference(m):
    held = Plain()
    m.h = weakref.ref(held)
    return lambda x: x * m.h().scale, [lambda: setattr(held, "scale", 3.0)]


def variable_of_a_context(m):
    m.h = contextvars.ContextVar("h", default=2.0)
    return lambda x: x * m.h.get(), [lambda: m.h.set(3.0)]


def of_a_thread(m):
    m.h = threading.local()
    m.h.scale = 2.0
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0)]


def from_a_cache(m):
    only_one.cache_clear()
    return lambda x: x * only_one().scale, [lambda: setattr(only_one(), "scale", 3.0)]


def missing(m):
    m.h = Plain()
    return lambda x: x * (m.h.late if hasattr(m.h, "late") else 2.0) * getattr(m, "late", 1.0), [
        lambda: setattr(m.h, "late", 3.0), lambda: setattr(m, "late", 4.0), lambda: delattr(m.h, "late"), lambda: delattr(m, "late")]


def hidden_parameter(m):
    m.p = nn.Parameter(sl.tensor([2.0]))
    return lambda x: x * m.p, [lambda: object.__setattr__(m, "p", sl.tensor([3.0])), lambda: m.__dict__.pop("p"),
                               lambda: m.__dict__.update(p=sl.tensor([4.0]))]


def hidden_buffer(m):
    m.register_buffer("b", sl.tensor([2.0]))
    return lambda x: x * m.b, [lambda: m.__dict__.update(b=sl.tensor([3.0])), lambda: m.__dict__.pop("b"),
                               lambda: object.__setattr__(m, "b", 4.0)]


def hidden_module(m):
    m.sub = nn.Identity()
    return lambda x: m.sub(x) * 2, [lambda: object.__setattr__(m, "sub", lambda v: v * 30), lambda: m.__dict__.pop("sub"),
                                    lambda: m.__dict__.update(sub=nn.Tanh()), lambda: m.__dict__.pop("sub"),
                                    lambda: setattr(type(m), "sub", lambda self, v: v * 5)]


def hidden_in_a_module_of_ours(m):
    m.lin = nn.Linear(1, 1)
    return lambda x: m.lin(x), [lambda: object.__setattr__(m.lin, "weight", sl.full((1, 1), 3.0)),
                                lambda: m.lin.__dict__.update(bias=sl.full((1,), 4.0))]


class Meta(type):
    @property
    def scale(cls):
        return cls.own


def property_of_a_metaclass(m):
    class Own(metaclass=Meta):
        own = 2.0

    return lambda x: x * Own.scale, [lambda: setattr(Own, "own", 3.0)]


class Described:
    def __init__(self):
        self.value = 2.0

    def __get__(self, instance, owner=None):
        return self.value


def descriptor(m):
    class Own:
        scale = Described()

    m.h = Own()
    return lambda x: x * m.h.scale, [lambda: setattr(vars(Own)["scale"], "value", 3.0)]


def descriptor_of_the_model(m):
    described = Described()
    type(m).described = described
    return lambda x: x * m.described, [lambda: setattr(described, "value", 3.0)]


class OwnWay:
    def __init__(self):
        self.store = [2.0]

    def __getattribute__(self, name):
        return object.__getattribute__(self, "store")[0] if name == "scale" else object.__getattribute__(self, name)


def by_getattribute(m):
    m.h = OwnWay()
    return lambda x: x * m.h.scale, [lambda: m.h.store.__setitem__(0, 3.0), lambda: setattr(m.h, "store", [4.0])]


def method_of_a_base(m):
    class Low:
        factor = 2.0

        def times(self, x):
            return x * self.factor

    class High(Low):
        def times(self, x):
            return super().times(x) + 1

    m.h = High()
    return lambda x: m.h.times(x), [lambda: setattr(Low, "times", lambda self, x: x * 5.0), lambda: setattr(High, "times", lambda self, x: x)]


def forward_of_a_base(m):
    class Low(nn.Module):
        def forward(self, x):
            return x * 2.0

    class High(Low):
        def forward(self, x):
            return super().forward(x) + 1

    m.h = High()
    return lambda x: m.h(x), [lambda: setattr(Low, "forward", lambda self, x: x * 5.0)]


def attribute_of_a_tensor(m):
    m.h = sl.tensor([2.0])
    m.h.scale = 2.0
    return lambda x: x * m.h.scale, [lambda: setattr(m.h, "scale", 3.0)]


def special_methods(m):
    class Own:
        def __init__(self):
            self.items = [1.0, 2.0]

        def __iter__(self):
            return iter(self.items)

        def __contains__(self, item):
            return item in self.items

        def __call__(self, x):
            return x * self.items[0]

        def __bool__(self):
            return len(self.items) > 2

    m.h = Own()
    return lambda x: m.h(x) * sum(m.h) * (5.0 if 7.0 in m.h else 3.0) * (2.0 if m.h else 1.0), [
        lambda: m.h.items.append(7.0), lambda: m.h.items.__setitem__(0, 9.0)]


def instance_of_a_class(m):
    class Own:
        instance = None

        @classmethod
        def get(cls):
            if cls.instance is None:
                cls.instance = Plain()
            return cls.instance

    Own.get()
    return lambda x: x * Own.get().scale, [lambda: setattr(Own.get(), "scale", 3.0), lambda: setattr(Own, "instance", Plain(4.0))]


def one_of_many(m):
    m.h = [Plain(1.0) for _ in range(600)]
    return lambda x: x * sum(o.scale for o in m.h), [lambda: setattr(m.h[500], "scale", 3.0), lambda: m.h.__setitem__(599, Plain(4.0))]


HOLDERS = [value for name, value in list(globals().items()) if isinstance(value, types.FunctionType) and value.__module__ == __name__
           and value.__code__.co_varnames[:1] == ("m",)]


def graph_of(module):
    class Whole(nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module

        def build(self, x):
            return self.module(x)

    return Whole()


def graph_of_function(module):
    return nn.Graph.trace(lambda x: module.function(x), state=[module])


@pytest.mark.filterwarnings("ignore:graph .*compiled for the 6th time")
@pytest.mark.parametrize("make", [graph_of, graph_of_function, lambda module: sl.compile(module, options={"recompile_limit": 30}),
                                  lambda module: sl.compile(lambda x: module.function(x), options={"recompile_limit": 30})],
                         ids=["graph", "traced", "compiled", "compiled function"])
@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
def test_what_code_reads_is_as_eager_code_reads_it(holder, make):
    class Model(nn.Module):
        of_class = 2.0

        def forward(self, x):
            return self.function(x)

    module = Model()
    module.function, changes = holder(module)
    called, x = make(module), sl.tensor([[1.0]])
    with sl.no_grad():
        for number, change in enumerate([lambda: None, *changes]):
            change()
            for call in range(3):
                assert sl.equal(called(x), module(x)), f"change {number}, call {call}"
    HELD["count"] += len(changes)


OF_MODULES = (hidden_parameter, hidden_buffer, hidden_module, hidden_in_a_module_of_ours)


@pytest.mark.filterwarnings("ignore:graph .*compiled for the 6th time")
@pytest.mark.parametrize("holder", [h for h in HOLDERS if h not in OF_MODULES], ids=lambda holder: holder.__name__)
def test_what_a_graph_holds_itself_is_as_eager_code_reads_it(holder):
    class Own(nn.Graph):
        of_class = 2.0

        def build(self, x):
            return self.function(x)

    graph, x = Own(), sl.tensor([[1.0]])
    graph.function, changes = holder(graph)
    with sl.no_grad():
        for number, change in enumerate([lambda: None, *changes]):
            change()
            for call in range(3):
                assert sl.equal(graph(x), graph.function(x)), f"change {number}, call {call}"
    HELD["count"] += len(changes)


HELD = {"count": 0}


def test_the_count_of_changes():
    print(f"count: {len(HOLDERS)} ways to hold a value, {HELD['count']} changes followed")
    assert len(HOLDERS) >= 60
