"""transformers' model types, each from its own config made small: two layers, few heads, small images."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import warnings
from typing import Any, Iterator, Sequence

import numpy as np
import torch

import sluice as sl
from ecosystem.beside import modules, on_path
from ecosystem.compare import STEPS, Excluded, Slow, at_most, check, on, state_of, text_of
from ecosystem.transformers_configs import Change, changed, small, smaller
from ecosystem.transformers_inputs import LENGTH, inputs

TYPES = 622  # of the pinned version
LARGEST = 60_000_000  # parameters


@functools.cache
def both() -> tuple[Any, Any]:
    modules("transformers.modeling_utils")  # which uses torch, so that there are two
    return modules("transformers")


@contextlib.contextmanager
def side(lib: Any) -> Iterator[None]:
    """Here its modules are those that are imported: it imports them when they are used."""
    with sl.mock_torch(lazy=True) if lib is both()[0] else contextlib.nullcontext(), on_path():
        yield


@functools.cache
def _names() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """By model type: the config, the model, and the model that goes on with text."""
    with on_path():
        auto = both()[1].models.auto
    return auto.configuration_auto.CONFIG_MAPPING_NAMES, auto.modeling_auto.MODEL_MAPPING_NAMES, auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


class Cases:
    """The model types, which are read when they are first asked for: that takes a while."""

    def __init__(self, only_texts: bool = False) -> None:
        self._only_texts = only_texts

    def __iter__(self) -> Iterator[str]:
        _, models, texts = _names()
        return iter(sorted(texts if self._only_texts else models))


def _class(lib: Any, kind: str, config: Any) -> Any:
    """The class that goes on with text, where there is one and the config is of texts alone; otherwise the model."""
    _, models, texts = _names()
    name = models[kind] if kind in models and hasattr(config, "text_config") else texts.get(kind, models.get(kind))
    return getattr(lib, name if isinstance(name, str) else name[0])


@dataclasses.dataclass
class Size:
    """How a config is made small."""

    level: int
    changes: list[Change]

    def model(self, lib: Any, kind: str) -> Any:
        with side(lib), contextlib.redirect_stderr(io.StringIO()):
            config = changed(small(getattr(lib, _names()[0][kind])(), self.level), self.changes)
            return _class(lib, kind, config)(config)


def _sized(kind: str, level: int) -> Size:
    """A size of that level with few parameters. Excluded where there is none."""
    size = Size(level, [])
    for _ in range(16):
        with torch.device("meta"):
            model = size.model(both()[1], kind)
        parameters = list(model.parameters())
        count = sum(p.numel() for p in parameters)
        more = smaller(model.config, parameters) if count > LARGEST else []
        if not more:
            break
        size.changes += more
    if count > LARGEST:
        raise Excluded(f"{count / 1e6:.0f} million parameters")
    return size


def _drawn(model: Any) -> Any:
    """Weights that all matter: a new model's are small, and some are zero."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(std=p[0].numel() ** -0.5)
            else:
                p.add_(torch.randn_like(p) * 0.1)
    return model


def chosen(kind: str) -> tuple[Size, dict[str, Any]]:
    """The size and the inputs with which torch's model computes; Excluded where there are none."""
    why = ""
    for level in (0, 1, 2):
        try:
            size = _sized(kind, level)
            model = _drawn(size.model(both()[1], kind)).eval()
        except Slow:
            raise
        except Exception as error:  # of any kind: it is what is told
            why = why or (str(error) if isinstance(error, Excluded) else text_of(error))
            continue
        for given in inputs(model):
            try:
                with torch.no_grad():
                    one, other = (model(**on(torch, given)) for _ in range(2))
            except Slow:
                raise
            except Exception as error:
                why = why or f"{text_of(error)} with {', '.join(given)}"
                continue
            if str(one) != str(other):
                raise Excluded("results are random")
            return size, given
    raise Excluded(f"torch's does not compute when it is small: {why}"[:240])


def run(kind: str, seconds: int = 240, steps: Sequence[str] = STEPS) -> dict[str, str]:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    with at_most(seconds):
        size, given = chosen(kind)
    ours, theirs = both()
    return check(lambda: size.model(ours, kind), lambda: _drawn(size.model(theirs, kind)), (), given, seconds=seconds,
                 around=lambda: side(ours), steps=steps)


WAYS = {"greedy": {"do_sample": False}, "sampled": {"do_sample": True, "top_k": 1}, "beams": {"do_sample": False, "num_beams": 3},
        "without a cache": {"do_sample": False, "use_cache": False}}


def generate(kind: str, seconds: int = 240) -> dict[str, str]:
    """Texts that the model goes on with, in several ways, each step with the keys and values of those before."""
    torch.manual_seed(0)
    ours, theirs = both()
    size, _ = chosen(kind)
    there = _drawn(size.model(theirs, kind)).eval()
    here = size.model(ours, kind).eval()
    here.load_state_dict(state_of(there))
    ids, found = np.random.default_rng(3).integers(5, 90, size=(1, LENGTH)), {}
    for way, options in WAYS.items():
        options = {"max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0, **options}
        try:
            with side(theirs):
                expected = there.generate(torch.from_numpy(ids), **options).numpy()
        except Exception as error:
            raise Excluded(f"torch's does not generate: {text_of(error)}"[:200]) from error
        try:
            with at_most(seconds), side(ours):
                got = here.generate(sl.tensor(ids), **options).numpy()
            found[way] = "" if np.array_equal(got, expected) else f"{got.tolist()}; torch's is {expected.tolist()}"
        except Exception as error:  # of any kind: it is what is told
            found[way] = text_of(error)
    return found
