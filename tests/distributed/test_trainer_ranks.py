"""The trainer on several ranks: the losses of one process, a job that is started again, and evaluation of rows that do not divide."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from jobs import LIMIT
from rank_programs import environment, ranks, start  # noqa: F401: fixtures

ROOT = pathlib.Path(__file__).parents[2]

TRAINING = f"""
sys.path.insert(0, {str(ROOT / "tests/python")!r})
from sluice.trainer import Callback, Trainer
from trainer_models import config
""" + """
dist.init()
dp, tp = (size // TP, TP) if size > 1 else (DP, TP)
t = Trainer(config(OUT + str(size), **{"parallel.dp": dp, "parallel.tp": tp, "parallel.device": "sim", "train.log_every": 1, "train.steps": 6,
                                       "test._target_": "trainer_models.rows", "test.n": 21, "model.dropout": 0.2, "checkpoint.every": 2,
                                       "evaluators": "[{_target_: sluice.trainer.TopK}]"}))
t.graph.config.set_cores(1)
if os.environ.get("SLUICE_RESTARTS") == "0" and KILL:
    def kill(t):
        t.checkpoints.wait()
        if rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    t.hooks.append(Callback(kill, every=5))
print("begins at", t.step)
t.train()
print(t.step, {name: round(value, 5) for name, value in t.evaluate().items()})
"""


EVALUATION = """
import json
from sluice import data, nn, trainer
dist.init()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 103, 6))
said, meant = rng.integers(0, 4, (2, 103, 6))

class Same(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(sl.ones(1, dtype=sl.float64))
    def forward(self, rows):
        return rows * self.scale if rows.is_floating_point() else rows

for evaluator, rows in ((trainer.Regression(), (x, y)), (trainer.Bleu(), (said, meant))):
    config = trainer.Config(model=Same(), data=data.arrays(x, y), test=data.arrays(*rows), loss=nn.functional.mse_loss, evaluators=[evaluator],
                            optimizer=lambda parameters: sl.optim.SGD(parameters, lr=0.1), evaluation=trainer.Evaluation(batch=8),
                            parallel=trainer.Parallel(device="cpu"), out=OUT)
    print(json.dumps(trainer.Trainer(config).evaluate()))
"""


def losses(path):
    return {line["step"]: line["loss"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line}


@pytest.mark.parametrize("dp, tp", [(2, 1), pytest.param(2, 2, marks=pytest.mark.soak)])
def test_ranks_train_with_the_losses_of_one_process_also_when_one_is_killed(start, ranks, tmp_path, dp, tp):
    n, given = dp * tp, f"DP, TP, KILL, OUT = {dp}, {tp}, {{}}, {str(tmp_path / 'out')!r}\n"
    (one,) = ranks(1, given.format(False) + TRAINING)
    status, out, err = start(n, given.format(True) + TRAINING, "--max_restarts", "1").output(starts=2)
    assert status == 0 and err.count("starts again") == 1, out + err
    lines = [line.split("] ")[1] for line in out.splitlines()]
    assert lines.count("begins at 0") == lines.count("begins at 4") == lines.count(one[-1]) == n, out
    assert losses(tmp_path / f"out{n}/metrics.jsonl") == losses(tmp_path / "out1/metrics.jsonl")


def test_the_example_trains_on_ranks_and_goes_on_alone(environment, tmp_path):
    command = ["-m", "sluice.trainer", str(ROOT / "examples/trainer/digits.yaml"), f"out={tmp_path}", "--quiet"]
    launch = ["-m", "sluice.distributed.launch", "--nproc_per_node", "2"]
    first = subprocess.run([sys.executable, *launch, *command, "train.steps=40", "evaluation.every=20", "checkpoint.every=20"], cwd=tmp_path,
                           env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert first.returncode == 0, first.stdout + first.stderr
    then = subprocess.run([sys.executable, *command, "train.steps=60"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          timeout=LIMIT)
    assert then.returncode == 0, then.stdout + then.stderr
    result = json.loads(then.stdout)
    assert result["step"] == 60 and result["top1"] > 0.75, result
    assert sorted(losses(tmp_path / "metrics.jsonl")) == [40, 50, 60] or max(losses(tmp_path / "metrics.jsonl")) == 60
    assert "width: 64" in (tmp_path / "config.yaml").read_text()


def test_sizes_that_do_not_multiply_are_an_error_on_every_rank(start, tmp_path):
    status, _, err = start(2, f"DP, TP, KILL, OUT = 1, 3, False, {str(tmp_path / 'out')!r}\n" + TRAINING).output()
    assert status == 1
    text = "config: parallel.dp=1 x parallel.tp=3 is 3; the job has 2 ranks, and the sizes must multiply to that"
    assert all(any(line.startswith(f"[{r}]") and text in line for line in err.splitlines()) for r in range(2)), err
    assert not (tmp_path / "out2").exists()


def test_metrics_of_103_rows_are_those_of_one_process(ranks, tmp_path):  # LB-12
    """The last batch has 7 rows of 8, of which one rank has 4 and the other 3."""
    program = f"OUT = {str(tmp_path / 'out')!r}\n" + EVALUATION
    (one,), two = ranks(1, program), ranks(2, program)
    assert two[0] == two[1] and len(one) == 2
    for alone, several in zip(map(json.loads, one), map(json.loads, two[0])):
        assert several == pytest.approx(alone, rel=1e-12)
    regression, bleu = map(json.loads, one)
    x, y = np.random.default_rng(0).normal(size=(2, 103, 6))
    assert regression["mse"] == pytest.approx(((x - y) ** 2).mean(), rel=1e-12) and 0 < bleu["bleu"] < 100
