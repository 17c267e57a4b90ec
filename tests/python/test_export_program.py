"""sluice.export: a whole program ahead of time, with dims, that runs without Python; torch.export under the mock."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

import sluice as sl
from sluice import nn

BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release"))


@pytest.fixture
def net():
    sl.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def run(path, *arguments):
    done = subprocess.run([BUILD / "tools/sluice-run", path, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_with_a_dim_runs_in_cpp(net, tmp_path):
    x = sl.randn(6, 4)
    program = sl.export(net, (x,), dynamic={"input": {0: "B"}})
    assert program.dims["B"].max == 6 and program.dims["B"].fit == "pad"
    for n in range(1, 7):
        assert np.allclose(program(x[:n]).numpy(), net(x[:n]).detach().numpy(), atol=1e-6)
    program.save(tmp_path / "net")
    assert "input: float32(B<=6, 4)" in run(tmp_path / "net", "--info")
    for n in (1, 3, 6):
        np.save(tmp_path / "x.npy", x[:n].numpy())
        np.save(tmp_path / "y.npy", net(x[:n]).detach().numpy())
        run(tmp_path / "net", f"--input=@{tmp_path}/x.npy", f"--expect=@{tmp_path}/y.npy")
    with pytest.raises(ValueError, match="7"):
        program(sl.randn(7, 4))


def test_rows_that_depend_on_each_other_have_a_plan_for_each_size(tmp_path):
    def centred(x, scale=2.0):
        return (x - x.mean(0)) * scale

    x = sl.randn(5, 3)
    program = sl.export(centred, (x,), {"scale": 3.0}, dynamic={"x": {0: "rows"}})
    assert program.dims["rows"].fit == "exact" and len(program.dims["rows"].buckets) == 5
    for n in range(1, 6):
        got = program(x[:n], scale=3.0)
        assert np.allclose(got.numpy(), centred(x[:n], 3.0).numpy(), atol=1e-6)
    program.save(tmp_path / "centred")
    np.save(tmp_path / "x.npy", x[:4].numpy())
    np.save(tmp_path / "y.npy", centred(x[:4], 3.0).numpy())
    run(tmp_path / "centred", f"--input=@{tmp_path}/x.npy", f"--expect=@{tmp_path}/y.npy")


def test_a_result_that_is_a_sum_of_rows_has_a_plan_for_each_size():
    program = sl.export(lambda x: x.sum(0), (sl.ones(3, 2),), dynamic={"x": {0: "B"}})
    assert program.dims["B"].fit == "exact" and program(sl.ones(2, 2)).tolist() == [2, 2]


def test_one_name_is_one_size_and_dims_have_limits():
    def both(x, others):
        return x + others[0], others[1] * 2

    a, b, c = sl.ones(4, 2), sl.ones(4, 2), sl.ones(2, 5)
    program = sl.export(both, (a, [b, c]), dynamic={"x": {0: "B"}, "others.0": {0: "B"}, "others.1": {1: sl.Dim("L", max=9)}})
    assert sorted(program.dims) == ["B", "L"] and program.dims["L"].max == 9
    first, second = program(a[:3], [b[:3], sl.ones(2, 7)])
    assert first.shape == (3, 2) and second.shape == (2, 7)
    with pytest.raises(ValueError):
        program(a[:3], [b[:2], c])
    with pytest.raises(ValueError, match=r"export: dim 'B': 2 at axis 0 of 'others.1', 4 at axis 0 of 'x'; must be one size of the example"):
        sl.export(both, (a, [b, c]), dynamic={"x": {0: "B"}, "others.1": {0: "B"}})


def test_without_dims_it_is_one_plan_and_training_state_is_in_it(net, tmp_path):
    x = sl.randn(2, 4)
    program = sl.export(net, [x])
    assert program.dims == {} and program(x).tolist() == net(x).tolist() and "Exported" in repr(program)
    assert sorted(program.state_dict()) and program.inputs[0][2] == (2, 4)
    program.save(tmp_path / "net")
    assert sl.load_graph(tmp_path / "net")(x).tolist() == net(x).tolist()


@pytest.mark.parametrize("dynamic, error, text", [
    ([0], TypeError, "export: dynamic: list; must be a dict of dims by axis, by argument"),
    ({"input": 0}, TypeError, r"export: dynamic\['input'\]: int; must be a dict of dims by axis"),
    ({"input": {"0": "B"}}, TypeError, "must be a name or a sluice.Dim by the number of an axis"),
    ({"input": {0: 3}}, TypeError, "must be a name or a sluice.Dim by the number of an axis"),
    ({"input": {5: "B"}}, IndexError, "binds axis 5 of 'input'"),
    ({"nothing": {0: "B"}}, ValueError, "names 'nothing'; its arguments are"),
])
def test_dims_that_are_none_are_refused(net, dynamic, error, text):
    with pytest.raises(error, match=text):
        sl.export(net, (sl.ones(2, 4),), dynamic=dynamic)


def test_what_cannot_be_exported_is_refused(net):
    with pytest.raises(ValueError, match="dim 'B': the example has 1 at axis 0 of 'input'; must be the largest size"):
        sl.export(net, (sl.ones(1, 4),), dynamic={"input": {0: "B"}})
    with pytest.raises(RuntimeError, match="traced"):
        sl.export(lambda x: x * x.sum().item(), (sl.ones(2),))
    with pytest.raises(TypeError, match="export: args: Tensor"):
        sl.export(net, sl.ones(2, 4))


def test_torchs_names_are_there_under_the_mock(net, tmp_path):
    with sl.mock_torch():
        import torch
        from torch.export import Dim, ExportedProgram, export, load, save

    batch = Dim("batch", min=1, max=8)
    x = sl.randn(2, 4)
    program = export(net, (x,), dynamic_shapes={"input": {0: batch}})
    assert isinstance(program, ExportedProgram) and program.module()(sl.ones(5, 4)).shape == (5, 3)
    assert sorted(program.state_dict) and program.example_inputs[0][0] is x
    for shapes in (({0: batch},), {"input": [batch, None]}, {"input": {0: Dim.AUTO}}, None):
        assert export(net, (x,), dynamic_shapes=shapes).module()(x).shape == (2, 3)
    save(program, tmp_path / "program")
    again = load(tmp_path / "program")
    assert again.module()(sl.ones(5, 4)).tolist() == program.module()(sl.ones(5, 4)).tolist()
    save(again, tmp_path / "second")
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)
    with pytest.raises(NotImplementedError, match="a plan is no fx graph; use torch.fx.symbolic_trace"):
        program.graph_module
    with pytest.raises(NotImplementedError, match="a size that is computed of 'batch'"):
        2 * batch
    with pytest.raises(ValueError, match="dynamic_shapes: 'y'; the arguments are"):
        export(net, (x,), dynamic_shapes={"y": None})
    with pytest.raises(NotImplementedError, match="torch.export.unflatten: used"):
        torch.export.unflatten(program)
