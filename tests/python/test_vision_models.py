"""Models of timm by sluice.vision.create_model, which torch's users and FlowVision's know by these names."""

import pathlib
import sys

import numpy as np
import pytest

import sluice as sl

BESIDE = [pathlib.Path(__file__).resolve().parents[2] / ".venv" / name for name in ("ecosystem", "torchvision")]
pytestmark = pytest.mark.skipif(not all(folder.is_dir() for folder in BESIDE), reason="timm and torchvision do not lie beside the environment")


@pytest.fixture
def vision(monkeypatch):
    monkeypatch.setattr(sys, "path", [*map(str, BESIDE), *sys.path])
    return sl.vision


# Parameters in millions, as their makers published them.
@pytest.mark.parametrize("name,size,millions", [("deit_tiny_patch16_224", 224, 5.7), ("rexnet_100", 64, 4.8), ("vit_small_patch32_384", 384, 22.9),
                                                ("res2net50_48w_2s", 64, 25.3), ("efficientnet_b0", 64, 5.3), ("res2net50_26w_4s", 64, 25.7)])
def test_models_have_their_size_and_states_go_round(vision, name, size, millions):  # FV-03, FV-06
    sl.manual_seed(0)
    net = vision.create_model(name).eval()
    assert round(sum(p.numel() for p in net.parameters()) / 1e6, 1) == millions
    with sl.no_grad():
        x = sl.rand(1, 3, size, size)
        y = net(x)
        assert y.shape == (1, 1000)
        other = vision.create_model(name).eval()
        other.load_state_dict(net.state_dict(), strict=True)
        assert sl.equal(other(x), y)


def test_gradients_of_a_rexnet_are_those_of_finite_differences(vision):  # FV-05
    sl.manual_seed(0)
    net = vision.create_model("rexnet_100", num_classes=5).eval().double()
    x, direction = sl.rand(1, 3, 64, 64, dtype=sl.float64, requires_grad=True), sl.randn(1, 3, 64, 64, dtype=sl.float64)
    weights = sl.randn(5, dtype=sl.float64)
    loss = lambda x: (net(x)[0] * weights).sum()
    loss(x).backward()
    with sl.no_grad():
        step = 1e-8
        slope = ((loss(x + step * direction) - loss(x - step * direction)) / (2 * step)).item()
        assert slope == pytest.approx((x.grad * direction).sum().item(), rel=1e-4, abs=1e-9)


def test_trunc_normal_is_a_normal_distribution_that_is_cut():  # FV-08
    from scipy import stats

    sl.manual_seed(0)
    got = sl.nn.init.trunc_normal_(sl.empty(100_000), mean=0.5, std=2.0, a=-1.0, b=3.0).numpy().astype(np.float64)
    assert got.min() >= -1.0 and got.max() <= 3.0
    assert stats.kstest(got, stats.truncnorm(-0.75, 1.25, loc=0.5, scale=2.0).cdf).pvalue > 1e-3


def test_a_new_head_is_trained_and_the_rest_stays(vision):  # TV-06
    from sklearn.datasets import load_digits

    digits = load_digits()
    sl.manual_seed(0)
    x = sl.nn.functional.interpolate(sl.tensor(digits.images[:64, None] / 16).float().expand(-1, 3, -1, -1), size=32)
    y = sl.tensor(digits.target[:64])
    net = vision.models.resnet18().eval()
    for p in net.parameters():
        p.requires_grad_(False)
    net.fc = sl.nn.Linear(net.fc.in_features, 10)
    before = {name: value.clone() for name, value in net.state_dict().items()}

    class Tuning(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(sl.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01))

        def build(self, x, y):
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    tuning = Tuning()
    losses = [tuning(x, y).item() for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    changed = {name for name, value in net.state_dict().items() if not sl.equal(value, before[name])}
    assert changed == {"fc.weight", "fc.bias"}
