"""Inputs and results of graphs: nests, names, checks."""

import functools
from collections import namedtuple

import pytest

import sluice as sl
import sluice.nn as nn

Pair = namedtuple("Pair", ["left", "right"])


class Echo(nn.Graph):
    """Returns its argument with one added to every tensor."""

    def build(self, nest):
        return self._map(nest)

    def _map(self, nest):
        if isinstance(nest, sl.Tensor):
            return nest + 1
        if isinstance(nest, dict):
            return {k: self._map(v) for k, v in nest.items()}
        if isinstance(nest, Pair):
            return Pair(*map(self._map, nest))
        return type(nest)(map(self._map, nest)) if isinstance(nest, (list, tuple)) else nest


def t(*values):
    return sl.tensor([float(v) for v in values])


def plain(nest):
    if isinstance(nest, sl.Tensor):
        return nest.tolist()
    if isinstance(nest, dict):
        return {k: plain(v) for k, v in nest.items()}
    if isinstance(nest, Pair):
        return Pair(*map(plain, nest))
    return type(nest)(map(plain, nest)) if isinstance(nest, (list, tuple)) else nest


NESTS = [
    (lambda: t(1), [2]), (lambda: [t(1), t(2)], [[2], [3]]), (lambda: (t(1), [t(2), None]), ([2], [[3], None])),
    (lambda: {"a": t(1), "b": {"c": t(2)}}, {"a": [2], "b": {"c": [3]}}), (lambda: [t(1), 3, "text", 2.5, True], [[2], 3, "text", 2.5, True]),
    (lambda: (t(1),), ([2],)), (lambda: Pair(t(1), (t(2), {})), Pair([2], ([3], {}))), (lambda: [[], (t(1),), {"x": [t(5)]}], [[], ([2],), {"x": [[6]]}]),
]


@pytest.mark.parametrize("make, expected", NESTS)
def test_nests_round_trip(make, expected):  # NG-09
    graph = Echo()
    for _ in range(2):
        result = plain(graph(make()))
        assert result == expected and type(result) is type(expected)


def test_one_tuple_stays_a_one_tuple():  # NG-10
    class One(nn.Graph):
        def build(self, x):
            return (x * 2,)

    result = One()(t(1))
    assert isinstance(result, tuple) and len(result) == 1


def test_several_inputs_keywords_and_dict_output():  # RAY-02
    class Many(nn.Graph):
        def build(self, x, y, *, scale, power=2, **others):
            return {"sum": x + y * scale, "power": x**power + others["bias"]}

    graph = Many()
    result = graph(t(1, 2), scale=t(10), y=t(3, 4), bias=t(100))
    assert list(result) == ["sum", "power"]
    assert result["sum"].tolist() == [31, 42] and result["power"].tolist() == [101, 104]
    assert [n for n, _, _ in graph.inputs] == ["x", "y", "scale", "others.bias"]
    assert [n for n, _, _ in graph.outputs] == ["sum", "power"]


def test_wrong_inputs_name_argument_expected_and_got():  # NG-11
    class Two(nn.Graph):
        def build(self, x, options):
            return x + options["mask"]

    graph = Two(name="two")
    graph(sl.ones(2, 3), {"mask": sl.ones(3)})
    with pytest.raises(ValueError, match=r"graph 'two': argument 'x' has shape \(3, 3\); expected \(2, 3\)"):
        graph(sl.ones(3, 3), {"mask": sl.ones(3)})
    with pytest.raises(TypeError, match=r"argument 'options.mask' has dtype int64; expected float32, as when the graph was compiled"):
        graph(sl.ones(2, 3), {"mask": sl.ones(3, dtype=sl.int64)})
    with pytest.raises(TypeError, match=r"argument 'options' has keys \['other'\]; expected \['mask'\]"):
        graph(sl.ones(2, 3), {"other": sl.ones(3)})
    with pytest.raises(TypeError, match=r"argument 'x' is None; expected a Tensor"):
        graph(None, {"mask": sl.ones(3)})
    with pytest.raises(TypeError, match=r"graph 'two': too many positional arguments; build takes \['x', 'options'\], got 3"):
        graph(sl.ones(2, 3), {"mask": sl.ones(3)}, 1)
    with pytest.raises(TypeError, match="missing a required argument: 'options'"):
        graph(sl.ones(2, 3))
    assert graph(sl.ones(2, 3), {"mask": sl.ones(3)}).sum().item() == 12


def test_other_constants_than_compiled_are_refused():
    class Scaled(nn.Graph):
        def build(self, x, factor=2):
            return x * factor

    graph = Scaled()
    assert graph(t(3)).tolist() == [6]
    with pytest.raises(TypeError, match="argument 'factor' is 5; expected 2, as when the graph was compiled"):
        graph(t(3), 5)


def test_what_is_no_nest_of_tensors_is_refused():
    with pytest.raises(TypeError, match="nest: got set"):
        Echo()({1, 2})

    class Returns(nn.Graph):
        def build(self, x):
            return object()

    with pytest.raises(TypeError, match="got object"):
        Returns()(t(1))


def test_inputs_and_constants_may_be_returned():
    class Mixed(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Linear(1, 1)

        def build(self, x):
            return x, self.model.weight, sl.ones(2), x

    graph = Mixed()
    x, w, c, again = graph(t(7))
    assert x.tolist() == again.tolist() == [7] and w.equal(graph.model.weight.detach()) and c.tolist() == [1, 1]


def test_non_contiguous_inputs_are_read_by_their_strides():
    class Plus(nn.Graph):
        def build(self, x):
            return x + 0

    x = sl.arange(6).reshape(2, 3)
    graph = Plus()
    assert graph(x.t()).tolist() == x.t().tolist()
    assert graph(x.reshape(3, 2)).tolist() == x.reshape(3, 2).tolist()


def test_keywords_of_a_call_reach_decorators_as_keywords():
    def tripling(function):
        @functools.wraps(function)
        def wrapper(x, *args, **kwargs):
            return function(x, *args, **{**kwargs, "scale": 3 * (kwargs.get("scale") or 1)})

        return wrapper

    @sl.nn.Graph.trace
    @tripling
    def scaled(x, offset=0, scale=1):
        return x * scale + offset

    assert scaled(sl.ones(2), offset=1, scale=2).tolist() == [7, 7]
