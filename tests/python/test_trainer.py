"""The trainer in one process: configurations, the arithmetic of batches, hooks, evaluators, and going on."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from event_files import scalars

import sluice as sl
import trainer_models
from sluice import data, nn, trainer
from sluice.trainer import Callback, Config, Hook, Trainer, TopK
from trainer_models import config

TEST = {"test._target_": "trainer_models.rows", "test.n": 21, "evaluators": "[{_target_: sluice.trainer.TopK, k: [1, 2]}]"}


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def run(out, **changes):
    """The losses that a training has reported."""
    Trainer(config(out, **changes)).train()
    return [line["loss"] for line in metrics(out) if "loss" in line]


def test_a_training_is_the_loop_that_one_would_write(tmp_path):
    found = run(tmp_path / "out", **{"train.log_every": 1, "train.clip": 0.1})
    torch.manual_seed(0)
    sl.manual_seed(0)
    net = trainer_models.Net()
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    for p, q in zip(theirs.parameters(), net.parameters()):
        p.data = torch.tensor(q.detach().numpy())
    adam, expected = torch.optim.Adam(theirs.parameters(), lr=0.01), []
    for _, (x, y) in zip(range(12), trainer_models.shuffled().repeat().batch(8)):
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x.numpy())), torch.tensor(y.numpy()))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
        adam.step()
        expected.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("changes", [
    {"parallel.dp": 2}, {"parallel.tp": 2}, {"parallel.dp": 2, "parallel.tp": 2}, {"train.micro_batches": 4},
    {"parallel.dp": 2, "parallel.tp": 2, "train.micro_batches": 2, "parallel.zero": 2, "parallel.checkpoint": "[up]"}])
def test_layouts_change_no_more_than_the_order_of_sums(tmp_path, changes):
    """Clipping is by the norm of all gradients, wherever their parts lie."""
    fixed = {"train.clip": 0.1, "parallel.device": "sim"}
    one = run(tmp_path / "one", **fixed)
    np.testing.assert_allclose(run(tmp_path / "other", **fixed, **changes), one, rtol=1e-4)


@pytest.mark.parametrize("amp", ["bfloat16", "float16"])
def test_amp_computes_in_sixteen_bits(tmp_path, amp):
    one = run(tmp_path / "one")
    found = run(tmp_path / "other", **{"train.amp": amp})
    assert found != one
    np.testing.assert_allclose(found, one, rtol=0.05)


def test_a_training_goes_on_with_the_bits_of_one_that_has_not_stopped(tmp_path):
    changes = {"train.steps": 10, "train.log_every": 1, "checkpoint.every": 3, "checkpoint.keep": 2, "model.dropout": 0.25,
               "schedule": "{_target_: sluice.optim.lr_scheduler.CosineAnnealingLR, T_max: 10}", **TEST}
    whole = run(tmp_path / "whole", **changes)

    class Stop(Exception):
        pass

    def stop(t):
        raise Stop

    t = Trainer(config(tmp_path / "stopped", **changes))
    t.hooks.append(Callback(stop, every=7))
    with pytest.raises(Stop):
        t.train()
    t.checkpoints.wait()
    again = Trainer(config(tmp_path / "stopped", **changes))
    assert again.step == 6 and again.checkpoints.steps() == [3, 6]
    again.train()
    lines = metrics(tmp_path / "stopped")
    assert [line["loss"] for line in lines if "loss" in line][-4:] == whole[-4:]
    assert [line["lr"] for line in lines if "lr" in line][-1] == metrics(tmp_path / "whole")[-2]["lr"]
    assert again.checkpoints.steps() == [9, 10]
    assert Trainer(config(tmp_path / "stopped", **changes, **{"train.resume": False})).step == 0


def test_hooks_hear_of_everything_and_the_best_checkpoint_stays(tmp_path):
    heard = []

    class Listens(Hook):
        def before_train(self, t):
            heard.append("begin")

        def on_metrics(self, t, metrics):
            heard.append((t.step, sorted(metrics)))

        def after_train(self, t):
            heard.append("end")

    changes = {"evaluation.every": 5, "checkpoint.best": "top1", "train.log_every": 6, **TEST}
    t = Trainer(config(tmp_path, **changes))
    t.hooks.append(Listens())
    t.train()
    tests = ["test.loss", "test.top1", "test.top2"]
    assert heard == ["begin", (5, [*tests, "rows_per_s", "steps_per_s"]), (6, ["loss", "lr", "rows_per_s", "steps_per_s"]),
                     (10, [*tests, "rows_per_s", "steps_per_s"]), (12, ["loss", "lr", "rows_per_s", "steps_per_s"]), (12, tests), "end"] \
        or [h[0] for h in heard if isinstance(h, tuple)] == [5, 6, 10, 12, 12]
    scores = {line["step"]: line["test.top1"] for line in metrics(tmp_path) if "test.top1" in line}
    best = max(scores, key=lambda step: (scores[step], -step))
    assert t.best.steps() == [best] and t.state["best"] == scores[best]


def test_evaluators_count_each_row_once(tmp_path):
    """The last batch is not full, and filled up by rows that do not count."""
    t = Trainer(config(tmp_path, **{"evaluation.batch": 8, "parallel.device": "sim", "parallel.dp": 2, **TEST}))
    found = t.evaluate()
    x, y = (np.array(part) for part in zip(*[(row[0].numpy()[0], row[1].numpy()[0]) for row in trainer_models.rows(21).batch(1)]))
    weights = {name: p.detach().to_local().numpy() for name, p in t.net.named_parameters()}
    logits = np.maximum(x @ weights["up.weight"].T + weights["up.bias"], 0) @ weights["down.weight"].T + weights["down.bias"]
    rank = (logits > logits[np.arange(21), y][:, None]).sum(1)
    assert found["top1"] == pytest.approx((rank < 1).mean()) and found["top2"] == pytest.approx((rank < 2).mean())
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(21), y]
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert t.evaluate() == found and t.net.training


def sums(evaluator, outputs, targets, parts):
    """Metrics of rows in parts of any sizes, each filled up with rows that do not count."""
    totals = []
    for rows in np.split(np.arange(len(outputs)), parts):
        filled = [*rows, *[0] * 3]
        mask = sl.tensor([1.0] * len(rows) + [0.0] * 3)
        totals.append([s.item() for s in evaluator.sums(sl.tensor(outputs[filled]), sl.tensor(targets[filled]), mask)])
    return evaluator.metrics(np.sum(totals, 0).tolist())


@pytest.mark.parametrize("parts", [[], [1], [2, 9]])
def test_metrics_do_not_depend_on_the_parts(parts):
    rng = np.random.default_rng(0)
    logits, classes = rng.normal(size=(11, 4, 5)).astype(np.float32), rng.integers(0, 5, (11, 4))
    classes[2, 1] = -100
    found = sums(trainer.Perplexity(), logits, classes, parts)
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits).reshape(-1, 5), torch.tensor(classes).reshape(-1)).item()
    assert found == {"loss": pytest.approx(expected, rel=1e-5), "perplexity": pytest.approx(np.exp(expected), rel=1e-5)}
    y, predicted = rng.normal(size=(2, 11, 3)).astype(np.float32)
    found = sums(trainer.Regression(), predicted, y, parts)
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
    assert found["mse"] == pytest.approx(mean_squared_error(y, predicted), rel=1e-5)
    assert found["mae"] == pytest.approx(mean_absolute_error(y, predicted), rel=1e-5)
    assert found["r2"] == pytest.approx(r2_score(y.ravel(), predicted.ravel()), rel=1e-5)
    equal = np.zeros((4, 3), np.float32)
    assert sums(TopK(2), equal, np.array([0, 1, 2, 2]), [])["top2"] == 0.5  # the classes with smaller numbers go first


@pytest.mark.parametrize("changes, text", [
    ({"train.batch": 9, "parallel.dp": 2, "parallel.device": "sim"}, "config: train.batch is 9; must be a multiple of 2: parallel.dp=2"),
    ({"train.batch": 6, "train.micro_batches": 4}, "config: train.batch is 6; must be a multiple of 4: parallel.dp=1 x train.micro_batches=4"),
    ({"train.steps": -1}, "config: train.steps is -1; must be at least 0"),
    ({"train.amp": "int8"}, "config: train.amp is 'int8'; must be 'bfloat16', 'float16' or nothing"),
    ({"train.stpes": 3}, "config: unknown key 'train.stpes'; there are steps, batch, micro_batches"),
    ({"trian.steps": 3}, "config: unknown key 'trian'; there are model, data, loss"),
    ({"train.steps": "many"}, "config: 'train.steps': Value 'many' of type 'str' could not be converted to Integer"),
    ({"model._target_": "trainer_models.Nett"}, "config: model._target_ is 'trainer_models.Nett'; trainer_models has no 'Nett'"),
    ({"model._target_": "no.such"}, "config: model._target_ is 'no.such'; there is no module 'no'"),
    ({"model.depth": 3}, "config: model: trainer_models.Net: "),
    ({"model": 3}, "config: model is int; must be a Module"),
    ({"data": "null"}, "config: data is not given"),
    ({"parallel.zero": 2}, "config: parallel.zero is 2; needs parallel.dp above 1, and it is 1"),
    ({"parallel.dp": 2, "parallel.device": "sim", "parallel.plan": "{side: colwise}"}, "parallelize: the plan names 'side'"),
    ({"checkpoint.best": "top1"}, "config: checkpoint.best is 'top1'; needs test and evaluators"),
])
def test_bad_configurations_are_named_before_anything_is_computed(tmp_path, changes, text):
    with pytest.raises((ValueError, TypeError)) as caught:
        Trainer(config(tmp_path, **changes))
    assert str(caught.value).startswith(text), caught.value
    assert not (tmp_path / "checkpoints").exists()


def test_files_are_read_safely_and_overridden(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("train: {steps: 7}\nevaluation: {every: '${train.steps}'}\nmodel: {_target_: trainer_models.Net, width: 9}\n")
    read = trainer.load(file, ["model.width=12", "train.clip=0.5"])
    assert (read.train.steps, read.evaluation.every, read.train.clip, read.model["width"]) == (7, 7, 0.5, 12)
    assert isinstance(read, Config) and trainer.made("model", read.model).up.out_features == 12
    for text, error in (("- 1\n", "is a list"), ("a: [", "is no YAML"), ("train: !!python/object/apply:os.system ['true']\n", "is no YAML"),
                        ("train: {steps: '${nothing}'}\n", "nothing")):
        file.write_text(text)
        with pytest.raises(ValueError) as caught:
            trainer.load(file)
        assert str(file) in str(caught.value) and error in str(caught.value), caught.value
    with pytest.raises(OSError, match="no such file"):
        trainer.load(tmp_path / "missing.yaml")
    with pytest.raises(ValueError, match="override 'train.steps'; must be like train.steps=100"):
        trainer.load(None, ["train.steps"])


def test_the_configuration_that_is_kept_repeats_the_run(run_script, tmp_path):  # LB-10
    """Of the command: a file, an override of a part that is nested, and config.yaml, which is run as it is."""
    (tmp_path / "small.yaml").write_text(
        "model: {_target_: trainer_models.Net}\ndata: {_target_: trainer_models.shuffled}\noptimizer: {_target_: sluice.optim.Adam, lr: 0.01}\n"
        "loss: {_target_: sluice.nn.functional.cross_entropy, _partial_: true}\ntrain: {steps: 6, batch: 8, log_every: 1}\n")
    source = ("import sys; sys.path.insert(0, sys.argv[1]); from sluice.trainer.__main__ import main\n"
              "for file, out in ((sys.argv[2], 'first'), ('first/config.yaml', 'second')):\n"
              "    given = ['train.amp=bfloat16', 'model.width=12'] if out == 'first' else []\n"
              "    assert main([file, '--quiet', f'out={out}', *given]) == 0\n")
    done = run_script(source, arguments=(os.path.dirname(__file__), str(tmp_path / "small.yaml")), timeout=600)
    assert done.returncode == 0, done.stderr
    kept = (tmp_path / "first/config.yaml").read_text()
    assert "amp: bfloat16" in kept and "width: 12" in kept
    assert kept.replace("out: first", "out: second") == (tmp_path / "second/config.yaml").read_text()
    first, second = ([line["loss"] for line in metrics(tmp_path / out) if "loss" in line] for out in ("first", "second"))
    assert len(first) == 6 and first == second
    assert first != run(tmp_path / "plain", **{"train.steps": 6, "train.log_every": 1, "model.width": 12})


def test_objects_stand_where_dicts_may(tmp_path):
    net = nn.Sequential(nn.Linear(6, 3))
    made = Config(model=net, data=trainer_models.rows(), loss=nn.functional.cross_entropy, optimizer=lambda p: sl.optim.SGD(p, lr=0.1),
                  hooks=[Callback(lambda t: seen.append(t.step), every=2)], out=str(tmp_path))
    made.train.steps, made.train.batch, seen = 4, 5, []
    t = Trainer(made)
    t.train()
    assert seen == [2, 4] and t.net is net and t.step == 4
    assert trainer.call(nn.Linear)(in_features=2, out_features=3) == {"_target_": "sluice.nn.modules.linear.Linear", "in_features": 2,
                                                                      "out_features": 3}
    with pytest.raises(TypeError, match="config: data is list; must be a Pipeline of sluice.data"):
        Trainer(Config(model=net, data=[1], loss=1, optimizer=1, out=str(tmp_path)))
    assert isinstance(made.data, data.Pipeline) and os.listdir(tmp_path)


@pytest.mark.parametrize("tqdm", [True, False])
def test_progress_is_shown_with_tqdm_and_without(tmp_path, capsys, monkeypatch, tqdm):
    if not tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    t = Trainer(config(tmp_path, **{"train.steps": 4, "train.log_every": 2}))
    t.hooks.append(trainer.ProgressBar())
    t.train()
    shown = capsys.readouterr().err
    assert ("4/4" in shown and "loss=" in shown) if tqdm else "step 4: loss " in shown


def test_metrics_go_to_tensorboard(tmp_path):
    t = Trainer(config(tmp_path, **{"train.steps": 4, "train.log_every": 2}))
    t.hooks.append(trainer.TensorBoard())
    t.train()
    told = [(name, line["step"], value) for line in metrics(tmp_path) for name, value in line.items() if name != "step"]
    assert {("loss", 2), ("loss", 4), ("lr", 4)} <= {(name, step) for name, step, _ in told}
    assert [(name, step) for name, step, _ in scalars(tmp_path)] == [(name, step) for name, step, _ in told]
    assert [value for *_, value in scalars(tmp_path)] == pytest.approx([value for *_, value in told], rel=1e-6)
