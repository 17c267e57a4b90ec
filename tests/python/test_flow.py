"""sluice.flow: sources that wait for a clock, a switch or an event, and streams joined by their timestamps."""

import random
import threading
import time

import numpy as np
import pytest

import sluice as sl
from sluice import flow, nn

MS = 1_000_000


class Doubled(nn.Graph):
    """A plan with a source."""

    def __init__(self, source, out=((2,), sl.float32)):
        super().__init__()
        self.source, self.out = source, out

    def build(self):
        return sl.host_function(self.source, out=self.out) * 2


def test_a_periodic_source_of_a_plan_stops_after_its_count():  # HOL-02
    """On any machine: never early, exactly as often, and the thread sleeps in between."""
    when, starts = flow.Conditions().periodic(0.002).count(100), []

    def source():
        for n in when:
            starts.append(time.monotonic_ns())
            yield np.full(2, n, "float32")

    graph = Doubled(source)
    assert [graph()[0].item() for _ in range(100)] == [2 * n for n in range(100)]
    with pytest.raises(sl.EndOfData):
        graph().numpy()
    assert when.starts == 100 and not when.wait()
    first = starts[0]
    assert all(at - first >= 2 * MS * n - MS for n, at in enumerate(starts)), "a start was early"
    assert when.wakes <= 2 * 100, "once for each tick; a sleep may end early once"


def test_in_virtual_time_ticks_are_exact():
    when, now, starts = flow.Conditions().periodic(0.01).count(1000), 0, []
    while (what := when.at(now))[0] != "never":
        if what[0] == "at":
            now = what[1]
        assert when.take(now)
        starts.append(now)
        now += 3 * MS
    assert starts == [10 * MS * n for n in range(1000)]


def test_a_completion_wakes_a_source_without_polling():  # HOL-02
    """Work elsewhere is waited for asleep: each completion wakes at most once."""
    done = flow.Conditions().asynchronous()

    def source():
        for n in done:
            yield np.full(2, n, "float32")

    graph = Doubled(source)
    results = []
    for n in range(20):
        thread = threading.Thread(target=done.complete)
        thread.start()
        results.append(graph()[0].item())
        thread.join()
    assert results == [2 * n for n in range(20)] and done.starts == 20
    done.stop()
    with pytest.raises(sl.EndOfData):
        graph().numpy()
    assert done.wakes <= 20 + 1


def test_a_switch_holds_a_source():
    when = flow.Conditions().switched(False).count(3)
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(when))
    thread.start()
    assert when.at(0) == ("on call", 0) and not when.take(0)
    when.set(True)
    thread.join()
    assert seen == [0, 1, 2]


def test_what_is_wrong_is_refused():
    when = flow.Conditions()
    for call, told in ((lambda: when.periodic(0), "a period of 0 ns; must be above 0"), (lambda: when.count(-1), "a count of -1; must be 0 or more"),
                       (lambda: when.set(True), "there is no switch; call switched"), (when.complete, "nothing waits for it; call asynchronous"),
                       (lambda: flow.Join(0), "of 0 streams; must be 1 or more"), (lambda: flow.Join(1, policy="some"), "must be 'synced' or 'immediate'"),
                       (lambda: flow.Join(1, newest=-1), "must not be negative")):
        with pytest.raises(ValueError, match=told):
            call()
    with pytest.raises(IndexError, match="stream 3 of 2; there is none"):
        flow.Join(2).add(3, 0, "x")


def streams():
    return [[(t, ("fast", t)) for t in range(0, 60, 10)], [(t, ("slow", t)) for t in range(0, 60, 25)], [(7, ("once", 7))]]


def test_streams_of_different_rates_are_joined_by_time():  # MPP-02
    sets = list(flow.join(*streams()))
    assert [time for time, _ in sets] == [0, 7, 10, 20, 25, 30, 40, 50]
    assert sets[0] == (0, (("fast", 0), ("slow", 0), None)) and sets[1] == (7, (None, None, ("once", 7)))
    assert sets[-1] == (50, (("fast", 50), ("slow", 50), None))


def test_sets_are_the_same_whoever_is_faster():  # MPP-02
    expected = list(flow.join(*streams()))
    for seed in range(50):
        draw, join, left, found = random.Random(seed), flow.Join(3), [list(s) for s in streams()], []
        while not join.ended:
            i = draw.randrange(3)
            if left[i]:
                join.add(i, *left[i].pop(0))
            else:
                join.end(i)
            if draw.random() < 0.5:
                while (one := join.next()) is not None:
                    found.append(one)
        assert found == expected, seed


def test_immediate_fires_on_any_input():  # MPP-03
    join, fired = flow.Join(2, policy="immediate"), []
    for i, (timestamp, packet) in enumerate([(5, "a"), (1, "b"), (6, "c"), (7, "d"), (2, "e")]):
        join.add([0, 1, 0, 0, 1][i], timestamp, packet)
        fired.append(join.next())
        assert join.next() is None
    assert fired == [(5, ("a", None)), (1, (None, "b")), (6, ("c", None)), (7, ("d", None)), (2, (None, "e"))]


@pytest.mark.parametrize("newest", [1, 3, 10])
def test_a_fixed_size_keeps_the_newest(newest):  # MPP-03
    join = flow.Join(2, newest=newest)
    for t in range(100):
        join.add(0, t, t)
    join.add(1, 99, "end")
    kept = min(newest, 100)
    assert join.waiting(0) == kept and join.dropped(0) == 100 - kept and join.dropped(1) == 0
    join.bound(1, 1000)
    sets = []
    while (one := join.next()) is not None:
        sets.append(one)
    assert sets == [(t, (t, "end" if t == 99 else None)) for t in range(100 - kept, 100)]


def test_no_more_is_read_than_a_set_needs():
    read = []

    def counted(name, times):
        for t in times:
            read.append((name, t))
            yield t, name

    sets = flow.join(counted("a", range(0, 100)), counted("b", range(0, 100, 10)))
    next(sets)
    assert len(read) <= 3
    for _ in range(10):
        next(sets)
    assert len([r for r in read if r[0] == "b"]) <= 3
