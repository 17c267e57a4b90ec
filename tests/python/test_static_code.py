"""Mistakes in code that is traced are told by the user's own line, with what to write instead; nothing is silently wrong."""

import linecache
import traceback

import pytest

import sluice as sl
from sluice import nn

FILE = "test_static_code.py"


def line_of(text):
    return next(i for i, line in enumerate(open(__file__), 1) if text in line)


class Branch(nn.Graph):
    def build(self, x):
        if x.sum() > 0:  # HAZARD bool
            return x
        return -x


class Number(nn.Graph):
    def build(self, x):
        return x * float(x.max())  # HAZARD float


class Loop(nn.Graph):
    def build(self, x):
        for _ in range(x.long().max()):  # HAZARD index
            x = x * 2
        return x


class Array(nn.Graph):
    def build(self, x):
        return x + sl.from_numpy(x.numpy())  # HAZARD numpy


@pytest.mark.parametrize("graph, marker", [(Branch, "HAZARD bool"), (Number, "HAZARD float"), (Loop, "HAZARD index"),
                                           (Array, "HAZARD numpy")])
def test_code_that_looks_at_values_is_told_its_line_and_what_to_write(graph, marker):  # PS-10
    with pytest.raises(Exception, match="the tensor is traced and has no value while a graph is built") as caught:
        graph()(sl.ones(3))
    text = str(caught.value)
    assert f"{FILE}:{line_of('# ' + marker)}" in text
    assert "return it from build()" in text


@nn.Graph.trace
def product(x):
    y = x * 2
    return y @ sl.ones(7, 7)  # ERROR shape


class Deep(nn.Module):
    def forward(self, x):
        return self.inner(x) + 1

    def inner(self, x):
        return x.reshape(5, 5)  # ERROR inner


class Wrapped(nn.Graph):
    def __init__(self):
        super().__init__()
        self.deep = Deep()

    def build(self, x):
        return self.deep(x)


@pytest.mark.parametrize("call, marker, names", [
    (lambda: product(sl.ones(2, 3)), "ERROR shape", ["matmul", "(2, 3)", "(7, 7)"]),
    (lambda: Wrapped()(sl.ones(2, 3)), "ERROR inner", ["reshape", "(2, 3)", "(5, 5)"]),
])
def test_the_last_frame_is_the_users_line(call, marker, names):  # PS-11
    with pytest.raises(Exception) as caught:
        call()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.filename == __file__ and frame.lineno == line_of("# " + marker)
    shown = "".join(traceback.format_exception(caught.value))
    assert linecache.getline(__file__, frame.lineno).strip() in shown
    assert all(name in str(caught.value) for name in [*names, f"{FILE}:{frame.lineno}"]), str(caught.value)
