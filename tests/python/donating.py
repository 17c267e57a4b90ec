"""What the tests of donation share: a graph that updates its first argument."""

import pytest

import sluice as sl
import sluice.nn as nn

LOST = r"float32\(.*\) was donated to graph 'update' as argument 'params'; clone\(\) it before the call where it is needed afterwards"


class Update(nn.Graph):
    def __init__(self, *donated, setup=None, name="update"):
        super().__init__(name=name)
        if donated:
            self.config.donate_inputs(*donated)
        if setup:
            setup(self.config)

    def build(self, params, grad):
        return params - 0.1 * grad


def donating(**options):
    return Update("params", **options)


def pair(n=1024, x=1.0):
    return sl.full((n,), x), sl.ones(n)


def kept(tensor, x=1.0):
    assert tensor.tolist() == [x] * len(tensor)


def refused(graph, params, grad, why, kind=ValueError):
    before = params.detach().tolist()
    with pytest.raises(kind, match=rf"graph 'update': argument 'params' cannot be donated: {why}"):
        graph(params, grad)
    assert params.detach().tolist() == before
