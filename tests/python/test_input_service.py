"""Batches that one process makes for trainings in others: data.serve and data.remote."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
from sluice import data, nn


def pipeline(n=40, **options):
    x = np.arange(n * 6, dtype=np.float32).reshape(n, 6)
    return data.arrays(x, np.arange(n), **options).shuffle().batch(4).map(lambda x, y: (x * 2, y))


def plain(batches):
    return [tuple(part.tolist() for part in batch) for batch in batches]


@pytest.fixture
def server():
    with data.serve(pipeline()) as server:
        yield server


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_batches_of_each_pass_are_those_of_the_pipeline(kind, tmp_path):
    with data.serve(pipeline(), f"unix:{tmp_path}/socket" if kind == "unix" else "127.0.0.1:0") as server:
        there, here = data.remote(server.address), pipeline()
        assert len(there) == len(here) == 10
        passes = [plain(there) for _ in range(3)]
        assert passes == [plain(here) for _ in range(3)] and passes[0] != passes[1]
        assert there.state_dict() == here.state_dict()
    assert not (tmp_path / "socket").exists()


def test_ranks_get_their_shares(server):
    shares = [plain(data.remote(server.address, rank, 2)) for rank in range(2)]
    assert shares == [plain(data.arrays(np.arange(240, dtype=np.float32).reshape(40, 6), np.arange(40)).shuffle().shard(rank, 2).batch(4)
                            .map(lambda x, y: (x * 2, y))) for rank in range(2)]
    assert sorted(y for share in shares for _, ys in share for y in ys) == list(range(40))


def test_a_new_iterator_begins_the_next_pass_and_a_place_is_gone_on_from(server):
    there, here = data.remote(server.address), pipeline()
    old = iter(there)
    first = [next(old), next(old)]
    assert plain(first) == plain(here)[:2]
    state = json.loads(json.dumps(there.state_dict()))
    assert plain(there) == plain(here)  # the second pass
    assert next(old, None) is None
    again, local = data.remote(server.address), pipeline()
    again.load_state_dict(state)
    local.load_state_dict(state)
    rest = plain(again)
    assert rest == plain(local) and len(rest) == 8
    assert plain(again) == plain(local)
    with pytest.raises(ValueError, match="refused: ValueError: data: the state has seed"):
        again.load_state_dict({**state, "seed": 7})
    assert plain(again) == plain(local)


def test_a_graph_has_it_as_a_source(server):
    class Sums(nn.Graph):
        def __init__(self):
            super().__init__()
            self.input = data.remote(server.address)

        def build(self):
            x, y = self.input()
            return x.sum(1) + y

    graph, here = Sums(), pipeline()
    for _ in range(2):
        got = [graph().tolist() for _ in range(10)]
        assert got == [(x.sum(1) + y).tolist() for x, y in here]
        with pytest.raises(sl.EndOfData):
            graph().tolist()
        graph.reset()


def test_a_bad_batch_is_an_error_with_the_samples_name_and_the_next_one_comes():
    def fails(sample):
        if sample == 5:
            raise KeyError("no five")
        return np.int64(sample)

    with data.serve(data.dataset(range(12)).map(fails, out=((), np.int64)).batch(4)) as server:
        batches, got = iter(data.remote(server.address)), []
        got.append(next(batches).tolist())
        with pytest.raises(RuntimeError, match=r"(?s)data.remote: 127.0.0.1:\d+: .*no five"):
            next(batches)
        got.append(next(batches).tolist())
        assert got == [[0, 1, 2, 3], [8, 9, 10, 11]] and next(batches, None) is None


SERVER = """
import os, sys
import numpy as np
from sluice import data
def made(sample):
    return np.full(3, sample, np.float32), np.int64(os.getpid())
p = data.dataset(range(60)).shuffle(seed=2).map(made).batch(4)
server = data.serve(p, f"127.0.0.1:{sys.argv[1]}")
print(server.address, flush=True)
server.wait()
"""


@pytest.fixture
def started():
    servers = []

    def start(port=0):
        servers.append(subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdout=subprocess.PIPE, text=True))
        return servers[-1], servers[-1].stdout.readline().strip()

    yield start
    for server in servers:
        server.kill()
        server.wait()
        server.stdout.close()


def test_nothing_is_lost_or_comes_twice_when_the_server_is_killed_and_comes_again(started):
    server, address = started()
    there = data.remote(address, ahead=3)
    want = [batch.tolist() for batch in data.dataset(range(60)).shuffle(seed=2).map(lambda s: np.full(3, s, np.float32)).batch(4)]
    got, pids = [], set()
    for step, (x, pid) in enumerate(there):
        got.append(x.tolist())
        pids |= set(pid.tolist())
        if step in (0, 7, 13):
            server.send_signal(signal.SIGKILL)
            server.wait()
            server, again = started(address.rpartition(":")[2])
            assert again == address
    assert got == want
    assert os.getpid() not in pids and 2 <= len(pids) <= 4  # other processes have made them


def test_a_server_that_does_not_come_is_named(started):
    server, address = started()
    there = data.remote(address, timeout=0.2)
    next(iter(there))
    server.kill()
    server.wait()
    with pytest.raises(ConnectionError, match=f"data.remote: {address}: no server in 0.2 s"):
        list(there)
    with pytest.raises(ConnectionError, match="no server in 0 s"):
        data.remote(address, timeout=0)


def test_who_has_no_token_gets_nothing_and_others_need_one():
    with data.serve(pipeline(), token="secret") as server:
        assert len(plain(data.remote(server.address, token="secret"))) == 10
        for token in (None, "secrets"):
            with pytest.raises(ValueError, match="refused: ValueError: the token is another one"):
                data.remote(server.address, token=token)
    with pytest.raises(ValueError, match="'0.0.0.0:0' without a token"):
        data.serve(pipeline(), "0.0.0.0:0")
    for wrong in ("here", "127.0.0.1:x", ":5", "unix:"):
        with pytest.raises(ValueError, match="must be 'host:port' or 'unix:PATH'"):
            data.remote(wrong)


def hello(**more):
    text = json.dumps({"version": 1, "token": None, "rank": 0, "world": 1, "state": None, "arrays": [], **more}).encode()
    return struct.pack("<I", len(text)) + text


def begin():
    text = json.dumps({"begin": "here", "arrays": []}).encode()
    return struct.pack("<I", len(text)) + text


WRONG = {
    "nothing": b"",
    "half a head": hello()[:20],
    "a long head": struct.pack("<I", 1 << 31),
    "no json": struct.pack("<I", 4) + b"{{{{",
    "a list": struct.pack("<I", 2) + b"[]",
    "another version": hello(version=9),
    "no rank": hello(rank=None),
    "an absurd rank": hello(rank=3, world=2),
    "a state that is none": hello(state={"seed": 1}),
    "objects": hello(arrays=[["|O", [1]]]),
    "a negative shape": hello(arrays=[["<f4", [-1]]]),
    "a huge array": hello(arrays=[["<f4", [1 << 40, 1 << 40]]]),
    "a batch before a pass": hello() + hello(),
    "gone in a pass": hello() + begin(),
}


def test_bytes_that_are_none_of_ours_end_their_connection_alone(server):
    host, _, port = server.address.rpartition(":")
    for what, sent in WRONG.items():
        with socket.create_connection((host, int(port)), timeout=60) as one:
            one.sendall(sent)
            one.shutdown(socket.SHUT_WR)
            while one.recv(1 << 16):
                pass  # until it is closed
        assert len(plain(data.remote(server.address))) == 10, what
