"""The nets of the benchmark serve.nets.*: that they are what their names say, and are served as they compute."""

import sys

import numpy as np
import pytest

import sluice as sl
from programs import ROOT, expected, served
from test_load import Client
from test_tritonclient import save_graph

sys.path.insert(0, str(ROOT / "benchmarks"))
from serve_zoo import NETS  # noqa: E402


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "resnet50", "mlp_mixer", "vit_base", "efficientnet_b7"])
def test_parameters_are_those_of_the_paper(name):
    make, count = NETS[name]
    assert sum(parameter.numel() for parameter in make(224).parameters()) == count


class Infer(sl.nn.Graph):
    def __init__(self, name, net):
        super().__init__(name=name)
        self.net = net.eval()

    def build(self, x):
        return self.net(x)


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "mlp_mixer"])
def test_served_and_in_process_are_equal(name, tmp_path):  # SRV-17
    sl.manual_seed(0)
    folder, x = tmp_path / "models" / name / "1" / "model", np.linspace(-1, 1, 3 * 32 * 32, dtype=np.float32).reshape(1, 3, 32, 32)
    with sl.no_grad():
        save_graph(Infer(name, NETS[name][0](32)), folder, sl.zeros(1, 3, 32, 32))
    wanted = expected(sl.load_graph(folder), x)
    with served(tmp_path / "models", folder=tmp_path) as server:
        got = Client(server.http).infer(name, x)
    assert wanted.shape == (1, 1000) and np.isfinite(wanted).all()
    np.testing.assert_array_equal(np.asarray(got, np.float32).ravel(), wanted.ravel())
