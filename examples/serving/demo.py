"""Trains the digits net, saves it, serves it, and asks the server with Triton's client; the answers must be those of the
model in this process.

    python examples/serving/demo.py [--out out/serving]
"""

import argparse
import contextlib
import pathlib
import signal
import subprocess
import sys
from typing import Any, Iterator

import numpy as np
import tritonclient.http as httpclient  # type: ignore[import-untyped]
from PIL import Image

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # digits_net.py

import sluice as sl
from client import classify, preprocess
from model import data, save, trained
from sluice._base.tools import find_tool


@contextlib.contextmanager
def serving(repository: pathlib.Path) -> Iterator[str]:
    """Runs sluice-serve on ports that are free; gives the address of HTTP once the models are ready."""
    command = [find_tool("sluice-serve"), "--model-repository", str(repository), "--http-port", "0", "--grpc-port", "0",
               "--metrics-port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = ""
        for line in server.stdout:
            print(f"  {line.rstrip()}")
            if line.startswith("http "):
                url = line.split()[1].removeprefix("http://").partition("/")[0]
            if line.startswith("ready"):
                break
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, "sluice-serve did not end well"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/serving"))
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    graph = save(trained(args.epochs), args.out / "models")
    _, images, _, labels = data()

    picture = args.out / "digit.png"
    Image.fromarray((images[0, 0] * 255 / 16).astype(np.uint8)).save(picture)

    def here(image: Any) -> Any:
        return graph(sl.from_numpy(image)).numpy()[0]

    with serving(args.out / "models") as url:
        client = httpclient.InferenceServerClient(url=url)
        answer = classify(client, "digits", preprocess(str(picture), 8, grey=True, scale=16))
        print(f"  the class of {picture}: {list(answer)}; it is a {labels[0]}")
        equal = right = 0
        for image, label in zip(images, labels):
            value, index = classify(client, "digits", image[None])[0].decode().split(":")
            logits = here(image[None])
            equal += int(int(index) == logits.argmax() and abs(float(value) - logits.max()) < 1e-4)
            right += int(int(index) == label)
    print(f"  {len(images)} images over HTTP: {right / len(images):.1%} right, {equal} answers as in this process")
    return 0 if equal == len(images) and right > 0.9 * len(images) else 1


if __name__ == "__main__":
    raise SystemExit(main())
