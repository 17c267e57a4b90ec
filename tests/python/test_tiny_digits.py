"""The tasks of benchmarks/tiny: integers learn turned digits of 32 x 32 as floats do, and sparse steps take little memory."""

import pathlib
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import sluice as sl
from sluice.tiny import TrainStep, _int8, quantize
from sluice.tiny._int8 import layers_of
from sluice.tiny._table import ledger
from test_tiny import STRICT, arm

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/tiny"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not here")
if FOLDER.exists():
    sys.path.insert(0, str(FOLDER))
    import speed
    import tasks

SEEDS = 2


def ways():
    return {"floats": None, "with scaling": TrainStep, "sparse": partial(TrainStep, scheme=tasks.SPARSE),
            "without scaling": partial(TrainStep, qas=False)}


@pytest.fixture(scope="module")
def learned():
    """A network that knows upright digits, and the two sets."""
    train, held = tasks.digits()
    return tasks.upright(train, epochs=8), train.turned(), held.turned()


def after_learning(net, train, held, way):
    start = {name: value.clone() for name, value in net.state_dict().items()}
    found = []
    for seed in range(SEEDS):
        net.load_state_dict(start)
        made = net if way is None else quantize(net, [sl.tensor(train.x[:256])])
        tasks.learn(made, train, way or tasks.FloatStep, lr=0.02, epochs=5, seed=seed)
        found.append(tasks.accuracy(made, held))
    net.load_state_dict(start)
    return float(np.mean(found))


def test_scaled_integers_and_sparse_updates_learn_as_floats_do(learned, count):
    before = tasks.accuracy(learned[0], learned[2])
    right = {name: after_learning(*learned, way) for name, way in ways().items()}
    count("share of turned digits that are right", round(right["floats"], 4), {"before": before, **right})
    assert before < 0.2 and right["floats"] > 0.93
    assert right["with scaling"] >= right["floats"] - 0.01
    assert right["sparse"] >= right["with scaling"] - 0.01
    assert right["without scaling"] < 0.5


def test_scaling_restores_how_long_weights_are_to_their_gradients(learned, monkeypatch, count):
    """||w|| / ||g|| of a channel of integers is that of floats with scaling, and without it as much larger as scales are small."""
    net, train, _ = learned
    x, y = sl.tensor(train.x[:32]), sl.tensor(train.y[:32])

    def lengths(w, g):
        w, g = (np.linalg.norm(t.detach().to(sl.float32).numpy().reshape(t.shape[0], -1), axis=1) for t in (w, g))
        return w / np.maximum(g, 1e-30)

    net.zero_grad()
    sl.nn.functional.cross_entropy(net(x), y).backward()
    floats = [lengths(p, p.grad) for name, p in net.named_parameters() if name.endswith("weight")]

    def of_integers(qas):
        made, seen = quantize(net, [x]), []

        def look(param, grad, *rest):
            seen.append(lengths(param, grad))
            return param

        monkeypatch.setattr(_int8, "int8_sgd", look)
        TrainStep(made, lr=0.1, qas=qas).build(x, y)
        assert len(seen) == len(layers_of(made))
        # Steps run backward; most channels count, since one of which few places are above 0 has another gradient.
        return [float(np.median(ours / theirs)) for ours, theirs in zip(seen[::-1], floats)]

    scaled, plain = of_integers(True), of_integers(False)
    count("||w|| / ||g|| of channels of integers over that of floats", [round(r, 3) for r in scaled],
          f"with scaling, {[round(r) for r in plain]} without")
    assert all(0.8 < ratio < 1.2 for ratio in scaled) and min(plain) > 1000


def test_sparse_steps_take_a_fifteenth_of_the_memory(count):
    """Of a net like MCUNet for 128 x 128: the aims of sparse steps, and of these in the compiler's order."""
    table = tasks.memory_table()
    rows = {row.scheme: row for row in table}
    count("table of schemes", len(table), "\n" + str(table))
    full, sparse = rows["full"], rows["sparse"]
    assert full.late_ram >= 7 * sparse.late_ram and full.late_ram >= 15 * sparse.ram
    falling = [full.late_ram, *(rows[name].late_ram for name in ("bias only", "last 6", "sparse")), sparse.ram]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) == len(falling)
    assert sparse.ram <= (256 - 4) * 1024 and sparse.flash <= 800 * 1024  # beside a stack of 4 KB and code


@arm
def test_a_sparse_step_for_pictures_of_128_fits_a_microcontroller(tmp_path, count):
    net, pictures, example = tasks.mcunet_task()
    made = ledger(quantize(net, pictures), example, tasks.SPARSE_BLOCKS)
    (tmp_path / "step.c").write_text(made.source)
    flags = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -O1".split()
    subprocess.run(["arm-none-eabi-gcc", *STRICT.split(), *flags, "-c", "step.c"], cwd=tmp_path, check=True)
    size = subprocess.run(["arm-none-eabi-size", "step.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    text, data, bss = map(int, size.splitlines()[1].split()[:3])
    count("bytes of code and constants of a step for pictures of 128 x 128", text, f"{data} of weights that change, {bss} of values")
    assert text + data <= 1 << 20 and data + bss <= (256 - 4) << 10


def test_a_step_takes_a_thousandth_of_torchs_memory(tmp_path, count):
    """Of the network of digits, one picture at a time; how long it takes is said beside it, as by `make bench ONLY=tiny.step`."""
    net, (train, _) = tasks.network(), tasks.digits()
    sample = sl.tensor(train.x[:1]), sl.tensor(train.y[:1])
    theirs, theirs_kib = speed.of_torch(20)
    ways = {"float": tasks.FloatStep(net, lr=0.01), "int8": TrainStep(quantize(net, [sl.tensor(train.x[:64])]), lr=0.01)}
    for name, step in ways.items():
        step.compile(*sample)
        made = sl.tiny.export(step, tmp_path / name, name="net", samples=[sample])
        ours, ours_kib = speed.of_c(speed.build(made.directory, "net"), 20)
        takes = made.memory + made.state
        count(f"KiB of torch's process to a step's of {name} as C", round(theirs_kib * 1024 / takes),
              f"bytes {takes}, its process {ours_kib} KiB, torch's {theirs_kib}; us a step {ours / 1e3:.0f} and {theirs / 1e3:.0f}")
        assert takes * 1000 <= theirs_kib * 1024 and ours_kib * 20 <= theirs_kib
