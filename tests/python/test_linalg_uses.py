"""torch.linalg with odd shapes, singular matrices, wrong operands and views, and in graphs; torch is the oracle."""

import math

import numpy as np
import pytest
import torch
from conftest import assert_same

import sluice as sl
from linalg_oracle import both, check, draw, same_call, symmetric


def test_shapes_of_their_own():
    check(*same_call("vander"), draw((2, 3)))
    check(*same_call("vander", N=5), draw((2, 3)))
    assert_same(sl.linalg.vander(sl.arange(4)), torch.linalg.vander(torch.arange(4)))
    check(*same_call("tensorinv"), draw((4, 6, 8, 3)), tolerance=1e-6, twice=False)
    check(*same_call("tensorinv", ind=1), draw((6, 2, 3)))
    check(*same_call("tensorsolve"), draw((2, 3, 6)), draw((2, 3), 1))
    check(*same_call("tensorsolve", dims=(0, 2)), draw((2, 6, 3)), draw((6,), 1))
    for options in ({}, {"offset": 1}, {"offset": -2}, {"offset": 9}, {"dim1": 0, "dim2": 2}, {"offset": 1, "dim1": 2, "dim2": 0}):
        check(*same_call("diagonal", **options), draw((3, 4, 5)))
    v, tau = np.tril(draw((2, 5, 3)), -1), draw((2, 3), 1)
    check(*same_call("householder_product"), v, tau, tolerance=1e-8)
    check(*same_call("householder_product"), v, tau[:, :2].copy(), tolerance=1e-8)


def test_singular_matrices():
    singular, batch = sl.tensor([[1.0, 2], [2, 4]]), sl.stack([sl.eye(2), sl.zeros(2, 2)])
    assert issubclass(sl.linalg.LinAlgError, RuntimeError) and sl.linalg.LinAlgError is sl.errors.LinAlgError
    for call, message in (
            (lambda: sl.linalg.inv(singular), "linalg.inv: The diagonal element 2 is zero, the inversion could not be completed because"),
            (lambda: sl.inverse(batch), r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"),
            (lambda: sl.linalg.solve(singular, sl.ones(2)), "torch.linalg.solve: The solver failed because the input matrix is singular"),
            (lambda: sl.linalg.solve(batch, sl.ones(2, 2)), r"\(Batch element 1\): The solver failed"),
            (lambda: sl.linalg.inv_ex(singular, check_errors=True), "inversion could not be completed"),
            (lambda: sl.linalg.cholesky(-sl.eye(2)), r"linalg.cholesky: .*not positive-definite \(the leading minor of order 1"),
            (lambda: sl.linalg.cholesky(batch), r"\(Batch element 1\): The factorization could not be completed"),
            (lambda: sl.linalg.lu_factor(singular), r"torch.linalg.lu_factor: U\[2,2\] is zero"),
            (lambda: sl.linalg.matrix_power(singular, -1), "singular"),
            (lambda: sl.linalg.svd(sl.full((2, 2), math.nan)), "linalg.svd: The algorithm failed to converge because .* non-finite")):
        with pytest.raises(sl.linalg.LinAlgError, match=message):
            call()
    got = sl.linalg.inv_ex(batch)
    assert got.info.tolist() == [0, 1] and got.inverse[0].tolist() == sl.eye(2).tolist()
    assert sl.linalg.cholesky_ex(-sl.eye(2)).info == 1 and sl.linalg.solve_ex(batch, sl.ones(2, 2, 1)).info.tolist() == [0, 1]
    nan = sl.full((2, 2), math.nan)
    for y in (sl.linalg.inv(nan), sl.linalg.det(nan), sl.linalg.eigvalsh(nan), sl.linalg.matrix_exp(nan)):
        assert sl.isnan(y).all()


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "cholesky_ex", "inv_ex", "eigh", "eigvalsh", "matrix_exp",
                                  "lu_factor", "qr", "svd", "svdvals", "pinv", "lu", "matrix_rank"])
def test_operands_that_are_no_matrices(name):
    f, g = getattr(sl.linalg, name), getattr(torch.linalg, name)
    for shape, dtype in (((3,), "float32"), ((), "float32"), ((2, 3), "float32"), ((3, 3), "int64"), ((3, 3), "float16"), ((3, 3), "bool")):
        theirs = torch.randn(shape).to(getattr(torch, dtype))
        ours = sl.from_numpy(theirs.numpy().copy())
        try:
            g(theirs)
        except torch.linalg.LinAlgError:
            continue
        except (RuntimeError, IndexError):
            with pytest.raises(RuntimeError, match=r"at least 2 dim|square matrices|floating point|Low precision"):
                f(ours)


def test_what_does_not_fit():
    a, b = sl.eye(3), sl.ones(4, 3)
    for call, message in (
            (lambda: sl.linalg.solve(a, b), r"Incompatible shapes of A and B for the equation AX = B \(3x3 and 4x3\)"),
            (lambda: sl.linalg.solve(a, sl.ones(3).double()), "found A of type float32 and B of type float64"),
            (lambda: sl.linalg.solve_triangular(a, sl.ones(3), upper=True), "B must have at least 2 dimensions"),
            (lambda: sl.linalg.solve_triangular(a, sl.ones(2, 3), upper=True), r"AX = B \(3x3 and 2x3\)"),
            (lambda: sl.cholesky_solve(sl.ones(3), a), "b should have at least 2 dimensions, but has 1"),
            (lambda: sl.linalg.lu_factor(a, pivot=False), "LU without pivoting is not implemented on the CPU"),
            (lambda: sl.linalg.lu_solve(a, sl.tensor([1, 2, 3]), a), "pivots should be a Tensor of scalar type torch.int32"),
            (lambda: sl.linalg.lu_solve(a, sl.tensor([0, 2, 3], dtype=sl.int32), a), "must all be greater or equal to 1"),
            (lambda: sl.linalg.qr(a, "foo"), "unrecognized mode 'foo' but expected one of 'reduced'"),
            (lambda: sl.linalg.eigh(a, "X"), "Expected UPLO argument to be 'L' or 'U', but got X"),
            (lambda: sl.linalg.svd(a, driver="gesvd"), "only supported on CUDA"),
            (lambda: sl.linalg.lstsq(a, a, driver="foo"), r"should be one of \(gels, gelsy, gelsd, gelss\)"),
            (lambda: sl.linalg.multi_dot([a]), "expected at least 2 tensors but got 1"),
            (lambda: sl.linalg.multi_dot([a, b]), "tensors 0 and 1 with shapes"),
            (lambda: sl.linalg.cross(b, sl.ones(3)), "must have the same number of dimensions"),
            (lambda: sl.linalg.cross(b.t(), b.t()), "must have length 3. Got 4 and 4"),
            (lambda: sl.linalg.cross(sl.tensor(1.0), sl.tensor(1.0)), "must have length 3: got no dims"),
            (lambda: sl.linalg.vecdot(b, b.double()), "Expected x and y to have the same dtype"),
            (lambda: sl.linalg.vander(sl.ones(3), N=0), "N must be greater than 1"),
            (lambda: sl.linalg.tensorinv(sl.ones(2, 3)), "prod"),
            (lambda: sl.linalg.cond(b, "fro"), r"linalg.cond\(ord=fro\): A must be batches of square matrices"),
            (lambda: sl.linalg.cond(b, 3), "got an invalid norm type: 3"),
            (lambda: sl.linalg.qr(sl.ones(2, 2, requires_grad=True), "r"), "depends on Q, which is not computed when mode='r'")):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(TypeError, match="must be int"):
        sl.linalg.matrix_power(a, 1.5)


def test_names_that_are_missing_say_what_to_use():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sl.linalg.nothing  # noqa: B018


def test_in_a_graph_with_gradients():
    a, b = symmetric((2, 3, 3)).astype(np.float32), draw((2, 3, 2), 1, np.float32)

    def loss(torch, a, b):
        l = torch.linalg.cholesky(a)
        q, r = torch.linalg.qr(a @ a)
        return (torch.linalg.solve(a, b).sum() + torch.linalg.slogdet(a).logabsdet.sum()
                + torch.linalg.solve_triangular(l, b, upper=False).sum()
                + (q.abs() + r.abs()).sum() * 0.01 + torch.linalg.svdvals(a).sum() + torch.linalg.eigvalsh(a)[..., 0].sum()
                + torch.det(a).sum() * 0.1 + torch.linalg.pinv(a).sum() + torch.matrix_exp(a * 0.1).sum()
                + torch.linalg.norm(a, "nuc", (1, 2)).sum() + torch.linalg.matrix_power(a, 3).mean())

    class Graph(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.a = sl.nn.Parameter(sl.from_numpy(a.copy()))

        def build(self, b):
            y = loss(sl, self.a, b)
            return y, sl.autograd.grad(y, self.a)[0]

    ours, theirs = both(b, grad=False)
    t = torch.from_numpy(a.copy()).requires_grad_()
    want = loss(torch, t, *theirs)
    (slope,) = torch.autograd.grad(want, t)
    got, gradient = Graph()(*ours)
    assert_same(got, want, 1e-3)
    assert_same(gradient, slope, 1e-3 * float(slope.abs().max()))


def test_a_graph_that_meets_a_singular_matrix_tells_and_goes_on():
    class Graph(sl.nn.Graph):
        def build(self, a):
            return sl.linalg.inv(a)

    graph = Graph()
    assert graph(sl.eye(2) * 2).tolist() == [[0.5, 0], [0, 0.5]]
    with pytest.raises(sl.linalg.LinAlgError, match="the input matrix is singular"):
        graph(sl.zeros(2, 2)).numpy()
    assert graph(sl.eye(2)).tolist() == [[1, 0], [0, 1]]


def test_views_methods_and_out():
    a = sl.from_numpy(draw((4, 3, 3))).transpose(0, 2)[:, :, ::1]
    t = torch.from_numpy(draw((4, 3, 3))).transpose(0, 2)
    assert_same(a.permute(2, 0, 1).inverse(), t.permute(2, 0, 1).inverse(), 1e-9)
    assert_same(sl.linalg.svdvals(a), torch.linalg.svdvals(t), 1e-9)
    square = a.permute(2, 0, 1)
    assert_same(square.det(), t.permute(2, 0, 1).det(), 1e-9)
    out = sl.empty(4, 3, 3, dtype=sl.float64)
    assert sl.linalg.inv(square, out=out) is out and out.tolist() == square.inverse().tolist()
    assert type(sl.linalg.svd(square)).__name__ == "linalg_svd" and type(sl.svd(square)).__name__ == "svd"
    assert sl.svd(square).V.shape == (4, 3, 3)
