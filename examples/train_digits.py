"""Trains a residual net on scikit-learn's handwritten digits with one plan of actors, and shows what came of it.

Augmentation and normalisation run as actors on a host stream, a step ahead of the network; forward, backward and the
momentum update are one actor. Writes to --out: the bundle, pictures of the plans, the loss curve, a run trace, and
result.json. The same training then runs with sim:0 as the compute device, which must give the same losses.
"""

import argparse
import json
import pathlib
import subprocess
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from tqdm import tqdm  # type: ignore[import-untyped]

import sluice as sl
from digits_net import DigitsNet
from sluice._base.tools import find_tool
from sluice.nn import functional as F

Array = npt.NDArray[Any]
BATCH, MEAN, STD = 32, 4.88, 6.02


class RandomShift:
    """Moves each image by up to one pixel; state lives in the actor, called once per step, in order."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, images: Array) -> Array:
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), axis=(1, 2))
        dy, dx = self.random.integers(0, 3, (2, len(images)))
        shifted: Array = windows[np.arange(len(images)), dy, dx]
        return shifted


def normalise(images: Array) -> Array:
    scaled: Array = (images - np.float32(MEAN)) / np.float32(STD)
    return scaled[:, None]


class TrainGraph(sl.nn.Graph):
    """One training step: uint8 images and labels in, the loss out."""

    def __init__(self, net: DigitsNet, steps: int, device: sl.device) -> None:
        super().__init__(name=f"train_digits_{device.type}")
        self.net, self.device, self.shift = net, device, RandomShift(seed=0)
        sgd = sl.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.add_optimizer(sgd, lr_sch=sl.optim.lr_scheduler.CosineAnnealingLR(sgd, T_max=steps))
        self.config.set_device(device)
        self.config.set_cores(max(1, sl.get_num_threads() - 1))  # one is left to the host stream
        self.config.enable_trace()

    def build(self, images: sl.Tensor, labels: sl.Tensor) -> sl.Tensor:
        with sl.register_quota(2):
            shifted = sl.host_function(self.shift, images, out=((BATCH, 8, 8), sl.uint8))
            batch = sl.host_function(normalise, shifted, out=((BATCH, 1, 8, 8), sl.float32))
        loss = F.cross_entropy(self.net(batch), labels)
        loss.backward()
        return loss


class ClassifyGraph(sl.nn.Graph):
    """Logits of raw images in 0..16."""

    def __init__(self, net: DigitsNet) -> None:
        super().__init__(name="classify_digits")
        self.net = net.eval()

    def build(self, images: sl.Tensor) -> sl.Tensor:
        logits: sl.Tensor = self.net((images - MEAN) / STD)
        return logits


def train(device: sl.device, images: Array, labels: Array, epochs: int) -> tuple[DigitsNet, TrainGraph, list[float], float]:
    """Returns (net, graph, losses, seconds)."""
    sl.manual_seed(0)
    net = DigitsNet()
    steps = len(images) // BATCH
    graph = TrainGraph(net, epochs * steps, device)
    order = np.random.default_rng(0)
    losses: list[float] = []
    pending: list[sl.Tensor] = []
    start = time.perf_counter()
    with tqdm(total=epochs * steps * BATCH, unit=" images", unit_scale=True, desc=f"training on {device}") as bar:
        for _ in range(epochs):
            shuffled = order.permutation(len(images))
            for rows in shuffled[:steps * BATCH].reshape(steps, BATCH):
                pending.append(graph(sl.from_numpy(images[rows]), sl.from_numpy(labels[rows])))
                if len(pending) > 2:  # read results late, so that steps overlap
                    losses.append(pending.pop(0).item())
                bar.update(BATCH)
            bar.set_postfix(loss=f"{np.mean(losses[-steps:]):.4f}")
        losses += [loss.item() for loss in pending]
    return net, graph, losses, time.perf_counter() - start


def draw_losses(losses: list[float], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    smooth = np.convolve(losses, np.ones(20) / 20, "valid")
    plt.figure(figsize=(6, 3.5))
    plt.plot(losses, alpha=0.3, label="step")
    plt.plot(np.arange(len(smooth)) + 19, smooth, label="mean of 20")
    plt.xlabel("step"), plt.ylabel("loss"), plt.yscale("log"), plt.legend(), plt.tight_layout()
    plt.savefig(path, dpi=120)


def draw_plan(graph: sl.nn.Graph, name: str, out: pathlib.Path) -> None:
    graph.save_plan(out / f"{name}.plan.json")
    subprocess.run([find_tool("plan-viz"), "html", str(out / f"{name}.plan.json"), "-o", str(out / f"{name}.html"),
                    "--source", str(pathlib.Path(__file__).parent)], check=True)


def classify_all(graph: ClassifyGraph, images: Array) -> Array:
    """Logits of any number of images, batch by batch; the last batch is filled up with zeros."""
    padded = np.pad(images, ((0, -len(images) % BATCH), (0, 0), (0, 0), (0, 0)))
    batches = [graph(sl.from_numpy(batch)) for batch in np.split(padded, len(padded) // BATCH)]
    logits: Array = np.concatenate([batch.numpy() for batch in batches])
    return logits[:len(images)]


def run_in_cpp(out: pathlib.Path, images: Array, logits: Array) -> tuple[bool, float]:
    """Classifies the held-out images in C++, from several threads; returns (classes equal, largest difference)."""
    images.tofile(out / "images.f32")
    subprocess.run([find_tool("cpp_runner"), str(out / "bundle"), str(out / "images.f32"), str(out / "logits.f32")], check=True)
    other = np.fromfile(out / "logits.f32", np.float32).reshape(logits.shape)
    return bool((other.argmax(1) == logits.argmax(1)).all()), float(np.abs(other - logits).max())


def measured_peak(graph: TrainGraph, directory: pathlib.Path, images: Array, labels: Array) -> tuple[int, int]:
    """(ledger, peak) bytes of the training plan: the peak as the allocator of a fresh engine counts it over some steps."""
    sl.save(graph, directory)
    engine = sl._C.Engine()
    session = engine.load(str(directory), {"RandomShift": RandomShift(seed=0), "normalise": normalise})
    for first in range(0, 4 * BATCH, BATCH):
        session.run([sl.from_numpy(images[first:first + BATCH]), sl.from_numpy(labels[first:first + BATCH])])
    return session.ledger_bytes(), engine.memory_stats("host")["peak_bytes"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/digits"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    images, held_out, labels, held_out_labels = train_test_split(
        digits.images.astype(np.uint8), digits.target, test_size=0.2, random_state=0, stratify=digits.target)

    net, graph, losses, seconds = train(sl.device("cpu"), images, labels, args.epochs)
    ledger, peak = measured_peak(graph, args.out / "training_bundle", images, labels)
    graph.save_trace(args.out / "trace.json")
    draw_plan(graph, "plan", args.out)
    draw_losses(losses, args.out / "loss.png")

    classify = ClassifyGraph(net)
    raw = held_out.astype(np.float32)[:, None]
    logits = classify_all(classify, raw)
    accuracy = float((logits.argmax(1) == held_out_labels).mean())
    sl.save(classify, args.out / "bundle")
    classes_equal, difference = run_in_cpp(args.out, raw, logits)

    _, sim_graph, sim_losses, _ = train(sl.device("sim:0"), images, labels, args.epochs)
    draw_plan(sim_graph, "two_devices", args.out)

    result = {
        "accuracy": accuracy, "seconds": seconds, "images_per_s": len(losses) * BATCH / seconds,
        "cpp_classes_equal": classes_equal, "cpp_max_abs_diff": difference, "sim_losses_equal": losses == sim_losses,
        "ledger_bytes": ledger, "allocator_peak_bytes": peak,
    }
    (args.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    print(f"wrote to {args.out}/: bundle/ (the trained plan, for Python and C++), training_bundle/, plan.html and two_devices.html (the plans; open "
          "in a browser), loss.png (the loss curve), trace.json (the run; open in ui.perfetto.dev), result.json")
    good = accuracy >= 0.97 and classes_equal and difference <= 1e-5 and result["sim_losses_equal"] and ledger == peak
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
