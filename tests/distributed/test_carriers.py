"""Ranks whose messages a class of the program's carries: here through pipes that the parent has made."""

import multiprocessing
import threading

import numpy as np
import pytest
import sluice as sl
import sluice.distributed as dist

LIMIT = 60  # seconds; nothing here takes so long


class Pipes:
    """To each other rank a pipe. Who waits for a message puts aside those of other keys."""

    def __init__(self, rank, ends):
        self.rank, self.ends, self.aside = rank, ends, {}
        self.locks = {other: (threading.Lock(), threading.Lock()) for other in ends}

    def send(self, to, key, data):
        with self.locks[to][0]:
            self.ends[to].send((key, data))

    def receive(self, source, key):
        with self.locks[source][1]:
            while not self.aside.get((source, key)):
                if not self.ends[source].poll(LIMIT):
                    raise TimeoutError(f"rank {source} has sent nothing")
                came, data = self.ends[source].recv()
                self.aside.setdefault((source, came), []).append(data)
            return self.aside[source, key].pop(0)

    def fail(self, text):
        for to in self.ends:
            self.ends[to].close()

    def close(self):
        pass


def losses(mesh):
    sl.manual_seed(3)
    net = sl.nn.Linear(6, 3)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net if mesh is None else net.to_global(mesh, sl.sbp.broadcast)
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

        def build(self, x):
            loss = self.net(x).square().mean()
            loss.backward()
            return loss

    graph, x = Train(), sl.tensor(np.random.default_rng(0).normal(size=(8, 6)).astype("float32"))
    if mesh is not None:
        x = x.to_global(mesh, sl.sbp.broadcast).to_global(mesh, sl.sbp.split(0))
    return [graph(x).item() for _ in range(4)]


def rank_of(rank, size, ends, results):
    dist.register_carrier("pipes", lambda rank, world_size, timeout: Pipes(rank, ends))
    dist.init(rank=rank, world_size=size, carrier="pipes", timeout=LIMIT)
    x = sl.ones(3) * (rank + 1)
    dist.all_reduce(x)
    parts = [sl.zeros(2) for _ in range(size)]
    dist.all_gather(parts, sl.ones(2) * rank)
    results.send((x.numpy().tolist(), [p.numpy().tolist() for p in parts], losses(sl.placement("cpu", list(range(size))))))
    dist.destroy()


@pytest.mark.parametrize("size", [2, 3])
def test_programs_and_plans_go_by_a_carrier_in_python(size):  # RAY-10
    spawn = multiprocessing.get_context("spawn")
    ends = {rank: {} for rank in range(size)}
    for a in range(size):
        for b in range(a + 1, size):
            ends[a][b], ends[b][a] = spawn.Pipe()
    answers = [spawn.Pipe(duplex=False) for _ in range(size)]
    ranks = [spawn.Process(target=rank_of, args=(rank, size, ends[rank], answers[rank][1]), daemon=True) for rank in range(size)]
    for rank in ranks:
        rank.start()
    expected = losses(None)
    for rank in range(size):
        assert answers[rank][0].poll(LIMIT)
        summed, gathered, told = answers[rank][0].recv()
        assert summed == [size * (size + 1) / 2] * 3 and gathered == [[float(r)] * 2 for r in range(size)]
        assert told == pytest.approx(expected, rel=1e-5)
    for rank in ranks:
        rank.join(LIMIT)
        assert rank.exitcode == 0


class Broken:
    def __init__(self, rank, world_size, timeout):
        if world_size > 1:
            raise OSError("no network")

    def fail(self, text):
        pass

    def close(self):
        pass


def test_what_a_carrier_raises_names_it():
    dist.register_carrier("broken", Broken)
    with pytest.raises(RuntimeError, match="carrier 'broken': no network"):
        dist.init(rank=0, world_size=2, carrier="broken")
    with pytest.raises(ValueError, match="carrier 'broken': the name is taken"):
        dist.register_carrier("broken", Broken)
    with pytest.raises(ValueError, match="carrier 'pigeons': there is none such; there are gloo"):
        dist.init(rank=0, world_size=1, carrier="pigeons")
    with pytest.raises(ValueError, match="must be a name, and what makes a carrier"):
        dist.register_carrier("x", None)
    assert not dist.is_initialized()
