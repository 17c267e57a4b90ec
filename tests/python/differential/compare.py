"""Compares two runs of a program: every value, as nearly as the arithmetic allows."""

from __future__ import annotations

import numpy as np

# Relative to the greatest magnitude of a tensor: sums are taken in another order.
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}


def items_of(run):
    """(where, (dtype, array) or a plain value) of everything a run gave."""

    def walk(nest, path):
        if isinstance(nest, tuple) and len(nest) == 2 and isinstance(nest[1], np.ndarray):
            yield path, nest
        elif isinstance(nest, dict):
            yield path, ("dict", list(nest))
            for key, value in nest.items():
                yield from walk(value, f"{path}.{key}")
        elif isinstance(nest, (list, tuple)):
            yield path, (type(nest).__name__, len(nest))
            for i, value in enumerate(nest):
                yield from walk(value, f"{path}.{i}")
        else:
            yield path, nest

    for i, outputs in enumerate(run.outputs):
        yield from walk(outputs, f"step {i}: output")
    for what in ("variables", "gradients"):
        for name, value in getattr(run, what).items():
            yield f"{what}: {name}", value
    for i, state in enumerate(run.state):
        for name, value in state.items():
            yield f"state {i}: {name}", value
    for i, rates in enumerate(run.rates):
        yield f"rates {i}", ("float64", np.array(rates))


def _finite(array):
    return array[np.isfinite(array)] if array.dtype.kind == "f" else array


def distance(a, b):
    """The greatest difference of finite elements; infinite where others differ."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


def of_any_step(place):
    """A value that jumps in one step may jump in a later one."""
    return place.partition(": ")[2] if place.startswith("step ") else place


def compare(ours, theirs, precision, spread=None):
    """The first difference in words, or None.

    precision: the least precise dtype in which the program computes.
    spread: by place, how far torch's own value moves when the program's numbers change in their last bits; a difference
        of that size, there or in an earlier step, says nothing.
    """
    got, expected = dict(items_of(ours)), dict(items_of(theirs))
    jumps = {}  # up to a step
    for place, reference in expected.items():
        if place.startswith("gradients") and not ours.gradients:
            continue  # of a graph
        if place not in got:
            return f"{place}: missing"
        value, jump = got[place], of_any_step(place)
        jumps[jump] = max(jumps.get(jump, 0.0), (spread or {}).get(place, 0.0))
        if not (isinstance(reference, tuple) and isinstance(reference[1], np.ndarray)):
            same = value == reference
            if isinstance(value, float) and isinstance(reference, float):
                same = distance(value, reference) <= TOLERANCE[precision] * max(abs(reference), 1.0)
            if type(value) is not type(reference) or not same:
                return f"{place}: got {value!r}; torch has {reference!r}"
            continue
        if not (isinstance(value, tuple) and isinstance(value[1], np.ndarray)):
            return f"{place}: got {value!r}; torch has a tensor"
        if value[0] != reference[0] or value[1].shape != reference[1].shape:
            return f"{place}: got {value[0]} {value[1].shape}; torch has {reference[0]} {reference[1].shape}"
        scale = float(np.abs(_finite(np.asarray(reference[1], np.float64))).max(initial=0.0))
        tolerance = max(TOLERANCE[reference[0]], TOLERANCE[precision]) if reference[0] in TOLERANCE else 0.0
        allowed = tolerance * max(scale, 1.0) + 100 * jumps[jump]
        apart = distance(value[1], reference[1])
        if apart > allowed:
            return f"{place}: differs by {apart:.3g}; {allowed:.3g} is allowed\ngot   {value[1].tolist()}\ntorch {reference[1].tolist()}"
    extra = [place for place in got if place not in expected and not place.startswith("state")]
    return f"{extra[0]}: torch has none" if extra else None


def spread_of(reference, others):
    """By place, the greatest distance of `others` from `reference`."""
    spread, known = {}, dict(items_of(reference))
    for other in others:
        for place, value in items_of(other):
            a = known.get(place)
            if isinstance(value, tuple) and isinstance(value[1], np.ndarray) and isinstance(a, tuple) and value[1].shape == a[1].shape:
                spread[place] = max(spread.get(place, 0.0), distance(value[1], a[1]))
    return spread
