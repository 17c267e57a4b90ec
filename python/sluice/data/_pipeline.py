"""Pipelines: samples in an order, in batches, through stages that are ops of a plan."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from typing import Any, Callable, Iterator

import numpy as np

from sluice import _C
from sluice._base.trace import running
from sluice._tensor.functions import get_num_threads
from sluice._tensor.host_function import host_function
from sluice.data._order import Order
from sluice.data._mapped import Mapped
from sluice.data._running import CAUSES, Errors as Errors, Feed, Iterator as Running, Place, Plan
from sluice.data._stages import Batch, Decode, Function, Normalize

_POLICIES = ("raise", "replace", "skip")


class Pipeline:
    """Samples on their way: each method gives another pipeline, with one more stage; iterating gives batches.

    Methods that choose and order samples come before batch(), whatever their order: filter() and skip() and take() choose from all
    samples, in the order of shuffle(), and shard() then shares them among ranks. What comes after batch() is computed on batches,
    by kernels of the plan. Everything random comes from the seed, the epoch and the sample's number, so batches are the same bytes on
    any number of cores and workers, and from any place on.
    """

    def __init__(self, source: Any, seed: int = 0) -> None:
        self._source, self._order = source, Order(source.count, seed)
        self._epochs: int | None = 1
        self._size, self._drop_last = 0, False
        self._stages: list[Any] = []
        self._policy, self._most, self._depth = "raise", None, 2
        self._fresh()

    def _fresh(self) -> None:
        self._plan: Plan | None = None
        self._place = Place()  # behind the last batch that was handed out
        self._begins = True  # the next iteration goes on from there; else with the next pass
        self.errors = Errors()
        self._iterating: Any = lambda: None

    def _left(self, place: Place) -> int | None:
        """Samples to the end of the pass."""
        if self._epochs is None:
            return None
        return max((place.begun + self._epochs - place.epoch) * self._order.length - place.position, 0)

    def _pass_after(self, place: Place) -> Place:
        begun = place.epoch + 1 if self._epochs is None else place.begun + self._epochs
        return Place(begun, begun)

    def _with(self, **changes: Any) -> Pipeline:
        other = copy.copy(self)
        other._stages = list(self._stages)
        for name, value in changes.items():
            setattr(other, name, value)
        other._fresh()
        return other

    def _ordered(self, method: str, **changes: Any) -> Pipeline:
        if self._size:
            raise ValueError(f"{method}: after batch(); samples are chosen and ordered before it")
        return self._with(_order=dataclasses.replace(self._order, **changes))

    def _staged(self, method: str, stage: Any) -> Pipeline:
        if not self._size:
            raise ValueError(f"{method}: before batch(); it is computed on batches, and comes after")
        return self._with(_stages=[*self._stages, stage])

    # Which samples, and in what order.

    def shard(self, rank: int, world: int, uneven: str = "pad") -> Pipeline:
        """Every `world`-th sample, from the `rank`-th on: equally many on all ranks. uneven: "pad" gives some samples twice where they do
        not come out even, "drop" leaves some out."""
        if not 0 <= rank < world:
            raise ValueError(f"shard: rank {rank} of {world}; must be in [0, {world})")
        if uneven not in ("pad", "drop"):
            raise ValueError(f"shard: uneven: {uneven!r}; must be 'pad' or 'drop'")
        return self._ordered("shard", rank=rank, world=world, uneven=uneven)

    def shuffle(self, seed: int | None = None) -> Pipeline:
        """All samples in a random order, another one in each epoch. It takes no memory and no time to begin."""
        return self._ordered("shuffle", shuffled=True, **({} if seed is None else {"seed": seed}))

    def repeat(self, epochs: int | None = None) -> Pipeline:
        """So many epochs in one go, or without end; batches go over the border."""
        if self._size:
            raise ValueError("repeat: after batch(); must come before it")
        if epochs is not None and epochs < 1:
            raise ValueError(f"repeat: {epochs} epochs; must be at least 1")
        return self._with(_epochs=epochs)

    def take(self, n: int) -> Pipeline:
        """The first n samples of each epoch alone."""
        if n < 0:
            raise ValueError(f"take: {n} samples; must not be negative")
        before = self._order.taken
        return self._ordered("take", taken=n if before is None else min(n, before))

    def skip(self, n: int) -> Pipeline:
        """Each epoch without its first n samples."""
        if n < 0:
            raise ValueError(f"skip: {n} samples; must not be negative")
        before = self._order.taken
        return self._ordered("skip", skipped=self._order.skipped + n, taken=None if before is None else max(before - n, 0))

    def filter(self, keep: Callable[[Any], Any]) -> Pipeline:
        """The samples for which keep(sample) is true: of images, keep((content, label)). It is asked once for each, now."""
        chosen = self._order.chosen
        ids = np.arange(self._source.count) if chosen is None else chosen
        left = np.array([i for i in ids.tolist() if keep(self._source.sample(i))], np.int64)
        return self._ordered("filter", chosen=left, count=len(left))

    # Stages of samples and of batches.

    def map(self, fn: Callable[..., Any], *, workers: int = 0) -> Pipeline:
        """fn of each sample before batch(), of whole batches behind it.

        Before: a function of Python, fn(sample) or fn(sample, rng), where rng is NumPy's generator of this sample's own random numbers.
        `workers` processes call it, in any number the same samples in the same order; none: the plan's thread of host functions.
        Behind: a function of tensors, fn(x, y), made of Sluice's ops: kernels of the plan. It returns as many tensors as there are then;
        with a parameter `keys`, int64 (N, 2), it gets what augmentations draw their numbers from.
        """
        if self._size:
            if workers:
                raise ValueError("map: workers behind batch(); functions of Python that need processes come before it")
            return self._staged("map", Function(fn))
        return self._with(_source=Mapped(self._source, fn, workers, self._order.seed))

    def batch(self, size: int, drop_last: bool = False) -> Pipeline:
        """Batches of `size` samples; the last one of a pass may be smaller, or is dropped."""
        if self._size:
            raise ValueError("batch: twice; samples are put into batches once")
        if size < 1:
            raise ValueError(f"batch: size {size}; must be at least 1")
        source = self._source
        if not source.images and not isinstance(source, Mapped) and not hasattr(source, "arrays") and not hasattr(source, "width"):
            source = Mapped(source, None, 0, self._order.seed)
        return self._with(_size=int(size), _drop_last=bool(drop_last), _source=source)

    def decode(self, size: Any, *, crop: Any = None, flip: float = 0.0, mode: str = "RGB", max_pixels: int = 1 << 27,
               max_bytes: int = 1 << 28, max_decoder_bytes: int = 1 << 27) -> Pipeline:
        """Encoded images as uint8 (N, C, height, width): JPEG and PNG; of JPEG files no more is decoded than is shown.

        crop: None, the whole image; random_resized_crop() or central_crop(). flip: the probability that it is flipped left to right.
        max_pixels, max_bytes, max_decoder_bytes: what is more work is broken (on_error): no file takes more memory than memory() says.
        """
        if not self._source.images or self._decodes:
            raise ValueError("decode: of what is no encoded image; must come once, behind images(), tar() or records()")
        return self._staged("decode", Decode(size, crop, flip, mode, {
            "max_pixels": max_pixels, "max_bytes": max_bytes, "max_decoder_bytes": max_decoder_bytes}))

    def normalize(self, mean: Any, std: Any, dtype: Any = None) -> Pipeline:
        """(x / 255 - mean) / std of images of uint8, per channel; (x - mean) / std of floats. Right behind decode(), it costs nothing.

        dtype: float32 or bfloat16; float32 by default."""
        stage = Normalize(mean, std, dtype or _C.float32)
        if self._stages and isinstance(self._stages[-1], Decode):
            return self._with(_stages=[*self._stages[:-1], self._stages[-1].normalized(stage)])
        return self._staged("normalize", stage)

    def on_error(self, policy: str, most: int | None = None) -> Pipeline:
        """What becomes of images that cannot be read or are broken.

        "raise": their batch is an error, which names the file; the next batch comes. "replace": another image of the batch stands there,
        with its label. "skip": the batch is smaller. `errors` counts them by cause, and has their names; more than `most` are an error.
        """
        if policy not in _POLICIES:
            raise ValueError(f"on_error: '{policy}'; must be one of {', '.join(_POLICIES)}")
        return self._with(_policy=policy, _most=most)

    def prefetch(self, steps: int) -> Pipeline:
        """So many batches are in work ahead of the one that is asked for; 2 by default."""
        if steps < 1:
            raise ValueError(f"prefetch: {steps} steps; must be at least 1")
        return self._with(_depth=int(steps))

    # What there is.

    def __len__(self) -> int:
        """Batches of a pass. TypeError where it has no end."""
        if self._epochs is None:
            raise TypeError("data: a pipeline with repeat() has no length; use take(), or count steps")
        return self._batches(self._epochs * self._order.length)

    def _batches(self, samples: int) -> int:
        size = self._size or 1
        return samples // size if self._drop_last else -(-samples // size)

    @property
    def _decodes(self) -> bool:
        return any(isinstance(s, Decode) for s in self._stages)

    @property
    def classes(self) -> Any:
        """The names of the labels, where the source has some."""
        return getattr(self._source, "classes", None)

    def _traced(self, feed: Any) -> tuple[Any, ...]:
        """The stages, in the graph that is traced: values, and how many rows there are, status of each sample, ids."""
        if not self._size:
            raise ValueError("data: a pipeline without batch(); samples come in batches")
        if self._source.images and not self._decodes:
            raise ValueError("data: encoded images; decode() must say in which size they are wanted")
        declared = [*self._source.parts(self._size), ((self._size, 2), _C.int64), ((self._size,), _C.int64)]
        *values, keys, ids = host_function(feed, out=declared)
        batch = Batch(list(values), keys, ids)
        for number, stage in enumerate(self._stages):
            stage.apply(batch, self._policy, number)
        return (*batch.values, *((batch.status, batch.source) if batch.status is not None else ()), ids)

    def __call__(self) -> Any:
        """The values of a batch, inside of a graph's build(): the stages become part of its plan.

        There all batches are whole: use repeat(), or batch(n, drop_last=True). At the end of a pass the graph raises EndOfData, until
        graph.reset() begins the next. After n steps of the pass state_dict(steps=n) is the place.
        """
        if running.now.functions is None:
            raise TypeError("data: a pipeline is called inside of a graph's build(); elsewhere iterate over it")
        if self._epochs is not None and not self._drop_last and self._epochs * self._order.length % max(self._size, 1):
            raise ValueError("data: the last batch is smaller, and plans have fixed sizes; use batch(n, drop_last=True) or repeat()")
        if self._policy == "skip":
            raise ValueError("data: on_error('skip') makes batches smaller, and plans have fixed sizes; use 'replace'")
        values = self._traced(Feed(self, self._place))
        if self._policy == "replace" and self._decodes:
            host_function(self._tallied, values[-3], values[-1], out=((), _C.int64))
        values = values[:-3 if self._decodes else -1]
        return values[0] if len(values) == 1 else tuple(values)

    def _count(self, status: Any, ids: Any) -> None:
        """Takes the bad samples of a batch into account."""
        for row in np.flatnonzero(status > 1).tolist():
            self.errors.add(CAUSES[int(status[row])], self._source.name(int(ids[row])))
        if self._most is not None and self.errors.total > self._most:
            raise ValueError(f"data: {self.errors.total} bad samples, the last {self.errors.names[-1]}; on_error() allows {self._most}")

    def _tallied(self, status: Any, ids: Any) -> Any:
        """The same, as a host function of a plan."""
        self._count(status, ids)
        return np.int64(0)

    def __iter__(self) -> Iterator[Any]:
        """Batches of the next pass: of tensors, or tuples of tensors. A new iterator takes the place of an older one."""
        if not self._begins:
            self._place = self._pass_after(self._place)
        self._begins = False
        if self._plan is None:
            self._plan = Plan(self, self._place)
        older = self._iterating()
        if older is not None:
            older.ended = True
        self._plan.start(self._place)
        iterator = Running(self, self._plan)
        self._iterating = weakref.ref(iterator)
        return iterator

    def memory(self) -> dict[str, int]:
        """Bytes, known before the first batch: `plan`, all slots and workspaces; `decoders`, which libjpeg and libpng may take besides,
        for files that come in several passes; `total`. Worker processes have memory of their own."""
        if self._plan is None:
            self._plan = Plan(self, self._place)
        if not self._plan.graph.is_compiled:
            self._plan.graph.compile()
        held = self._plan.graph.memory()["total"]
        decoders = sum(get_num_threads() * s.limits["max_decoder_bytes"] for s in self._stages if isinstance(s, Decode))
        return {"plan": held, "decoders": decoders, "total": held + decoders}

    # The place.

    def state_dict(self, steps: int | None = None) -> dict[str, Any]:
        """The place behind the last batch that was handed out, in less than a kilobyte, however many are in work.

        steps: behind so many batches of the pass that load_state_dict() or the first epoch began, as whoever counts them has seen
        whose graph has the pipeline in its plan.
        """
        place = self._place if steps is None else self._place.later(steps * self._size, self._order.length)
        return {"version": 1, "fingerprint": self._source.fingerprint, "seed": self._order.seed, "begun": place.begun,
                "epoch": place.epoch, "position": place.position, "world": self._order.world, "errors": dict(self.errors.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there; with another number of ranks, from the same place of all samples together."""
        for name, own in (("fingerprint", self._source.fingerprint), ("seed", self._order.seed)):
            if state.get(name) != own:
                raise ValueError(f"data: the state has {name} {state.get(name)!r}; this pipeline has {own!r}: other samples, or another order")
        place, world = state["position"] * state["world"], self._order.world
        if place % world:
            raise ValueError(f"data: the state is {place} samples into the epoch; {world} ranks cannot share that evenly; save it "
                             f"where the number is a multiple of {world}")
        self._place, self._begins = Place(state["begun"], state["epoch"], place // world), True
        self.errors = Errors()
        self.errors.counts = dict(state["errors"])

    def __repr__(self) -> str:
        o = self._order
        return (f"Pipeline({type(self._source).__name__.lower()} of {self._source.count} samples, {o.length} an epoch, "
                f"batches of {self._size or 'none'}, {len(self._stages)} stages)")
