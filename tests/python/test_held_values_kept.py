"""Tests what graphs and compiled code do not look at, and what they do not keep: guards on what code has read hold nothing else."""

import gc
import sys
import types
import weakref

import numpy as np
import pytest

import sluice as sl
from sluice import nn

SEEN, SCALE = [], 2.0


class Apply(nn.Graph):
    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def build(self, x):
        return self.function(self, x)


class Plain:
    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_what_a_host_function_does_compiles_nothing():
    counts, kept = Plain(calls=0), []

    def build(graph, x):
        def host(a):
            SEEN.append(a)
            kept.append(a)
            counts.calls += 1
            return a * 2

        return sl.host_function(host, x, out=((1,), sl.float32)) * SCALE

    graph = Apply(build)
    for n in range(1, 4):
        assert graph(sl.ones(1)).item() == 4 and counts.calls == n
    assert graph._changes == 0 and len(SEEN) == 3
    SEEN.clear()


def test_names_that_others_have_too_compile_nothing():
    trainer = Plain(scale=2.0, log=0, sum=0, history=[])
    graph = Apply(lambda g, x: x.log().sum() * trainer.scale)
    for n in range(4):
        trainer.log, trainer.sum = n, -n
        trainer.history.append(n)
        assert graph(sl.full((1,), float(np.e))).item() == pytest.approx(2)
    assert graph._changes == 0
    trainer.scale = 3.0
    assert graph(sl.full((1,), float(np.e))).item() == pytest.approx(3) and graph._changes == 1


def test_what_build_changes_of_objects_is_left_alone():
    counts = Plain(calls=0, results=[], last=None)

    def build(graph, x):
        counts.calls += 1
        counts.results.append(x)
        counts.last = x * counts.calls
        return counts.last

    graph = Apply(build)
    for _ in range(3):
        assert graph(sl.ones(1)).item() == 1
        counts.results.clear()
    assert counts.calls == 1 and graph._changes == 0


def test_objects_that_only_the_trace_has_made_are_let_go():
    made = []

    def build(graph, x):
        inner = Plain(value=x * 2, scale=2.0, items=[x])
        outer = Plain(inner=inner)
        made.extend(map(weakref.ref, (inner, outer)))
        return outer.inner.value * outer.inner.scale + outer.inner.items[0]

    graph = Apply(build)
    assert graph(sl.ones(1)).item() == 5
    assert [reference() for reference in made] == [None, None]


def test_a_graph_that_reads_objects_is_freed_at_once():
    config, table = Plain(scale=2.0, inner=Plain(items=[1.0])), [sl.ones(1)]
    graph = Apply(lambda g, x: x * config.scale * config.inner.items[0] * table[0] * g.own.scale * g.items[0], own=Plain(scale=1.0), items=[Plain()])
    graph.items[0] = 1.0
    graph(sl.ones(1))
    gone = weakref.ref(graph)
    gc.disable()
    try:
        del graph
        assert gone() is None
    finally:
        gc.enable()


def test_classes_are_as_they_were_after_a_trace():
    class Own(Plain):
        pass

    class Telling(Plain):
        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

    before = vars(Telling)["__getattribute__"]
    own, telling = Own(scale=2.0), Telling(scale=3.0)

    def fails(graph, x):
        own.scale, telling.scale  # noqa: B018
        raise KeyError("none")

    assert Apply(lambda g, x: x * own.scale * telling.scale)(sl.ones(1)).item() == 6
    with pytest.raises(KeyError):
        Apply(fails)(sl.ones(1))
    assert "__getattribute__" not in vars(Own) and "__getattribute__" not in vars(Plain)
    assert vars(Telling)["__getattribute__"] is before and "__getattribute__" not in vars(nn.Module)


def test_plans_of_several_shapes_know_what_each_has_read():
    config = Plain(one=2.0, many=3.0)

    @nn.Graph.with_dynamic_input_shape()
    class Shapes(nn.Graph):
        def build(self, x):
            return x * (config.one if x.shape[0] == 1 else config.many)

    graph = Shapes()
    for change in ({}, {"one": 4.0}, {"many": 5.0}):
        vars(config).update(change)
        for _ in range(2):
            assert graph(sl.ones(1)).tolist() == [config.one] and graph(sl.ones(2)).tolist() == [config.many] * 2


def test_what_code_changes_far_away_is_a_break():
    far = Plain(a=Plain(b=Plain(c=Plain(d=Plain(e=Plain(calls=0))))))

    def counted(x):
        far.a.b.c.d.e.calls += 1
        return x * far.a.b.c.d.e.calls

    compiled = sl.compile(counted)
    with pytest.warns(RuntimeWarning, match="it changes .*calls"):
        compiled(sl.ones(1))
    before = far.a.b.c.d.e.calls
    assert compiled(sl.ones(1)).item() == before + 1


def test_looking_at_guards_allocates_nothing():
    config = Plain(scale=2.0, items=[1.0, 2.0], table={"a": sl.ones(1)}, array=np.ones(3), names={1, 2})

    def build(graph, x):
        return x * config.scale * config.items[0] * config.table["a"] * float(config.array[0]) * len(config.names) * SCALE

    graph = Apply(build)
    graph(sl.ones(1))
    for _ in range(3):
        graph._watch.changed(graph)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(200):
        assert graph._watch.changed(graph) is None
    assert sys.getallocatedblocks() - before < 20


def test_a_saved_plan_is_refused_where_a_global_or_an_object_has_changed():
    config = Plain(scale=2.0)

    def made():
        return Apply(lambda g, x: x * config.scale * SCALE)

    first = made()
    first(sl.ones(1))
    state = first.runtime_state_dict()
    second = made()
    second.load_runtime_state_dict(state)
    assert second(sl.ones(1)).item() == 4 and second._changes == 0
    config.scale = 3.0
    assert second(sl.ones(1)).item() == 6  # it goes on to look
    with pytest.raises(ValueError, match="scale was 2.0 when its plan was made, and it is 3.0; make it so again"):
        made().load_runtime_state_dict(state)


def test_the_change_is_named():
    config = types.SimpleNamespace(scale=2.0)
    graph = Apply(lambda g, x: x * config.scale)
    with pytest.warns(RuntimeWarning, match="compiled for the 6th time, because of a change of .*config"):
        for n in range(7):
            config.scale = float(n)
            assert graph(sl.ones(1)).item() == n


def test_attributes_of_modules_without_any_item_are_their_own():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList()
            self.blocks.scale = 2.0

        def forward(self, x):
            return x * self.blocks.scale

    model = Model()
    graph = Apply(lambda g, x: model(x), model=model)
    for scale in (2.0, 3.0):
        model.blocks.scale = scale
        assert graph(sl.ones(1)).item() == scale
