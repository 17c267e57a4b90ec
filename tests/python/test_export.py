"""A graph made in Python runs in C++ and back, also for several shapes."""

import json
import subprocess

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool


class Classify(nn.Graph):
    def __init__(self, net):
        super().__init__(name="classify")
        self.net = net

    def build(self, images):
        return self.net(images)


@pytest.fixture
def net():
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)).eval()


def test_python_to_cpp_and_back_keeps_every_bit(net, tmp_path):  # MLX-03
    graph, images = Classify(net), sl.rand(4, 1, 8, 8)
    ours = graph(images).numpy()
    sl.save(graph, tmp_path / "bundle")
    images.numpy().tofile(tmp_path / "images.f32")
    done = subprocess.run([find_tool("cpp_runner"), tmp_path / "bundle", tmp_path / "images.f32", tmp_path / "out.f32"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "images: float32(4, 1, 8, 8)" in done.stdout
    back = sl.frombuffer(bytearray((tmp_path / "out.f32").read_bytes()), dtype=sl.float32).reshape(4, 10)
    assert np.array_equal(back.numpy(), ours)
    again = sl.load_graph(tmp_path / "bundle")
    sl.save(again, tmp_path / "again")  # what C++ has run is what Python loads and saves
    assert np.array_equal(sl.load_graph(tmp_path / "again")(images).numpy(), ours)


def test_the_cpp_session_names_the_input_of_a_wrong_shape(net, tmp_path):  # MLX-03
    sl.save(Classify(net).compile(sl.rand(4, 1, 8, 8)), tmp_path / "bundle")
    session = sl._C.Engine().load(str(tmp_path / "bundle"))
    with pytest.raises(ValueError, match=r"images.*\(4, 1, 8, 8\)"):
        session.run([sl.rand(4, 1, 8, 9)])
    with pytest.raises(TypeError, match="images.*float32"):
        session.run([sl.zeros(4, 1, 8, 8, dtype=sl.int64)])


def test_one_directory_holds_plans_for_several_shapes(net, tmp_path):  # MLX-03
    shapes = [(1, 1, 8, 8), (4, 1, 8, 8), (2, 1, 6, 10)]
    graphs = [Classify(net).compile(sl.zeros(*shape)) for shape in shapes]
    sl.save(graphs, tmp_path / "shapes")
    loaded = sl.load_graph(tmp_path / "shapes")
    for shape, graph in zip(shapes, graphs):
        images = sl.rand(*shape)
        assert np.array_equal(loaded(images).numpy(), graph(images).numpy())
        assert np.array_equal(loaded(images=images).numpy(), graph(images).numpy())
    with pytest.raises(ValueError, match=r"inputs have shapes \[\(3, 1, 8, 8\)\]; there are plans for .*'images': \(2, 1, 6, 10\)"):
        loaded(sl.rand(3, 1, 8, 8))
    assert sl._C.Engine().load(str(tmp_path / "shapes" / "1")).run([sl.rand(4, 1, 8, 8)])[0].shape == (4, 10)


def test_damaged_or_repeated_shapes_are_refused(net, tmp_path):
    graph = Classify(net).compile(sl.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="no two with the same shapes"):
        sl.save([graph, graph], tmp_path / "twice")
    sl.save([graph], tmp_path / "one")
    for index in ({"schema_version": 2, "bundles": 1}, {"schema_version": 1, "bundles": "../x"}, {"schema_version": 1, "bundles": 0}, []):
        (tmp_path / "one" / "shapes.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="shapes.json: bundles"):
            sl.load_graph(tmp_path / "one")


def test_a_graph_draws_itself(net):  # MLX-03
    text = Classify(net).compile(sl.zeros(1, 1, 8, 8)).dot()
    assert text.startswith("digraph") and "cpu:0/compute0" in text and "images" in text
