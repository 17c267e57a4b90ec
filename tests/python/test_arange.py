"""sluice.arange takes its ends by position and by name, as torch's."""

import pytest
import torch

import sluice as sl


@pytest.mark.parametrize("args,named", [((4,), {}), ((), {"end": 4}), ((), {"start": 1, "end": 4}), ((1, 4, 2), {}), ((), {"end": 2.5})])
def test_ends_are_given_by_position_or_by_name(args, named):
    got, expected = sl.arange(*args, **named), torch.arange(*args, **named)
    assert got.tolist() == expected.tolist() and str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]


def test_one_of_both_ends_must_be_given():
    with pytest.raises(TypeError, match="arange: neither start nor end is given; one of both must be"):
        sl.arange()
