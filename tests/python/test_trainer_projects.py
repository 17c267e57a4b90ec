"""The projects of examples/trainer: texts are classified, and what a language model has learned is tuned for it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl
import sluice.distributed.checkpoint as dcp

PROJECTS = pathlib.Path(__file__).parents[2] / "examples/trainer"


def trained(name, out, *changes):
    """The metrics that a project prints at its end."""
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run([sys.executable, "-m", "sluice.trainer", str(PROJECTS / f"{name}.yaml"), f"out={out}", "--quiet", *changes],
                          capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path, "SLUICE_CORES": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def weights(out, to):
    newest = dcp.Checkpoints(out / "checkpoints")
    dcp.export(newest.path(newest.latest()), to)
    return sl.load(to / "model.safetensors")


def test_texts_are_classified(tmp_path):
    assert trained("text_classification", tmp_path / "out", "train.steps=150")["top1"] > 0.6  # of three


def test_a_language_model_is_tuned_to_classify(tmp_path):
    language = trained("language", tmp_path / "language", "train.steps=150")
    assert language["perplexity"] < 15  # of 96 characters
    tuned = trained("fine_tuning", tmp_path / "tuned", f"model.checkpoints={tmp_path / 'language/checkpoints'}", "train.steps=150")
    assert tuned["top1"] > 0.6
    before, after = weights(tmp_path / "language", tmp_path / "a"), weights(tmp_path / "tuned", tmp_path / "b")
    for name in (n for n in before if n.startswith("reader.")):
        learns = name.startswith(("reader.layers.3.", "reader.norms.3."))
        assert np.array_equal(before[name].numpy(), after[name].numpy()) != learns, name


def test_without_a_checkpoint_it_says_what_to_train(tmp_path):
    with pytest.raises(AssertionError, match=f"tuned: {tmp_path}/none has no checkpoint; train language.yaml first"):
        trained("fine_tuning", tmp_path / "tuned", f"model.checkpoints={tmp_path}/none")
