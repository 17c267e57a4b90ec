"""Families in bundles: saved, loaded, broken."""

import json

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from affine import Affine, cached, rows


def test_families_are_saved_and_loaded(tmp_path):
    graph = Affine({"x": {0: sl.Dim("batch", max=8, buckets=(1, 4, 8))}})
    graph(rows(3))
    sl.save(graph, tmp_path / "f")
    loaded = sl.load_graph(tmp_path / "f")
    assert loaded.members == graph.members and loaded.inputs == graph.inputs
    for n in range(1, 9):
        assert np.array_equal(loaded(rows(n)).numpy(), graph(rows(n)).numpy())
    assert loaded.memory() == {**graph.memory(), "mapped": loaded.memory()["mapped"]}
    with pytest.raises(ValueError, match="axis 0 is 9; dim 'batch' is at most 8"):
        loaded(rows(9))
    files = sorted(str(p.relative_to(tmp_path / "f")) for p in (tmp_path / "f").rglob("*") if p.is_file())
    assert files == ["family.json", *[f"members/{i}/{f}" for i in range(3) for f in ("graph.txt", "plan.json")], "meta.json",
                     "weights.safetensors"]
    sl.save(loaded, tmp_path / "again")
    for f in files:
        assert (tmp_path / "again" / f).read_bytes() == (tmp_path / "f" / f).read_bytes(), f


def test_a_plan_per_shape_is_saved_as_a_family_of_exact_plans(tmp_path):
    graph = cached()
    graph(rows(2))
    sl.save(graph, tmp_path / "one")  # of one shape, it is a plan
    assert (tmp_path / "one/plan.json").exists()
    assert np.array_equal(sl.load_graph(tmp_path / "one")(rows(2)).numpy(), graph(rows(2)).numpy())
    for n in (5, 3):
        graph(rows(n))
    sl.save(graph, tmp_path / "all")
    loaded = sl.load_graph(tmp_path / "all")
    assert loaded.members == [{"x.0": 2}, {"x.0": 5}, {"x.0": 3}]
    for n in (3, 2, 5, 2):
        assert np.array_equal(loaded(rows(n)).numpy(), graph(rows(n)).numpy())
    with pytest.raises(ValueError, match=r"dim 'x.0' is 4; there are plans for 2, 3, 5, and its fit is exact"):
        loaded(rows(4))
    with pytest.raises(ValueError, match="axis 0 is 6; dim 'x.0' is at most 5"):
        loaded(rows(6))
    assert (tmp_path / "all/weights.safetensors").stat().st_size < 2 * (tmp_path / "one/weights.safetensors").stat().st_size


def test_a_cache_that_trains_is_saved(tmp_path):
    @nn.Graph.with_dynamic_input_shape()
    class Train(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(sl.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x, scale):
            loss = (self.model(x) * scale).square().mean()
            loss.backward()
            return {"loss": loss, "scaled": scale * 2}

    model = nn.Linear(6, 3)
    graph = Train(model)
    calls = [(rows(n), rows(n, 3)) for n in (4, 2, 3)]
    for call in calls:
        graph(*call)
    sl.save(graph, tmp_path / "train")
    loaded = sl.load_graph(tmp_path / "train")
    assert loaded.members == [{"x.0": n} for n in (4, 2, 3)]  # both arguments have as many rows
    for call in calls * 2:  # one variable, whichever plan updates it
        got, expected = loaded(*call), graph(*call)
        assert np.array_equal(got["loss"].numpy(), expected["loss"].numpy())
        assert np.array_equal(got["scaled"].numpy(), expected["scaled"].numpy())


def test_an_engine_holds_what_the_ledger_of_a_family_says(tmp_path):
    graph = Affine({"x": {0: sl.Dim("batch", max=64, buckets=(16, 32, 64))}}).compile(rows(3))
    sl.save(graph, tmp_path / "f")
    engine = sl._C.Engine()
    session = engine.load(str(tmp_path / "f"))
    for n in (64, 3, 20, 40, 16):
        assert np.allclose(session.run([rows(n)])[0].numpy(), graph(rows(n)).numpy(), atol=1e-6)
    assert session.ledger_bytes() == graph.memory()["total"]
    assert engine.memory_stats("host")["peak_bytes"] == session.ledger_bytes() - session.counters()["mapped"]


def test_broken_families_are_errors_that_name_the_file(tmp_path, without_digest):
    graph = Affine({"x": {0: sl.Dim("batch", max=4, buckets=(2, 4))}})
    graph.compile(rows(3))
    sl.save(graph, tmp_path / "f")
    without_digest(tmp_path / "f")
    index = json.loads((tmp_path / "f/family.json").read_text())

    def error(change):
        broken = json.loads(json.dumps(index))
        change(broken)
        (tmp_path / "f/family.json").write_text(json.dumps(broken))
        with pytest.raises((ValueError, OSError)) as caught:
            sl.load_graph(tmp_path / "f")
        return str(caught.value)

    assert error(lambda f: f.update(members=[[2], [3], [4]])).startswith(f"{tmp_path}/f/members/2: not a directory")
    exchanged = error(lambda f: f.update(members=[[4], [2]]))  # the largest is looked at first
    assert "member (2): input 'x' of the plan is float32(4, 6)" in exchanged or "member (4): input 'x' of the plan is float32(2, 6)" in exchanged
    assert error(lambda f: f["dims"][0].update(fit="x")).startswith(f"{tmp_path}/f/family.json: dims[0].fit: ")
    assert error(lambda f: f["outputs"].pop()).startswith(f"{tmp_path}/f/family.json: ")
    (tmp_path / "f/family.json").write_text("[")
    with pytest.raises(ValueError, match="family.json: not JSON"):
        sl.load_graph(tmp_path / "f")
