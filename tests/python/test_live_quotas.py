"""Quotas of a plan grow and shrink while it runs, within the memory and the proof that it was loaded with (docs/adr/0065)."""

import itertools
import threading

import numpy as np
import pytest

import sluice as sl
from sluice import nn

ITEMS = 2000


class Items(nn.Graph):
    """A source in Python, and behind it a kernel on another stream."""

    def __init__(self, source, slots=3):
        super().__init__()
        self.source = source
        self.config.set_quota("host_function", slots)

    def build(self):
        return sl.host_function(self.source, out=((2,), sl.int64)) * 2


def counted():
    ids = itertools.count(1)
    return lambda: np.full(2, next(ids), np.int64)


def quota_of(graph):
    (register,) = [register for register in graph.counters()["registers"] if register["name"] == "host_function"]
    return register["quota"]


def test_no_item_is_lost_or_comes_twice_while_quotas_change():  # C-14
    graph = Items(counted())
    results = [graph()]
    ended = threading.Event()

    def change():
        for slots in itertools.cycle((1, 2, 3, 2)):
            if ended.is_set():
                return
            graph.set_quota("host_function", slots)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        results += [graph() for _ in range(ITEMS - 1)]
        assert [y.tolist() for y in results] == [[2 * i, 2 * i] for i in range(1, ITEMS + 1)]
    finally:
        ended.set()
        changing.join()
    assert quota_of(graph) in (1, 2, 3)


def test_a_quota_counts_from_now_on():  # C-14
    graph = Items(counted())
    assert graph().tolist() == [2, 2] and quota_of(graph) == 3
    for slots in (1, 3, 2):
        graph.set_quota("host_function", slots)
        assert quota_of(graph) == slots
        results = [graph() for _ in range(20)]
        assert results[-1].tolist() == [results[0].tolist()[0] + 38] * 2


def test_what_is_not_proven_or_planned_is_refused():
    graph = Items(counted())
    with pytest.raises(RuntimeError):
        graph.set_quota("host_function", 2)
    graph().tolist()
    for slots, wrong in ((4, "4 slots; it has memory for 3"), (0, "0 slots; its rates need at least 1")):
        with pytest.raises(ValueError, match=wrong):
            graph.set_quota("host_function", slots)
    with pytest.raises(ValueError, match="there is no register 'nothing'"):
        graph.set_quota("nothing", 1)
    assert quota_of(graph) == 3 and graph().tolist() == [4, 4]
