"""The trainer: a graph of steps over the mesh, and what happens around them."""

from __future__ import annotations

import os
from typing import Any, Iterator

from sluice import _C, parallel
from sluice._C import Tensor
from sluice._base.job import state as job
from sluice._checkpoint import Checkpoints
from sluice._graph.graph import Graph
from sluice._tensor.creation import as_tensor, manual_seed, tensor
from sluice.amp.grad_scaler import GradScaler
from sluice.data._pipeline import Pipeline
from sluice.errors import NotImplementedError, TypeError, ValueError  # noqa: A004
from sluice.nn.modules.module import Module
from sluice.sbp import split
from sluice.trainer import _hooks
from sluice.trainer._config import Config, made


class _Step(Graph):
    """One update: a batch in, the loss out."""

    _loss: Any

    def __init__(self, net: Module, loss: Any, config: Config) -> None:
        super().__init__(name="train")
        self.net = net
        self.__dict__["_loss"] = loss
        self.config.set_gradient_accumulation_steps(config.train.micro_batches)
        if config.train.amp is not None:
            self.config.enable_amp(dtype=getattr(_C, config.train.amp))
        if config.train.amp == "float16":
            self.set_grad_scaler(GradScaler())

    def build(self, *batch: Any) -> Any:
        loss = self._loss(self.net(*batch[:-1]), batch[-1])
        loss.backward()
        return loss


class _Test(Graph):
    """The sums of all evaluators, of a batch and its mask."""

    _evaluators: list[Any]

    def __init__(self, net: Module, evaluators: list[Any], config: Config) -> None:
        super().__init__(name="test")
        self.net = net
        self.__dict__["_evaluators"] = evaluators
        if config.train.amp is not None:
            self.config.enable_amp(dtype=getattr(_C, config.train.amp))

    def build(self, mask: Tensor, *batch: Any) -> Any:
        outputs = self.net(*batch[:-1])
        return [list(e.sums(outputs, batch[-1], mask)) for e in self._evaluators]


class Trainer:
    """Trains what a Config says, on the ranks of the job, or alone.

        trainer = Trainer(config)
        trainer.train()
        print(trainer.evaluate())

    Everything is made and checked here. With train.resume it goes on from the newest checkpoint in config.out, whatever layout has
    written it. The global batch is cut along dp, so that a layout changes no more than the order of sums.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        world = 1 if job.world is None else job.world.size
        self.dp, self.tp = config.check(world)
        os.makedirs(config.out, exist_ok=True)
        manual_seed(config.train.seed)
        self.net = self._made("model", Module)
        loss, rows = made("loss", config.loss), self._made("data", Pipeline)
        self.evaluators, given = made("evaluators", config.evaluators), made("hooks", config.hooks)
        self._test_rows = None if config.test is None else self._made("test", Pipeline)
        self.mesh = None
        if self.dp * self.tp > 1:
            self.mesh = parallel.mesh(config.parallel.device, dp=self.dp, tp=self.tp)
            parallel.parallelize(self.net, self.mesh, config.parallel.plan, checkpoint=config.parallel.checkpoint, zero=config.parallel.zero)
        elif config.parallel.zero is not None:
            raise ValueError(f"config: parallel.zero is {config.parallel.zero}; needs parallel.dp above 1, and it is 1")
        self._at = 0 if self.mesh is None else job.rank // self.tp % self.dp
        self._cuts = world > 1  # each rank reads its own rows
        self.graph = _Step(self.net, loss, config)
        self.optimizer = made("optimizer", config.optimizer, self.net.parameters())
        self._clip(config.train.clip)
        self.graph.add_optimizer(self.optimizer, None if config.schedule is None else made("schedule", config.schedule, self.optimizer))
        self.rows = rows.repeat().shard(self._at, self.dp).batch(config.train.batch // self.dp) if self._cuts \
            else rows.repeat().batch(config.train.batch)
        self.state: dict[str, Any] = {"graph": self.graph, "rows": self.rows, "step": 0, "best": None}
        self.checkpoints = Checkpoints(os.path.join(config.out, "checkpoints"), keep=config.checkpoint.keep)
        self.best = Checkpoints(os.path.join(config.out, "best"), keep=1)
        self.hooks = [*_hooks.standard(self), *given]
        self._test: _Test | None = None
        self._losses: list[Tensor] = []
        self.results: dict[str, float] | None = None  # of the latest evaluation
        if config.train.resume:
            self.checkpoints.load(self.state)

    def _made(self, name: str, kind: type) -> Any:
        value = made(name, getattr(self.config, name))
        if not isinstance(value, kind):
            raise TypeError(f"config: {name} is {type(value).__name__}; must be a {kind.__name__}"
                            + (" of sluice.data" if kind is Pipeline else ""))
        return value

    def _clip(self, most: float | None) -> None:
        if most is None:
            return
        if len(self.optimizer.param_groups) > 1:
            raise NotImplementedError("config: train.clip with an optimizer of several groups: it would clip each by itself; give one group")
        self.optimizer.param_groups[0].update(clip_grad_max_norm=float(most), clip_grad_norm_type=2.0)

    @property
    def step(self) -> int:
        """Updates so far."""
        return int(self.state["step"])

    def tell(self, metrics: dict[str, float]) -> None:
        """Gives numbers by name to all hooks."""
        for hook in self.hooks:
            hook.on_metrics(self, metrics)

    def save(self) -> None:
        """Begins to write a checkpoint of this step."""
        self.checkpoints.save(self.step, self.state)

    def train(self) -> None:
        """Updates until train.steps are done. On all ranks."""
        for hook in self.hooks:
            hook.before_train(self)
        try:
            batches: Iterator[Any] = iter(self.rows)
            while self.step < self.config.train.steps:
                self._losses.append(self.graph(*self._laid(next(batches))))
                self.state["step"] += 1
                if self.step % self.config.train.log_every == 0 or self.step == self.config.train.steps:
                    self._report()
                for hook in self.hooks:
                    hook.after_step(self)
            self.checkpoints.wait()
            self.best.wait()
        finally:
            for hook in self.hooks:
                hook.after_train(self)

    def _report(self) -> None:
        """Losses are read here, so that steps before it overlap."""
        losses, self._losses = [float(loss.float().mean().item()) for loss in self._losses], []
        self.tell({"loss": sum(losses) / len(losses), "lr": float(self.optimizer.param_groups[0]["lr"])})

    def _laid(self, batch: Any) -> list[Tensor]:
        """A batch of training as the graph takes it: of several ranks each has its own rows."""
        tensors = list(batch) if isinstance(batch, tuple) else [batch]
        if self.mesh is None:
            return tensors
        if not self._cuts:  # rows as ranks would have them: every dp-th one
            tensors = [t.reshape(-1, self.dp, *t._shape[1:]).transpose(0, 1).reshape(*t._shape) for t in tensors]
        return [t.to_global(self.mesh, {"dp": split(0)}) for t in tensors]

    def evaluate(self) -> dict[str, float]:
        """The metrics of all evaluators over the test data, each row once. On all ranks, which get the same."""
        if self._test_rows is None or not self.evaluators:
            raise ValueError("evaluate: needs config.test and config.evaluators")
        if self._test is None:
            self._test = _Test(self.net, self.evaluators, self.config)
        self.net.eval()
        size = self.config.evaluation.batch or self.config.train.batch
        totals: list[list[float]] = []
        try:
            for batch in self._test_rows.batch(size):
                sums = self._test(*self._filled(batch, size))
                numbers = [[float(s.item()) for s in row] for row in sums]
                totals = numbers if not totals else [[a + b for a, b in zip(x, y)] for x, y in zip(totals, numbers)]
        finally:
            self.net.train()
        found: dict[str, float] = {}
        for evaluator, sums in zip(self.evaluators, totals):
            found.update(evaluator.metrics(sums))
        self.results = found
        return found

    def _filled(self, batch: Any, size: int) -> list[Tensor]:
        """The mask and the batch, with its first row again until it has `size` rows; of several ranks each cuts its own."""
        batch = list(batch) if isinstance(batch, tuple) else [batch]
        n = batch[0]._shape[0]
        rows = as_tensor([*range(n), *[0] * (size - n)])
        tensors = [tensor([1.0] * n + [0.0] * (size - n)), *[t[rows] if n < size else t for t in batch]]
        if self.mesh is None:
            return tensors
        own = size // self.dp
        cut = [t.narrow(0, self._at * own, own).contiguous() for t in tensors] if self._cuts else tensors
        return [t.to_global(self.mesh, {"dp": split(0)}) for t in cut]
