"""The order of messages is written down, replayed and shuffled; results are the same bits (docs/adr/0064)."""

import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import data, nn
from sluice._base.tools import find_tool

STEPS = 20


class Net(nn.Graph):
    """Two streams, of which the second lags behind."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 3)

    def build(self, x):
        return self.second(self.first(x).relu()).sum(), x.mean()


def run(bundle, *options, steps=STEPS, status=0):
    done = subprocess.run([find_tool("sluice-run"), bundle, "--fill=random", f"--steps={steps}", "--hash", *options], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    sl.manual_seed(0)
    net = Net(16)
    net(sl.ones(4, 16))
    sl.save(net, folder / "net")
    x = np.random.default_rng(2).random((23, 3, 2)).astype(np.float32)
    sl.save(data.arrays(x, np.arange(23)).shuffle(seed=3).repeat().batch(5).map(lambda x, y: (x * 2, y)), folder / "input")
    return folder


@pytest.mark.parametrize("name", ["net", "input"])
def test_a_run_with_threads_is_replayed_message_by_message(bundles, tmp_path, name):
    wanted = run(bundles / name)
    recorded, again = tmp_path / "recorded.slm", tmp_path / "again.slm"
    assert run(bundles / name, f"--record={recorded}") == wanted
    assert run(bundles / name, f"--replay={recorded}", f"--record={again}") == wanted
    assert again.read_bytes() == recorded.read_bytes()
    assert len(recorded.read_bytes()) > STEPS


@pytest.mark.parametrize("name", ["net", "input"])
def test_a_seed_chooses_the_order_and_not_the_results(bundles, tmp_path, name):
    wanted = run(bundles / name)
    orders = set()
    for seed in range(6):
        order, again = tmp_path / f"{seed}.slm", tmp_path / f"{seed}.again.slm"
        assert run(bundles / name, f"--shuffle={seed}", f"--record={order}") == wanted
        assert run(bundles / name, f"--replay={order}", f"--record={again}") == wanted
        assert again.read_bytes() == order.read_bytes()
        orders.add(order.read_bytes())
    assert len(orders) > 1


def test_a_replay_of_something_else_says_what_differs(bundles, tmp_path):
    order = tmp_path / "net.slm"
    run(bundles / "net", f"--record={order}")
    assert "it was recorded with plan" in run(bundles / "input", f"--replay={order}", status=1)
    good = order.read_bytes()
    build = good.index(b"sluice ")
    order.write_bytes(good[:build] + b"Sluice " + good[build + 7 :])
    assert "only the same build can replay it" in run(bundles / "net", f"--replay={order}", status=1)
    order.write_bytes(good)
    assert "the run must do what it did when it was recorded" in run(bundles / "net", f"--replay={order}", steps=STEPS + 1, status=1)


@pytest.mark.parametrize(
    "broken, error",
    [
        (lambda good: b"", "byte 0: this is no order of messages"),
        (lambda good: b"SLUICETR" + good[8:], "byte 0: this is no order of messages"),
        (lambda good: good[:8] + b"\x63" + good[9:], "byte 8: version 99"),
        (lambda good: good[:-3], "the file is cut"),
        (lambda good: good[: len(good) // 2], "the file is cut"),
        (lambda good: good + b"x", "there is more behind the end"),
    ],
)
def test_a_recording_that_is_cut_or_foreign_is_refused_with_its_place(bundles, tmp_path, broken, error):
    order = tmp_path / "net.slm"
    run(bundles / "net", f"--record={order}")
    order.write_bytes(broken(order.read_bytes()))
    message = run(bundles / "net", f"--replay={order}", status=1)
    assert f"{order}: byte " in message and error in message


def test_an_order_is_replayed_or_chosen(bundles, tmp_path):
    done = subprocess.run([find_tool("sluice-run"), bundles / "net", "--shuffle=1", f"--replay={tmp_path / 'x.slm'}"], capture_output=True, text=True)
    assert done.returncode != 0 and "excludes" in done.stderr
    assert "x.slm" in run(bundles / "net", f"--replay={tmp_path / 'x.slm'}", status=1)


def test_a_full_disk_ends_the_recording_and_not_the_run(bundles):
    assert run(bundles / "net", "--record=/dev/full") == run(bundles / "net")
