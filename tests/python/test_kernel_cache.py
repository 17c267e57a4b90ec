"""Kernels are prepared once for an engine: by graphs compiled again, loaded bundles and eager calls."""

import pathlib

import pytest

import sluice as sl
from sluice import info, nn

NETS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/gpu"


class Forward(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        return self.model(x)


@pytest.fixture
def prepared():
    """The kernels that have been prepared since the last call."""
    last = info.kernels()

    def since():
        nonlocal last
        before, last = last, info.kernels()
        return {key: last[key] - before[key] for key in ("hits", "misses", "prepare_ms")}

    return since


@pytest.mark.skipif(not NETS.exists(), reason="the benchmarks are not here")
def test_a_second_resnet50_prepares_no_kernel(monkeypatch, prepared):
    monkeypatch.syspath_prepend(NETS)
    from nets import resnet50

    x = sl.ones(1, 3, 64, 64)
    models = [resnet50(sl, (3, 4, 6, 3), 64, 1000).eval() for _ in range(2)]
    prepared()
    first = Forward(models[0]).compile(x)
    made = prepared()
    assert made["misses"] > 30 and made["prepare_ms"] > 0
    second = Forward(models[1]).compile(x)  # other weights
    again = prepared()
    assert again["misses"] == 0 and again["prepare_ms"] == 0 and again["hits"] > 50
    for graph, model in zip((first, second), models):
        assert sl.allclose(graph(x), model(x), rtol=1e-3, atol=1e-3)


def test_a_bundle_is_loaded_with_the_kernels_there_are(tmp_path, prepared):
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 36, 7)).eval()
    x = sl.rand(2, 3, 8, 8)
    graph = Forward(model)
    y = graph(x)
    sl.save(graph, tmp_path / "model")
    prepared()
    loaded = sl.load_graph(tmp_path / "model")
    assert prepared()["misses"] == 0
    assert sl.equal(loaded(x), y)


def test_functions_of_the_program_are_not_mixed_up():
    def scaled(by):
        class Scaled(nn.Graph):
            def build(self, x):
                return sl.host_function(lambda x: x * by, x, out=((3,), sl.float32))

        return Scaled()(sl.ones(3)).tolist()

    assert scaled(2.0) == [2, 2, 2]
    assert scaled(3.0) == [3, 3, 3]


def test_another_engine_has_its_own(tmp_path):
    graph = Forward(nn.Linear(3, 2).eval())
    graph(sl.ones(4, 3))
    sl.save(graph, tmp_path / "model")
    engine = sl._C.Engine()
    engine.load(str(tmp_path / "model"))
    stats = engine.kernel_stats()
    assert stats["misses"] == stats["entries"] > 0
    engine.load(str(tmp_path / "model"))
    assert engine.kernel_stats()["misses"] == stats["misses"]
