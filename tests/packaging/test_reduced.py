"""SLUICE_MODELS: a runtime that has the kernels of some models and no others."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import sluice as sl

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "examples"))

from digits_net import DigitsNet  # noqa: E402


def run(*command, status=0):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    assert done.returncode == status, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def saved(net, x, path):
    """Writes the bundle of a module, its input and what Python computes of it."""

    class Classify(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net

        def build(self, x):
            return self.net(x)

    graph = Classify()
    np.save(path.with_suffix(".expected.npy"), graph(x).numpy())
    np.save(path.with_suffix(".npy"), x.numpy())
    sl.save(graph, path)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    sl.manual_seed(0)
    path = tmp_path_factory.mktemp("models")
    digits = saved(DigitsNet().eval(), sl.randn(4, 1, 8, 8), path / "digits")
    other = saved(sl.nn.Sequential(sl.nn.Linear(8, 4), sl.nn.Softmax(-1)), sl.randn(2, 8), path / "other")
    return digits, other


@pytest.fixture(scope="module")
def reduced(models, tmp_path_factory):
    """The build for the digits alone, given as a list of ops and as a bundle, and what it has printed."""
    where = tmp_path_factory.mktemp("reduced")
    ops = where / "ops.txt"
    ops.write_text(run(BUILD / "tools/sluice-info", "ops", models[0]))
    run("cmake", "-S", ROOT / "tests/packaging/reduced", "-B", where / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DSLUICE_BUILD={BUILD}", f"-DSLUICE_MODELS={ops};{models[0]}")
    return where / "build/reduced", run("cmake", "--build", where / "build")


def check(program, model, *more, status=0):
    return run(program, model, f"--input=@{model.with_suffix('.npy')}", f"--expect=@{model.with_suffix('.expected.npy')}",
               "--tolerance=0", "--quiet", *more, status=status)


def test_it_runs_its_models_as_the_whole_library_does(reduced, models):
    for program in (BUILD / "tools/sluice-run", reduced[0] / "sluice-run"):
        check(program, models[0])


def test_it_is_smaller_and_says_so(reduced, count):
    told = re.findall(r"(\S+): (\d+) bytes with all kernels, (\d+) with those of SLUICE_MODELS", reduced[1])
    assert [name for name, _, _ in told] == ["libsluice_runtime.so.0.1", "sluice-run"]
    for name, whole, less in told:
        assert int(less) < 0.75 * int(whole)
        count(f"{name} with the kernels of the digits alone", int(less), f"bytes, of {whole}")
    # Families that no model needs are not there at all: their code has names of its own.
    symbols = run("nm", "-C", reduced[0] / "sluice-run")
    assert "add_convolution_kernels" in symbols and "add_attention_kernels" not in symbols
    assert "add_attention_kernels" in run("nm", "-C", BUILD / "tools/sluice-run")


def test_what_was_left_out_is_refused_when_it_is_loaded(reduced, models):
    check(BUILD / "tools/sluice-run", models[1])
    told = check(reduced[0] / "sluice-run", models[1], status=1)
    assert ("softmax: no kernel on cpu: this build has those of the models in SLUICE_MODELS alone; "
            "build it with this one there") in told


def test_the_library_takes_the_place_of_the_whole_one(reduced, models, tmp_path):
    """A program that was linked to the whole library runs with the small one, and exports are the same."""
    small, whole = (p / "libsluice_runtime.so.0.1" for p in (reduced[0], BUILD))
    exported = [run("nm", "-DC", "--defined-only", lib) for lib in (small, whole)]
    names = [sorted(line.split(" ", 2)[2] for line in text.splitlines()) for text in exported]
    assert names[0] == names[1]
    program = tmp_path / "program.c"
    program.write_text(
        '#include <sluice/sluice.h>\n#include <stdio.h>\nint main(int argc, char** argv) {\n'
        "  sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;\n  sluice_engine* engine = NULL;\n"
        "  sluice_session* session = NULL;\n  sluice_status* status = sluice_engine_create(&options, &engine);\n"
        "  if (status == NULL && argc > 1) status = sluice_session_load(engine, argv[1], NULL, &session);\n"
        '  puts(status == NULL ? "loaded" : sluice_status_message(status));\n  return 0;\n}\n')
    run("cc", program, "-o", tmp_path / "program", f"-I{ROOT}/include", f"-I{BUILD}/include", small)
    env = {**os.environ, "LD_LIBRARY_PATH": str(small.parent)}
    for model, told in zip(models, ("loaded", "SLUICE_MODELS")):
        out = subprocess.run([tmp_path / "program", model], capture_output=True, text=True, env=env, timeout=120, check=True)
        assert told in out.stdout


def test_a_model_that_is_not_there_is_named(tmp_path):
    told = run("cmake", "-S", ROOT / "tests/packaging/reduced", "-B", tmp_path, f"-DSLUICE_BUILD={BUILD}",
               "-DSLUICE_MODELS=/no/model", status=1)
    assert "SLUICE_MODELS: /no/model: no such file" in told
    shutil.rmtree(tmp_path)
