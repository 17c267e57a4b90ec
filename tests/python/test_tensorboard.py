"""SummaryWriter: tensors reach tensorboardX as arrays; without that package the error says what to install."""

import sys
import types

import numpy as np
import pytest

import sluice as sl


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.delitem(sys.modules, "sluice.utils.tensorboard", raising=False)
    yield
    sys.modules.pop("sluice.utils.tensorboard", None)


def test_without_the_package_it_is_named(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        from sluice.utils.tensorboard import SummaryWriter  # noqa: F401


def test_tensors_are_passed_on_as_arrays(fresh, monkeypatch):
    class Writer:
        def add_scalars(self, tag, values, step=None, kind="k"):
            return tag, values, step, kind

        def add_graph(self, model):
            raise AssertionError

        def close(self):
            return "closed"

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Writer))
    from sluice.utils.tensorboard import SummaryWriter

    writer = SummaryWriter()
    tag, values, step, kind = writer.add_scalars("a", {"x": sl.ones(2, requires_grad=True), "y": [sl.ones(1, dtype=sl.bfloat16)]}, step=sl.tensor(3))
    assert (tag, kind) == ("a", "k") and isinstance(values["x"], np.ndarray) and values["y"][0].dtype == np.float32 and step == 3
    assert writer.close() == "closed"
    with pytest.raises(NotImplementedError, match="sluice.lower"):
        writer.add_graph(1)
