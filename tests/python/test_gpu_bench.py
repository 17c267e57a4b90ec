"""benchmarks/gpu, so that it does not rot where there is no GPU: tiny nets on the cpu and on a driver without a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import to_sl

import sluice

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release")).resolve()
BENCH = ROOT / "benchmarks/gpu/gpu_bench.py"

pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="the benchmarks are not here")


def bench(*arguments, **env):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sluice.__file__)), *sys.path])
    done = subprocess.run([sys.executable, BENCH, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": path, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}, done.stderr


QUICK = ("--tiny", "--rounds", "2", "--seconds", "0.01")


def test_all_kinds_of_lines_on_the_cpu():
    lines, _ = bench("gpu.resnet50.train.fp32", "gpu.gpt2.infer.bf16", "gpu.launch", "gpu.overlap", "gpu.engine_share.gpt2",
                     "--device", "cpu", "--peers", "eager", *QUICK)
    assert set(lines) == {"gpu.resnet50.train.fp32.eager", "gpu.gpt2.infer.bf16.eager", "gpu.launch.ungraphed",
                          "gpu.launch.eager", "gpu.overlap.one_step", "gpu.engine_share.gpt2"}
    assert all(line["ours"] > 0 and line["tiny"] for line in lines.values())
    assert all(line["peer"] > 0 for name, line in lines.items() if not name.startswith("gpu.engine_share"))


def test_without_a_gpu_it_says_so():
    lines, told = bench(SLUICE_CUDA_DRIVER="/nowhere/libcuda.so")
    assert lines == {} and told.startswith("gpu_bench: skipped: ")


@pytest.mark.skipif(not (BUILD / "libsluice_cuda.so").exists(), reason="built without the CUDA backend")
def test_on_a_driver_without_a_gpu():
    tests = BUILD / "tests/cuda"
    lines, told = bench("gpu.gpt2.train.fp32", "gpu.trials.resnet50.bf16", "gpu.attention", "gpu.launch", "gpu.overlap",
                        "--config", "enable_multi_tensor_update", *QUICK,
                        SLUICE_CUDA_LIBRARY=str(BUILD / "libsluice_cuda.so"), SLUICE_CUDA_DRIVER=str(tests / "libfake_cuda.so"),
                        SLUICE_NVRTC=str(tests / "libfake_nvrtc.so"), SLUICE_CUDNN=str(tests / "libfake_cudnn.so"), SLUICE_CACHE_DIR=str(tests / "programs"))
    assert set(lines) == {"gpu.gpt2.train.fp32.alone", "gpu.trials.resnet50.bf16.usual", "gpu.attention.gpt2.bf16.usual",
                          "gpu.launch.ungraphed", "gpu.overlap.one_step"}
    assert "no PyTorch on cuda:0, so no peers" in told


@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_both_sides_compute_the_same(name, monkeypatch, same):
    monkeypatch.syspath_prepend(BENCH.parent)
    from nets import workload

    theirs, x, y, _ = workload(torch, name, True)
    ours = workload(sluice, name, True)[0]
    ours.load_state_dict({key: to_sl(value.clone()) for key, value in theirs.state_dict().items()})
    logits = theirs(x)
    same(ours(to_sl(x)), logits, 1e-4)
    same(sluice.nn.functional.cross_entropy(ours(to_sl(x)), to_sl(y)), torch.nn.functional.cross_entropy(logits, y), 1e-4)
