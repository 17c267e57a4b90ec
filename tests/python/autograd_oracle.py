"""What the tests of autograd's surface share: a case in both libraries."""

import pytest
import torch

import sluice as sl


def both(case):
    """Runs `case(lib)` with either library: nests of lists and numbers that must be equal."""
    ours, theirs = case(sl), case(torch)
    assert ours == pytest.approx(theirs) if isinstance(ours, list) and ours and isinstance(ours[0], float) else ours == theirs


def raises(case, kind=RuntimeError):
    """`case(lib)` raises `kind` in both libraries."""
    for lib in (sl, torch):
        with pytest.raises(kind) as error:
            case(lib)
    return str(error.value)


def leaf(lib, *values):
    return lib.tensor(values, dtype=lib.float64, requires_grad=True)
