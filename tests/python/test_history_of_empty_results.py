"""A result has a history where torch's has, also of degenerate arguments: no elements, one element, one row. Every exported
function, method and module is called with drawn arguments of which one size at a time becomes 0 or 1. More histories than
torch's are no fault."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from autotest_shards import OPS, SEED

import sluice as sl
from sluice.testing.autotest.arrays import FLOATS, Array, leaves
from sluice.testing.autotest.execute import built, callable_of, dtype_name
from sluice.testing.autotest.run import drawn

# torch ends the process for these, or computes for minutes.
LEFT = re.compile(r"segment_reduce|nn\.(Lazy.*)|.*(lobpcg|svd_lowrank|pca_lowrank).*")
# The result has a history in torch whatever the sizes are, and never with us.
ZEROS, NONE = "its gradient is zeros", "its gradient is an error"
DIFFERENT = {"bernoulli": ZEROS, "slogdet": ZEROS, "linalg.slogdet": ZEROS, "geqrf": NONE, "histogram": NONE, "histogramdd": NONE,
             "detach_copy": "it is not detached"}


def sizes(case):
    return sorted({n for a in case.arrays for n in a.shape})


def with_size(case, old, new):
    """All axes of the length `old` are `new` long."""
    def change(a):
        if not isinstance(a, Array) or old not in a.shape:
            return a
        values = a.values
        for axis, n in enumerate(values.shape):
            if n == old:
                values = np.take(values, np.arange(new) % old, axis) if old else np.zeros(tuple(new if m == old else m for m in values.shape))
        return replace(a, values=np.ascontiguousarray(values).astype(a.values.dtype), layout="plain")

    return case.replaced(change)


def histories(case, lib):
    """Tells for each floating result whether it has one."""
    made = []

    def tensor(array):
        x = array.build(lib)
        if array.parameter and array.dtype in FLOATS:
            x.requires_grad_()
        made.append(x)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lib.manual_seed(3)
        call = callable_of(case, lib)
        args = built(case.args if case.inputs is None else case.inputs, lib, tensor)
        outputs = call(args, built(case.keywords, lib, tensor) if case.inputs is None else {})
    if not any(x.requires_grad for x in made):
        return None
    return [(tuple(y.shape), y.requires_grad) for y in leaves(outputs) if hasattr(y, "requires_grad") and dtype_name(y.dtype) in FLOATS]


def compared(op, cases):
    """Calls that torch takes, and those whose results differ in having a history."""
    taken, different = 0, []
    for index in range(cases):
        try:
            case, _, _ = drawn(op, SEED, index, torch)
        except (LookupError, ValueError):
            continue
        for old in sizes(case)[:4]:
            for new in (0, 1):
                if new == old:
                    continue
                variant = with_size(case, old, new)
                try:
                    theirs = histories(variant, torch)
                    mine = histories(variant, sl)
                except Exception:  # noqa: BLE001: refusals are compared elsewhere
                    continue
                if theirs is None or mine is None:
                    continue
                taken += 1
                if len(mine) == len(theirs) and any(b and not a for (_, a), (_, b) in zip(mine, theirs)):
                    different.append((str(variant)[:300], mine, theirs))
    return taken, different


SHARDS = 8


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.soak
def test_results_have_histories_as_torchs(shard, repetitions, count):
    taken, different = 0, {}
    for op in OPS[shard::SHARDS]:
        if LEFT.fullmatch(op):
            continue
        some, found = compared(op, repetitions(1, 12))
        taken += some
        if found and op not in DIFFERENT:
            different[op] = found[0]
    assert not different, "\n".join(f"{op}: {found}" for op, found in different.items())
    assert taken > 50
    count("histories of degenerate results", taken, "calls, compared with torch's")


def test_no_distances_and_no_reflections_have_histories():
    x = sl.ones(1, 3, requires_grad=True)
    y = sl.pdist(x)
    assert y.shape == (0,) and y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0]]
    a, tau = sl.eye(3, 2).requires_grad_(), sl.zeros(0, requires_grad=True)
    q = sl.linalg.householder_product(a, tau)
    assert q.tolist() == [[1, 0], [0, 1], [0, 0]] and q.requires_grad
    q.sum().backward()
    assert a.grad.tolist() == [[0, 0]] * 3 and tau.grad.shape == (0,)
