"""Programs of their own, made of a plan's C, for machines with an operating system."""

import subprocess

import numpy as np
import pytest

import sluice as sl
from test_tiny import Answer, Step, make

LIMIT = 1_500_000  # bytes


class LeNet(sl.nn.Module):
    """LeCun et al. 1998, with ReLU and max pooling."""

    def __init__(self):
        super().__init__()
        nn = sl.nn
        self.net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x):
        return self.net(x)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    sl.manual_seed(0)
    graph = Answer(LeNet())
    samples = [(sl.rand(1, 1, 28, 28),) for _ in range(3)]
    graph.compile(*samples[0])
    folder = tmp_path_factory.mktemp("lenet")
    sl.tiny.export(graph, folder, name="lenet", samples=samples)
    return graph, samples, folder


def ran(folder, name, given):
    return subprocess.run([f"{folder}/{name}-run"], input=given, capture_output=True, check=False)


def test_a_runner_of_lenet_takes_little_and_gives_the_engines_results(lenet, tmp_path, count):
    graph, samples, folder = lenet
    told = make(folder, "runner", "library")
    size = (folder / "lenet-run").stat().st_size
    assert f"lenet-run: {size} bytes\n" in told and f"liblenet.a: {(folder / 'liblenet.a').stat().st_size} bytes\n" in told
    count("bytes of a static program that runs LeNet", size, f"{(folder / 'liblenet.a').stat().st_size} of its library")
    assert size <= LIMIT
    assert b"ld-linux" not in (folder / "lenet-run").read_bytes()[:4096]  # it needs no library
    done = ran(folder, "lenet", b"".join(x.numpy().tobytes() for x, in samples))
    assert done.returncode == 0, done.stderr
    got = np.frombuffer(done.stdout, np.float32).reshape(len(samples), 1, 10)
    sl.save(graph, tmp_path / "bundle")
    with pytest.warns(UserWarning, match="c:0"):
        engine = sl.load_graph(tmp_path / "bundle", device="c:0")
    np.testing.assert_array_equal(got, np.stack([engine(*sample).numpy() for sample in samples]))
    np.testing.assert_allclose(got, np.stack([graph(*sample).numpy() for sample in samples]), rtol=1e-5, atol=1e-6)


def test_inputs_that_end_within_a_step_are_told(lenet):
    _, samples, folder = lenet
    make(folder, "runner")
    assert ran(folder, "lenet", b"").returncode == 0
    done = ran(folder, "lenet", samples[0][0].numpy().tobytes() + b"1234")
    assert done.returncode == 1 and len(done.stdout) == 40
    assert done.stderr == b"lenet: step 1: its inputs end after 4 bytes; must be 3136\n"


def test_a_runner_of_a_step_trains(tmp_path):
    """It keeps its weights from step to step; several inputs and results lie one after the other."""
    sl.manual_seed(0)
    graph = Step(sl.nn.Linear(8, 3))
    samples = [(sl.randn(2, 8), sl.tensor([i % 3, 1])) for i in range(5)]
    first = {name: value.clone() for name, value in graph.net.state_dict().items()}
    graph.compile(*samples[0])
    graph.net.load_state_dict(first)
    sl.tiny.export(graph, tmp_path, name="step", samples=samples)
    make(tmp_path, "runner")
    done = ran(tmp_path, "step", b"".join(t.numpy().tobytes() for sample in samples for t in sample))
    losses = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(losses, [graph(*sample).item() for sample in samples], rtol=1e-5, atol=1e-6)
    assert losses[-1] != losses[0]
