"""Models of ONNX that are malformed or mean harm: an error with node and name, never a crash, and no file beyond the model's folder."""

import os
import random
import re

import numpy as np
import pytest
from onnx_models import INSTALLED, model_of, needs_onnx

import sluice as sl

pytestmark = needs_onnx
if INSTALLED:
    from onnx import TensorProto, helper

def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name=attributes.pop("name", f"a_{op}"), **attributes)


def changed(model, change):
    change(model)
    return model


def plain(**options):
    return model_of([node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, **options)


def calls_itself():
    function = helper.make_function("mine", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], name="again", domain="mine")],
                                    [helper.make_opsetid("mine", 1)])
    return model_of([helper.make_node("F", ["x"], ["y"], name="call", domain="mine")], {"x": [2]}, {"y": [2]}, functions=[function],
                    imports=[helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)])


def doubles(depth):
    """Each function calls the next twice: 2^depth nodes."""
    functions = []
    for i in range(depth):
        inner = "Relu" if i == depth - 1 else f"F{i + 1}"
        domain = "" if i == depth - 1 else "mine"
        calls = [helper.make_node(inner, ["a"], ["c"], name="one", domain=domain), helper.make_node(inner, ["c"], ["b"], name="two", domain=domain)]
        functions.append(helper.make_function("mine", f"F{i}", ["a"], ["b"], calls, [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]))
    return model_of([helper.make_node("F0", ["x"], ["y"], name="call", domain="mine")], {"x": [2]}, {"y": [2]}, functions=functions,
                    imports=[helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)])


def tensor(dims, raw=b"", data_type=1):
    made = TensorProto(name="w", data_type=data_type, dims=dims)
    if raw is not None:
        made.raw_data = raw
    return made


def with_tensor(made):
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": [2]}, {"y": [2]})
    model.graph.initializer.append(made)
    return model


def hostile():
    """(what, model, error, message)"""
    circle = [node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"], name="second")]
    twice = [node("Relu", ["x"], ["y"], name="first"), node("Neg", ["x"], ["y"], name="second")]
    sparse = TensorProto(name="w", data_type=1, dims=[1], raw_data=np.float32(1).tobytes())
    index = TensorProto(data_type=7, dims=[1], raw_data=np.int64(0).tobytes())

    def large(model):
        made = model.graph.sparse_initializer.add()
        made.values.CopyFrom(sparse)
        made.indices.CopyFrom(index)
        made.dims.extend([1 << 40])

    return [
        ("an op that nobody has", model_of([node("Nonsense", ["x"], ["y"], name="here")], {"x": [2]}, {"y": [2]}),
         NotImplementedError, r"node 'here' \(Nonsense\): Sluice has no such op"),
        ("an op of another domain", model_of([node("Gelu", ["x"], ["y"], name="here", domain="com.microsoft")], {"x": [2]}, {"y": [2]}),
         NotImplementedError, r"node 'here' \(com.microsoft:Gelu\): Sluice has no such op"),
        ("a set of ops of the future", plain(opset=99), NotImplementedError, r"opset 99; Sluice reads 7 to \d+"),
        ("a set of ops of the past", plain(opset=3), NotImplementedError, r"opset 3; Sluice reads 7"),
        ("no set of ops", changed(plain(), lambda m: m.ClearField("opset_import")), ValueError, "no opset"),
        ("a circle", model_of(circle, {"x": [2]}, {"b": [2]}), ValueError, r"node 'first' \(Add\): it waits for its own result"),
        ("a name that nothing makes", model_of([node("Relu", ["z"], ["y"])], {"x": [2]}, {"y": [2]}),
         ValueError, r"node 'a_Relu' \(Relu\): nothing makes its input 'z'"),
        ("an output that nothing makes", model_of([node("Relu", ["x"], ["y"])], {"x": [2]}, {"q": [2]}), ValueError, "nothing makes its output 'q'"),
        ("a name made twice", model_of(twice, {"x": [2]}, {"y": [2]}), ValueError, r"node 'second' \(Neg\): 'y' is made elsewhere, too"),
        ("a function that calls itself", calls_itself(), ValueError, "the function calls itself"),
        ("functions that double", doubles(30), ValueError, "more than 1048576 nodes"),
        ("a dim below zero", with_tensor(tensor([-1])), ValueError, "initializer 'w': a dim of -1"),
        ("more elements than 64 bits count", with_tensor(tensor([1 << 40, 1 << 40])), ValueError, "initializer 'w'"),
        ("a terabyte that is not there", with_tensor(tensor([1 << 38])), ValueError, r"'w': 0 bytes of data; float32\(274877906944,\) has"),
        ("fewer bytes than its type", with_tensor(tensor([3], bytes(8))), ValueError, r"initializer 'w': 8 bytes of data; float32\(3,\) has 12"),
        ("a type that Sluice has not", with_tensor(tensor([2], bytes(2), TensorProto.FLOAT8E4M3FN)), NotImplementedError, "type float8e4m3fn"),
        ("a type that there is not", with_tensor(tensor([2], bytes(2), 77)), NotImplementedError, "type number 77"),
        ("ten dims", with_tensor(tensor([1] * 10, bytes(4))), NotImplementedError, "10 dims; at most 8"),
        ("a sparse terabyte", changed(plain(), large), NotImplementedError, "a sparse tensor of"),
        ("an attribute twice", changed(plain(), lambda m: m.graph.node[0].attribute.extend([helper.make_attribute("a", 1)] * 2)),
         ValueError, r"node 'a_Relu' \(Relu\): attribute 'a' is there twice"),
        ("an input of a type that Sluice has not", model_of([node("Identity", ["x"], ["y"])], {"x": ("STRING", [2])}, {"y": ("STRING", [2])}),
         NotImplementedError, "'x': type string"),
    ]


@pytest.mark.parametrize("at", range(21))
def test_a_hostile_model_is_an_error_that_names_it(at):
    what, model, error, message = hostile()[at]
    with pytest.raises(error, match="^onnx: ") as caught:
        sl.onnx.load(model)
    assert re.search(message, str(caught.value)), (what, caught.value)


def test_bytes_that_are_no_model():
    for data in (b"", b"no model", bytes(100), b"\xff" * 1000):
        with pytest.raises(ValueError, match="no model; must be a file of ONNX"):
            sl.onnx.load(data)
    with pytest.raises(OSError, match="nowhere.onnx: No such file"):
        sl.onnx.load("nowhere.onnx")
    with pytest.raises(OSError, match="/dev/zero: a device or a pipe; must be a file"):
        sl.onnx.load("/dev/zero")


def external(folder, location, offset=None, length=None):
    made = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            made.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(with_tensor(made).SerializeToString())
    return path


def test_external_data_lies_beneath_the_folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "inner/w").write_bytes(np.float32([1, 2]).tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "way").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    assert sl.onnx.load(external(folder, "inner/w"))(sl.zeros(2)).tolist() == [1, 2]
    for location, error, message in (("../secret", ValueError, "beneath the model's folder"), ("inner/../../secret", ValueError, "beneath"),
                                     (str(tmp_path / "secret"), ValueError, "must be a path relative"), ("link", ValueError, "is a link"),
                                     ("way/secret", (ValueError, OSError), "is a link|Not a directory"), ("inner", ValueError, "which is no file"),
                                     ("pipe", ValueError, "which is no file"), ("missing", OSError, "No such file"), ("", ValueError, "relative"),
                                     (".", ValueError, "must be the name of a file")):
        with pytest.raises(error, match=message):
            sl.onnx.load(external(folder, location))


def test_external_data_is_as_long_as_its_type(tmp_path):
    (tmp_path / "w").write_bytes(bytes(12))
    assert sl.onnx.load(external(tmp_path, "w", 4, 8))(sl.zeros(2)).tolist() == [0, 0]
    for offset, length, message in ((8, None, "from byte 8, 8 of them; 'w' has 12"), (0, 4, "external data of 4 bytes; its type has 8"),
                                    (-1, None, "offset of external data is '-1'"), (10**17, None, "'w' has 12"),
                                    ("9" * 30, None, "must be a number")):
        with pytest.raises(ValueError, match=message):
            sl.onnx.load(external(tmp_path, "w", offset, length))
    with pytest.raises(ValueError, match="must be a path relative to|beneath|relative"):  # bytes have no folder
        sl.onnx.load(external(tmp_path, "/etc/passwd").read_bytes())


def test_a_node_that_cannot_run_names_itself():
    reshape = model_of([node("Reshape", ["x", "to"], ["y"], name="here")], {"x": [2, 3]}, {"y": [4]}, {"to": np.array([4])})
    with pytest.raises(ValueError, match=r"^onnx: node 'here' \(Reshape\): reshape"):
        sl.onnx.load(reshape)(sl.zeros(2, 3))
    gather = model_of([node("Gather", ["x", "at"], ["y"], name="there", axis=5)], {"x": [2, 3]}, {"y": [4]}, {"at": np.array([0])})
    with pytest.raises(IndexError, match=r"^onnx: node 'there' \(Gather\)"):
        sl.onnx.load(gather)(sl.zeros(2, 3))


def mutants(data, count, rng):
    """Files with bits turned, bytes inserted, cut out or repeated."""
    for _ in range(count):
        made = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(made))
            kind = rng.randrange(4)
            if kind == 0:
                made[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                made[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
            elif kind == 2:
                del made[at:at + rng.randrange(1, 9)]
            else:
                made[at] = rng.choice((0, 1, 127, 128, 255))
            made = made or bytearray(b"\0")
        yield bytes(made)


@pytest.mark.soak
def test_mutants_of_models_are_read_or_refused(repetitions, count):
    """Sluice's own errors alone. tests/fuzz_targets does the same under sanitizers."""
    import onnx_nodes

    rng = random.Random(5)
    sources = [case.model.SerializeToString() for case in onnx_nodes.cases(every=100)] + [doubles(3).SerializeToString()]
    each = repetitions(600, 10_000) // len(sources) + 1
    read = 0
    for source in sources:
        for mutant in mutants(source, each, rng):
            try:
                sl.onnx.check(mutant)
                read += 1
            except (ValueError, NotImplementedError, TypeError) as e:
                assert str(e).startswith("onnx: "), e
    count("onnx mutants", each * len(sources), "read or refused")
    assert read > 0
