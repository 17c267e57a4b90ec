"""Pipelines: samples in an order, in batches, through stages that are ops of a plan."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
from typing import Any, Callable, Iterator

import numpy as np

from sluice import _C
from sluice._base.trace import running
from sluice._tensor.host_function import host_function
from sluice.data import _transforms
from sluice.data._combined import Selected, Windowed
from sluice.data._cached import Cached
from sluice.data._functions import Branch, Padding, Tokens
from sluice.data._order import Buckets, Chosen, Order, TorchOrder
from sluice.data._mapped import Mapped
from sluice.data._running import Errors as Errors, Feed, Iterator as Running, Place, Plan, bad_images
from sluice.data._stages import Batch, Branches, Decode, Function, Normalize
from sluice.data._tuned import Measured

_POLICIES = ("raise", "replace", "skip")


class Pipeline(Measured):
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
        self._ragged = 0  # of padded_batch(): the most rows
        self._tuning: Any = None  # of autotune()
        self._pending: list[Any] = []  # what torchvision's transforms do behind batch()
        self._fresh()

    def _fresh(self) -> None:
        self._plan: Plan | None = None
        self._place = Place()  # behind the last batch that was handed out
        self._begins = True  # the next iteration goes on from there; else with the next pass
        self.errors = Errors()
        self._iterating: Any = lambda: None
        self._meter = self._longest = 0
        self._tuning = None if self._tuning is None else self._tuning.anew()

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

    def shuffle(self, seed: int | None = None, *, order: str = "sluice") -> Pipeline:
        """All samples in a random order, another one in each epoch. It takes no memory and no time to begin.

        order: "torch" draws torch's order: that of DataLoader(shuffle=True, generator=g) after g.manual_seed(seed), and with shard() that of
        DistributedSampler(seed=seed). It takes 8 bytes a sample, and the epochs before are drawn to reach one.
        """
        if order not in ("sluice", "torch"):
            raise ValueError(f"shuffle: order: {order!r}; must be 'sluice' or 'torch'")
        seed = self._order.seed if seed is None else int(seed)
        return self._ordered("shuffle", shuffled=True, seed=seed, torchs=TorchOrder(seed) if order == "torch" else None)

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
        inner = self._order.inner
        if inner is not None and not inner.fixed:
            raise ValueError("filter: behind interleave() of shuffled pipelines; filter these, or shuffle what interleave() gives")
        ids = np.arange(self._order.count) if inner is None else inner.ids(0, np.arange(self._order.count))
        left = np.array([i for i in ids.tolist() if keep(self._source.sample(i))], np.int64)
        return self._ordered("filter", inner=Chosen(left), count=len(left))

    def bucket(self, length: Any = None, pool: int = 64) -> Pipeline:
        """Batches of samples of like length: the samples of each `pool` batches are sorted by length, then put into batches, and these come
        in any order if there is a shuffle(). Any place is still reached at once.

        length: length(sample), which is asked once for each, now; or an array of a number for each; of lines() it may be left out.
        """
        if pool < 1:
            raise ValueError(f"bucket: pool: {pool} batches; must be at least 1")
        count, found = self._source.count, getattr(self._source, "lengths", None) if length is None else length
        if found is None:
            raise ValueError("bucket: the samples have no length that is known; length= must be a function of a sample, or an array")
        lengths = np.array([found(self._source.sample(i)) for i in range(count)]) if callable(found) else np.asarray(found)
        if lengths.shape != (count,):
            raise ValueError(f"bucket: lengths of shape {lengths.shape}; must be one for each of {count} samples")
        return self._ordered("bucket", buckets=Buckets(lengths, int(pool)))

    def window(self, size: int, shift: int | None = None, stride: int = 1) -> Pipeline:
        """`size` neighbours as one sample, which has one axis more: those `stride` apart, every `shift` samples (default: size). What is
        left over at the end is left out. It comes before shuffle(), shard() and repeat(), which then are of windows."""
        shift = size if shift is None else shift
        if min(size, shift, stride) < 1:
            raise ValueError(f"window: size {size}, shift {shift}, stride {stride}; must be at least 1")
        windowed = Windowed(self.as_part("window"), int(size), int(shift), int(stride))
        return self._with(_source=windowed, _order=Order(windowed.count, self._order.seed))

    def _interleaved(self, inner: Any) -> Pipeline:
        return self._ordered("interleave", inner=inner, count=inner.count)

    def as_part(self, where: str, moving: bool = False) -> Any:
        """The source, as a part of another one, with what skip(), take() and filter() have left of it in its order. With `moving`,
        whoever asks sees to the order, which may be another in each epoch."""
        order = self._order
        if self._size or self._pending or self._epochs != 1 or order.world > 1 or order.buckets is not None:
            raise ValueError(f"{where}: behind batch(), repeat(), shard(), bucket() or torchvision's transforms; must come before them")
        if moving:
            return self._source
        if not order.fixed:
            raise ValueError(f"{where}: behind shuffle(); must come before it")
        if order.inner is None and order.length == self._source.count:
            return self._source
        return Selected(self._source, order.ids(0, np.arange(order.length)))

    # Stages of samples and of batches.

    def map(self, fn: Callable[..., Any], *, workers: int = 0, out: Any = None, timeout: float = 0) -> Pipeline:
        """fn of each sample before batch(), of whole batches behind it.

        Before: a function of Python, fn(sample) or fn(sample, rng), where rng is NumPy's generator of this sample's own random numbers.
        `workers` processes call it, in any number the same samples in the same order; none: the plan's thread of host functions.
        out: (shape, dtype) of what fn gives, or a list of them; else the first sample is asked, now. timeout: seconds in which no worker
        gives a batch, after which one is lost; 0: no limit. A lost worker is started again once for a sample, then on_error() says.
        Behind: a function of tensors, fn(x, y), made of Sluice's ops: kernels of the plan. It returns as many tensors as there are then;
        with a parameter `keys`, int64 (N, 2), it gets what augmentations draw their numbers from.

        torchvision's transforms (a Compose, or one of them), before batch(): those that have kernels become stages behind it, decoding among
        them; the others, and those before the last of these, are called by workers, as functions of Python are.
        """
        if _transforms.known(fn):
            return self._transformed("map", fn, workers, timeout)
        if self._pending:
            raise ValueError("map: behind torchvision's transforms, of which some are computed behind batch(); make it part of their Compose")
        if self._size:
            if workers or out is not None or timeout:
                raise ValueError("map: workers behind batch(), or out= or timeout=; functions of Python that need them come before it")
            return self._staged("map", Function(fn))
        return self._with(_source=Mapped(self._source, fn, workers, out, timeout))

    def _transformed(self, method: str, transform: Any, workers: int = 0, timeout: float = 0) -> Pipeline:
        """With torchvision's transforms, in kernels as far as there are some."""
        source, encoded = self._source, self._source.images and not self._decodes
        python, options, rest = _transforms.split(transform, encoded, not source.direct or source.images)
        if self._size:
            if python or (encoded and options is None):
                raise ValueError(f"{method}: {_transforms.told(python) or 'transforms'} of torchvision on batches: no kernels do them; map() before "
                                 "batch() takes them, and calls them for each sample")
            return self._staged_all(options, rest)
        if self._pending:
            raise ValueError("map: torchvision's transforms twice; must be one Compose")
        if options is None and (python or not source.direct or encoded):
            source = Mapped(source, _transforms.InPython(python, encoded), workers, None, timeout)
        return self._with(_source=source, _pending=[(options, rest)])

    def _staged_all(self, options: Any, rest: Any) -> Pipeline:
        pipeline = self if options is None else self.decode(**options)
        for stage in rest:
            pipeline = stage(pipeline)
        return pipeline

    def branch(self, choose: Callable[..., Any], *functions: Callable[..., Any]) -> Pipeline:
        """The function with the number that choose() gives: before batch() choose(sample), an int or a bool, says which one is called; behind
        it choose(x, y), a tensor with a number for each row, says from which of them, that all are computed, the row is taken."""
        if not functions:
            raise ValueError("branch: no functions; must have one at least")
        if self._size:
            return self._staged("branch", Branches(choose, functions))
        return self.map(Branch(choose, functions))

    def tokenize(self, tokenizer: Any, *, workers: int = 0) -> Pipeline:
        """Texts as numbers of tokens, int64 of any length; padded_batch() puts them into batches.

        tokenizer: the path of a tokenizer.json, an object with encode() (of the package tokenizers, or transformers), or a function."""
        return self.map(Tokens(tokenizer), workers=workers)

    def cache(self, folder: Any = None) -> Pipeline:
        """Makes each sample once: what map() gave before stays in memory, or in a folder, which later processes use too.

        A folder is refused by pipelines of other samples or shapes. That a function has changed it does not know: name another then."""
        if self._source.images or self._size:
            raise ValueError("cache: of encoded images, or behind batch(); must come behind map(), before batch()")
        source = self._source if isinstance(self._source, Mapped) else Mapped(self._source)
        return self._with(_source=Cached(source, folder))

    def batch(self, size: int, drop_last: bool = False) -> Pipeline:
        """Batches of `size` samples; the last one of a pass may be smaller, or is dropped."""
        if self._size:
            raise ValueError("batch: twice; samples are put into batches once")
        if size < 1:
            raise ValueError(f"batch: size {size}; must be at least 1")
        source, order = self._source, self._order
        if not source.direct and not isinstance(source, (Mapped, Cached)):
            source = Mapped(source)
        if order.buckets is not None:
            order = dataclasses.replace(order, buckets=dataclasses.replace(order.buckets, size=int(size)))
        pipeline = self._with(_size=int(size), _drop_last=bool(drop_last), _source=source, _order=order, _pending=[])
        return pipeline._staged_all(*self._pending[0]) if self._pending else pipeline

    def padded_batch(self, size: int, most: int, value: float = 0, *, longer: str = "raise", drop_last: bool = False) -> Pipeline:
        """batch() of samples whose first part has any length, up to `most`: (N, length, ...), as long as the longest of the batch, with
        `value` behind the shorter ones, then the lengths, int64 (N,), then what else samples have.

        longer: "raise", a longer sample is bad; "cut", it is cut off. Inside of a graph's plan all batches are `most` long.
        """
        if self._size or self._source.images:
            raise ValueError("padded_batch: behind batch(), or of encoded images; must come once, of arrays")
        if most < 1 or longer not in ("raise", "cut"):
            raise ValueError(f"padded_batch: most {most}, longer {longer!r}; must be at least 1, and 'raise' or 'cut'")
        return self.map(Padding(int(most), value, longer == "cut"))._with(_ragged=int(most)).batch(size, drop_last)

    def decode(self, size: Any, *, crop: Any = None, flip: float = 0.0, mode: str = "RGB", max_pixels: int = 1 << 27,
               max_bytes: int = 1 << 28, max_decoder_bytes: int = 1 << 27) -> Pipeline:
        """Encoded images as uint8 (N, C, height, width): JPEG, PNG, WebP; of JPEG files no more is decoded than is shown.

        crop: None, the whole image; random_resized_crop() or central_crop(). flip: the probability that it is flipped left to right.
        size: or torchvision's transforms, if all of them have kernels, as of map().
        max_pixels, max_bytes, max_decoder_bytes: what is more work is broken (on_error): no file takes more memory than memory() says.
        """
        if not self._source.images or self._decodes:
            raise ValueError("decode: of what is no encoded image; must come once, behind images(), tar() or records()")
        if _transforms.known(size):
            return self._transformed("decode", size)
        if self._source.boxes and (crop is not None or flip):
            raise ValueError("decode: crop or flip of images with boxes, which would be somewhere else then; must be the whole image")
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
        """What becomes of samples that cannot be made: images that cannot be read or are broken, functions of map() that raise, and those
        that have cost two workers.

        "raise": their batch is an error, which names the sample; the next batch comes. "replace": another sample of the batch stands there,
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

    def _check_batches(self) -> None:
        if not self._size:
            raise ValueError("data: a pipeline without batch(); samples come in batches")
        if self._source.images and not self._decodes:
            raise ValueError("data: encoded images; decode() must say in which size they are wanted")

    def _traced(self, feed: Any, meter: int = 0, whole: bool = False) -> tuple[Any, ...]:
        """The stages, in the graph that is traced: values, and how many rows there are, status of each sample, ids. whole: no batch is smaller."""
        self._check_batches()
        declared = [*self._source.parts(self._size), ((self._size, 2), _C.int64), ((self._size,), _C.int64)]
        *values, keys, ids = host_function(feed, out=declared)
        whole = whole or ((self._drop_last or self._epochs is None) and self._policy != "skip")
        batch = Batch(list(values), keys, ids, meter=meter, whole=whole)
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
        moves = running.now.moves
        with contextlib.nullcontext() if moves is None else moves.kernels_of(self._name_in(moves), self):
            values = self._traced(Feed(self, self._place, counts=True), whole=True)
        if self._policy == "replace" and self._decodes:
            host_function(self._tallied, values[-3], values[-1], out=((), _C.int64))
        values = values[:-3 if self._decodes else -1]
        return values[0] if len(values) == 1 else tuple(values)

    @staticmethod
    def _name_in(moves: Any) -> str:
        """The name of the source of the next pipeline that is traced."""
        return f"input_{len(moves.pipelines)}" if moves.pipelines else "input"

    def as_graph(self, name: str = "input") -> Any:
        """An nn.Graph without inputs, whose n-th call gives the n-th batch from the place of the pipeline on, or of the next pass if it is
        at the end: its values, and the ids of its samples, int64 (N,), -1 for those behind the end. All batches are of one size.

        Which samples come, and in what order, is part of the plan, and so is its place; so a saved graph goes on where it stood, in sluice-run,
        C++ and C, without Python: `sluice.save(pipeline, folder)` saves this graph. Files are found by the names that the pipeline was given.
        Samples must lie in files or arrays; functions come behind batch(). What on_error() replaces is not counted.
        """
        from sluice.data._saved import graph_of

        self._check_batches()
        left = self._left(self._place)
        goes_on = left is None or self._batches(left) > 0
        return graph_of(self, self._place if goes_on else self._pass_after(self._place), name)

    def _count(self, bad: list[tuple[int, str]]) -> None:
        """Takes bad samples into account: their numbers, and causes."""
        for i, cause in bad:
            self.errors.add(cause, self._source.name(i))
        if bad and self._most is not None and self.errors.total > self._most:
            raise ValueError(f"data: {self.errors.total} bad samples, the last {self.errors.names[-1]}; on_error() allows {self._most}")

    def _tallied(self, status: Any, ids: Any) -> Any:
        """The same of images, as a host function of a plan."""
        self._count(bad_images(status, ids))
        return np.int64(0)

    def __iter__(self) -> Iterator[Any]:
        """Batches of the next pass: of tensors, or tuples of tensors. A new iterator takes the place of an older one."""
        if not self._begins:
            self._place = self._pass_after(self._place)
            self._retuned()
        self._begins = False
        if self._plan is None:
            self._plan = Plan(self, self._place)
        if self._tuning is not None:
            self._tuning.check(self, self._plan)
        older = self._iterating()
        if older is not None:
            older.ended = True
        self._plan.start(self._place)
        iterator = Running(self, self._plan)
        self._iterating = weakref.ref(iterator)
        return iterator

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
