"""What happens around the steps of a training."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable

from sluice._base.job import state as job
from sluice.errors import ValueError  # noqa: A004


class Hook:
    """Methods that the trainer calls on all ranks. `trainer.step` is the number of updates so far."""

    def before_train(self, trainer: Any) -> None:
        pass

    def after_step(self, trainer: Any) -> None:
        pass

    def on_metrics(self, trainer: Any, metrics: dict[str, float]) -> None:
        """There are new numbers by name: every train.log_every steps those of training, and those of each evaluation."""

    def after_train(self, trainer: Any) -> None:
        """Also if the training fails."""


class Callback(Hook):
    """Calls fn(trainer) every so many steps."""

    def __init__(self, fn: Callable[[Any], Any], every: int = 1) -> None:
        if not callable(fn) or every < 1:
            raise ValueError(f"Callback: fn is {fn!r}, every is {every!r}; must be a function, and at least 1")
        self.fn, self.every = fn, every

    def after_step(self, trainer: Any) -> None:
        if trainer.step % self.every == 0:
            self.fn(trainer)


class Timer(Hook):
    """Adds "steps_per_s" and "rows_per_s" since the metrics before, or the start."""

    def before_train(self, trainer: Any) -> None:
        self._step, self._time = trainer.step, time.perf_counter()

    def on_metrics(self, trainer: Any, metrics: dict[str, float]) -> None:
        now = time.perf_counter()
        if trainer.step > self._step:
            speed = (trainer.step - self._step) / max(now - self._time, 1e-9)
            metrics.update(steps_per_s=speed, rows_per_s=speed * trainer.config.train.batch)
        self._step, self._time = trainer.step, now


class JsonLines(Hook):
    """Appends metrics to a file, a line of JSON each; rank 0 does."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_metrics(self, trainer: Any, metrics: dict[str, float]) -> None:
        if job.rank == 0:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": trainer.step, **metrics}) + "\n")


class TensorBoard(Hook):
    """Writes metrics for TensorBoard to trainer.config.out; rank 0 does."""

    def before_train(self, trainer: Any) -> None:
        from sluice.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(trainer.config.out) if job.rank == 0 else None

    def on_metrics(self, trainer: Any, metrics: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, trainer.step)

    def after_train(self, trainer: Any) -> None:
        if self._writer is not None:
            self._writer.close()


class ProgressBar(Hook):
    """Steps and the latest metrics on stderr: a bar of tqdm where that is installed, else a line for each. Rank 0 does."""

    def before_train(self, trainer: Any) -> None:
        self._bar = None
        if job.rank == 0:
            try:
                from tqdm import tqdm

                self._bar = tqdm(total=trainer.config.train.steps, initial=trainer.step, unit=" steps", file=sys.stderr)
            except ImportError:
                pass

    def after_step(self, trainer: Any) -> None:
        if self._bar is not None:
            self._bar.update(1)

    def on_metrics(self, trainer: Any, metrics: dict[str, float]) -> None:
        if job.rank != 0:
            return
        shown = {name: f"{value:.4g}" for name, value in metrics.items()}
        if self._bar is not None:
            self._bar.set_postfix(shown)
        else:
            print(f"step {trainer.step}: {', '.join(f'{name} {value}' for name, value in shown.items())}", file=sys.stderr)

    def after_train(self, trainer: Any) -> None:
        if self._bar is not None:
            self._bar.close()


class Checkpointer(Hook):
    """Saves every so many steps, and behind the last one."""

    def after_step(self, trainer: Any) -> None:
        every = trainer.config.checkpoint.every
        if every and (trainer.step % every == 0 or trainer.step == trainer.config.train.steps):
            trainer.save()


class Evaluating(Hook):
    """Evaluates every so many steps, and behind the last one; keeps the best checkpoint where one is asked for."""

    def after_step(self, trainer: Any) -> None:
        every = trainer.config.evaluation.every
        if trainer.step != trainer.config.train.steps and not (every and trainer.step % every == 0):
            return
        metrics = trainer.evaluate()
        trainer.tell({f"test.{name}": value for name, value in metrics.items()})
        best = trainer.config.checkpoint.best
        if best is None:
            return
        name, sign = (best[1:], -1) if best.startswith("-") else (best, 1)
        if name not in metrics:
            raise ValueError(f"config: checkpoint.best is {best!r}; the evaluators compute {', '.join(metrics)}")
        if trainer.state["best"] is None or sign * metrics[name] > sign * trainer.state["best"]:
            trainer.state["best"] = metrics[name]
            trainer.best.save(trainer.step, trainer.state)


def standard(trainer: Any) -> list[Hook]:
    """Those of every training, in their order: a checkpoint is saved once the evaluation has said how good it is."""
    config = trainer.config
    hooks: list[Hook] = [Timer(), JsonLines(os.path.join(config.out, "metrics.jsonl"))]
    if trainer.evaluators:
        hooks.append(Evaluating())
    return [*hooks, Checkpointer()]
