"""examples/serving: the demo as a reader runs it; pictures by PIL; the output of the server equals the net's in this process."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.http as httpclient

import sluice as sl
from programs import ROOT, served

sys.path.insert(0, str(ROOT / "examples/serving"))


def test_the_demo_runs(tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "examples")])}
    done = subprocess.run([sys.executable, ROOT / "examples/serving/demo.py", "--out", tmp_path, "--epochs", "2"], env=env,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "360 answers as in this process" in done.stdout
    assert "[b'" in done.stdout


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """A net of images of 224 x 224, as the walk-through's; small, so that it is there at once."""
    class Colours(sl.nn.Graph):
        def __init__(self):
            super().__init__(name="colours")
            sl.manual_seed(3)
            nn = sl.nn
            self.net = nn.Sequential(nn.Conv2d(3, 8, 7, 4, padding=3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000)).eval()

        def build(self, x):
            return self.net(x)

    graph = Colours()
    graph(sl.zeros(1, 3, 224, 224))
    folder = tmp_path_factory.mktemp("models")
    (folder / "colours/1").mkdir(parents=True)
    sl.save(graph, folder / "colours/1/model")
    return folder, graph


def test_a_picture_is_classified_as_in_this_process(colours, tmp_path):
    """CLI-07: PIL, 224 x 224, /255, NCHW, float32; the answer is [b'value:index']."""
    from PIL import Image
    from client import classify, preprocess

    rows = np.random.default_rng(0).integers(0, 255, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(rows).save(tmp_path / "cat.jpg")
    image = preprocess(str(tmp_path / "cat.jpg"))
    assert image.shape == (1, 3, 224, 224) and image.dtype == np.float32 and 0 <= image.min() and image.max() <= 1
    logits = colours[1](sl.from_numpy(image)).numpy()[0]
    with served(colours[0], folder=tmp_path) as server:
        answer = classify(httpclient.InferenceServerClient(url=server.http), "colours", image)
        value, index = answer[0].decode().split(":")
        assert answer.shape == (1,) and int(index) == logits.argmax() and float(value) == pytest.approx(logits.max(), abs=1e-5)
        printed = subprocess.run([sys.executable, ROOT / "examples/serving/client.py", "--url", server.http, "--model", "colours", "--image",
                                  tmp_path / "cat.jpg"], capture_output=True, text=True)
        assert printed.stdout.strip() == f"[b'{answer[0].decode()}']", printed.stderr


def test_outputs_equal_those_that_were_stored(colours, tmp_path):
    """SRV-16: what the server answers, against a file of outputs from this process."""
    images = np.random.default_rng(1).random((4, 1, 3, 224, 224), dtype=np.float32)
    np.save(tmp_path / "outputs.npy", np.stack([colours[1](sl.from_numpy(image)).numpy() for image in images]))
    with served(colours[0], folder=tmp_path) as server:
        client = httpclient.InferenceServerClient(url=server.http)
        for image, wanted in zip(images, np.load(tmp_path / "outputs.npy")):
            x = httpclient.InferInput("INPUT_0", image.shape, "FP32")
            x.set_data_from_numpy(image)
            np.testing.assert_allclose(client.infer("colours", [x]).as_numpy("OUTPUT_0"), wanted, rtol=1e-3, atol=1e-3)
