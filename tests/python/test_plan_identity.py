"""A plan is named by its bytes: the same program gives the same plan anywhere (C-20); options are kept in it (CFG-27)."""

import difflib
import hashlib
import json
import os
import subprocess
import sys

import pytest

import sluice as sl
import sluice.nn as nn
from sluice._base.tools import find_tool

LAYERS = """import sluice as sl
import sluice.nn as nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 3), nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x)).relu() * 0.3
"""
TRAIN = """import hashlib, locale, sys
import sluice as sl
import sluice.nn as nn
from layers.block import Block

try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass
if "unrelated" in sys.argv:
    others = [nn.Linear(7, 9), sl.rand(100), nn.Dropout(0.5)]


class Train(nn.Graph):
    def __init__(self):
        super().__init__(name="train")
        self.model = nn.Sequential(Block(4), nn.Flatten(), nn.Linear(144, 5))
        self.add_optimizer(sl.optim.Adam(self.model.parameters(), lr=0.0125))
        self.config.set_quota("images", 3)

    def build(self, images, labels):
        with sl.stream("host"):
            images = images * 1.5 + 0.25
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


graph = Train()
graph.compile(sl.ones(2, 3, 8, 8), sl.zeros(2, dtype=sl.int64))
graph.save_plan(sys.argv[1])
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""


def build_in(directory, cwd, *arguments, **env):
    (directory / "layers").mkdir(parents=True)
    (directory / "layers" / "block.py").write_text(LAYERS)
    (directory / "train.py").write_text(TRAIN)
    plan = directory / "plan.json"
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    done = subprocess.run([sys.executable, str(directory / "train.py"), str(plan), *arguments], capture_output=True, text=True,
                          cwd=cwd, env={**os.environ, "PYTHONPATH": path, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), plan


PLACES = [
    {},
    {"HOME": "/nonexistent", "USER": "somebody", "LOGNAME": "somebody", "LC_ALL": "C"},
    {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"},
    {"LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1", "TMPDIR": "/var/tmp"},
]


def test_the_same_program_gives_the_same_bytes_anywhere(tmp_path):  # C-20
    hashes = {}
    for i, env in enumerate(PLACES):
        directory = tmp_path / ("here" if i % 2 else "a longer/way/to it") / str(i)
        cwd = tmp_path if i % 2 else "/"
        hashes[i], plan = build_in(directory, cwd, *(["unrelated"] if i == 3 else []), **env)
    assert len(set(hashes.values())) == 1, hashes
    files = {k["file"] for k in json.loads(plan.read_text())["kernels"]}
    assert files <= {"train.py", "layers/block.py", ""} and len(files) >= 2
    assert str(tmp_path) not in plan.read_text()


def test_another_number_gives_other_bytes(tmp_path):  # the test above can fail
    first, _ = build_in(tmp_path / "a", tmp_path)
    global TRAIN
    before, TRAIN = TRAIN, TRAIN.replace("Linear(144, 5)", "Linear(144, 6)")
    try:
        second, _ = build_in(tmp_path / "b", tmp_path)
    finally:
        TRAIN = before
    assert first != second


class Chain(nn.Graph):
    def __init__(self, layers, change=None):
        super().__init__(name="chain")
        kinds = [nn.Sigmoid() if i == change else nn.Tanh() if i % 2 else nn.Linear(3, 3) for i in range(layers)]
        self.model = nn.Sequential(*kinds)

    def build(self, x):
        return self.model(x)


def changed_lines(a, b):
    texts = []
    for graph in (a, b):
        graph.compile(sl.ones(2, 3))
        texts.append(graph._call.session.plan_json().splitlines())
    diff = [line for line in difflib.unified_diff(*texts, n=0) if line[0] in "+-" and line[:3] not in ("+++", "---")]
    return len(diff), len(texts[0])


def test_a_small_change_is_a_small_diff():  # C-20
    for change in (1, 9, 19):  # another function in one layer: its kernel and its buffer, no more
        changed, lines = changed_lines(Chain(20), Chain(20, change))
        assert 0 < changed <= 8 and lines > 60, (changed, lines)
    changed, lines = changed_lines(Chain(59), Chain(60))  # one layer more, at the end; scratch buffers behind it move up
    assert changed < lines / 3, (changed, lines)


# Options


class Small(nn.Graph):
    def __init__(self):
        super().__init__(name="small")
        self.model = nn.Linear(3, 2)

    def build(self, x):
        return self.model(x)


def info(graph, tmp_path, *arguments):
    graph.save_plan(tmp_path / "plan.json")
    return subprocess.run([find_tool("plan-viz"), "info", str(tmp_path / "plan.json"), *arguments], capture_output=True, text=True,
                          check=True).stdout


SETTERS = {
    "outputs_buffer_size": lambda c: c.set_outputs_buffer_size(3),
    "reuse_memory": lambda c: c.enable_reuse_mem(False),
    "packing": lambda c: c.enable_compress_memory(),
    "in_place": lambda c: c.enable_inplace(False),
    "pack_weights": lambda c: c.enable_pack_weights(False),
    "granularity": lambda c: c.set_granularity("op"),
    "memory_budget": lambda c: c.set_memory_budget(1 << 30),
    "workspace_limit": lambda c: c.set_cudnn_buf_limit_mbyte(64),
    "quotas": lambda c: (c.set_quota("x", 2), c.set_quota("output", 4)),
    "device": lambda c: c.set_device("sim:0"),
    "devices": lambda c: c.set_devices("sim:0", "cpu:0"),
    "cores": lambda c: c.set_cores(1),
    "check_numerics": lambda c: c.enable_check_numerics(),
    "sync_check": lambda c: c.enable_sync_check(),
    "memory_guard": lambda c: c.enable_memory_guard(),
    "dump": lambda c: c.set_dump(ops="nothing", directory="out/dump"),
    "trace": lambda c: c.enable_trace(),
    "cuda_graphs": lambda c: c.enable_cuda_graphs(False),
    "amp": lambda c: c.enable_amp(),
    "device_ports": lambda c: c.enable_device_ports(),
    "float32_matmul_precision": lambda c: c.set_float32_matmul_precision("high"),
    "deterministic_convs": lambda c: c.cudnn_conv_use_deterministic_algo_only(False),
    "deterministic_attention": lambda c: c.enable_cudnn_attention(),
    "submit_timeout": lambda c: c.set_submit_timeout(1.5),
    "wait_timeout": lambda c: c.set_wait_timeout(20),
    "inline_up_to": lambda c: c.set_inline_up_to(1e-3),
    "stop_timeout": lambda c: c.set_stop_timeout(2.5),
    "cast_updates": lambda c: c.enable_fused_model_update_cast(),
    "prims": lambda c: c.decompose_to_prims(),
    "fuse_add": lambda c: c.allow_fuse_add_to_output(False),
    "activations": lambda c: c.enable_fused_activations(),
    "order": lambda c: c.enable_straighten_algorithm("Disable"),
    "concurrency": lambda c: c.set_concurrency_width(3),
    "auto_memory": lambda c: c.enable_auto_memory("Slight"),
    "generated_kernels": lambda c: c.enable_generated_kernels(),
    "kernel_trials": lambda c: c.enable_kernel_trial_run(),
    "patterns": lambda c: (c.add_pattern("twice", lambda x: x + x, lambda x: x * 2, sl.ones(1)),
                           c.add_pattern("none", lambda x: x - x, lambda x: x * 0, sl.ones(1))),
    "disabled_passes": lambda c: (c.disable_pass("simplify"), c.disable_pass("dead_code")),
}


@pytest.mark.parametrize("option", [*SETTERS, "all"])
def test_options_come_back_from_the_plan(option, tmp_path):  # CFG-27
    graph = Small()
    for name, setter in SETTERS.items():
        if option in (name, "all"):
            setter(graph.config)
    shown = repr(graph.config)
    graph.compile(sl.ones(1, 3))
    assert json.loads(info(graph, tmp_path, "--json"))["config"] == graph.config.options
    assert repr(graph.config) == shown and all(f"{n}={v!r}" in shown for n, v in graph.config.options.items())
    assert set(graph.config.options) == (set(SETTERS) if option == "all" else {option})
    graph.close()


def test_options_as_by_default_are_not_shown(tmp_path):  # CFG-27
    graph = Small()
    graph.config.set_outputs_buffer_size(2)
    graph.config.enable_inplace(True)
    assert repr(graph.config) == "config()" and graph.config.options == {}
    graph.compile(sl.ones(1, 3))
    assert graph.plan["options"] == {} and "all options as by default" in info(graph, tmp_path)


def test_info_says_what_a_plan_is(tmp_path):  # CFG-27
    graph = Small()
    graph.compile(sl.ones(1, 3))
    shown = json.loads(info(graph, tmp_path, "--json"))
    data = (tmp_path / "plan.json").read_bytes()
    assert shown["sha256"] == hashlib.sha256(data).hexdigest()
    assert shown["name"] == "small" and shown["schema_version"] == 1 and shown["devices"] == ["cpu:0"]
    assert shown["memory"]["total"] == graph.memory()["total"] and shown["counts"]["kernels"] == len(graph.plan["kernels"])
    text = info(graph, tmp_path)
    assert shown["sha256"] in text and shown["target"] in text and "1 variables" not in text
