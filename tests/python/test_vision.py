"""sluice.vision: torchvision's and timm's names, on Sluice, while `import torch` gives torch."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import sluice as sl

BESIDE = [pathlib.Path(__file__).resolve().parents[2] / ".venv" / name for name in ("ecosystem", "torchvision")]
beside = pytest.mark.skipif(not all(folder.is_dir() for folder in BESIDE), reason="timm and torchvision do not lie beside the environment")


@pytest.fixture
def vision(monkeypatch):
    monkeypatch.setattr(sys, "path", [*map(str, BESIDE), *sys.path])
    return sl.vision


@beside
def test_names_are_torchvisions_and_timms_on_sluice(vision):
    net = vision.models.resnet18(num_classes=3)
    assert isinstance(net, sl.nn.Module) and type(net).__module__ == "torchvision.models.resnet"
    assert "test_resnet" in vision.list_models() and vision.is_model("vit_tiny_patch16_224")
    small = vision.create_model("test_resnet", num_classes=3).eval()
    assert isinstance(small, sl.nn.Module)
    image = np.random.default_rng(0).integers(0, 256, size=(80, 60, 3), dtype=np.uint8)
    from PIL import Image

    prepare = vision.transforms.Compose([vision.transforms.Resize(64), vision.transforms.CenterCrop(64), vision.transforms.ToTensor()])
    x = prepare(Image.fromarray(image)).unsqueeze(0)
    assert isinstance(x, sl.Tensor) and x.shape == (1, 3, 64, 64)
    with sl.no_grad():
        np.testing.assert_allclose(sl.nn.Graph.trace(small)(x).numpy(), small(x).numpy(), rtol=1e-4, atol=1e-5)
    assert vision.ops.nms(sl.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), sl.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
    assert not sl.mock_torch.is_enabled() and sys.modules["torch"] is torch


@beside
def test_a_step_of_training_as_a_graph(vision):
    net = vision.create_model("test_resnet", num_classes=3)

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))

        def build(self, x, y):
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    sl.manual_seed(0)
    x, y, train = sl.rand(4, 3, 64, 64), sl.tensor([0, 1, 2, 0]), Train()
    losses = [train(x, y).item() for _ in range(8)]
    assert losses[-1] < losses[0]


def test_what_is_not_there_is_told():
    with pytest.raises(AttributeError, match="module 'sluice.vision' has no attribute 'nothing'; it has create_model, datasets"):
        sl.vision.nothing
    program = "import sluice as sl\ntry:\n    sl.vision.create_model\nexcept ModuleNotFoundError as error:\n    print(error, '|', error.name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": "/nowhere"})
    assert done.returncode == 0, done.stderr
    assert "sluice.vision.create_model: timm is not installed; `pip install --no-deps timm`" in done.stdout and "| timm" in done.stdout
