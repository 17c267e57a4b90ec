"""Attributes that are lists, types and graphs: from Python, as text, and what is said of wrong ones."""

import pytest
import sluice as sl
from sluice import _C

BODY = {"inputs": 2, "calls": [("mul", {}, [0, 1]), ("gelu", {"approximate": "tanh"}, [2]), ("cast", {"dtype": sl.float64}, [3])],
        "outputs": [4]}


def test_a_graph_is_called():
    x, y = sl.tensor([1.0, -2.0]), sl.tensor([0.5, 3.0])
    result = _C.ops.fused([x, y], body=BODY)
    assert result.dtype == sl.float64
    assert result.tolist() == sl.nn.functional.gelu(x * y, approximate="tanh").double().tolist()


FORM = "must be a graph, {'inputs': int, 'calls': [(op, attributes, operands)], 'outputs': [int]}"


def itself():
    body = {**BODY}
    body["calls"] = [("fused", {"body": body}, [0, 1])]
    return body


@pytest.mark.parametrize("body, message", [
    ("mul 0 1", f"fused: argument 'body': str; {FORM}"),
    ({"inputs": 2}, f"fused: argument 'body': dict; {FORM}"),
    ({**BODY, "inputs": 3}, "fused: graph: inputs: 3; it is called with 2"),
    ({**BODY, "outputs": [9]}, "fused: graph: output uses %9; must be an input or what a call before it gives, below %5"),
    ({**BODY, "outputs": [2, 3]}, "fused: graph: outputs: 2; must be 1"),
    ({**BODY, "calls": []}, "fused: graph: calls: none; must have some"),
    ({**BODY, "calls": [("mul", [0, 1])]}, "fused: argument 'body': tuple; must be (op, attributes, operands)"),
    ({**BODY, "calls": [("mul", {"x": 1}, [0, 1])]}, "fused: argument 'body': mul has no parameter 'x'"),
    ({**BODY, "calls": [("mul", {}, [0, "1"])]}, "fused: argument 'body': str; must be int"),
    ({**BODY, "calls": [("sum", {}, [0])], "outputs": [2]}, "fused: body: op sum; must be elementwise"),
    ({**BODY, "calls": [("exp", {}, [2**40])]}, "fused: graph: %2 = exp uses %-1; must be an input"),
    (itself(), "fused: argument 'body': graph within 17 others; that is too deep"),
])
def test_wrong_graphs_are_named(body, message):
    with pytest.raises((TypeError, ValueError)) as error:
        _C.ops.fused([sl.ones(2), sl.ones(2)], body=body)
    assert message in str(error.value)


class Counted:
    """A sequence that makes its items anew at each reading."""

    def __init__(self, *makers):
        self.makers = makers

    def __len__(self):
        return len(self.makers)

    def __getitem__(self, i):
        return self.makers[i]()


def test_any_sequence_is_read():
    x = sl.ones(2, 3)
    calls = Counted(lambda: Counted(lambda: "".join(["a", "dd"]), dict, lambda: Counted(lambda: 0, lambda: 0)))
    assert _C.ops.fused([x], body={"inputs": 1, "calls": calls, "outputs": range(1, 2)}).tolist() == (x + x).tolist()


@pytest.mark.parametrize("outputs, message", [
    ("float32(2,)", "str; must be a sequence"),
    ([(sl.float32,)], "tuple; must be (dtype, shape)"),
    ([("float32", [2])], "str; must be dtype"),
    ([(sl.float32, "ab")], "str; must be a shape of at most 8 ints"),
    ([(sl.float32, [1] * 9)], "list; must be a shape of at most 8 ints"),
])
def test_lists_of_types_are_checked(outputs, message):
    with pytest.raises(TypeError) as error:
        _C.ops.host_function([sl.ones(2)], name="f", outputs=outputs)
    assert f"host_function: argument 'outputs': {message}" in str(error.value)


def test_meshes_and_sbp_are_checked():
    x = sl.ones(2)
    with pytest.raises(TypeError, match="to_global: argument 'mesh': str; must be a sequence"):
        _C.ops.to_global(x, mesh="sim:0-1", sbp="broadcast")
    with pytest.raises(TypeError, match="to_global: argument 'mesh': int; must be str"):
        _C.ops.to_global(x, mesh=[1], sbp="broadcast")
    with pytest.raises(ValueError, match="to_global: sbp: unknown: 'B'; must be split, broadcast or partial_sum"):
        _C.ops.to_global(x, mesh=["sim:0", "sim:1"], sbp="B")
    with pytest.raises(ValueError, match="to_global: axis: out of range: 8; must be in"):
        _C.ops.to_global(x, mesh=["sim:0", "sim:1"], sbp="split", axis=8)
    with pytest.raises(ValueError, match="to_global: axis: 1 of broadcast; must be 0 but for split"):
        _C.ops.to_global(x, mesh=["sim:0", "sim:1"], sbp="broadcast", axis=1)


def test_signatures_tell_the_kinds():
    assert _C.ops.to_global.signature == "(x: Tensor, mesh: Sequence[str], sbp: str, axis: int = 0)"
    assert _C.ops.host_function.signature == (
        "(xs: Sequence[Tensor], name: str, outputs: Sequence[tuple[dtype, Sequence[int]]], dims: Sequence[str] = [], "
        "input_dims: Sequence[int] = [], output_dims: Sequence[int] = [])")
    assert _C.ops.fused.signature == "(xs: Sequence[Tensor], body: dict)"
