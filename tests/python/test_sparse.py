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
    "functions": lambda T: [T.mm(coo(T), dense(T, 4, 2)), T.matmul(csr(T), dense(T, 4)), T.mv(coo(T), dense(T, 4)), T.relu(coo(T)), T.neg(csr(T)),
                            T.mul(coo(T), 2).coalesce(), T.add(coo(T), coo(T), alpha=2).to_dense(), T.sqrt(input=coo(T)), T.sum(coo(T)),
                            T.matmul(dense(T, 2, 3), coo(T)), T.add(dense(T, 3, 4), coo(T)), T.mm(csr(T), mat2=dense(T, 4, 2))],
    "of no rows": lambda T: coo(T, [[], []], [], (0, 4)).to_dense() if T is sl else T.zeros(0, 4, dtype=T.float64),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_torchs(name):
    both(PROGRAMS[name])


@pytest.mark.parametrize("make", [coo, csr, lambda T: coo(T, [[0, 3]], [[1.0, 2.0], [3.0, 4.0]], (4, 2)),
                                  lambda T: coo(T).to(T.float32), lambda T: coo(T, requires_grad=True)])
def test_text_is_torchs(make):
    assert repr(make(sl)).replace("sluice.", "torch.") == repr(make(torch))


def gradients(T, f, *inputs):
    """The gradients of a sum of weights times f's result, and those of the sum of their squares."""
    inputs = [t.requires_grad_() for t in inputs]
    out = f(*inputs)
    loss = (out * dense(T, *out.shape, seed=9)).sum()
    first = T.autograd.grad(loss, inputs, create_graph=True)
    second = sum((g * g).sum() for g in first)
    return [loss, *first, *(T.autograd.grad(second, inputs, allow_unused=True, materialize_grads=True) if second.requires_grad else ())]


def of_values(T, values, indices=INDICES, size=(3, 4)):
    return T.sparse_coo_tensor(T.tensor(indices), values, size)


GRADIENTS = {
    "to_dense": lambda T: gradients(T, lambda v: of_values(T, v).to_dense(), dense(T, 5)),
    "coalesce": lambda T: gradients(T, lambda v: of_values(T, v, TWICE).coalesce().to_dense(), dense(T, 6)),
    "matrix": lambda T: gradients(T, lambda v, x: T.sparse.mm(of_values(T, v), x), dense(T, 5), dense(T, 4, 2)),
    "scaled": lambda T: gradients(T, lambda v: (of_values(T, v) * 3).to_dense(), dense(T, 5)),
    "transposed": lambda T: gradients(T, lambda v, x: T.sparse.mm(of_values(T, v).t(), x), dense(T, 5), dense(T, 3, 2)),
    "sum of two": lambda T: gradients(T, lambda v, w: (of_values(T, v) + of_values(T, w)).to_dense(), dense(T, 5), dense(T, 5, seed=1)),
    "sum of rows": lambda T: gradients(T, lambda v: T.sparse.sum(of_values(T, v).coalesce(), 1).to_dense(), dense(T, 5)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_torchs(name):
    if name == "matrix":  # of which torch has no second gradient
        return alike(plain(GRADIENTS[name](sl)[:3]), plain([*_first_of_matrix(torch)]))
    if name == "transposed":
        return alike(plain(GRADIENTS[name](sl)[:3]), plain([*_first_of_matrix(torch, True)]))
    both(GRADIENTS[name])


def _first_of_matrix(T, transposed=False):
    v, x = dense(T, 5).requires_grad_(), dense(T, *((3, 2) if transposed else (4, 2))).requires_grad_()
    a = of_values(T, v)
    out = T.sparse.mm(a.t() if transposed else a, x)
    loss = (out * dense(T, *out.shape, seed=9)).sum()
    return loss, *T.autograd.grad(loss, [v, x])


PRODUCTS = [lambda a, x: a @ x, lambda a, x: sl.sparse.mm(a.to_sparse_csr(), x), lambda a, x: sl.sparse.mm(a, a.t()).to_dense() @ x[:3],
            lambda a, x: sl.sparse.softmax(a, 1) @ x, lambda a, x: (a * a.to_dense()).to_dense() @ x, lambda a, x: a.sin() @ x,
            lambda a, x: sl.sparse.sampled_addmm(a, x[:3], x.t()) @ x, lambda a, x: a.index_select(1, sl.tensor([1, 1, 3, 0])) @ x]


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_gradients_and_those_of_gradients_agree_with_differences(number):
    v, x = dense(sl, 5).requires_grad_(), dense(sl, 4, 2).requires_grad_()

    def f(v, x):
        return PRODUCTS[number](of_values(sl, v), x)

    assert sl.autograd.gradcheck(f, (v, x))
    assert sl.autograd.gradgradcheck(f, (v, x))


def test_a_leaf_has_a_sparse_gradient_of_its_own():
    def program(T):
        a, x = coo(T).coalesce().detach().requires_grad_(), dense(T, 4, 2)
        (T.sparse.mm(a, x) ** 2).sum().backward()
        return [a.is_leaf, a.requires_grad, a.grad.to_dense(), a.grad.is_sparse]

    both(program)


def test_sampled_products():
    def program(T):
        return T.sparse.sampled_addmm(csr(T), dense(T, 3, 5), dense(T, 5, 4, seed=1), beta=0.5, alpha=2.0)

    both(program)


# What cannot be


def refused(text, f, kind=Exception):
    with pytest.raises(kind, match=re.escape(text)):
        f()


MAKE = sl.sparse_coo_tensor
REFUSED = {
    "sparse_coo_tensor: indices of dim 0: -1; must not be negative": lambda: MAKE([[-1], [0]], [1.0], (2, 2)),
    "sparse_coo_tensor: indices of dim 1: 2; must be less than 2, the size of its dim": lambda: MAKE([[0], [2]], [1.0], (2, 2)),
    "sparse_coo_tensor: indices: float32; must be whole numbers": lambda: MAKE([[0.5], [0.0]], [1.0], (2, 2)),
    "sparse_coo_tensor: indices: 1 dims; must have 2": lambda: MAKE([0, 1], [1.0, 2.0], (2,)),
    "sparse_coo_tensor: values: shape (2,); must have 1 rows": lambda: MAKE([[0], [0]], [1.0, 2.0], (2, 2)),
    "sparse_coo_tensor: size: (2,); must have 2 dims": lambda: MAKE([[0], [0]], [1.0], (2,)),
    "sparse_coo_tensor: size: (-2, 2); no size may be negative": lambda: MAKE([[0], [0]], [1.0], (-2, 2)),
    "sparse_coo_tensor: values: shape (1, 3); must end with (2,)": lambda: MAKE([[0]], [[1.0, 2.0, 3.0]], (2, 2)),
    "sparse_coo_tensor: requires_grad: True of int64; must be floating": lambda: MAKE([[0]], [1], (2,), requires_grad=True),
    "sparse_csr_tensor: crow_indices: begins with 1; must begin with 0": lambda: sl.sparse_csr_tensor([1, 1, 2], [0, 1], [1.0, 2.0], (2, 2)),
    "sparse_csr_tensor: crow_indices: ends with 1; must end with 2": lambda: sl.sparse_csr_tensor([0, 1, 1], [0, 1], [1.0, 2.0], (2, 2)),
    "sparse_csr_tensor: crow_indices: falls by 2; must not fall": lambda: sl.sparse_csr_tensor([0, 3, 1, 2], [0, 1], [1.0, 2.0], (3, 2)),
    "sparse_csr_tensor: crow_indices: 2 elements; must be 3": lambda: sl.sparse_csr_tensor([0, 1], [0], [1.0], (2, 2)),
    "sparse_csr_tensor: col_indices: 2; must be less than 2": lambda: sl.sparse_csr_tensor([0, 1, 1], [2], [1.0], (2, 2)),
    "sparse_csr_tensor: values: 2 elements; must be 1": lambda: sl.sparse_csr_tensor([0, 1, 1], [1], [1.0, 2.0], (2, 2)),
    "sparse_csc_tensor: row_indices: -1; must not be negative": lambda: sl.sparse_csc_tensor([0, 1, 1], [-1], [1.0], (2, 2)),
    "sparse_compressed_tensor: layout: sparse_bsr; must be": lambda: sl.sparse_compressed_tensor([0], [0], [1.0], layout="sparse_bsr"),
    "values: the tensor is not coalesced; must be: use coalesce().values()": lambda: coo(sl).values(),
    "crow_indices: layout torch.sparse_csc; must be sparse_csr": lambda: csr(sl).t().crow_indices(),
    "matmul: mat2: shape (3, 2); must have 4 rows": lambda: coo(sl) @ dense(sl, 3, 2),
    "matmul: mat2: float32; must be float64": lambda: coo(sl) @ sl.zeros(4, 2),
    "matmul: mat2: 3 dims; must have 1 or 2": lambda: coo(sl) @ dense(sl, 4, 2, 2),
    "sparse.mm: reduce: 'prod'; must be": lambda: sl.sparse.mm(coo(sl), dense(sl, 4, 2), "prod"),
    "sparse.mm: neither matrix is sparse": lambda: sl.sparse.mm(3, coo(sl).to_dense()),
    "sparse.addmm: input: sparse; must be dense": lambda: sl.sparse.addmm(coo(sl), coo(sl), dense(sl, 4, 4)),
    "add: other: a dense tensor; must be sparse": lambda: coo(sl) + dense(sl, 3, 4),
    "add: other: int; must be a tensor": lambda: 1 + coo(sl),
    "add: other: shape (4, 3) with 2 sparse dims; must be (3, 4) with 2": lambda: coo(sl) + coo(sl).t(),
    "div: other: a tensor; must be a number": lambda: coo(sl) / dense(sl, 3, 4),
    "pow: exponent: -1; must be a number above 0": lambda: coo(sl) ** -1,
    "sparse.softmax: dim: 2; must be from -2 to 1": lambda: sl.sparse.softmax(coo(sl), 2),
    "sparse.sum: input: Tensor; must be sparse: use to_sparse()": lambda: sl.sparse.sum(dense(sl, 2)),
    "to_sparse: sparse_dim: 3; must be from 1 to 2": lambda: dense(sl, 2, 2).to_sparse(3),
    "cumsum: a sparse tensor of layout torch.sparse_coo; must be dense: use to_dense().cumsum": lambda: coo(sl).cumsum(0),
    "zeros_like: input: a sparse tensor; must be dense": lambda: sl.zeros_like(coo(sl)),
    "sigmoid: a sparse tensor of layout torch.sparse_coo; must be dense: use to_dense()": lambda: sl.sigmoid(coo(sl)),
    "cat: a sparse tensor of layout torch.sparse_csr; must be dense": lambda: sl.cat([dense(sl, 3, 4), csr(sl)]),
    "pow: exponent: -2; must be a number above 0": lambda: sl.pow(coo(sl), -2),
    "getitem: index: slice; must be a whole number": lambda: coo(sl)[1:],
    "select: index: 3; must be from -3 to 2": lambda: coo(sl)[3],
    "eq: a sparse tensor; must be dense": lambda: coo(sl) == 0,
    "is ambiguous": lambda: bool(coo(sl)),
    "copy_: src: shape (4, 3); must be sparse, of shape (3, 4)": lambda: coo(sl).copy_(coo(sl).t()),
    "sparse_mask: mask: shape (4, 3); must be sparse, of shape (3, 4)": lambda: dense(sl, 3, 4).sparse_mask(coo(sl).t()),
    "SparseAdam does not support dense gradients": lambda: stepped_with_dense("SparseAdam"),
    "scale_grad_by_freq=True with sparse=True": lambda: sl.nn.Embedding(2, 2, sparse=True, scale_grad_by_freq=True),
    "EmbeddingBag: sparse=True is not supported": lambda: sl.nn.EmbeddingBag(2, 2, sparse=True),
}


def stepped_with_dense(name):
    w = sl.nn.Parameter(sl.ones(2))
    w.sum().backward()
    getattr(sl.optim, name)([w]).step()


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_refused(text):
    refused(text, REFUSED[text])


# Tables

ROWS = np.random.default_rng(0).standard_normal((6, 3)).tolist()


def trained(T, optimizer, steps=3, **options):
    table = T.nn.Embedding(6, 3, padding_idx=2, sparse=True, dtype=T.float64)
    with T.no_grad():
        table.weight.copy_(T.tensor(ROWS, dtype=T.float64))
    optim = getattr(T.optim, optimizer)(table.parameters(), **options)
    for step in range(steps):
        optim.zero_grad()
        x = table(T.tensor([[0, 1], [1, 2 + step]]))
        (x * x).sum().backward()
        optim.step()
    return table, optim


@pytest.mark.parametrize("optimizer, options", [("SparseAdam", dict(lr=0.1)), ("SparseAdam", dict(lr=0.1, betas=(0.5, 0.9), maximize=True)),
                                                ("SGD", dict(lr=0.1)), ("Adagrad", dict(lr=0.1, lr_decay=0.1))])
def test_optimizers_step_the_rows_that_were_read(optimizer, options):
    def program(T):
        table, optim = trained(T, optimizer, **options)
        grad, state = table.weight.grad, optim.state_dict()["state"].get(0, {})
        return [table.weight, grad.is_coalesced(), grad.coalesce(), *[t for name, t in state.items() if name != "step"]]

    both(program)


@pytest.mark.parametrize("optimizer, options", [("Adam", {}), ("RMSprop", {}), ("SGD", dict(momentum=0.9))])
def test_other_optimizers_refuse_sparse_gradients(optimizer, options):
    refused("does not support sparse gradients", lambda: trained(sl, optimizer, **options), RuntimeError)


def test_gradients_of_rows_add_up():
    def program(T):
        table, _ = trained(T, "SparseAdam", steps=1)
        table(T.tensor([5])).sum().backward()
        sparse = table.weight.grad.to_dense()
        (table.weight * 2).sum().backward()
        return [sparse, table.weight.grad]

    both(program)


def test_a_table_can_be_copied_and_saved():
    table, _ = trained(sl, "SparseAdam")
    file = io.BytesIO()
    sl.save(list(table.parameters()), file)
    file.seek(0)
    for same in (copy.deepcopy(table).weight, sl.load(file)[0], pickle.loads(pickle.dumps(table)).weight):
        assert type(same) is sl.nn.Parameter and same.tolist() == table.weight.tolist()


def test_graphs_have_the_dense_gradients_of_tables():
    class Step(sl.nn.Graph):
        def __init__(self, table):
            super().__init__()
            self.table = table
            self.add_optimizer(sl.optim.Adam(table.parameters(), lr=0.1), is_sparse=True)

        def build(self, x):
            loss = (self.table(x) ** 2).sum()
            loss.backward()
            return loss

    table = sl.nn.Embedding(6, 3, sparse=True)
    before = table.weight.tolist()
    Step(table)(sl.tensor([1, 4]))
    assert [a != b for a, b in zip(before, table.weight.tolist())] == [False, True, False, False, True, False]


# Files, modules, graphs


@pytest.mark.parametrize("make", [coo, lambda T: coo(T).coalesce(), csr, lambda T: csr(T).t(),
                                  lambda T: T.sparse_coo_tensor(T.zeros(2, 0, dtype=T.int64), T.zeros(0), (3, 4))])
@pytest.mark.parametrize("writer, reader", [(sl, torch), (torch, sl), (sl, sl)])
def test_files_are_read_by_either(make, writer, reader):
    file = io.BytesIO()
    writer.save({"a": make(writer)}, file)
    file.seek(0)
    alike(plain(reader.load(file)["a"]), plain(make(torch)))


def test_a_file_that_lies_about_its_indices_is_read_rightly():
    file = io.BytesIO()
    sl.save(coo(sl, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])._coalesced_(True), file)
    file.seek(0)
    alike(plain(sl.load(file)), plain(coo(torch, TWICE, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).coalesce()))


def test_copies():
    a = coo(sl).requires_grad_()
    for same in (copy.deepcopy(a), pickle.loads(pickle.dumps(a)), copy.copy(a)):
        alike(plain(same), plain(a))
        assert same.requires_grad and same is not a


class Convolved(sl.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("adjacency", coo(sl).coalesce())
        self.linear = sl.nn.Linear(2, 2, dtype=sl.float64)

    def forward(self, x):
        return self.adjacency @ self.linear(x)


def test_a_module_has_one_as_a_buffer():
    net, other = Convolved(), Convolved()
    other.adjacency.mul_(2.0)
    alike(plain(net.state_dict()["adjacency"]), plain(coo(torch).coalesce()))
    net.load_state_dict(other.state_dict())
    alike(plain(net.adjacency), plain(coo(torch).coalesce() * 2))
    assert net.float().adjacency.dtype is sl.float32


class Called(sl.nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


def test_graphs_see_what_becomes_of_a_buffer():
    net, x = Convolved(), dense(sl, 4, 2)
    graph = Called(net)
    alike(plain(graph(x)), plain(net(x)))
    net.adjacency.mul_(3.0)
    alike(plain(graph(x)), plain(net(x)))
    with sl.no_grad():
        net.adjacency.copy_(coo(sl, [[0], [1]], [2.0]))  # with fewer elements
    alike(plain(graph(x)), plain(net(x)))
    net.adjacency = coo(sl, [[2], [1]], [2.0]).coalesce()
    alike(plain(graph(x)), plain(net(x)))


def test_graphs_take_and_return_them():
    class Doubled(sl.nn.Graph):
        def build(self, a, x):
            return a @ x, a * 2

    graph, x = Doubled(), dense(sl, 4, 2)
    for a in (coo(sl), coo(sl) * 5):
        product, double = graph(a, x)
        alike([plain(product), plain(double)], [plain(a @ x), plain(a * 2)])
    with pytest.raises(Exception, match="expected"):
        graph(csr(sl), x)


def test_indices_can_be_inputs():
    class Product(sl.nn.Graph):
        def build(self, indices, values, x):
            return sl.sparse_coo_tensor(indices, values, (3, 4), is_coalesced=True) @ x

    graph, x = Product(), dense(sl, 4, 2)
    for indices in (INDICES, INDICES[:1] + [[0, 1, 2, 3, 0]]):
        alike(plain(graph(sl.tensor(indices), sl.tensor(VALUES, dtype=sl.float64), x)), plain(coo(torch, indices) @ dense(torch, 4, 2)))


def test_how_many_elements_there_are_must_be_known_in_graphs():
    class Coalesced(sl.nn.Graph):
        def build(self, a):
            return a.coalesce()

    class Thinned(sl.nn.Graph):
        def build(self, x):
            return x.to_sparse()

    refused("coalesce: how many elements there are is not known while a graph is built", lambda: Coalesced()(coo(sl)))
    refused("to_sparse: how many elements are not zeros is not known while a graph is built", lambda: Thinned()(dense(sl, 2, 2)))
    refused("use add_optimizer(Adam(...), is_sparse=True)", lambda: _stepped_in_a_graph())


def _stepped_in_a_graph():
    class Step(sl.nn.Graph):
        def __init__(self, table):
            super().__init__()
            self.table = table
            self.add_optimizer(sl.optim.SparseAdam(table.parameters()))

        def build(self, x):
            loss = self.table(x).sum()
            loss.backward()
            return loss

    Step(sl.nn.Embedding(4, 2, sparse=True))(sl.tensor([1]))


def test_compiled_calls_take_them_return_them_and_hold_them():
    net, x = Convolved(), dense(sl, 4, 2)
    alike(plain(sl.compile(net, fullgraph=True)(x)), plain(net(x)))
    f = sl.compile(lambda a, x: (a @ x, a * 2), fullgraph=True)
    for a in (coo(sl), coo(sl) * 3, csr(sl)):
        alike(plain(f(a, x)), plain([a @ x, a * 2]))


# A graph convolutional network: Kipf and Welling 2017.


def gcn(T, layout, steps=20):
    rng = np.random.default_rng(3)
    count, classes = 30, 3
    labels = rng.integers(0, classes, count)
    same = labels[:, None] == labels[None]
    edges = np.triu(rng.random((count, count)) < np.where(same, 0.4, 0.05), 1)
    edges = edges | edges.T | np.eye(count, dtype=bool)
    degree = edges.sum(1) ** -0.5
    adjacency = T.tensor((edges * degree[:, None] * degree[None]).tolist(), dtype=T.float64).to_sparse(layout=getattr(T, layout))
    features = T.tensor((rng.standard_normal((count, 5)) + labels[:, None]).tolist(), dtype=T.float64)

    class Layer(T.nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = T.nn.Parameter(T.tensor((rng.standard_normal((inputs, outputs)) / inputs**0.5).tolist(), dtype=T.float64))
            self.bias = T.nn.Parameter(T.zeros(outputs, dtype=T.float64))

        def forward(self, x, adjacency):
            return T.sparse.mm(adjacency, x @ self.weight) + self.bias

    layers = T.nn.ModuleList([Layer(5, 8), Layer(8, classes)])
    optim, losses = T.optim.Adam(layers.parameters(), lr=0.05), []
    for _ in range(steps):
        optim.zero_grad()
        loss = T.nn.functional.cross_entropy(layers[1](T.relu(layers[0](features, adjacency)), adjacency), T.tensor(labels.tolist()))
        loss.backward()
        optim.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_a_gcn_trains_with_torchs_losses(layout):
    ours, theirs = gcn(sl, layout), gcn(torch, layout)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert ours[-1] < ours[0] / 2
