"""einsum() with labels as lists of numbers, in all of torch's forms."""

import numpy as np
import pytest
import torch

import sluice as sl

FORMS = [
    ([(2, 3), (3, 4)], [[0, 1], [1, 2], [0, 2]]), ([(2, 3), (3, 4)], [[0, 1], [1, 2]]), ([(3, 3)], [[0, 0]]), ([(3, 3)], [[0, 0], [0]]),
    ([(2, 3)], [[0, 1], []]), ([(2, 3)], [[1, 0]]), ([(5, 2, 3), (5, 3, 4)], [[..., 0, 1], [..., 1, 2], [..., 0, 2]]),
    ([(2, 3), (3,), (2,)], [(0, 1), (1,), (0,), ()]), ([(2, 3), (3, 4)], [[51, 26], [26, 0], [51, 0]]), ([(), (2,)], [[], [7], [7]]),
    ([(2, 3, 4)], [[0, ...], [..., 0]]),
]


@pytest.mark.parametrize("shapes, labels", FORMS)
def test_lists_are_torchs(shapes, labels):
    def run(lib):
        tensors = [(lib.arange(n, dtype=lib.float64).reshape(shape) / 7).requires_grad_()
                   for shape in shapes for n in (int(torch.Size(shape).numel()),)]
        args = [part for pair in zip(tensors, labels) for part in pair] + labels[len(tensors):]
        y = lib.einsum(*args)
        return [y.tolist(), *(g.tolist() for g in lib.autograd.grad(y.sum(), tensors))]

    for mine, theirs in zip(run(sl), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-12)


def test_wrong_lists_are_refused():
    x = sl.ones(2, 2)
    with pytest.raises(ValueError, match=r"einsum\(\): subscript in subscript list is not within the valid range \[0, 52\)"):
        sl.einsum(x, [0, 52])
    for args in ((x,), (x, [0, 1], x), (x, x), ([0, 1], x), (x, "ij")):
        with pytest.raises(TypeError, match=r"einsum\(\)"):
            sl.einsum(*args)
    for lib in (sl, torch):
        with pytest.raises(RuntimeError):
            lib.einsum(lib.ones(2, 2), [0])
    assert sl.compile(lambda x: sl.einsum(x, [0, 1], x, [1, 2]))(x).tolist() == [[2, 2], [2, 2]]
