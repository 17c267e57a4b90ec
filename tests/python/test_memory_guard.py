"""SLUICE_GUARD and config.enable_memory_guard: kernels run on copies with bytes around them, and compute the same."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl

ZOO = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/zoo"


class Net(sl.nn.Graph):
    def __init__(self, guard):
        super().__init__()
        sl.manual_seed(0)
        self.net = sl.nn.Sequential(sl.nn.Conv2d(3, 8, 1, stride=2), sl.nn.BatchNorm2d(8), sl.nn.ReLU(), sl.nn.Flatten(),
                                    sl.nn.Linear(8 * 16, 5))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9))
        self.config.enable_memory_guard(guard)

    def build(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss


def test_guarded_graphs_train_alike():
    x = sl.tensor(np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32))
    plain, guarded = Net(False), Net(True)
    assert [plain(x).item() for _ in range(3)] == [guarded(x).item() for _ in range(3)]
    for (name, p), (_, q) in zip(plain.net.state_dict().items(), guarded.net.state_dict().items()):
        assert np.array_equal(p.numpy(), q.numpy()), name


@pytest.mark.skipif(not ZOO.exists(), reason="the benchmarks are not here")
@pytest.mark.parametrize("style", ("timm", "torchbench", "transformers"))
def test_the_zoo_trains_alike_under_the_guard(style, count):
    """Every model of a style, eagerly and compiled, in a process whose kernels are all watched."""
    code = f"""
import math
import sys
sys.path[:0] = [{str(ZOO)!r}]
import zoo
sys.path[:0] = [path for path in zoo.PATHS if path not in sys.path]
names = [name for of, name in zoo.models([{style!r}])]
for name in names:
    eager, compiled = (zoo.losses(way, {style!r}, name, 1) for way in ("Sluice eager", "compiled"))
    assert all(math.isclose(a, b, rel_tol=zoo.TOLERANCE) for a, b in zip(eager, compiled, strict=True)), (name, eager, compiled)
print(len(names))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          env={**os.environ, "SLUICE_GUARD": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    count(f"memory guard, {style}", int(done.stdout.split()[-1]), "nets")
