"""Graphs that share a device: memory, shares of the time, refusals; and parameters that are read while they are trained."""

import threading

import numpy as np
import pytest
import sluice as sl
from sluice import nn
from sluice.utils.sharing import DeviceShares
from sluice.utils.versions import Versions


class Clock:
    """Seconds that steps say they take."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Net(nn.Graph):
    def __init__(self, clock, takes, width=32):
        super().__init__()
        self.net = nn.Linear(width, width)
        self.__dict__["_passes"] = lambda: setattr(clock, "now", clock.now + takes)

    def build(self, x):
        return self.net(x).relu()

    def __call__(self, *args):
        self.__dict__["_passes"]()
        return super().__call__(*args)


def shares_of(weights, takes, steps=400):
    """What each graph has had when the first of them has no step waiting any more."""
    clock, x = Clock(), sl.ones(4, 32)
    device = DeviceShares("1GiB", clock=clock, start=False)
    graphs = [Net(clock, t) for t in takes]
    members = [device.add(g, x, weight=w, queue=steps) for g, w in zip(graphs, weights)]
    order = []
    for k, member in enumerate(members):
        for _ in range(steps):
            member.submit(x).add_done_callback(lambda _, k=k: order.append(k))
    device.start()
    device.close()
    assert sorted(order) == sorted(list(range(len(members))) * steps)
    first = min(len(order) - 1 - order[::-1].index(k) for k in range(len(members)))  # from here on somebody has nothing to do
    spent = [sum(takes[k] for o in order[:first + 1] if o == k) for k in range(len(members))]
    return [s / sum(spent) for s in spent], device, order


@pytest.mark.parametrize("takes", [(1.0, 1.0), (3.0, 0.5), (0.25, 2.0)])
def test_graphs_get_the_time_by_their_weights(takes):  # C-24
    got, _, _ = shares_of((70, 30), takes)
    assert got[0] == pytest.approx(0.7, abs=0.05) and got[1] == pytest.approx(0.3, abs=0.05)


def test_three_graphs_and_what_the_table_says():
    got, device, _ = shares_of((50, 30, 20), (1.0, 2.0, 0.5))
    assert got == [pytest.approx(share, abs=0.05) for share in (0.5, 0.3, 0.2)]
    table = device.stats()
    assert [row["weight"] for row in table.values()] == [50, 30, 20] and all(row["steps"] == 400 for row in table.values())
    assert sum(row["bytes"] for row in table.values()) <= device.memory


def test_who_comes_back_gets_nothing_for_what_was_missed():
    clock, x = Clock(), sl.ones(4, 32)
    with DeviceShares("1GiB", clock=clock) as device:
        busy, idle = (device.add(Net(clock, 1.0), x, weight=1, queue=100) for _ in range(2))
        for _ in range(50):
            busy(x)
        order, hold = [], threading.Event()
        blocker = device.add(Net(clock, 0.0), x, weight=1)
        blocker.graph.__dict__["_passes"] = hold.wait
        waiting = blocker.submit(x)
        futures = []
        for k, member in ((0, busy), (1, idle)):
            for _ in range(20):
                futures.append(member.submit(x))
                futures[-1].add_done_callback(lambda _, k=k: order.append(k))
        hold.set()
        waiting.result()
        for future in futures:
            future.result()
    assert abs(order[:20].count(0) - 10) <= 1  # and not 20 of `idle`


def test_a_plan_that_does_not_fit_is_refused_with_the_numbers():
    clock, x = Clock(), sl.ones(4, 32)
    one = Net(clock, 1.0)
    one.compile(x)
    each = one.memory()["total"]
    one.close()
    device = DeviceShares(2 * each + each // 2, clock=clock)
    members = [device.add(Net(clock, 1.0), x, weight=w) for w in (70, 30)]
    third = Net(clock, 1.0, width=64)
    with pytest.raises(MemoryError) as refused:
        device.add(third, sl.ones(4, 64))
    left = device.memory - 2 * members[0].bytes
    for number in (f"{left:,} of {device.memory:,} bytes are left", f"'{members[0].name}' {members[0].bytes:,}", "needs ",
                   f"({left} bytes)"):
        assert number in str(refused.value)
    assert members[0](x).shape == (4, 32) and members[1](x).shape == (4, 32)  # as before
    device.close()
    with pytest.raises(RuntimeError, match="it was closed"):
        members[0].submit(x)


def test_results_and_errors_are_those_of_the_graph():
    clock, x = Clock(), sl.randn(4, 32)
    graph = Net(clock, 1.0)
    with DeviceShares("1GiB", clock=clock) as device:
        member = device.add(graph, x)
        assert member(x).numpy().tobytes() == graph.net(x).relu().detach().numpy().tobytes()
        with pytest.raises(TypeError, match="too many positional arguments"):
            member(sl.ones(5, 31), sl.ones(1))
        assert member(x).shape == (4, 32)
        for options, said in (({"weight": 0}, "weight: got 0; must be a positive number"), ({"queue": 0}, "queue: got 0"), ({}, "is in already")):
            with pytest.raises(ValueError, match=said):
                device.add(graph, x, **options)


# Versions


class Serve(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


class Train(nn.Graph):
    def __init__(self, net, lr=0.1):
        super().__init__()
        self.net = net
        self.add_optimizer(sl.optim.SGD(net.parameters(), lr=lr))

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def test_digits_are_learnt_while_they_are_served():  # C-25
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    sl.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    train, versions = Train(net), Versions(net, Serve)
    held_out, classes = sl.tensor(x[1500:]), y[1500:]
    told, ended, errors = [], threading.Event(), []

    def serve():
        try:
            last = False
            while not last:
                last = ended.is_set()  # once more after the last version
                with versions.read() as version:
                    before, logits, after = version.whole(), version.run(held_out).numpy(), version.whole()
                    told.append((version.number, before and after, float((logits.argmax(1) == classes).mean())))
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=serve)
    reader.start()
    draw = np.random.default_rng(0)
    for step in range(300):
        rows = draw.integers(0, 1500, 64)
        train(sl.tensor(x[rows]), sl.tensor(y[rows]))
        if step % 3 == 2:
            versions.publish()
    ended.set()
    reader.join()
    assert not errors
    numbers, whole, accuracies = zip(*told)
    assert list(numbers) == sorted(numbers) and numbers[-1] == versions.newest == 101
    assert all(whole)
    assert accuracies[-1] > 0.85 and accuracies[-1] > accuracies[0]
    expected = net(held_out).detach().numpy().argmax(1)
    assert (versions(held_out).numpy().argmax(1) == expected).all()


def test_no_reader_sees_halves_of_two_versions():
    """All parameters of version n are n, so that whatever is mixed shows."""
    net = nn.Sequential(*[nn.Linear(16, 16, bias=False) for _ in range(4)])

    def publish(n):
        with sl.no_grad():
            for p in net.parameters():
                p.fill_(float(n))
        return versions.publish()

    with sl.no_grad():
        for p in net.parameters():
            p.fill_(1.0)
    versions = Versions(net, Serve, slots=3)
    wrong, ended = [], threading.Event()

    def read():
        x = sl.ones(1, 16)
        while not ended.is_set():
            with versions.read() as version:
                got = version.run(x).numpy()
                if not version.whole() or (got != (16.0 * version.number) ** 4).any():
                    wrong.append((version.number, got))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(2, 30):
        assert publish(n) == n
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_a_torn_state_would_be_seen():
    net = nn.Linear(4, 4)
    versions = Versions(net, Serve)
    with versions.read() as version:
        assert version.whole()
        with sl.no_grad():
            version.module.weight[1, 2] += 1
        assert not version.whole()
    with pytest.raises(ValueError, match="slots: got 1; must be an int of at least 2"):
        Versions(net, Serve, slots=1)
