"""Files of safetensors: as the safetensors package writes and reads them."""

import io
import json
import random

import pytest
import safetensors.torch
import torch

import sluice as sl
from sluice.utils import safetensors as ours

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def state(lib):
    made = {f"{name}.{i}": lib.arange(5 + i).to(getattr(lib, name)) for i, name in enumerate(DTYPES)}
    made["scalar"], made["empty"], made["turned"] = lib.tensor(2.5), lib.zeros(0, 3), lib.arange(6.0).reshape(2, 3).t()
    return made


def assert_equal(a, b):
    assert sorted(a) == sorted(b)
    for name in a:
        assert str(a[name].dtype).rpartition(".")[2] == str(b[name].dtype).rpartition(".")[2]
        assert tuple(a[name].shape) == tuple(b[name].shape) and a[name].tolist() == b[name].tolist()


def test_files_go_both_ways(tmp_path):  # OE-22
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file({k: t.contiguous() for k, t in state(torch).items()}, path, {"format": "pt"})
    for read in (lambda: ours.load_file(path), lambda: ours.load_file(str(path)), lambda: sl.load(path), lambda: sl.load(io.BytesIO(path.read_bytes())),
                 lambda: ours.load(path.read_bytes())):
        assert_equal(read(), state(torch))
    ours.save_file(state(sl), path, {"format": "pt"})
    assert_equal(safetensors.torch.load_file(path), state(torch))
    assert path.read_bytes() == ours.save(state(sl), {"format": "pt"})
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    with ours.safe_open(path) as file:
        assert file.metadata() == {"format": "pt"} and sorted(file.keys()) == sorted(state(sl))
        assert file.get_tensor("scalar").item() == 2.5
        with pytest.raises(KeyError, match="no tensor 'other'"):
            file.get_tensor("other")
    ours.save_file({}, path)
    assert ours.load_file(path) == {} == safetensors.torch.load_file(path)


def test_devices(tmp_path):
    path = tmp_path / "a.safetensors"
    ours.save_file({"a": sl.ones(2, device="sim:0")}, path)
    assert str(ours.load_file(path)["a"].device) == "cpu" and str(ours.load_file(path, device="sim:0")["a"].device) == "sim:0"
    assert str(sl.load(path, map_location="sim:0")["a"].device) == "sim:0"
    with pytest.raises(TypeError, match="the file names none"):
        sl.load(path, map_location={})


def test_a_state_dict_loads_into_a_module():
    a, b = sl.nn.Linear(3, 2), sl.nn.Linear(3, 2)
    b.load_state_dict(ours.load(ours.save(a.state_dict())))
    assert b.weight.equal(a.weight) and b.bias.equal(a.bias)


def test_what_cannot_be_written_is_refused():
    for tensors, metadata, kind in [([sl.ones(1)], None, TypeError), ({"a": 1}, None, TypeError), ({1: sl.ones(1)}, None, TypeError),
                                    ({"a": sl.ones(1)}, {"a": 1}, TypeError), ({"__metadata__": sl.ones(1)}, None, ValueError)]:
        with pytest.raises(kind, match="safetensors: "):
            ours.save(tensors, metadata)


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "nothing": b"", "short": b"\1\0\0", "length beyond": file_of({}, length=10**6), "length of 2**64 - 1": b"\xff" * 20, "not JSON": file_of(b"{]"),
    "a list": file_of([]), "deep": file_of(b"[" * 100_000), "not UTF-8": file_of(b"{\xff}"), "twice": file_of(b'{"a":1,"a":1}'), "no entry": file_of({"a": 1}),
    "missing": file_of({"a": {"dtype": "F32"}}), "beyond": file_of({"a": entry()}, b"\0" * 4), "too long": file_of({"a": entry()}, b"\0" * 9),
    "other size": file_of({"a": entry(shape=(3,))}, b"\0" * 8), "huge": file_of({"a": entry(shape=(2**62, 4))}, b"\0" * 8),
    "negative": file_of({"a": entry(shape=(-2,))}, b"\0" * 8), "backwards": file_of({"a": entry(offsets=(8, 0))}, b"\0" * 8),
    "of floats": file_of({"a": entry(shape=(2.0,))}, b"\0" * 8), "overlap": file_of({"a": entry(), "b": entry()}, b"\0" * 8),
    "hole": file_of({"a": entry(offsets=(4, 12))}, b"\0" * 12), "metadata": file_of({"__metadata__": {"a": 1}}), "dtype": file_of({"a": entry("F8_E4M3")}, b"\0" * 8),
    "of bools": file_of({"a": entry(shape=(True, 2))}, b"\0" * 8), "shape of text": file_of({"a": {**entry(), "shape": "2"}}, b"\0" * 8),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_errors_with_their_name(name, tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ValueError, match=r"safetensors: .*weights.safetensors: "):
        ours.load_file(path)


def test_damaged_files_are_errors_or_tensors():
    data, rng, errors = ours.save(state(sl), {"a": "b"}), random.Random(0), 0
    for _ in range(1000):
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutant[rng.randrange(1000)] = rng.randrange(256)
        try:
            assert all(isinstance(t, sl.Tensor) for t in ours.load(bytes(mutant[:rng.choice([len(data), rng.randrange(len(data))])])).values())
        except ValueError as error:
            assert "safetensors: a BytesIO: " in str(error)
            errors += 1
    assert errors > 500
