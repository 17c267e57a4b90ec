"""Sparse tensors against torch's: each program runs on both."""

import copy
import io
import pickle
import re
import warnings

import numpy as np
import pytest
import torch

import sluice as sl

warnings.filterwarnings("ignore", message="Sparse (CSR|CSC) tensor support")

INDICES = [[0, 2, 1, 2, 0], [1, 0, 2, 2, 3]]
TWICE = [[0, 2, 0, 2, 0, 1], [1, 0, 1, 3, 3, 2]]  # (0, 1) is there twice
VALUES = [3.0, -4.0, 5.0, 0.5, 2.0]


def coo(T, indices=INDICES, values=VALUES, size=(3, 4), dtype=None, **options):
    return T.sparse_coo_tensor(T.tensor(indices), T.tensor(values, dtype=dtype or T.float64), size, **options)


def csr(T):
    return T.sparse_csr_tensor([0, 2, 2, 4], [1, 3, 0, 2], T.tensor([1.0, 2.0, 3.0, 4.0], dtype=T.float64), (3, 4))


def dense(T, *shape, seed=0):
    return T.tensor(np.random.default_rng(seed).standard_normal(shape).tolist(), dtype=T.float64)


def plain(t):
    """What a result is, whoever made it: layout, shape, dtype, and the contents of the parts."""
    if isinstance(t, (tuple, list)):
        return [plain(x) for x in t]
    if not isinstance(t, (torch.Tensor, sl.Tensor)):
        return t
    layout = str(t.layout).rpartition(".")[2]
    kind = [layout, tuple(t.shape), str(t.dtype).rpartition(".")[2]]
    t = t.detach()
    if layout == "sparse_coo":
        return [*kind, t.is_coalesced(), t._indices().tolist(), t._values().tolist()]
    if layout == "sparse_csr":
        return [*kind, t.crow_indices().tolist(), t.col_indices().tolist(), t.values().tolist()]
    if layout == "sparse_csc":
        return [*kind, t.ccol_indices().tolist(), t.row_indices().tolist(), t.values().tolist()]
    return [*kind, t.tolist()]


def alike(ours, theirs):
    if isinstance(ours, list) and isinstance(theirs, list):
        assert len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs):
            alike(a, b)
    elif isinstance(ours, float) and isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-12, nan_ok=True), (ours, theirs)
    else:
        assert ours == theirs, (ours, theirs)


def both(program):
    alike(plain(program(sl)), plain(program(torch)))


PROGRAMS = {
    "coo": coo,
    "size of indices": lambda T: T.sparse_coo_tensor(T.tensor(INDICES), T.tensor(VALUES)),
    "lists": lambda T: T.sparse_coo_tensor(INDICES, VALUES, (3, 4)),
    "no elements": lambda T: T.sparse_coo_tensor(T.zeros(2, 0, dtype=T.int64), T.zeros(0), (3, 4)).to_dense(),
    "a size alone": lambda T: T.sparse_coo_tensor(size=(2, 3)).to_dense(),
    "dense dims": lambda T: coo(T, [[0, 3, 0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (4, 2)).coalesce(),
    "dense dims to dense": lambda T: coo(T, [[0, 3, 0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (4, 2)).to_dense(),
    "three dims": lambda T: coo(T, [[0, 1, 0], [1, 0, 1], [2, 2, 2]], [1.0, 2.0, 3.0], (2, 2, 3)).coalesce(),
    "facts": lambda T: [(t := coo(T)).is_sparse, t.is_sparse_csr, t.layout == T.sparse_coo, t.sparse_dim(), t.dense_dim(), t._nnz(), t.dim(),
                        t.numel(), t.size(1), len(t), t.is_coalesced(), t.is_floating_point(), T.is_tensor(t), isinstance(t, T.Tensor)],
    "coalesce": lambda T: coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).coalesce(),
    "parts": lambda T: [(t := coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).coalesce()).indices(), t.values()],
    "of whole numbers": lambda T: coo(T, TWICE, [1, 2, 3, 4, 5, 6], dtype=T.int64).coalesce(),
    "to_dense": lambda T: coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).to_dense(),
    "to_sparse": lambda T: (dense(T, 3, 4) * (dense(T, 3, 4, seed=1) > 0)).to_sparse(),
    "to_sparse of rows": lambda T: (dense(T, 3, 4, 2) * (dense(T, 3, 4, 1, seed=1) > 0)).to_sparse(2),
    "to_sparse of one": lambda T: (dense(T, 5, 2) * T.tensor([1, 0, 0, 1, 1]).unsqueeze(1)).to_sparse(1),
    "to_sparse_csr": lambda T: (dense(T, 3, 4) * (dense(T, 3, 4, seed=1) > 0)).to_sparse_csr(),
    "to_sparse of csr": lambda T: csr(T).to_sparse(),
    "to a layout": lambda T: dense(T, 2, 2).to_sparse(layout=T.sparse_csr),
    "coo to csr": lambda T: coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).to_sparse_csr(),
    "coo to csc": lambda T: coo(T).to_sparse_csc(),
    "csr": csr,
    "csr facts": lambda T: [(t := csr(T)).is_sparse, t.is_sparse_csr, t.layout == T.sparse_csr, t._nnz(), t.shape[0]],
    "csr to dense": lambda T: csr(T).to_dense(),
    "csr of its own size": lambda T: T.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0]),
    "csc": lambda T: T.sparse_csc_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (3, 2)),
    "csc to dense": lambda T: T.sparse_csc_tensor([0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (3, 2)).to_dense(),
    "compressed": lambda T: T.sparse_compressed_tensor(T.tensor([0, 1, 2]), T.tensor([1, 0]), T.tensor([1.0, 2.0]), (2, 2), layout=T.sparse_csr),
    "csr transposed": lambda T: csr(T).t(),
    "coo transposed": lambda T: coo(T).t(),
    "coo transposed by dims": lambda T: coo(T).transpose(-1, 0).coalesce(),
    "matrix": lambda T: coo(T) @ dense(T, 4, 2),
    "vector": lambda T: coo(T) @ dense(T, 4),
    "uncoalesced matrix": lambda T: coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) @ dense(T, 4, 2),
    "csr matrix": lambda T: csr(T) @ dense(T, 4, 2),
    "csr vector": lambda T: csr(T) @ dense(T, 4),
    "methods": lambda T: [coo(T).mm(dense(T, 4, 2)), coo(T).matmul(dense(T, 4, 2)), coo(T).mv(dense(T, 4))],
    "dense @ sparse": lambda T: dense(T, 2, 3) @ coo(T),
    "dense @ csr": lambda T: dense(T, 2, 3) @ csr(T),
    "sparse.mm": lambda T: T.sparse.mm(coo(T), dense(T, 4, 2)),
    "sparse.mm of csr": lambda T: T.sparse.mm(csr(T), dense(T, 4, 2)),
    "sparse @ sparse": lambda T: T.sparse.mm(coo(T), coo(T).t()).coalesce(),
    "no rows in common": lambda T: T.sparse.mm(coo(T, [[0], [1]], [1.0]), coo(T, [[0], [1]], [1.0]).t().coalesce()).to_dense(),
    "csr @ csr": lambda T: (csr(T) @ csr(T).to_dense().t().to_sparse_csr()).to_dense(),
    "mean": lambda T: T.sparse.mm(csr(T), dense(T, 4, 2), "mean"),
    "amax": lambda T: T.sparse.mm(csr(T), dense(T, 4, 2), "amax"),
    "amin": lambda T: T.sparse.mm(csr(T), dense(T, 4, 2), "amin"),
    "addmm": lambda T: T.sparse.addmm(dense(T, 3, 2, seed=3), coo(T), dense(T, 4, 2), beta=0.5, alpha=2.0),
    "sum": lambda T: T.sparse.sum(coo(T)),
    "sum of rows": lambda T: T.sparse.sum(coo(T), 1),
    "sum of columns": lambda T: T.sparse.sum(coo(T), [0]),
    "sum of both": lambda T: T.sparse.sum(coo(T), [0, 1]),
    "sum of dense dims": lambda T: T.sparse.sum(coo(T, [[0, 3]], [[1.0, 2.0], [3.0, 4.0]], (4, 2)), 1).to_dense(),
    "sum as float32": lambda T: T.sparse.sum(coo(T), dtype=T.float32),
    "softmax": lambda T: T.sparse.softmax(coo(T), 1),
    "softmax of columns": lambda T: T.sparse.softmax(coo(T), 0),
    "log_softmax": lambda T: T.sparse.log_softmax(coo(T), -1),
    "times a number": lambda T: [coo(T) * 2, 3 * coo(T), coo(T) / 4, coo(T).mul(0.5)],
    "times a scalar": lambda T: (coo(T) * T.tensor(2.0)).coalesce(),
    "csr times a number": lambda T: csr(T) * 2,
    "sum of two": lambda T: coo(T).coalesce() + coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).coalesce(),
    "difference of two": lambda T: (coo(T) - coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).to_dense(),
    "sum with alpha": lambda T: coo(T).add(coo(T), alpha=2).to_dense(),
    "csr + csr": lambda T: csr(T) + csr(T),
    "dense + sparse": lambda T: dense(T, 3, 4) + coo(T),
    "product of two": lambda T: (coo(T) * coo(T, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).to_dense(),
    "times a dense tensor": lambda T: (coo(T).coalesce() * dense(T, 3, 4)).to_dense(),
    "unary": lambda T: [getattr(coo(T), f)() for f in ("abs neg sin sinh asinh tan tanh atan sqrt expm1 floor ceil round trunc sign relu "
                                                       "deg2rad erf").split()],
    "powers": lambda T: [coo(T).pow(2), coo(T).coalesce() ** 2],
    "negated": lambda T: -coo(T),
    "of another dtype": lambda T: [coo(T).to(T.float32), coo(T).float(), csr(T).to(T.float32), coo(T).to("cpu")],
    "clone and detach": lambda T: [coo(T).clone(), coo(T).detach(), csr(T).clone()],
    "rows by index": lambda T: coo(T).index_select(0, T.tensor([2, 0, 2])).to_dense(),
    "columns by index": lambda T: coo(T).index_select(1, T.tensor([3, 1])).to_dense(),
    "a row": lambda T: [coo(T)[0].to_dense(), coo(T)[-1].to_dense()],
    "masked": lambda T: dense(T, 3, 4).sparse_mask(coo(T).coalesce()),
    "zeroed": lambda T: coo(T).zero_().to_dense(),
    "in place": lambda T: [coo(T).mul_(3.0), coo(T).div_(2.0)],
    "spmm": lambda T: [T.spmm(coo(T), dense(T, 4, 2)), T.smm(coo(T), dense(T, 4, 2))][0],
    "of no rows": lambda T: coo(T, [[], []], [], (0, 4)).to_dense() if T is sl else T.zeros(0, 4, dtype=T.float64),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_torchs(name):
    both(PROGRAMS[name])


@pytest.mark.parametrize("make", [coo, csr, lambda T: coo(T, [[0, 3]], [[1.0, 2.0], [3.0, 4.0]], (4, 2)),
                                  lambda T: coo(T).to(T.float32), lambda T: coo(T, requires_grad=True)])
def test_text_is_torchs(make):
    assert repr(make(sl)).replace("sluice.", "torch.") == repr(make(torch))
