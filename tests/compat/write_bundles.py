"""Writes this release's bundles into tests/compat/v<schema>; refuses to change those that are there."""

import json
import pathlib
import sys

import numpy as np

import sluice as sl
import sluice.nn as nn

STEPS = 3


def whole(shape, seed, low=-2, high=3):
    return np.random.RandomState(seed).randint(low, high, shape).astype(np.float32)


def exact(module, seed=7):
    """The module with small whole numbers as parameters."""
    with sl.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(sl.from_numpy(whole(tuple(p.shape), seed + i)))
    return module


class Infer(nn.Graph):
    """Convolution, pooling, a host stream, two outputs."""

    def __init__(self):
        super().__init__(name="infer")
        self.model = exact(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 4)))

    def build(self, images):
        with sl.stream("host"):
            images = images * 2 - 1
        scores = self.model(images)
        return {"scores": scores, "classes": scores.argmax(1)}


class Train(nn.Graph):
    """Backward pass, momentum, a counter; an actor per kernel."""

    def __init__(self):
        super().__init__(name="train")
        self.model = exact(nn.Linear(4, 2))
        self.register = nn.Module()
        self.register.register_buffer("steps", sl.zeros(1, dtype=sl.int64))
        self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.5))
        self.config.set_granularity("op")

    def build(self, x):
        y = self.model(x)
        y.sum().backward()
        with sl.no_grad():
            self.register.steps.add_(1)
        return y, self.register.steps * 10


class Devices(nn.Graph):
    """Copies to the simulated device and back; quotas."""

    def __init__(self):
        super().__init__(name="devices")
        self.config.set_outputs_buffer_size(3)

    def build(self, x, index):
        with sl.device("sim:0"):
            y = (x @ x.t()).relu()
        return y.index_select(0, index).sum(0), sl.cumsum(y, 1)


def bundles():
    yield Infer(), [{"images": whole((2, 1, 8, 8), i)} for i in range(STEPS)]
    yield Train(), [{"x": whole((3, 4), 10 + i)} for i in range(STEPS)]
    yield Devices(), [{"x": whole((3, 4), 20 + i), "index": np.array([0, 2])} for i in range(STEPS)]


def write(folder):
    for graph, steps in bundles():
        graph.compile(**{n: sl.from_numpy(v) for n, v in steps[0].items()})
        target = folder / graph.name
        if target.exists():
            raise FileExistsError(f"{target}: is there; bundles of a release are never changed")
        sl.save(graph, target)
        results = [graph(**{n: sl.from_numpy(v) for n, v in step.items()}) for step in steps]
        rows = [list(r.values()) if isinstance(r, dict) else list(r) for r in results]
        names = [name for name, _, _ in graph.outputs]
        np.savez(target / "inputs.npz", **{n: np.stack([s[n] for s in steps]) for n in steps[0]})
        np.savez(target / "outputs.npz", **{n: np.stack([row[i].numpy() for row in rows]) for i, n in enumerate(names)})
        print(target, json.loads((target / "plan.json").read_text())["schema_version"])


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "v1")
