"""Calls everything that Sluice exports with arguments nobody would pass. Run as a program: hostile_calls.py SEED CALLS JOURNAL

Each call is written to the journal before it is made, so that whoever started this process knows which one killed it.
Prints a line `wrong: ...` for each call that ended in something undocumented.
"""

import pathlib
import random
import resource
import sys
import warnings

import numpy as np

import sluice as sl

MEMORY = 6 << 30  # of address space: absurd sizes end in MemoryError, not in an out-of-memory kill
DOCUMENTED = (TypeError, ValueError, IndexError, RuntimeError, NotImplementedError, MemoryError, TimeoutError, OSError)
# Python itself raises these before Sluice is asked, and the hostile objects raise others.
PYTHONS_OWN = (AttributeError, OverflowError, KeyError, ZeroDivisionError, RecursionError, AssertionError, BufferError)
# Not functions of their arguments: they end the process, write files, or change what later calls do.
LEFT_OUT = {"save", "load_graph", "set_num_threads", "set_default_dtype", "set_grad_enabled", "annotations",
            "register_quota", "stream", "from_dlpack", "frombuffer"}


class Boom(Exception):
    pass


class RaisesIndex:
    def __index__(self):
        raise Boom("index")

    __int__ = __float__ = __index__


class RaisesLen(list):
    def __len__(self):
        raise Boom("len")


class RaisesArray:
    def __array__(self, *args, **kwargs):
        raise Boom("array")


class RaisesGetItem:
    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise Boom("item")


class LyingLen(list):
    def __len__(self):
        return 1 << 40


class Text(str):
    pass


class Whole(int):
    pass


class ChangingIndex:
    calls = 0

    def __index__(self):
        self.calls += 1
        return (self.calls - 1) * 1_000_000_007


def recursive():
    loop = []
    loop.append(loop)
    return loop


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def arguments(draw):
    """One hostile or ordinary argument."""
    tensors = [
        lambda: sl.zeros(()), lambda: sl.zeros((0,)), lambda: sl.zeros((0, 3)), lambda: sl.ones((2, 3)),
        lambda: sl.ones((2, 3)).t(), lambda: sl.arange(6).reshape(2, 3), lambda: sl.ones((4, 4), dtype=sl.bool),
        lambda: sl.full((2, 3, 4), float("nan")), lambda: sl.tensor([1, -1, 1 << 62]), lambda: sl.ones((1, 2, 5, 5)),
        lambda: sl.ones((3,), dtype=sl.float16), lambda: sl.ones((2, 3), requires_grad=True),
        lambda: sl.ones((1, 1, 1, 1, 1, 1, 1, 1)), lambda: sl.ones((2, 3), device="sim:0"),
        lambda: sl.ones((3,)).expand(4, 3), lambda: sl.zeros((5,), dtype=sl.uint8),
    ]
    others = [
        lambda: None, lambda: True, lambda: 0, lambda: 1, lambda: -1, lambda: 2, lambda: 1 << 31, lambda: 1 << 63,
        lambda: -(1 << 63), lambda: (1 << 63) - 1, lambda: 1 << 64, lambda: 1 << 200, lambda: 10 ** 400, lambda: -5,
        lambda: float("nan"), lambda: float("inf"), lambda: -0.0, lambda: 1e308, lambda: 0.5, lambda: 1j,
        lambda: "", lambda: "cpu", lambda: "cuda:0", lambda: "sim:999999999999", lambda: "\ud800", lambda: "a\0b",
        lambda: Text("cpu"), lambda: "x" * 100_000, lambda: b"bytes", lambda: bytearray(3), lambda: memoryview(b"abc"),
        lambda: [], lambda: (), lambda: {}, lambda: set(), lambda: [1, 2], lambda: (2, 3), lambda: (0, 0), lambda: (-1,),
        lambda: (2, -1), lambda: [1 << 62, 4], lambda: (1 << 40, 1 << 40), lambda: (0, 1 << 62, 1 << 62), lambda: [[1, 2], [3]],
        lambda: [1.5, "x"], lambda: (1,) * 9, lambda: (1,) * 1000, lambda: [None], lambda: [sl.ones(2), sl.ones(3)],
        lambda: [sl.ones((2, 3)), sl.ones((2, 3))], lambda: recursive(), lambda: nested(20), lambda: nested(900),
        lambda: RaisesIndex(), lambda: RaisesLen([1, 2]), lambda: RaisesArray(), lambda: RaisesGetItem(), lambda: LyingLen([1]),
        lambda: Whole(2), lambda: ChangingIndex(), lambda: object(), lambda: type, lambda: print, lambda: sl, lambda: ...,
        lambda: slice(None), lambda: slice(1 << 70, -(1 << 70), 0), lambda: range(5), lambda: (i for i in range(3)),
        lambda: sl.float32, lambda: sl.int64, lambda: sl.device("cpu"), lambda: np.float32, lambda: np.int64(3),
        lambda: np.float64("nan"), lambda: np.zeros((2, 3)), lambda: np.zeros((2, 3), dtype=object),
        lambda: np.array(["a"]), lambda: np.zeros((0,)), lambda: np.lib.stride_tricks.as_strided(np.zeros(3), (3, 3), (0, 8)),
        lambda: np.zeros(4)[::-2], lambda: np.zeros((1,) * 20), lambda: np.array(1 + 2j), lambda: np.zeros(3, dtype=">f4"),
        lambda: np.datetime64("2020"), lambda: "mean", lambda: "none", lambda: "same", lambda: Boom, lambda: sl.Generator,
    ]
    return draw.choice(tensors if draw.random() < 0.5 else others)


def targets():
    """(name, function) of everything exported that is a function of its arguments."""
    found = {}
    for prefix, owner in (("sl", sl), ("F", sl.nn.functional), ("Tensor", sl.Tensor)):
        for name in dir(owner):
            public = not name.startswith("_") or (owner is sl.Tensor and name in OPERATORS)
            value = getattr(owner, name, None)
            if public and callable(value) and name not in LEFT_OUT and not (isinstance(value, type) and issubclass(value, BaseException)):
                found[f"{prefix}.{name}"] = value
    for name in dir(sl.nn):
        value = getattr(sl.nn, name)
        if isinstance(value, type) and issubclass(value, sl.nn.Module):
            found[f"nn.{name}"] = value
    return sorted(found.items())


OPERATORS = {"__getitem__", "__setitem__", "__add__", "__radd__", "__sub__", "__mul__", "__truediv__", "__floordiv__",
             "__mod__", "__pow__", "__rpow__", "__matmul__", "__and__", "__or__", "__invert__", "__eq__", "__lt__", "__iadd__",
             "__len__", "__bool__", "__int__", "__float__", "__index__", "__iter__", "__contains__", "__array__", "__hash__"}


def shown(value):
    try:
        text = f"{type(value).__name__}{tuple(value.shape)}" if isinstance(value, sl.Tensor) else repr(value)
    except BaseException as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text if len(text) < 80 else text[:77] + "..."


def complaint(error):
    """The complaint about this exception, or None."""
    if isinstance(error, Boom):
        return None
    text = str(error)
    if isinstance(error, sl.Error):
        if not text or ": " not in text:
            return "a message of another form"
        return None
    if isinstance(error, (SystemError, StopIteration)):
        return "an internal error"
    if not isinstance(error, DOCUMENTED + PYTHONS_OWN):
        return "an undocumented exception"
    if "std::" in text or "nanobind::" in text or "basic_string" in text or "vector::" in text:
        return "an internal message"
    return None


def call_once(draw, functions, journal):
    name, function = draw.choice(functions)
    makers = [arguments(draw) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4, 6)))]
    values = [maker() for maker in makers]
    if name.startswith("Tensor.") and draw.random() < 0.9:
        values.insert(0, sl.ones((2, 3)) if draw.random() < 0.5 else sl.arange(24).reshape(2, 3, 4))
    keywords = {}
    if draw.random() < 0.2:
        keywords[draw.choice(("dim", "dtype", "device", "out", "keepdim", "size", "unheard_of", "reduction", "padding"))] = arguments(draw)()
    journal.seek(0)
    journal.truncate()
    line = f"{name}({', '.join([shown(v) for v in values] + [f'{k}={shown(v)}' for k, v in keywords.items()])})"
    journal.write(line)
    journal.flush()
    try:
        result = function(*values, **keywords)
        if isinstance(result, sl.Tensor) and result.numel() < 10_000:
            result.tolist()  # what was computed can be looked at
    except Exception as error:
        wrong = complaint(error)
        if wrong:
            print(f"wrong: {wrong}: {line}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    except BaseException as error:
        print(f"wrong: {type(error).__name__}: {line}", flush=True)


def main(seed, calls, journal_path):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    draw, functions = random.Random(seed), targets()
    with pathlib.Path(journal_path).open("w", encoding="utf-8", errors="replace") as journal:
        for _ in range(calls):
            call_once(draw, functions, journal)
    print(f"done: {calls} calls of {len(functions)} functions", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
