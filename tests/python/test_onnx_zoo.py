"""The zoo of benchmarks/zoo as models of ONNX: equal in ONNX Runtime, and the same bits when they are read again."""

import pathlib
import sys

import numpy as np
import pytest
from onnx_models import INSTALLED, graph_of, needs_onnx
from test_onnx_export import by_onnxruntime, checked, listed

import sluice as sl
from sluice import nn

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/zoo"
# The newest set of ops is taken, so that few ops are written as others. These models differ in their last bits all the same, by the ops that ONNX has in parts
# or with attributes of 32 bits.
OTHER_BITS = {"dcgan_generator": "ConvTranspose", "char_lstm": "the cell of an LSTM", "recommender": "Selu", "soft_actor_critic": "a chain of ops",
              "fast_neural_style": "a norm of instances", "distilbert": "Gelu", "convnext_hf": "Gelu", "llama_lm": "silu"}
REFUSED = {"lennard_jones": "it asks for gradients in forward(), which an export does not record"}
STYLES = ("timm", "torchbench", "transformers")
pytestmark = [needs_onnx, pytest.mark.skipif(not FOLDER.exists() or not INSTALLED, reason="the benchmarks are not here")]


@pytest.fixture
def zoo(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.syspath_prepend(str(FOLDER))
    import zoo

    sys.path[:0] = [path for path in zoo.PATHS if path not in sys.path]
    return zoo


def tensors(results):
    """The tensors of a nest, in order."""
    if isinstance(results, dict):
        results = list(results.values())
    return [t for r in listed(results) for t in (tensors(r) if isinstance(r, (list, tuple, dict)) else [r])]


def wrong(zoo, style, name, path):
    """Says what is not as it should be; "" if all is."""
    net, inputs, _, _ = zoo.made(sl, style, name)
    net.eval()
    inputs = tuple(i for i in inputs if isinstance(i, sl.Tensor))
    graph = nn.Graph.trace(net)
    with sl.no_grad():
        wanted = [t.numpy() for t in tensors(graph(*inputs))]
        sl.onnx.export(net, inputs, path, opset=sl._C.onnx_opsets[1])
        checked(path)
        again = sl.onnx.load(path)
        planned, eager = ([t.numpy() for t in tensors(f(*inputs))] for f in (graph_of(again), again))
    theirs = by_onnxruntime(path, [t.numpy() for t in inputs])
    for ours, plan, one_by_one, other in zip(wanted, planned, eager, theirs, strict=True):
        size = float(np.abs(ours).max()) if ours.size else 1.0
        if not (np.allclose(plan, ours, rtol=0, atol=2e-6 * size) if name in OTHER_BITS else np.array_equal(plan, ours)):
            return f"read again, its graph differs by {np.abs(plan - ours).max() / size:.1e}"
        if not np.allclose(one_by_one, ours, rtol=1e-4, atol=1e-5 * max(size, 1)):
            return f"read again, it differs by {np.abs(one_by_one - ours).max() / size:.1e} eagerly"
        if not np.allclose(other, ours, rtol=1e-3, atol=1e-4 * max(size, 1)):
            return f"ONNX Runtime differs by {np.abs(other - ours).max() / size:.1e}"
    return ""


@pytest.mark.soak
def test_the_zoo_is_written_and_read_again(zoo, repetitions, tmp_path, count):
    models = [(style, name) for style, name in zoo.models(STYLES) if name not in REFUSED]
    some = models[:: repetitions(4, 1)]
    found = {name: wrong(zoo, style, name, tmp_path / "m.onnx") for style, name in some}
    count("models of the zoo as ONNX", len(some), "models")
    assert not {name: why for name, why in found.items() if why}
