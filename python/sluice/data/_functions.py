"""Functions of samples that pipelines make themselves: padding, tokens, branches."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable

import numpy as np

from sluice.data._mapped import arrays_of, parameters_of


class Padding:
    """The first part of a sample with as much behind it that it is `most` long, and how long it was."""

    def __init__(self, most: int, value: float, cut: bool) -> None:
        self._most, self._value, self._cut = most, value, cut

    def __call__(self, sample: Any) -> Any:
        first, *others = arrays_of(sample)
        if first.ndim == 0:
            raise ValueError("padded_batch: the first part of a sample is a number; must be an array, whose first axis has any length")
        if len(first) > self._most and not self._cut:
            raise ValueError(f"padded_batch: a sample of length {len(first)}; must be at most {self._most}; longer='cut' cuts it off")
        first = first[:self._most]
        whole = np.full((self._most, *first.shape[1:]), self._value, first.dtype)
        whole[:len(first)] = first
        return (whole, np.int64(len(first)), *others)


class Tokens:
    """Texts as numbers of tokens, int64; what else a sample has stays."""

    def __init__(self, tokenizer: Any) -> None:
        if isinstance(tokenizer, (str, os.PathLike)):
            try:
                from tokenizers import Tokenizer
            except ImportError:
                raise ImportError("tokenize: a tokenizer by its file needs the package tokenizers; install it (pip install tokenizers), "
                                  "or give a function of a text") from None
            path = os.fspath(tokenizer)
            if not os.path.exists(path):
                raise FileNotFoundError(f"tokenize: {path}: there is no such file; must be a tokenizer.json")
            tokenizer = Tokenizer.from_file(path)
        if not callable(getattr(tokenizer, "encode", tokenizer)):
            raise TypeError(f"tokenize: {type(tokenizer).__name__}; must be the path of a tokenizer.json, an object with encode(), or a function")
        self._tokenizer = tokenizer

    def __call__(self, sample: Any) -> Any:
        text, *others = sample if isinstance(sample, (tuple, list)) else (sample,)
        if not isinstance(text, str):
            raise TypeError(f"tokenize: the first part of a sample is {type(text).__name__}; must be a text (str)")
        got = getattr(self._tokenizer, "encode", self._tokenizer)(text)
        return (np.asarray(getattr(got, "ids", got), np.int64).reshape(-1), *others)


class Branch:
    """One of several functions of a sample, by number."""

    def __init__(self, choose: Callable[[Any], Any], functions: Any) -> None:
        self._choose, self._functions = choose, [(fn, "rng" in parameters_of(fn)) for fn in functions]
        names = ["sample", *(["rng"] if any(random for _, random in self._functions) else [])]
        self.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def __call__(self, sample: Any, rng: Any = None) -> Any:
        which = int(self._choose(sample))
        if not 0 <= which < len(self._functions):
            raise ValueError(f"branch: function {which} of {len(self._functions)} was chosen; must be in [0, {len(self._functions)})")
        fn, random = self._functions[which]
        return fn(sample, rng=rng) if random else fn(sample)
