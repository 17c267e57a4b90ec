"""Configurations: plain dataclasses, or files of YAML for them, with overrides such as train.steps=100."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Dict, List, Optional

from sluice.errors import OSError, ValueError  # noqa: A004

_TARGET, _PARTIAL = "_target_", "_partial_"


@dataclass
class Train:
    """steps: updates. batch: rows of an update, over all ranks and micro-batches. amp: "bfloat16" or "float16". clip: the largest norm
    of all gradients together. log_every: steps between two lines of metrics. resume: from the newest checkpoint in `out`."""

    steps: int = 1000
    batch: int = 32
    micro_batches: int = 1
    seed: int = 0
    amp: Optional[str] = None
    clip: Optional[float] = None
    log_every: int = 10
    resume: bool = True


@dataclass
class Parallel:
    """The mesh, and how the model lies on it, as sluice.parallel.parallelize takes it. dp: 0 is what tp leaves of the ranks."""

    device: str = "cpu"
    dp: int = 0
    tp: int = 1
    plan: Optional[Dict[str, str]] = None
    zero: Optional[int] = None
    checkpoint: List[str] = field(default_factory=list)


@dataclass
class Checkpointing:
    """every: steps, and behind the last one; 0: never. keep: the newest that stay. best: the metric of evaluations that decides which
    one stays besides; "-loss" for one that is to be small."""

    every: int = 0
    keep: Optional[int] = 3
    best: Optional[str] = None


@dataclass
class Evaluation:
    """every: steps, and behind the last one; 0: behind the last one alone. batch: rows at once; by default those of training."""

    every: int = 0
    batch: Optional[int] = None


@dataclass
class Config:
    """What a Trainer trains.

    model: a module. data, test: pipelines of sluice.data whose samples are inputs and, last, targets; the trainer cuts them into
    batches. loss: a function of outputs and targets. optimizer: a function of parameters. schedule: of an optimizer. evaluators, hooks:
    lists. Each is an object, or a dict that says how it is made: {"_target_": "sluice.optim.Adam", "lr": 0.01}. Such a dict is code, as
    what it names is called; read no file that you would not run.
    """

    model: Any = None
    data: Any = None
    loss: Any = None
    optimizer: Any = None
    schedule: Any = None
    test: Any = None
    evaluators: List[Any] = field(default_factory=list)
    hooks: List[Any] = field(default_factory=list)
    train: Train = field(default_factory=Train)
    parallel: Parallel = field(default_factory=Parallel)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    evaluation: Evaluation = field(default_factory=Evaluation)
    out: str = "out/run"

    def check(self, world: int) -> tuple[int, int]:
        """(dp, tp) on so many ranks. Raises ValueError for what cannot be."""
        for name in ("model", "data", "loss", "optimizer"):
            if getattr(self, name) is None:
                raise ValueError(f"config: {name} is not given")
        for where, value, least in (("train.steps", self.train.steps, 0), ("train.batch", self.train.batch, 1),
                                    ("train.micro_batches", self.train.micro_batches, 1), ("train.log_every", self.train.log_every, 1),
                                    ("parallel.dp", self.parallel.dp, 0), ("parallel.tp", self.parallel.tp, 1),
                                    ("checkpoint.every", self.checkpoint.every, 0), ("evaluation.every", self.evaluation.every, 0)):
            if value < least:
                raise ValueError(f"config: {where} is {value}; must be at least {least}")
        if self.train.amp not in (None, "bfloat16", "float16"):
            raise ValueError(f"config: train.amp is {self.train.amp!r}; must be 'bfloat16', 'float16' or nothing")
        if self.checkpoint.best is not None and (self.test is None or not self.evaluators):
            raise ValueError(f"config: checkpoint.best is {self.checkpoint.best!r}; needs test and evaluators, which compute it")
        tp = self.parallel.tp
        dp = self.parallel.dp or max(1, world // tp)
        if world > 1 and dp * tp != world:
            raise ValueError(f"config: parallel.dp={self.parallel.dp or dp} x parallel.tp={tp} is {dp * tp}; the job has {world} ranks, and the "
                             "sizes must multiply to that")
        for where, rows, parts in (("train.batch", self.train.batch, dp * self.train.micro_batches),
                                   ("evaluation.batch", self.evaluation.batch or self.train.batch, dp)):
            if rows % parts:
                raise ValueError(f"config: {where} is {rows}; must be a multiple of {parts}: parallel.dp={dp}"
                                 + (f" x train.micro_batches={parts // dp}" if parts != dp else ""))
        return dp, tp


def call(target: Any) -> Any:
    """call(nn.Linear)(3, ...) as a dict that made() calls; LazyCall of LiBai and detectron2. Arguments are given by name."""
    name = target if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
    return lambda **arguments: {_TARGET: name, **arguments}


def _named(where: str, name: Any) -> Any:
    if not isinstance(name, str) or "." not in name:
        raise ValueError(f"config: {where}.{_TARGET} is {name!r}; must be a module and a name in it, like 'sluice.optim.Adam'")
    *path, last = name.split(".")
    for cut in range(len(path), 0, -1):
        try:
            found = importlib.import_module(".".join(path[:cut]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in (*path[cut:], last):
            if not hasattr(found, part):
                raise ValueError(f"config: {where}.{_TARGET} is {name!r}; {getattr(found, '__name__', found)} has no {part!r}")
            found = getattr(found, part)
        return found
    raise ValueError(f"config: {where}.{_TARGET} is {name!r}; there is no module {path[0]!r}")


def made(where: str, node: Any, *given: Any) -> Any:
    """The object that a dict with _target_ says, made of `given` and its arguments, which are made before it; anything else as it is.
    With _partial_, a function that takes what is missing. `where` is the place in the configuration, for errors."""
    if isinstance(node, (list, tuple)):
        return [made(f"{where}[{i}]", item) for i, item in enumerate(node)]
    if not isinstance(node, dict) or _TARGET not in node:
        if given and callable(node):
            return node(*given)
        return {key: made(f"{where}.{key}", value) for key, value in node.items()} if isinstance(node, dict) else node
    target = _named(where, node[_TARGET])
    arguments = {key: made(f"{where}.{key}", value) for key, value in node.items() if key not in (_TARGET, _PARTIAL)}
    if node.get(_PARTIAL):
        import functools

        return functools.partial(target, *given, **arguments)
    try:
        return target(*given, **arguments)
    except TypeError as error:
        raise ValueError(f"config: {where}: {node[_TARGET]}: {error}") from error


def _library() -> Any:
    try:
        import omegaconf
    except ImportError as error:
        raise ImportError("sluice.trainer: files of configurations and overrides need the package omegaconf: pip install omegaconf; "
                          "Config and its parts are plain dataclasses without it") from error
    return omegaconf


def load(path: Any = None, overrides: Any = (), base: Config | None = None) -> Config:
    """The configuration in a file of YAML, which is read safely, or `base`, with overrides such as "train.steps=100". ${a.b} stands for
    another entry. Unknown keys, and values of another type, are a ValueError by name."""
    library = _library()
    where = "config" if path is None else f"config: {os.fspath(path)}"
    made_of = library.OmegaConf.structured(base or Config(), flags={"allow_objects": True})
    try:
        read = library.OmegaConf.load(path) if path is not None else library.OmegaConf.create({})
        if not isinstance(read, library.DictConfig):
            raise ValueError(f"{where}: is a list; must be keys and values")
        for key in overrides:
            if "=" not in key:
                raise ValueError(f"config: override {key!r}; must be like train.steps=100")
        merged = library.OmegaConf.merge(made_of, read, library.OmegaConf.from_dotlist(list(overrides)))
        return library.OmegaConf.to_object(merged)
    except FileNotFoundError:
        raise OSError(f"{where}: no such file") from None
    except library.errors.OmegaConfBaseException as error:
        raise ValueError(f"{where}: {_explained(error)}") from None
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise ValueError(f"{where}: is no YAML: {' '.join(str(error).split())}") from None
        raise


def _explained(error: Any) -> str:
    """The key that is wrong, and what could stand there."""
    key, there = error.full_key or error.key, error.parent_node
    known = ""
    if type(error).__name__ in ("ConfigKeyError", "ConfigAttributeError") and there is not None:
        kind = there._metadata.object_type
        known = f"; there are {', '.join(f.name for f in fields(kind))}" if is_dataclass(kind) else ""
        return f"unknown key {key!r}{known}"
    return f"{key!r}: {str(error.msg or error).splitlines()[0]}"


def save(config: Config, path: Any) -> None:
    """Writes it as YAML."""
    library = _library()
    text = library.OmegaConf.to_yaml(library.OmegaConf.structured(config, flags={"allow_objects": True}))
    beside = f"{os.fspath(path)}.new"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)
