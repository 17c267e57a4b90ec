"""Checkpoints in one process: what is in them, who reads them, and what is refused."""

import json
import os

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.distributed.checkpoint as dcp
from sluice import nn, parallel


def state(seed=0, **more):
    sl.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    return {"model": net, "optimizer": sl.optim.Adam(net.parameters(), lr=0.01), **more}


def test_every_kind_of_value_comes_back(tmp_path):
    kept = {"step": 3, "best": (0.5, float("inf")), "words": ["a", None, True], "x": sl.arange(4), "half": sl.ones(2).bfloat16(),
            "empty": sl.zeros(0, 3), "scalar": sl.tensor(2.5)}
    saved = state(1, **kept)
    dcp.save(saved, tmp_path / "one")
    fresh = {name: sl.zeros_like(value) if isinstance(value, sl.Tensor) else None for name, value in kept.items()}
    loaded = state(2, **fresh)
    dcp.load(loaded, tmp_path / "one")
    for name, value in kept.items():
        if isinstance(value, sl.Tensor):
            assert loaded[name] is fresh[name] and loaded[name].dtype is value.dtype  # in place
            assert loaded[name].float().tolist() == value.float().tolist()
        else:
            assert loaded[name] == value and type(loaded[name]) is type(value)
    for (name, a), (_, b) in zip(saved["model"].state_dict().items(), loaded["model"].state_dict().items()):
        assert a.numpy().tobytes() == b.numpy().tobytes(), name


def test_the_files_are_those_that_other_programs_read(tmp_path):
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    theirs = transformers.GPT2LMHeadModel(config)
    model = nn.Module()  # a module of ours with the names of theirs

    for name, value in theirs.state_dict().items():
        owner = model
        *path, last = name.split(".")
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner._modules[part]
        owner.register_buffer(last, sl.tensor(value.numpy() + 1))
    model.__dict__["config"] = config
    dcp.save({"model": model, "step": 1}, tmp_path / "one")
    index = json.loads((tmp_path / "one/model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(theirs.state_dict()) and set(index["weight_map"].values()) == {"model-00001-of-00001.safetensors"}
    dcp.export(tmp_path / "one", tmp_path / "two")
    for folder in ("one", "two"):
        read = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / folder).state_dict()
        assert all(torch.equal(read[name], value + 1) for name, value in theirs.state_dict().items())
    assert set(load_file(tmp_path / "two/model.safetensors")) == set(theirs.state_dict())


def test_a_mesh_of_one_process_is_saved_whole_and_read_on_none(tmp_path):
    mesh = parallel.mesh("sim", dp=2, tp=2)
    laid = state(3)
    parallel.parallelize(laid["model"], mesh, {"0": "colwise"})
    dcp.save(laid, tmp_path / "one")
    plain = state(4)
    dcp.load(plain, tmp_path / "one")
    back = state(5)
    parallel.parallelize(back["model"], mesh, {"0": "rowwise"})
    dcp.load(back, tmp_path / "one")
    for (name, a), b, c in zip(laid["model"].state_dict().items(), plain["model"].state_dict().values(), back["model"].state_dict().values()):
        assert a.to_local().numpy().tobytes() == b.numpy().tobytes() == c.to_local().numpy().tobytes(), name
    assert back["model"][0].weight.sbp == (sl.sbp.broadcast, sl.sbp.split(1))


def test_a_thread_writes_what_there_was_at_the_call(tmp_path):
    x = sl.ones(1000)
    saving = dcp.async_save({"x": x}, tmp_path / "one")
    x.zero_()
    saving.wait()
    assert saving.done() and saving.seconds_written > 0
    read = {"x": sl.zeros(1000)}
    dcp.load(read, tmp_path / "one")
    assert read["x"].sum().item() == 1000


def test_the_newest_are_kept_and_what_a_kill_has_left_goes(tmp_path):
    checkpoints = dcp.Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None and checkpoints.load(state()) is None
    for step in (1, 5, 9):
        checkpoints.save(step, state(step, step=step))
    checkpoints.wait()
    assert checkpoints.steps() == [5, 9] and sorted(os.listdir(tmp_path)) == ["step-00000005", "step-00000009"]
    (tmp_path / ".sluice-checkpoint-0123456789abcdef").mkdir()
    (tmp_path / "step-00000011").mkdir()  # no checkpoint
    again = dcp.Checkpoints(tmp_path, keep=2)
    assert not (tmp_path / ".sluice-checkpoint-0123456789abcdef").exists() and again.latest() == 9
    loaded = state(0, step=0)
    assert again.load(loaded) == 9 and loaded["step"] == 9
    assert again.load(loaded, 5) == 5 and loaded["step"] == 5
    again.save(5, state(7, step=77))  # in the place of another
    again.load(loaded, 5)
    assert loaded["step"] == 77 and len(os.listdir(tmp_path)) == 3


def damaged(path, change):
    index = json.loads((path / "checkpoint.json").read_text())
    change(index)
    (path / "checkpoint.json").write_text(json.dumps(index))


def first(index):
    return index["tensors"]["model.0.weight"]


@pytest.mark.parametrize("change, text", [
    (lambda index: index.update(format=2), "checkpoint.json has no format 1"),
    (lambda index: index.pop("files"), "checkpoint.json is damaged: KeyError: 'files'"),
    (lambda index: index["files"].update({"../elsewhere": 3}), "the index names the file '../elsewhere'"),
    (lambda index: index["files"].pop("rest.pt"), "checkpoint.json is damaged: it has no size of rest.pt"),
    (lambda index: first(index).update(shape=[3, 3]), "checkpoint.json is damaged: a piece of 'model.0.weight' lies at ((0, 5), (0, 3)) of (3, 3)"),
    (lambda index: first(index).update(shape=[9, 3]), "checkpoint.json is damaged: the pieces of 'model.0.weight' are not the whole, each once"),
    (lambda index: first(index)["pieces"].append(first(index)["pieces"][0]), "checkpoint.json is damaged: the pieces of 'model.0.weight'"),
    (lambda index: first(index).update(dtype="F8"), "checkpoint.json is damaged: KeyError: 'F8'"),
    (lambda index: first(index).update(dtype="I32"), "'model.0.weight' is int32(5, 3) there; the state has float32(5, 3)"),
    (lambda index: first(index)["pieces"][0].update(key="0.bias"), "has no '0.bias' of float32(5, 3)"),
    (lambda index: first(index)["pieces"][0].update(spans=[[0, 5], [0, -3]]), "checkpoint.json is damaged: TypeError"),
    (lambda index: index["tensors"].pop("model.0.bias"), "it does not fit the state: no 'model.0.bias' is saved"),
    (lambda index: index["tensors"].update(other=first(index)), "it does not fit the state: 'other' is saved, and not in the state"),
])
def test_a_damaged_index_is_refused_by_name(tmp_path, change, text):
    dcp.save(state(1), tmp_path / "one")
    damaged(tmp_path / "one", change)
    loaded = state(2)
    before = [t.numpy().tobytes() for t in loaded["model"].state_dict().values()]
    with pytest.raises(ValueError, match="^checkpoint: .*one") as caught:
        dcp.load(loaded, tmp_path / "one")
    assert text in str(caught.value), caught.value
    assert [t.numpy().tobytes() for t in loaded["model"].state_dict().values()] == before


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("kept")
    for call, error, text in (
            (lambda: dcp.save([1], tmp_path / "one"), TypeError, "checkpoint: state is list; must be a dict"),
            (lambda: dcp.save({"a": {"b": sl.ones(1)}, "a.b": sl.ones(1)}, tmp_path / "one"), ValueError, "two tensors have the name 'a.b'"),
            (lambda: dcp.save({"c": sl.ones(1, dtype=sl.complex64)}, tmp_path / "one"), TypeError, "'c' is complex64; safetensors has no such"),
            (lambda: dcp.save({"x": sl.ones(1)}, tmp_path / "mine"), ValueError, "mine: a folder that is no checkpoint; it is not replaced"),
            (lambda: dcp.Checkpoints(tmp_path / "runs", keep=0), ValueError, "Checkpoints: keep is 0; must be an int of at least 1"),
            (lambda: dcp.export(tmp_path / "one", tmp_path / "two"), OSError, "one: no checkpoint; it has no checkpoint.json")):
        with pytest.raises(error) as caught:
            call()
        assert text in str(caught.value), caught.value
    assert sorted(os.listdir(tmp_path)) == ["mine"] and np.array(os.listdir(tmp_path / "mine")).tolist() == ["notes"]
