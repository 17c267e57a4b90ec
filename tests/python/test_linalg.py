"""torch.linalg's factorizations and systems, with torch as the oracle."""

import math
import warnings

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from linalg_oracle import as_list, both, check, draw, inf, same_call, symmetric, top

warnings.filterwarnings("ignore", message=".*is deprecated in favor of.*")
SHAPES = [(3, 3), (2, 4, 4), (1, 1), (0, 0), (2, 0, 3, 3), (2, 3, 5, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "matrix_exp"])
def test_functions_of_square_matrices(name, shape):
    f, g = same_call(name)
    check(f, g, draw(shape) + 2 * np.eye(shape[-1]), tolerance=1e-8, constant=(0,) if name == "slogdet" else ())
    ours, theirs = both(draw(shape, 1, np.float32) + 2 * np.eye(shape[-1], dtype=np.float32))
    for a, b in zip(as_list(f(*ours)), as_list(g(*theirs))):
        assert_same(a, b, 1e-3)


@pytest.mark.parametrize("a, b, options", [((3, 3), (3,), {}), ((3, 3), (3, 2), {}), ((2, 3, 3), (2, 3), {}),
                                           ((2, 3, 3), (3, 4), {}), ((3, 3), (2, 3, 1), {}), ((2, 1, 3, 3), (4, 3, 2), {}),
                                           ((0, 0), (0, 2), {}), ((3, 3), (3, 0), {}), ((0, 3, 3), (3,), {}),
                                           ((3, 3), (2, 3), {"left": False}), ((2, 3, 3), (4, 3), {"left": False})])
def test_solve(a, b, options):
    check(*same_call("solve", **options), draw(a), draw(b, 1))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("unitriangular", [True, False])
@pytest.mark.parametrize("batch", [((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,))])
def test_solve_triangular(upper, left, unitriangular, batch):
    a = np.triu(draw((*batch[0], 3, 3))) if upper else np.tril(draw((*batch[0], 3, 3)))
    b = draw((*batch[1], *((3, 2) if left else (2, 3))), 1)
    f, g = same_call("solve_triangular", upper=upper, left=left, unitriangular=unitriangular)
    check(f, g, a + 2 * np.eye(3), b)
    junk = draw((3, 3), 5)  # the other triangle is not read
    ours, theirs = both(junk, b)
    assert_same(f(*ours), g(torch.from_numpy(np.triu(junk) if upper else np.tril(junk)), theirs[1]), 1e-9)


def test_triangular_solve_of_the_top_level():
    a, b = np.triu(draw((2, 3, 3))) + 2 * np.eye(3), draw((2, 3, 2), 1)
    for transpose in (False, True):
        ours, theirs = both(b, a)
        got, want = sl.triangular_solve(*ours, transpose=transpose), torch.triangular_solve(*theirs, transpose=transpose)
        assert_same(got.solution, want.solution, 1e-10)
        assert_same(got.cloned_coefficient, want.cloned_coefficient, 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(shape, upper):
    for f, g in (same_call("cholesky", upper=upper), top("cholesky", upper=upper)):
        check(f, g, symmetric(shape), tolerance=1e-8)
    ours, theirs = both(symmetric(shape, 1, np.float32))
    assert_same(sl.linalg.cholesky_ex(*ours, upper=upper)[0], torch.linalg.cholesky_ex(*theirs, upper=upper)[0], 1e-4)
    junk = np.tril(symmetric((4, 4))) + np.triu(draw((4, 4)), 1)  # one triangle is read
    ours, theirs = both(junk.T.copy() if upper else junk)
    assert_same(sl.linalg.cholesky(*ours, upper=upper), torch.linalg.cholesky(*theirs, upper=upper), 1e-10)


@pytest.mark.parametrize("upper", [False, True])
def test_systems_of_cholesky_factors(upper):
    l = np.tril(draw((2, 3, 3))) + 3 * np.eye(3)
    l = np.swapaxes(l, -1, -2).copy() if upper else l

    def of_triangle(torch, f):  # outside of it torch's gradients are of no function
        return lambda l, *b: f(*b, torch.triu(l) if upper else torch.tril(l), upper)

    check(of_triangle(sl, sl.cholesky_inverse), of_triangle(torch, torch.cholesky_inverse), l)
    check(of_triangle(sl, sl.cholesky_solve), of_triangle(torch, torch.cholesky_solve), l, draw((2, 3, 4), 1))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5), (2, 2, 40, 40), (50, 37), (0, 3), (3, 0), (0, 4, 4)])
def test_lu(shape):
    a = draw(shape)
    check(*same_call("lu"), a, tolerance=1e-8, twice=a.size < 100)
    ours, theirs = both(a)
    got, want = sl.linalg.lu_factor_ex(*ours), torch.linalg.lu_factor_ex(*theirs)
    assert_same(got.LU, want.LU, 1e-9)
    assert got.pivots.dtype == sl.int32 and got.pivots.tolist() == want.pivots.tolist() and got.info.tolist() == want.info.tolist()
    for x, y in zip(sl.lu_unpack(got.LU, got.pivots), torch.lu_unpack(want.LU, want.pivots)):
        assert_same(x, y, 1e-9)
    p, l, u = sl.lu_unpack(got.LU, got.pivots, unpack_pivots=False)
    assert p.shape == (0,) and l.shape[-2] == shape[-2] and u.shape[-1] == shape[-1]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve(left, adjoint):
    a, b = draw((2, 4, 4)), draw((3, 2, 4, 4), 1)

    def f(torch):
        return lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint)

    check(f(sl), f(torch), a, b, tolerance=1e-7)
    check(lambda a, b: sl.lu_solve(b, *sl.linalg.lu_factor(a)), lambda a, b: torch.lu_solve(b, *torch.linalg.lu_factor(a)), a, b[0],
          tolerance=1e-7)


def test_determinants_of_singular_matrices():
    for a in ([[1.0, 2], [2, 4]], [[0.0, 0], [0, 1]], [[1.0, 2, 3], [4, 5, 6], [5, 7, 9]], np.zeros((3, 3))):
        x = sl.tensor(a, dtype=sl.float64, requires_grad=True)
        y = sl.det(x)
        assert abs(y.item()) < 1e-12
        y.backward()  # of cofactors, where torch may give zeros
        n = len(a)
        minors = [[np.linalg.det(np.delete(np.delete(np.array(a), i, 0), j, 1)) for j in range(n)] for i in range(n)]
        np.testing.assert_allclose(x.grad.numpy(), [[(-1) ** (i + j) * minors[i][j] for j in range(n)] for i in range(n)], atol=1e-9)
    zero = sl.zeros(2, 3, 3)
    assert sl.det(zero).tolist() == [0, 0] and sl.linalg.slogdet(zero).logabsdet.tolist() == [-inf, -inf]
    assert math.isnan(sl.logdet(-sl.eye(3))) and sl.slogdet(sl.empty(0, 0)).sign == 1 and sl.det(sl.empty(2, 0, 0)).tolist() == [1, 1]
    check(*top("logdet"), symmetric((2, 3, 3)))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 2, 3, 4), (40, 30), (0, 3), (3, 0), (0, 3, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(shape, mode):
    f, g = same_call("qr", mode)
    a = draw(shape)
    if mode == "reduced" or shape[-2] <= shape[-1]:
        check(f, g, a, tolerance=1e-8, twice=a.size < 100)
    else:
        ours, theirs = both(a, grad=True)
        for x, y in zip(f(*ours), g(*theirs)):
            assert_same(x, y, 1e-8)
        with pytest.raises(RuntimeError, match="not differentiable when mode='complete' and nrows > ncols"):
            f(*ours)[1].sum().backward()
    assert_same(sl.linalg.qr(sl.from_numpy(a), "r").R, torch.linalg.qr(torch.from_numpy(a), "r").R, 1e-8)


def up_to_signs(u, s, vh):
    """The part that does not depend on the signs of singular vectors, and has gradients through all of them."""
    return u.abs(), s, vh.abs(), (u * s.unsqueeze(-2)) @ vh


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 2, 3, 4), (60, 45), (0, 3), (3, 0), (0, 2, 2)])
def test_svd(shape):
    a = draw(shape)
    check(lambda a: up_to_signs(*sl.linalg.svd(a, full_matrices=False)),
          lambda a: up_to_signs(*torch.linalg.svd(a, full_matrices=False)), a, tolerance=1e-8, twice=0 < a.size < 30)
    check(*same_call("svdvals"), a, tolerance=1e-8, twice=False)
    ours, theirs = both(a)
    u, s, vh = sl.linalg.svd(*ours)
    want = torch.linalg.svd(*theirs)
    assert (u.shape, s.shape, vh.shape) == tuple(tuple(x.shape) for x in want)
    for x in (u, vh.transpose(-1, -2)):
        assert_same(x.transpose(-1, -2) @ x, torch.eye(x.shape[-1], dtype=torch.float64).expand(x.shape), 1e-9)
    u, s, v = sl.svd(*ours)
    assert_same((u * s.unsqueeze(-2)) @ v.transpose(-1, -2), theirs[0], 1e-9)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-11)])
@pytest.mark.parametrize("shape", [(24, 24), (40, 30), (70, 26), (26, 90)])
def test_svd_and_eigh_of_matrices_with_structure(shape, dtype, tolerance):
    n, m = shape
    k = min(shape)
    u, v = np.linalg.qr(draw((n, n)))[0][:, :k], np.linalg.qr(draw((m, m), 1))[0][:k]
    spectra = (np.ones(k), 10.0 ** -np.arange(k), np.repeat([3.0, 2.0, 1.0], k)[:k], np.where(np.arange(k) < k // 2, 1, 1e-9),
               np.where(np.arange(k) < k // 2, 1, 1e-17), np.where(np.arange(k) < 2, 1, 0))
    cases = [np.ones(shape), np.zeros(shape), np.eye(*shape), np.triu(np.ones(shape)), draw(shape) * 1e-30, draw(shape) * 1e30]
    for a in [*cases, *((u * s) @ v for s in spectra)]:
        a = a.astype(dtype)
        size = max(float(np.linalg.norm(a.astype(np.float64))), 1e-300)
        u_, s, vh = (t.double().numpy() for t in sl.linalg.svd(sl.from_numpy(a)))
        assert (np.diff(s) <= 0).all() and (s >= 0).all()
        assert np.abs((u_[:, :k] * s) @ vh[:k] - a).max() <= tolerance * size
        assert np.abs(s - np.linalg.svd(a.astype(np.float64), compute_uv=False)).max() <= tolerance * size
        for q in (u_, vh.T):
            assert np.abs(q.T @ q - np.eye(len(q))).max() <= tolerance
        h = (a.astype(np.float64) @ a.T.astype(np.float64) / size).astype(dtype)
        values, vectors = (t.double().numpy() for t in sl.linalg.eigh(sl.from_numpy(h)))
        assert np.abs((vectors * values) @ vectors.T - h).max() <= tolerance * size
        assert np.abs(vectors.T @ vectors - np.eye(n)).max() <= tolerance


def test_svd_in_float32_and_of_equal_values():
    a = draw((30, 20), 3, np.float32)
    assert_same(sl.linalg.svdvals(sl.from_numpy(a)), torch.linalg.svdvals(torch.from_numpy(a)), 1e-4)
    assert_same(sl.linalg.svdvals(sl.eye(4) * 3), torch.full((4,), 3.0), 1e-6)
    assert sl.linalg.svdvals(sl.zeros(3, 2)).tolist() == [0, 0]
    x = sl.eye(3, dtype=sl.float64).requires_grad_()
    sl.linalg.svdvals(x).sum().backward()  # of values alone, also where they are equal
    assert_same(x.grad, torch.eye(3, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (1, 1), (0, 0), (2, 0, 3, 3), (40, 40)])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh(shape, uplo):
    def whole(torch):
        def f(a):
            values, vectors = torch.linalg.eigh(a + a.transpose(-1, -2), uplo)
            return values, vectors.abs(), (vectors * values.unsqueeze(-2)) @ vectors.transpose(-1, -2)

        return f

    a = draw(shape)
    check(whole(sl), whole(torch), a, tolerance=1e-8, twice=0 < a.size < 40)
    ours, theirs = both(a)  # one triangle is read
    assert_same(sl.linalg.eigvalsh(*ours, UPLO=uplo), torch.linalg.eigvalsh(*theirs, UPLO=uplo), 1e-9)


def test_matrix_exp_of_large_and_small_norms():
    for scale in (1e-8, 0.1, 5.0, 30.0):
        ours, theirs = both(scale * draw((2, 4, 4)) / 4)
        got, want = sl.matrix_exp(*ours), torch.matrix_exp(*theirs)
        assert_same(got / got.abs().max(), want / want.abs().max(), 1e-10)


def indefinite(n, dtype, hermitian, seed):
    torch.manual_seed(seed)
    a = torch.randn(2, n, n, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)
    a[0, : n // 2, : n // 2] = 0  # blocks of two
    return a


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl_factors_and_systems(dtype, hermitian):
    tolerance = 2e-3 if dtype in (torch.float32, torch.complex64) else 1e-9
    for n in (1, 2, 3, 4, 7, 16):
        a, b = indefinite(n, dtype, hermitian, n), torch.randn(2, n, 3, dtype=dtype)
        ours, theirs = sl.linalg.ldl_factor_ex(to_sl(a), hermitian=hermitian), torch.linalg.ldl_factor_ex(a, hermitian=hermitian)
        assert ours.pivots.tolist() == theirs.pivots.tolist() and ours.info.tolist() == theirs.info.tolist() == [0, 0]
        assert_same(ours.LD, theirs.LD, tolerance)
        x = sl.linalg.ldl_solve(ours.LD, ours.pivots, to_sl(b), hermitian=hermitian)
        assert_same(x, torch.linalg.ldl_solve(theirs.LD, theirs.pivots, b, hermitian=hermitian), 10 * tolerance)
        np.testing.assert_allclose(a.numpy() @ x.numpy(), b.numpy(), atol=100 * tolerance)


def test_ldl_of_batches_and_of_nothing():
    LD, pivots = sl.linalg.ldl_factor(sl.eye(3))
    assert LD.tolist() == np.eye(3).tolist() and pivots.tolist() == [1, 2, 3] and pivots.dtype == sl.int32
    assert sl.linalg.ldl_solve(LD, pivots, sl.ones(4, 3, 1)).shape == (4, 3, 1)
    assert sl.linalg.ldl_factor(sl.zeros(2, 0, 0)).LD.shape == (2, 0, 0)
    assert sl.linalg.ldl_factor_ex(sl.zeros(2, 2)).info.item() == torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item() == 1


def test_ldl_refuses_what_torch_refuses():
    eye, pivots = (lambda m: m.eye(2)), (lambda m: m.tensor([1, 2]).int())
    for call, message in (
            (lambda m: m.linalg.ldl_factor(m.zeros(2, 2)), "is zero"),
            (lambda m: m.linalg.ldl_factor_ex(m.zeros(2, 2), check_errors=True), "is zero"),
            (lambda m: m.linalg.ldl_factor(m.zeros(2, 3)), "must be batches of square matrices"),
            (lambda m: m.linalg.ldl_factor(m.zeros(2)), "must have at least 2 dimensions"),
            (lambda m: m.linalg.ldl_factor(m.zeros(2, 2).int()), "Expected a floating point or complex tensor"),
            (lambda m: m.linalg.ldl_solve(eye(m), pivots(m), m.ones(3, 1)), "each A matrix is 2 by 2 but each b matrix is 3 by 1"),
            (lambda m: m.linalg.ldl_solve(eye(m), m.tensor([1]).int(), m.ones(2, 1)), "pivots with shape"),
            (lambda m: m.linalg.ldl_solve(eye(m), pivots(m), m.ones(2, 1).double()), "same dtype")):
        with pytest.raises(RuntimeError):
            call(torch)
        with pytest.raises(RuntimeError, match=message):
            call(sl)
    with pytest.raises(RuntimeError, match="a pivot is 3; it must be a row of the 2"):
        sl.linalg.ldl_solve(sl.eye(2), sl.tensor([3, 1]).int(), sl.ones(2, 1))
