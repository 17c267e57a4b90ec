"""A CNN of digits, quantized by the command: accuracy, bundles, processors without VNNI."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
from sluice import nn
from sluice._base.tools import find_tool
from sluice.quantization import quantize


def digits_net():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1),
                         nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A trained net: (folder with its bundle and data, held-out images, labels)."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    images, labels = (data.images[:, None] / 16).astype("float32"), data.target.astype("int64")
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    sl.manual_seed(0)
    net = digits_net()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net, self.loss = net, nn.CrossEntropyLoss()
            self.add_optimizer(sl.optim.Adam(net.parameters(), lr=2e-3))

        def build(self, x, y):
            loss = self.loss(self.net(x), y)
            loss.backward()
            return loss

    train, size = Train(), 64
    for epoch in range(4):
        for i in range(0, 1280, size):
            train(sl.from_numpy(images[i : i + size]), sl.from_numpy(labels[i : i + size]))
    train.synchronize()
    graph = nn.Graph.trace(net.eval())
    with sl.no_grad():
        graph(sl.from_numpy(images[:size]))
    sl.save(graph, folder / "digits")
    np.save(folder / "digits.npy", images[:400])
    return folder, images[1280:], labels[1280:]


def accuracy(graph, images, labels, size=64):
    right = total = 0
    for i in range(0, len(images) - size + 1, size):
        right += int((graph(sl.from_numpy(images[i : i + size])).numpy().argmax(1) == labels[i : i + size]).sum())
        total += size
    return right / total


def size_of(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).iterdir())


def command(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "sluice.quantization", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment})


@pytest.mark.parametrize("mode", ["static", "dynamic", "qdq"])
def test_the_command_quantizes_digits(digits, mode, tmp_path):
    """The accuracy falls by less than 1 %, and the files take less than 30 % of what they took."""
    folder, images, labels = digits
    done = command(folder / "digits", "--calib", folder / "digits.npy", "--mode", mode, "-o", tmp_path / "small", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [layer["op"] for layer in told["layers"]] == ["conv", "conv", "linear", "linear"]
    before, after = size_of(folder / "digits"), size_of(tmp_path / "small")
    assert told["bytes"] == {"before": before, "after": after} and after <= 0.3 * before
    assert told["results"]["same_largest"] > 0.98
    exact, small = (accuracy(sl.load_graph(path), images, labels) for path in (folder / "digits", tmp_path / "small"))
    assert exact > 0.95 and small >= exact - 0.01


def test_a_bundle_of_integers_runs_without_python(digits, tmp_path):
    folder, images, _ = digits
    small = quantize(folder / "digits", [images[:64], images[64:128]])
    sl.save(small, tmp_path / "small")
    np.save(tmp_path / "x.npy", images[:64])
    subprocess.run([find_tool("sluice-run"), tmp_path / "small", f"--input=@{tmp_path / 'x.npy'}",
                    f"--output=@{tmp_path / 'y.npy'}", "--quiet"], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), small(sl.from_numpy(images[:64])).numpy())


CHILD = """
import sys, warnings
import numpy as np
import sluice as sl
from sluice import _C
warnings.simplefilter("ignore")
folder, made = sys.argv[1:]
x = np.load(f"{folder}/digits.npy")[:64]
graph = sl.load_graph(f"{folder}/small")
np.save(made, graph(sl.from_numpy(x)).numpy())
random = np.random.default_rng(0)
q = random.integers(0, 256, (4, 16, 9, 9)).astype("uint8")
w = np.full((24, 16, 3, 3), 127, "int8")  # sums of two products are beyond 16 bits
w[::2] = random.integers(-127, 128, w[::2].shape)
y = _C.ops.int8_conv(sl.from_numpy(q), sl.from_numpy(w), sl.full((24,), 1e-4), activation="relu", dtype=sl.uint8, stride=[1, 1],
                     padding=[1, 1], dilation=[1, 1])
np.save(made + ".conv", y.numpy())
print("int8_conv" in graph._call.session.plan_json())
"""


def test_processors_without_vnni_differ_by_a_step_at_most(digits, tmp_path):
    """In floats of the same integers, which cannot saturate: they are exact up to 2^24."""
    folder, images, _ = digits
    sl.save(quantize(folder / "digits", [images[:64]]), folder / "small")
    made = []
    for isa in ("", "avx512", "avx2"):
        done = subprocess.run([sys.executable, "-c", CHILD, folder, tmp_path / f"of{isa}.npy"], capture_output=True, text=True,
                              env={**os.environ, "SLUICE_MAX_ISA": isa})
        assert done.returncode == 0, done.stderr
        assert not isa or done.stdout.strip() == "False"
        made.append([np.load(tmp_path / f"of{isa}.npy{end}") for end in ("", ".conv.npy")])
    for logits, conv in made[1:]:
        assert np.abs(conv.astype(int) - made[0][1].astype(int)).max() <= 1
        np.testing.assert_allclose(logits, made[0][0], atol=0.02 * np.abs(made[0][0]).max())
    assert (made[0][1] == 255).any() and (made[0][1] < 255).any()


class Scaled(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = sl.nn.Linear(8, 4)

    def forward(self, x, by):
        return self.layer(x) * by


def test_the_command_says_what_is_wrong(digits, tmp_path):
    folder, images, _ = digits
    np.save(tmp_path / "few.npy", images[:8])
    np.save(tmp_path / "nan.npy", np.full((64, 1, 8, 8), np.nan, "float32"))
    (tmp_path / "text.npy").write_text("none")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 and no more")
    model = folder / "digits"
    for arguments, message in [
        *(([model, "--calib", tmp_path / name], f"{name}: no arrays of NumPy: ")
          for name in ("text.npy", "empty.npy", "cut.npz")),
        ([tmp_path / "none"], f"sluice-quantize: {tmp_path / 'none'}: no bundle of one graph: there is no "
                              f"{tmp_path / 'none/graph.txt'}; write one with sluice.save(graph, directory)"),
        ([model], "sluice-quantize: --calib: mode static needs rows of inputs; give a file, or --mode dynamic"),
        ([model, "--calib", tmp_path / "few.npy"], "few.npy: input is (8, 1, 8, 8); the graph takes (64, 1, 8, 8): give at "
                                                   "least 64 rows of (1, 8, 8)"),
        ([model, "--calib", tmp_path / "nan.npy"], "the operand of 'function.0' had values that are not finite"),
        ([model, "--calib", folder / "digits.npy", "--exclude", "nobody"], "exclude: no layer is named 'nobody'"),
        ([model, "--calib", tmp_path / "none.npy"], f"sluice-quantize: {tmp_path / 'none.npy'}: No such file or directory"),
        ([model, "--mode", "int4"], "argument --mode: invalid choice: 'int4'"),
        ([model, "--mode", "dynamic", "-o", model], f"sluice-quantize: --output: {model} is the model; write to another "
                                                    "directory"),
    ]:
        done = command(*arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    number = sl.nn.Graph.trace(Scaled().eval())
    number(sl.randn(4, 8), sl.tensor(2.0))
    sl.save(number, tmp_path / "number")
    np.savez(tmp_path / "rows.npz", x=images[:4], by=np.float32(2))
    done = command(tmp_path / "number", "--calib", tmp_path / "rows.npz")
    assert done.returncode == 2 and "of the graph has no rows; call sluice.quantization.quantize" in done.stderr, done.stderr
    told = command("--help")
    assert told.returncode == 0 and "sluice-quantize MODEL --calib images.npy" in told.stdout and "--keep-first" in told.stdout
    text = command(model, "--calib", folder / "digits.npy", "--keep-last", "--batches", "2", "-o", tmp_path / "out").stdout
    assert "as it was" in text and "files: " in text and "the largest of a row is the same in" in text
