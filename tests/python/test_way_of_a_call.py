"""The way of a call of a graph, from its arguments to the session: each thing is done once, at the first call, too."""

import sys

import pytest

import sluice as sl
from sluice import nn
from sluice._base.structure import flatten
from sluice._graph.given import taken_apart


class Pairs(nn.Graph):
    def build(self, x, others):
        return {"sum": x + others[0], "product": x * others[1]}


class InPlace(nn.Graph):
    """It has a plan for each order of strides."""

    def build(self, x, others):
        x.transpose(0, 1).reshape(-1).add_(1)
        return x + others[0] * others[1]


def of_family():
    graph = Pairs()
    n = sl.Dim("n", max=8, buckets=[4, 8])
    graph.config.set_dims({"x": {0: n}, "others.0": {0: n}, "others.1": {0: n}})
    return graph


KINDS = {"one plan": Pairs, "a plan per shape": lambda: nn.Graph.with_dynamic_input_shape()(type("Shaped", (Pairs,), {}))(),
         "a family": of_family, "a plan per order": InPlace}


def calls_of(codes, run):
    """How often functions are called by others than themselves, by name."""
    counts = dict.fromkeys((code.co_name for code in codes), 0)

    def note(frame, event, _):
        if event == "call" and frame.f_code in codes and frame.f_back.f_code.co_filename != frame.f_code.co_filename:
            counts[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return counts


def arguments(rows=8):
    return sl.ones(rows, 2), [sl.ones(rows, 2), sl.ones(rows, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_are_taken_apart_once(kind):
    graph, codes = KINDS[kind](), {taken_apart.__code__, flatten.__code__}
    first = calls_of(codes, lambda: graph(*arguments()))
    traces = first["flatten"] - 1  # of which each takes its results apart
    assert first["taken_apart"] == 1 and traces >= 1 and (kind == "a family" or traces == 1)
    for _ in range(2):
        assert calls_of(codes, lambda: graph(*arguments())) == {"taken_apart": 1, "flatten": 1}


def test_arguments_of_a_saved_graph_are_taken_apart_once(tmp_path):
    graph = Pairs()
    graph(*arguments())
    sl.save(graph, tmp_path / "pairs")
    loaded = sl.load_graph(tmp_path / "pairs")
    assert calls_of({taken_apart.__code__, flatten.__code__}, lambda: loaded(*arguments())) == {"taken_apart": 1, "flatten": 1}
