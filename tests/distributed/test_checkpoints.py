"""Checkpoints of several ranks: any layout reads what any other has written; a kill leaves the last one; bad ones are refused."""

import json
import os
import re

import numpy as np
import pytest

import sluice as sl
import sluice.distributed.checkpoint as dcp
from rank_programs import environment, ranks, start  # noqa: F401: fixtures

TRAINING = """
import json, pathlib
import sluice.distributed.checkpoint as dcp
from sluice import data, nn, parallel
from sluice._tensor.global_tensors import place
where = dist.init()
S, B = sl.sbp.split, sl.sbp.broadcast

class Net(nn.Module):  # sizes that 2 does not divide
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 7)
        self.up, self.norm, self.down, self.head = nn.Linear(7, 13), nn.LayerNorm(13), nn.Linear(13, 7), nn.Linear(7, 5)
        self.drop = nn.Dropout(0.2)
    def forward(self, ids):
        x = self.table(ids).mean(1)
        return self.head(x + self.down(self.drop(self.norm(self.up(x).relu()))))

class Train(nn.Graph):
    def __init__(self, net):
        super().__init__(name="train")
        self.net = net
        self.config.set_cores(1)
        self.config.enable_zero(stage=ZERO, shard_min_size=1)
        adam = sl.optim.Adam(net.parameters(), lr=1e-2)
        self.add_optimizer(adam, lr_sch=sl.optim.lr_scheduler.CosineAnnealingLR(adam, 50))
    def build(self, ids, targets):
        loss = nn.functional.cross_entropy(self.net(ids), targets)
        loss.backward()
        return loss

def made(seed, axes):
    sl.manual_seed(seed)
    mesh, net = parallel.mesh("cpu", **axes), Net()
    parallel.parallelize(net, mesh, {"up": "colwise", "down": "rowwise", "table": "colwise"} if "tp" in axes else None)
    rng = np.random.default_rng(0)
    rows = data.arrays(rng.integers(0, 11, (40, 3)), rng.integers(0, 5, 40)).shuffle().repeat().batch(8)
    return mesh, {"graph": Train(net), "rows": rows, "step": 0}

def train(mesh, state, until, each=lambda: None, batches=None):
    found, batches = [], batches or iter(state["rows"])
    while state["step"] < until:
        loss = state["graph"](*(place(t, mesh, {"dp": S(0)}) for t in next(batches)))
        state["step"] += 1
        found.append(loss.item().hex())
        each()
    return found

def wholes(state):  # of every tensor, on any layout
    found = {}
    def walk(path, value):
        if isinstance(value, sl.Tensor):
            value = value.to_global(sbp=B).to_local() if value.is_global else value
            found[path] = value.numpy().tobytes().hex()
        elif isinstance(value, (dict, list, tuple)):
            for key, item in (value.items() if isinstance(value, dict) else enumerate(value)):
                walk(f"{path}.{key}", item)
    walk("", state["graph"].state_dict())
    return found
"""

SAVE = """
mesh, state = made(1, AXES[0])
batches = iter(state["rows"])
train(mesh, state, 3, batches=batches)
dcp.save(state, OUT)
if rank == 0:
    pathlib.Path(OUT + ".json").write_text(json.dumps(wholes(state)))
else:
    wholes(state)
print(*train(mesh, state, 6, batches=batches))
"""

LOAD = """
for axes in AXES:
    mesh, state = made(7, axes)
    dcp.load(state, OUT)
    now, kept = wholes(state), json.loads(pathlib.Path(OUT + ".json").read_text())
    now.pop(".generator", None), kept.pop(".generator")  # which a graph has in its state once it is compiled
    assert now == kept, [name for name in kept if now.get(name) != kept[name]]
    assert state["step"] == 3
    print(*train(mesh, state, 6))
"""


def program(source, axes, out, zero=2):
    return f"AXES, OUT, ZERO = {axes}, {str(out)!r}, {zero}\n" + TRAINING + source


def test_any_layout_reads_what_another_has_written(ranks, tmp_path, count):
    """Bytes are the same everywhere; the same layout goes on with the bits of a training that has not stopped."""
    out = tmp_path / "saved"
    lines = ranks(4, program(SAVE + LOAD, [dict(dp=2, tp=2), dict(dp=4), dict(dp=1, tp=4)], out))
    assert lines == [lines[0]] * 4 and len(lines[0]) == 4 and lines[0][0] == lines[0][1]
    parts = sorted(path.name for path in out.glob("parts-*"))
    assert parts == [f"parts-{i:05d}-of-00004.safetensors" for i in (1, 2, 3, 4)]
    for n, axes in ((1, [dict(dp=1, tp=1)]), (2, [dict(dp=2), dict(dp=2, tp=1)])):
        other = ranks(n, program(LOAD, axes, out))
        assert other == [other[0]] * n and len(other[0]) == len(axes)
        for losses in other[0]:  # the same training, but for the order of sums
            np.testing.assert_allclose(*([float.fromhex(x) for x in line.split()] for line in (losses, lines[0][0])), rtol=0.2)
    count("layouts that read what 2 x 2 ranks have written", 6, "layouts")


def test_parameters_in_parts_are_saved_without_being_gathered(ranks, tmp_path):  # ZeRO 3
    out = tmp_path / "saved"
    lines = ranks(2, program(SAVE + LOAD, [dict(dp=2)], out, zero=3))
    assert lines == [lines[0]] * 2 and lines[0][0] == lines[0][1]
    entry = json.loads((out / "checkpoint.json").read_text())["tensors"]["graph.modules.net.up.weight"]
    assert len(entry["pieces"]) == 2 and entry["model"] == "up.weight"
    dcp.export(out, tmp_path / "whole")
    kept = json.loads((tmp_path / "saved.json").read_text())[".modules.net.up.weight"]
    assert sl.load(tmp_path / "whole/model.safetensors")["up.weight"].numpy().tobytes() == bytes.fromhex(kept)


KILLED = """
class Dying:  # a file that kills the process at the byte of its turn
    def __init__(self, file):
        self.file = file
    def write(self, data):
        global left
        data = memoryview(data).cast("B")
        if left is not None and left < len(data):
            self.file.write(data[:left])
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        left = None if left is None else left - len(data)
        return self.file.write(data)
    def __getattr__(self, name):
        return getattr(self.file, name)

from sluice._checkpoint import files
import contextlib
turn = int(os.environ["SLUICE_RESTARTS"])
draw = np.random.default_rng([turn, SEED])
left = int(draw.integers(0, 14000)) if turn < KILLS and rank == draw.integers(0, size) else None
synced = files.synced

@contextlib.contextmanager
def dying(folder, name):
    with synced(folder, name) as file:
        yield Dying(file)

files.synced = dying
mesh, state = made(1, AXES)
checkpoints = dcp.Checkpoints(OUT, keep=2)
checkpoints.load(state)
train(mesh, state, STEPS, lambda: checkpoints.save(state["step"], state))
checkpoints.wait()
print(sorted(os.listdir(OUT)))
"""


@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 7)]])  # 21 kills
def test_a_training_that_is_killed_again_and_again_goes_on_with_the_same_bits(start, ranks, tmp_path, count, seed):
    """The launcher starts it again, and it goes on from the last checkpoint, wherever in writing the next one it was killed."""
    axes, kills = dict(dp=2), 3
    given = f"KILLS, SEED, STEPS = {kills}, {seed}, 4\n"
    assert [line[0] for line in ranks(2, "os.environ['SLUICE_RESTARTS'] = '99'\n" + given + program(KILLED, axes, tmp_path / "whole"))] == [
        "['step-00000003', 'step-00000004']"] * 2
    status, out, err = start(2, given + program(KILLED, axes, tmp_path / "killed"), "--max_restarts", str(kills)).output(kills + 1)
    assert status == 0, out + err
    died = err.count("killed by SIGKILL")
    assert died == err.count("starts again: restart") and 1 <= died <= kills
    assert [line for line in out.splitlines() if "step-" in line][-1].endswith("['step-00000003', 'step-00000004']")
    final = [json.loads((tmp_path / name / "step-00000004/checkpoint.json").read_text())["tensors"] for name in ("whole", "killed")]
    assert final[0] == final[1]
    for name in os.listdir(tmp_path / "whole/step-00000004"):
        if name.endswith(".safetensors"):
            a, b = (sl.load(tmp_path / folder / "step-00000004" / name) for folder in ("whole", "killed"))
            assert a.keys() == b.keys() and all(a[key].numpy().tobytes() == b[key].numpy().tobytes() for key in a)
    count("kills at some byte of a checkpoint, and restarts", died, "kills")


REFUSED = """
mesh, state = made(1, AXES)
dcp.save(state, OUT)
kept = wholes(state)
parts = pathlib.Path(OUT) / "parts-00002-of-00002.safetensors"

def refused(call):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).split("  (")[0].replace(OUT, "OUT"))

other = made(2, AXES)[1]
refused(lambda: dcp.load({**other, "more": 3}, OUT))
before = wholes(other)
for damage in ("missing", "cut", "foreign"):
    dist.barrier()
    if rank == 0:
        content = parts.read_bytes()
        if damage == "missing":
            parts.unlink()
        elif damage == "cut":
            parts.write_bytes(content[:-1])
        else:
            at = content.index(b'"checkpoint":"') + 14
            parts.write_bytes(content[:at] + b"0123456789abcdef" + content[at + 16:])
    dist.barrier()
    refused(lambda: dcp.load(other, OUT))
    dist.barrier()
    if rank == 0:
        parts.write_bytes(content)
dist.barrier()
refused(lambda: dcp.load(other, OUT + "-not-there"))
refused(lambda: dcp.save({"x": sl.ones(2) * rank}, OUT))
refused(lambda: dcp.save({"x": sl.ones(2), **({"y": 1, "z": sl.ones(1)} if rank else {})}, OUT))
refused(lambda: dcp.save({"x": sl.ones(2), "f": refused}, OUT))
assert wholes(other) == before
dcp.load(other, OUT)
assert wholes(other) == kept
print(sorted(os.listdir(OUT + "/..")))
"""


def test_bad_checkpoints_are_refused_by_name_on_every_rank_before_anything_is_written(ranks, tmp_path):
    out = tmp_path / "checkpoints/saved"
    lines = ranks(2, program(REFUSED, dict(dp=2), out))
    own = [
        "checkpoint: OUT: it does not fit the state: no 'more' is saved",
        "checkpoint: OUT: the file parts-00002-of-00002.safetensors is missing",
        r"checkpoint: OUT: the file parts-00002-of-00002.safetensors has \d+ bytes; must have \d+: it is cut off, or another's",
        "checkpoint: OUT: the file parts-00002-of-00002.safetensors is of another checkpoint \\('0123456789abcdef'; .*",
        "checkpoint: OUT-not-there: no checkpoint; it has no checkpoint.json",
        "checkpoint: rank 0 saves 'x float32 \\(2,\\) with contents .*', rank 1 'x float32 .*'; what is local must be the same on all ranks.*",
        "checkpoint: rank 0 saves 'nothing', rank 1 'z float32.*",
        "checkpoint: (rank 0: TypeError: checkpoint: )?the state has objects of __main__.refused, which loading would refuse; .*"]
    for found in lines:
        assert found[-1] == "['saved']" and len(found) == len(own) + 1, found
        for line, pattern in zip(found, own):
            assert re.fullmatch(rf"\w+ {pattern}", line), (line, pattern)
