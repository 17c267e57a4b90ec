"""ResNet-101 from training to a server with one engine: it is trained on photographs, and then gives their classes as a module, as a graph,
from a bundle, and from a server. The net is that of net.py, a file for torch.

    python examples/resnet101/case_study.py [--size 224] [--steps 12] [--out out/resnet101] [IMAGE ...]
"""

import argparse
import contextlib
import pathlib
import signal
import subprocess
import sys
from typing import Any, Iterator

import numpy as np

import sluice as sl
from sluice._base.tools import find_tool
from sluice.client import Client

with sl.mock_torch(lazy=True):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from net import ResNet101, photographs


class Training(sl.nn.Graph):
    """A step of Adam. Norms keep their statistics, since a batch is a few photographs."""

    def __init__(self, net: Any, rate: float) -> None:
        super().__init__(name="training")
        self.net = net
        self.add_optimizer(sl.optim.Adam(net.parameters(), lr=rate))

    def build(self, x: Any, y: Any) -> Any:
        loss = sl.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


class Scores(sl.nn.Graph):
    def __init__(self, net: Any) -> None:
        super().__init__(name="resnet101")
        self.net = net

    def build(self, x: Any) -> Any:
        return self.net(x)


@contextlib.contextmanager
def serving(repository: pathlib.Path) -> Iterator[str]:
    """The address of a server with these models, once it is ready."""
    command = [find_tool("sluice-serve"), "--model-repository", str(repository), *(f"--{kind}-port=0" for kind in ("http", "grpc", "metrics"))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = ""
        for line in server.stdout:  # type: ignore[union-attr]
            if line.startswith("http "):
                address = line.split()[1]
            if line.startswith("ready"):
                break
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="scikit-learn's photographs if there are none")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/resnet101"))
    args = parser.parse_args()
    sl.manual_seed(0)
    net = ResNet101().eval()
    images = photographs(args.images, args.size)
    x, y = sl.from_numpy(images), sl.arange(len(images))

    training = Training(net, 2e-4)
    losses = [training(x, y).item() for _ in range(args.steps)]
    assert losses[-1] < losses[0], losses
    print(f"train   OK  loss {losses[0]:.3f} to {losses[-1]:.3f}, {training.memory()['total'] >> 20} MiB, known before the first step")

    with sl.no_grad():
        wanted = net(x).numpy()
    print("eager   OK  top-1", wanted.argmax(1).tolist())

    def hold(stage: str, scores: Any) -> None:
        np.testing.assert_allclose(scores, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=stage)
        print(f"{stage:7} OK  top-1", scores.argmax(1).tolist())

    graph = Scores(net)
    hold("graph", graph(x).numpy())

    bundle = args.out / "models" / "resnet101" / "1" / "model"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    sl.save(graph, bundle)
    np.savez(args.out / "state.npz", **{name: value.numpy() for name, value in net.state_dict().items()})
    hold("save", sl.load_graph(bundle)(x).numpy())

    with serving(args.out / "models") as address, Client(address) as client:
        hold("serve", client.infer("resnet101", {"INPUT_0": images})["OUTPUT_0"])


if __name__ == "__main__":
    main()
