"""Ranks that Ray starts, as actors of its cluster. Ray itself is not installed with Sluice."""

from __future__ import annotations

import importlib
import os
import secrets
import socket
from typing import Any, Callable

from sluice.errors import RuntimeError, ValueError  # noqa: A004

__all__ = ["RayTrainer"]


class _Rank:
    """An actor: one rank."""

    def place(self) -> tuple[str, str, int]:
        """The node that it runs on, that node's address, and a port that is free there."""
        ray = importlib.import_module("ray")
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), port

    def run(self, function: Callable[..., Any], given: tuple[Any, ...], environment: dict[str, str], init: dict[str, Any]) -> Any:
        from sluice import distributed
        from sluice._base.job import state

        os.environ.update(environment)
        distributed.init(**init)
        try:
            result = function(*given)
        except BaseException as error:
            state.leave(f"{type(error).__name__}: {error}")  # the others hear why
            raise
        distributed.destroy()
        return result


class RayTrainer:
    """Runs a function on `num_workers` ranks, each an actor of Ray's, which meet as those of a launcher do: ray.train's TorchTrainer.

        def train(config):
            net = sluice.nn.parallel.DistributedDataParallel(...)    # sluice.distributed is initialised
            ...
            return loss

        losses = RayTrainer(train, train_loop_config={"lr": 0.1}, num_workers=4).fit()

    train_loop_per_worker: a function of the configuration, or of nothing where there is none.
    resources_per_worker: what Ray reserves for each, such as {"CPU": 2}; by default one CPU.
    init: arguments of sluice.distributed.init, such as timeout.
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: Any = None, num_workers: int = 1,
                 resources_per_worker: dict[str, float] | None = None, init: dict[str, Any] | None = None) -> None:
        if not callable(train_loop_per_worker):
            raise ValueError(f"RayTrainer: got {train_loop_per_worker!r}; must be a function")
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise ValueError(f"RayTrainer: num_workers: got {num_workers!r}; must be an int of at least 1")
        self._function, self._given = train_loop_per_worker, () if train_loop_config is None else (train_loop_config,)
        self._size, self._resources, self._init = num_workers, dict(resources_per_worker or {"CPU": 1}), dict(init or {})

    def fit(self) -> list[Any]:
        """The results of the function, by rank. If a rank fails, the others hear of it, all end, and RuntimeError has the rank and
        the reason."""
        try:
            ray = importlib.import_module("ray")
        except ImportError:
            raise RuntimeError("RayTrainer: Ray is not installed; `pip install ray`, or start the ranks by `python -m "
                               "sluice.distributed.launch`") from None
        if not ray.is_initialized():
            ray.init()
        others = {name: n for name, n in self._resources.items() if name not in ("CPU", "GPU")}
        actor = ray.remote(_Rank).options(num_cpus=self._resources.get("CPU", 0), num_gpus=self._resources.get("GPU", 0), resources=others)
        ranks = [actor.remote() for _ in range(self._size)]
        try:
            places = ray.get([rank.place.remote() for rank in ranks])
            environments = _environments(places)
            runs = [rank.run.remote(self._function, self._given, env, self._init) for rank, env in zip(ranks, environments)]
            return self._results(ray, runs)
        finally:
            for rank in ranks:
                ray.kill(rank)

    def _results(self, ray: Any, runs: list[Any]) -> list[Any]:
        left = list(runs)
        while left:  # whoever fails first says why; what the others say follows from that
            ended, left = ray.wait(left, num_returns=1)
            for one in ended:
                try:
                    ray.get(one)
                except Exception as error:
                    reason = getattr(error, "cause", None) or error
                    raise RuntimeError(f"RayTrainer: rank {runs.index(one)} failed: {type(reason).__name__}: {reason}") from error
        return list(ray.get(runs))


def _environments(places: list[tuple[str, str, int]]) -> list[dict[str, str]]:
    """The variables that a launcher gives to each rank."""
    nodes = [node for node, _, _ in places]
    same = {"WORLD_SIZE": str(len(places)), "MASTER_ADDR": places[0][1], "MASTER_PORT": str(places[0][2]), "SLUICE_LAUNCHER": "Ray",
            "SLUICE_TOKEN": secrets.token_hex(16)}
    return [{**same, "RANK": str(rank), "LOCAL_RANK": str(nodes[:rank].count(node)), "LOCAL_WORLD_SIZE": str(nodes.count(node))}
            for rank, node in enumerate(nodes)]
