"""Writes this release's bundles into tests/compat/<version>; refuses to change those that are there."""

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


class Resident(nn.Graph):
    """Inputs and results in the memory of the simulated device."""

    def __init__(self):
        super().__init__(name="resident")
        self.config.set_device("sim:0")
        self.config.enable_device_ports()

    def build(self, state, step):
        return state - step * 2, (state * step).sum()


class Sizes(nn.Graph):
    """A plan for each of several sizes; calls that none of them fits are filled up."""

    def __init__(self):
        super().__init__(name="sizes")
        self.model = exact(nn.Linear(3, 2))
        self.config.set_dims({"x": {0: sl.Dim("batch", max=4)}})

    def build(self, x):
        return self.model(x), x.sum(1)


def bundles():
    yield Infer(), [{"images": whole((2, 1, 8, 8), i)} for i in range(STEPS)]
    yield Train(), [{"x": whole((3, 4), 10 + i)} for i in range(STEPS)]
    yield Devices(), [{"x": whole((3, 4), 20 + i), "index": np.array([0, 2])} for i in range(STEPS)]
    yield Resident(), [{"state": whole((2, 4), 30 + i), "step": whole((2, 4), 40 + i)} for i in range(STEPS)]
    yield Sizes(), [{"x": whole((rows, 3), 50 + rows)} for rows in (4, 1, 3)]


def save_arrays(file, steps):
    """With a leading axis of steps, or, where they differ in size, an array for each: "x/0"."""
    if len({tuple(v.shape for v in step.values()) for step in steps}) == 1:
        np.savez(file, **{n: np.stack([step[n] for step in steps]) for n in steps[0]})
    else:
        np.savez(file, **{f"{n}/{i}": v for i, step in enumerate(steps) for n, v in step.items()})


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
        save_arrays(target / "inputs.npz", steps)
        save_arrays(target / "outputs.npz", [dict(zip(names, [t.numpy() for t in row])) for row in rows])
        print(target)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / sl.__version__)
