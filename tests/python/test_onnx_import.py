"""Models of ONNX as modules: onnx's own tests of nodes, weights, gradients, graphs, control flow, the backend of onnx's runner."""

import collections
import subprocess

import numpy as np
import onnx_nodes
import pytest
import torch
from onnx_models import INSTALLED, graph_of, model_of, needs_onnx

import sluice as sl
from sluice._base.tools import find_tool

pytestmark = needs_onnx
if INSTALLED:
    from onnx import helper

# Reasons that docs/onnx.md says in more words.
SAID = {"an op that Sluice has not": "an op that Sluice has not: of strings, of `ai.onnx.ml`, `ImageDecoder`, `FlexAttention`",
        "a seed of its own": "a seed of its own (`RandomUniform`, `Bernoulli`): Sluice's generator draws other numbers",
        "Scan of opset 8": "`Scan` of opset 8"}


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=attributes.pop("name", f"a_{op}"), **attributes)


def rows(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "runner"), [("eager", onnx_nodes.run), ("graph", onnx_nodes.run_as_graph)])
def test_nodes_are_right_or_refused(name, runner, repetitions, count):
    cases = onnx_nodes.cases(every=repetitions({"eager": 1, "graph": 15}[name], 1))
    results = [(case.name, *runner(case)) for case in cases]
    wrong = [(case, why) for case, state, why in results if state == "wrong"]
    passed = sum(state == "pass" for _, state, _ in results)
    count(f"onnx nodes, {name}", passed, f"of {len(results)} right")
    assert not wrong
    assert passed / len(results) > {"eager": 0.82, "graph": 0.6}[name]
    if name == "eager":  # all cases, so the page's numbers are these
        refused = collections.Counter(why for _, state, why in results if state == "refused")
        assert onnx_nodes.documented() == (len(results), passed, {SAID.get(why, why): n for why, n in refused.items()})


def mlp():
    weights = {"layer.0.weight": rows((4, 3)), "layer.0.bias": rows((4,), 1), "head.weight": rows((4, 2), 2)}
    nodes = [node("Gemm", "x layer.0.weight layer.0.bias", "h", transB=1), node("Relu", "h", "r"), node("MatMul", "r head.weight", "y")]
    return model_of(nodes, {"x": ["batch", 3]}, {"y": ["batch", 2]}, weights), weights


def test_weights_are_parameters_by_the_names_of_the_file():
    model, weights = mlp()
    module = sl.onnx.load(model)
    assert list(module.state_dict()) == list(weights)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name])
    assert module.inputs == (sl.onnx.Port("x", "tensor", sl.float32, ("batch", 3)),)
    assert sum(p.requires_grad for p in module.parameters()) == 3


def test_gradients_are_those_of_torch():
    model, weights = mlp()
    module = sl.onnx.load(model)
    x = rows((5, 3), 7)
    module(sl.tensor(x)).square().sum().backward()
    w = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    y = torch.relu(torch.tensor(x) @ w["layer.0.weight"].T + w["layer.0.bias"]) @ w["head.weight"]
    y.square().sum().backward()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), w[name].grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_trains_as_a_graph():
    module = sl.onnx.load(mlp()[0])
    before = module.state_dict()["head.weight"].clone()
    x = sl.tensor(rows((8, 3), 3))

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.add_optimizer(sl.optim.SGD(module.parameters(), lr=0.05))

        def build(self, x):
            loss = module(x).square().mean()
            loss.backward()
            return loss

    train = Train()
    losses = [float(train(x).numpy()) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    assert not np.array_equal(module.state_dict()["head.weight"].numpy(), before.numpy())


def test_names_that_are_no_paths_of_modules_are_kept_apart():
    weights = {"a": rows((2,)), "a.b": rows((2,), 1), "forward": rows((2,), 2), ".x": rows((2,), 3)}
    nodes = [node("Add", "a a.b", "s", name="1"), node("Add", "s forward", "t", name="2"), node("Add", "t .x", "u", name="3"),
             node("Add", "u v", "y", name="4")]
    module = sl.onnx.load(model_of(nodes, {"v": [2]}, {"y": [2]}, weights))
    names = list(module.state_dict())
    assert len(names) == len(set(names)) == 4 and "a" in names
    np.testing.assert_allclose(module(sl.zeros(2)).detach().numpy(), sum(weights.values()), rtol=1e-6)


def test_what_follows_from_shapes_leaves_no_node():
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n first", "n1"),
             node("Concat", "n1 minus", "to", axis=0), node("Reshape", "x to", "r"), node("Relu", "r", "y")]
    constants = {"zero": np.array(0), "first": np.array([0]), "minus": np.array([-1])}
    module = sl.onnx.load(model_of(nodes, {"x": ["n", 2, 3]}, {"y": ["n", "m"]}, constants))
    assert not list(module.parameters())
    lowered = sl.lower(module, sl.zeros(4, 2, 3))
    ops = [n["op"] for n in lowered._trace.captured.nodes()]
    assert ops == ["reshape", "relu"], ops
    assert [n["module"].split(".")[-1] for n in lowered._trace.captured.nodes()] == ["a_Reshape", "a_Relu"]


def branches():
    then = helper.make_graph([node("Mul", "x two", "a", name="twice")], "then", [], [helper.make_tensor_value_info("a", 1, [3])])
    other = helper.make_graph([node("Neg", "x", "b", name="minus")], "other", [], [helper.make_tensor_value_info("b", 1, [3])])
    nodes = [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c"),
             node("If", "c", "y", then_branch=then, else_branch=other)]
    return model_of(nodes, {"x": [3]}, {"y": [3]}, {"two": np.float32(2), "zero": np.float32(0)})


def test_branches_that_a_step_decides():
    module = sl.onnx.load(branches())
    graph = graph_of(module)
    for x in (np.float32([1, 2, 3]), np.float32([-1, -2, -3])):
        wanted = 2 * x if x.sum() > 0 else -x
        np.testing.assert_array_equal(module(sl.tensor(x)).numpy(), wanted)
        np.testing.assert_array_equal(graph(sl.tensor(x)).numpy(), wanted)


def loop(stacks=False):
    body = helper.make_graph(
        [node("Add", "v v", "next", name="double"), node("ReduceMax", "next", "largest", keepdims=0), node("Less", "largest limit", "go")],
        "body", [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
                 helper.make_tensor_value_info("v", 1, [2])],
        [helper.make_tensor_value_info("go", 9, []), helper.make_tensor_value_info("next", 1, [2])] +
        [helper.make_tensor_value_info("next", 1, [2])] * stacks)
    outputs = {"y": [2], **({"z": ["n", 2]} if stacks else {})}
    turns = helper.make_node("Loop", ["most", "", "x"], list(outputs), name="a_Loop", body=body)
    return model_of([turns], {"x": [2]}, outputs, {"limit": np.float32(100), "most": np.array(20)})


def test_loops_that_a_step_ends():
    module = sl.onnx.load(loop())
    graph = graph_of(module)
    for x in (np.float32([1, 2]), np.float32([0.25, 60])):
        wanted = x * 2
        while wanted.max() < 100:
            wanted = wanted * 2
        np.testing.assert_array_equal(module(sl.tensor(x)).numpy(), wanted)
        np.testing.assert_array_equal(graph(sl.tensor(x)).numpy(), wanted)


def test_what_a_loop_stacks_has_a_length_that_eager_calls_know_alone():
    module = sl.onnx.load(loop(stacks=True))
    assert tuple(module(sl.tensor([1.0, 2.0]))[1].shape) == (6, 2)
    with pytest.raises(NotImplementedError, match=r"node 'a_Loop' \(Loop\).*stacks"):
        graph_of(module)(sl.tensor([1.0, 2.0]))


def test_recurrent_layers_are_one_loop_of_a_graph():
    hidden, size, steps = 4, 3, 6
    weights = {"w": rows((1, 4 * hidden, size)), "r": rows((1, 4 * hidden, hidden), 1), "b": rows((1, 8 * hidden), 2)}
    layer = node("LSTM", "x w r b", "y", hidden_size=hidden)
    module = sl.onnx.load(model_of([layer], {"x": [steps, 2, size]}, {"y": [steps, 1, 2, hidden]}, weights))
    x = rows((steps, 2, size), 5)
    lstm = torch.nn.LSTM(size, hidden)
    order = np.concatenate([np.arange(hidden) + k * hidden for k in (0, 2, 3, 1)])  # i, o, f, c to i, f, g, o
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(torch.tensor(weights["w"][0][order]))
        lstm.weight_hh_l0.copy_(torch.tensor(weights["r"][0][order]))
        lstm.bias_ih_l0.copy_(torch.tensor(weights["b"][0][:4 * hidden][order]))
        lstm.bias_hh_l0.copy_(torch.tensor(weights["b"][0][4 * hidden:][order]))
        wanted = lstm(torch.tensor(x))[0].numpy()
    np.testing.assert_allclose(module(sl.tensor(x)).detach().numpy()[:, 0], wanted, rtol=1e-4, atol=1e-5)
    assert [n["op"] for n in sl.lower(module, sl.tensor(x))._trace.captured.nodes()].count("scan") == 1
    np.testing.assert_allclose(graph_of(module)(sl.tensor(x)).detach().numpy()[:, 0], wanted, rtol=1e-4, atol=1e-5)


def test_functions_of_the_model_run_with_the_attributes_of_their_calls():
    scale = helper.make_function("mine", "Scaled", ["a"], ["b"], [
        helper.make_node("Constant", [], ["k"], name="k"), helper.make_node("Mul", ["a", "k"], ["b"], name="m")],
        [helper.make_opsetid("", 18)], ["by"])
    attribute = scale.node[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "by", 1
    nodes = [helper.make_node("Scaled", ["x"], ["h"], name="one", domain="mine", by=3.0),
             helper.make_node("Scaled", ["h"], ["y"], name="two", domain="mine", by=5.0)]
    model = model_of(nodes, {"x": [2]}, {"y": [2]}, functions=[scale],
                     imports=[helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)])
    np.testing.assert_array_equal(sl.onnx.load(model)(sl.tensor([1.0, 2.0])).numpy(), [15, 30])


def test_inputs_are_checked_by_name():
    module = sl.onnx.load(model_of([node("Add", "a b", "y")], {"a": ["n", 3], "b": ["n", 3]}, {"y": ["n", 3]}))
    assert tuple(module(b=sl.zeros(2, 3), a=sl.ones(2, 3)).shape) == (2, 3)
    for given, message in (((sl.zeros(2, 3), sl.zeros(4, 3)), r"input 'b' has shape \(4, 3\); dim 0 \(n\) must be 2"),
                           ((sl.zeros(2, 4), sl.zeros(2, 3)), r"input 'a' has shape \(2, 4\); dim 1 \(3\) must be 3"),
                           ((sl.zeros(2), sl.zeros(2, 3)), r"input 'a' has shape \(2,\); the model wants 2 dims"),
                           ((sl.zeros(2, 3),), r"input 'b' is missing")):
        with pytest.raises(ValueError, match=message):
            module(*given)
    with pytest.raises(TypeError, match="input 'a' is of int64; the model wants float32"):
        module(sl.zeros(2, 3, dtype=sl.int64), sl.zeros(2, 3))
    with pytest.raises(TypeError, match=r"got 1 inputs and \['c'\]"):
        module(sl.zeros(2, 3), c=sl.zeros(2, 3))


def test_external_data_is_read_from_beside_the_file(tmp_path):
    import onnx

    model, weights = mlp()
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    module = sl.onnx.load(tmp_path / "m.onnx")
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), weights[name])


def test_the_backend_of_onnx_runs_models():
    from sluice.onnx import backend

    model, weights = mlp()
    x = rows((2, 3))
    wanted = np.maximum(x @ weights["layer.0.weight"].T + weights["layer.0.bias"], 0) @ weights["head.weight"]
    np.testing.assert_allclose(backend.run_model(model, [x])[0], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(backend.prepare(model).run({"x": x}).y, wanted, rtol=1e-5, atol=1e-6)
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")


def test_the_command_tells_of_a_file(tmp_path, run_script):
    (tmp_path / "m.onnx").write_bytes(mlp()[0].SerializeToString())
    (tmp_path / "no.onnx").write_bytes(b"no model")
    done = run_script("import sys; from sluice.onnx.__main__ import main; sys.exit(main(['m.onnx', 'no.onnx']))")
    assert done.stdout == "m.onnx: x sluice.float32['batch', 3] -> y sluice.float32['batch', 2]; 24 parameters; ai.onnx 18\n", done.stdout
    assert done.returncode == 1 and "no.onnx: no model; must be a file of ONNX" in done.stderr


def test_constants_of_bool_and_half_keep_their_bits():
    values = {"h": np.float16([1.5, -2]), "t": np.array([True, False]), "d": np.float64([1e-300, 2])}
    nodes = [node("Identity", name, name + "_out", name=name) for name in values]
    outputs = {"h_out": ("FLOAT16", [2]), "t_out": ("BOOL", [2]), "d_out": ("DOUBLE", [2])}
    for made, wanted in zip(sl.onnx.load(model_of(nodes, {}, outputs, values))(), values.values()):
        np.testing.assert_array_equal(made.detach().numpy(), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float32", "double"])
def test_the_extreme_of_nothing_is_what_any_number_replaces(dtype):
    of = np.finfo if dtype in ("float32", "double") else np.iinfo
    limits = (-np.inf, np.inf) if of is np.finfo else (of(dtype).min, of(dtype).max)
    kind = {"float32": "FLOAT"}.get(dtype, dtype.upper())
    for op, wanted in zip(("ReduceMax", "ReduceMin"), limits):
        nodes = [node(op, "x axes", "y")]
        model = model_of(nodes, {"x": (kind, [0, 3])}, {"y": (kind, [1, 3])}, {"axes": np.array([0])}, opset=20)
        made = sl.onnx.load(model)(sl.tensor(np.zeros((0, 3), dtype))).numpy()
        assert made.dtype == dtype and (made == wanted).all() and made.shape == (1, 3)


def test_sluice_compile_makes_a_bundle_of_a_model(tmp_path):
    model, _ = mlp()
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())

    def compiled(*arguments):
        program = find_tool("sluice-compile")
        return subprocess.run([program, tmp_path / "m.onnx", *map(str, arguments)], capture_output=True, text=True)

    done = compiled("--dim", "batch=3", "--to", "bundle", "-o", tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    x = sl.tensor(rows((3, 3), 4))
    np.testing.assert_array_equal(sl.load_graph(tmp_path / "bundle")(x)[0].numpy(), sl.onnx.load(model)(x).detach().numpy())
    assert "linear" in compiled("--dim", "batch=3", "--to", "graph").stdout
    for arguments, message in ((("--to", "graph"), "input 'x': the size of dim 'batch' is not known"),
                               (("--to", "graph", "--dim", "batch"), "--dim batch: must be NAME=SIZE"),
                               (("--to", "bundle", "--dim", "batch=3"), "a bundle is a directory; say which by -o")):
        done = compiled(*arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr
