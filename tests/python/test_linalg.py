"""torch.linalg: factorizations, systems, norms and what is made of them, with torch as the oracle; eager and in graphs."""

import math
import warnings

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl

warnings.filterwarnings("ignore", message=".*is deprecated in favor of.*")
SHAPES = [(3, 3), (2, 4, 4), (1, 1), (0, 0), (2, 0, 3, 3), (2, 3, 5, 5)]
inf = math.inf


def draw(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def symmetric(shape, seed=0, dtype=np.float64):
    a = draw(shape, seed, dtype)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1], dtype=dtype)


def both(*arrays, grad=False):
    return ([sl.from_numpy(a.copy()).requires_grad_(grad) for a in arrays],
            [torch.from_numpy(a.copy()).requires_grad_(grad) for a in arrays])


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def plain(t):
    return torch.from_numpy(t.detach().numpy(force=True).copy())  # torch has zeros without memory


def check(f, g, *arrays, tolerance=1e-9, twice=True, constant=()):
    """Values, gradients and gradients of gradients of f are those of g: the same function of sluice's and torch's. The results
    `constant` have no gradient here, and zeros in torch."""
    ours, theirs = both(*arrays, grad=True)
    got, want = as_list(f(*ours)), as_list(g(*theirs))
    assert len(got) == len(want)
    weights = []
    for i, (a, b) in enumerate(zip(got, want)):
        assert_same(a, b, tolerance)
        assert a.requires_grad == (b.requires_grad and i not in constant)
        weights.append(draw(tuple(b.shape), 70 + i))
    chosen = [i for i, a in enumerate(got) if a.requires_grad]
    if not chosen:
        return
    total = sum((got[i] * sl.from_numpy(weights[i])).sum() for i in chosen)
    expected = sum((want[i] * torch.from_numpy(weights[i])).sum() for i in chosen)
    got = sl.autograd.grad(total, ours, create_graph=twice, allow_unused=True)
    want = torch.autograd.grad(expected, theirs, create_graph=twice, allow_unused=True)
    for a, b in zip(got, want):
        assert (a is None) == (b is None)
        if b is not None:
            assert_same(a, plain(b), 10 * tolerance)
    if not twice:
        return
    total = sum((a * a).sum() for a in got if a is not None)
    expected = sum((b * b).sum() for b in want if b is not None)
    if not expected.requires_grad:
        return
    got = sl.autograd.grad(total, ours, allow_unused=True) if total.requires_grad else [None] * len(ours)
    want = torch.autograd.grad(expected, theirs, allow_unused=True)
    for a, b in zip(got, want):
        if b is not None and a is not None:
            assert_same(a, plain(b), 1e4 * tolerance)
        else:  # a zero that one of both leaves out
            rest = a if b is None else b
            assert rest is None or float(abs(rest).max() if rest.numel() else 0) < 1e-9


def same_call(name, *arguments, module="linalg", **options):
    """The functions of that name, as check() wants them."""
    return (lambda *x: getattr(getattr(sl, module), name)(*x, *arguments, **options),
            lambda *x: getattr(getattr(torch, module), name)(*x, *arguments, **options))


def top(name, *arguments, **options):
    return (lambda *x: getattr(sl, name)(*x, *arguments, **options), lambda *x: getattr(torch, name)(*x, *arguments, **options))


# Systems


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


# Decompositions


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


# Norms


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, -2, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (2, 0, 1), ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_vector_norm(ord, dim, keepdim):
    f, g = same_call("vector_norm", ord, dim, keepdim)
    if ord == 0:
        ours, theirs = both(np.round(draw((2, 3, 4))))
        assert_same(f(*ours), g(*theirs), 1e-12)
    else:
        check(f, g, draw((2, 3, 4)), tolerance=1e-9)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, inf, -inf])
@pytest.mark.parametrize("dim", [(-2, -1), (0, 2), (2, 0), (1, 0)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_matrix_norm(ord, dim, keepdim):
    check(*same_call("matrix_norm", ord, dim, keepdim), draw((2, 3, 4)), tolerance=1e-8, twice=ord not in ("nuc", 2, -2))
    want = np.linalg.norm(draw((2, 3, 4)), ord, dim, keepdim)
    np.testing.assert_allclose(sl.linalg.norm(sl.from_numpy(draw((2, 3, 4))), ord, dim, keepdim).numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 0, 1, 2, -1, 3, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, (1,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), ()])
def test_norm_is_of_vectors_or_matrices(ord, dim, shape):
    ours, theirs = both(draw(shape))
    try:
        want = torch.linalg.norm(*theirs, ord, dim)
    except (RuntimeError, IndexError) as refusal:
        with pytest.raises(type(refusal)):
            sl.linalg.norm(*ours, ord, dim)
    else:
        assert_same(sl.linalg.norm(*ours, ord, dim), want, 1e-9)


@pytest.mark.parametrize("p", ["fro", "nuc", None, 0, 1, 2, 3.5, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, (0, 1), (1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_torch_norm(p, dim, keepdim):
    ours, theirs = both(draw((2, 3, 4)))
    try:
        want = torch.norm(*theirs, p, dim, keepdim)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            sl.norm(*ours, p, dim, keepdim)
        return
    assert_same(sl.norm(*ours, p, dim, keepdim), want, 1e-9)
    assert_same(ours[0].norm(p, dim, keepdim), theirs[0].norm(p, dim, keepdim), 1e-9)


def test_norms_dtypes_and_refusals():
    ours, theirs = sl.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])
    assert_same(sl.linalg.vector_norm(ours, dtype=sl.float64), torch.linalg.vector_norm(theirs, dtype=torch.float64), 1e-12)
    assert_same(sl.norm(ours, dtype=sl.float64), torch.norm(theirs, dtype=torch.float64), 1e-12)
    assert_same(sl.linalg.matrix_norm(ours.reshape(1, 2), dtype=sl.float64),
                torch.linalg.matrix_norm(theirs.reshape(1, 2), dtype=torch.float64))
    assert_same(sl.linalg.norm(ours.half()), torch.linalg.norm(theirs.half()), 1e-2)
    for ord in ("fro", "nuc", 1, 2, inf):
        assert_same(sl.linalg.matrix_norm(sl.zeros(0, 3), ord), torch.linalg.matrix_norm(torch.zeros(0, 3), ord))
    for call, message in (
            (lambda: sl.linalg.vector_norm(sl.tensor([1, 2])), "Expected a floating point or complex tensor as input. Got int64"),
            (lambda: sl.linalg.vector_norm(ours.double(), dtype=sl.float32), "convertible without narrowing"),
            (lambda: sl.linalg.vector_norm(ours, dtype=sl.int64), "dtype should be floating point or complex, but got int64"),
            (lambda: sl.linalg.vector_norm(sl.zeros(0), inf), "on an empty tensor because the operation does not have an identity"),
            (lambda: sl.linalg.matrix_norm(ours), "must have at least 2 dimensions"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), 3), "Order 3 not supported"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), "foo"), "Order foo not supported"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), dim=(0, 0)), r"dims must be different. Got \(0, 0\)"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), dim=(0,)), "dim must be a 2-tuple"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2).half(), 2), "Low precision dtypes not supported")):
        with pytest.raises(RuntimeError, match=message):
            call()


@pytest.mark.parametrize("p", [None, "fro", "nuc", 1, -1, 2, -2, inf, -inf])
def test_cond(p):
    def product(a):  # torch's own gradient of cond raises
        return torch.linalg.norm(a, p, (-2, -1)) * torch.linalg.norm(torch.linalg.inv(a), p, (-2, -1))

    f, g = same_call("cond", p)
    check(f, g if p in (None, 2, -2) else product, draw((2, 3, 3)), tolerance=1e-7, twice=False)
    for a in (np.zeros((3, 3)), np.zeros((0, 0)), np.ones((2, 2, 2))):
        if p in (None, 2, -2) and a.any():
            continue  # of rounding errors
        if p == "nuc" and a.size:
            assert (sl.linalg.cond(sl.from_numpy(a), p) == inf).all()  # torch gives NaN
            continue
        ours, theirs = both(a)
        assert_same(sl.linalg.cond(*ours, p), torch.linalg.cond(*theirs, p))
    if p in (None, 2, -2):
        check(*same_call("cond", p), draw((4, 3)), tolerance=1e-8, twice=False)


# Results made of them


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (0, 3), (2, 3, 0)])
def test_pinv(shape):
    check(*same_call("pinv"), draw(shape), tolerance=1e-8)
    low = draw((5, 2)) @ draw((2, 4), 1)
    for f, g in (same_call("pinv", rtol=1e-8), same_call("pinv", 1e-8), top("pinverse", 1e-8), same_call("pinv", atol=1e-9)):
        check(f, g, low, tolerance=1e-7, twice=False)


def test_pinv_of_symmetric_matrices_and_tolerances():
    a = symmetric((2, 3, 3))
    ours, theirs = both(a)
    assert_same(sl.linalg.pinv(*ours, hermitian=True), torch.linalg.pinv(*theirs, hermitian=True), 1e-9)
    assert_same(sl.linalg.pinv(*ours, rtol=sl.tensor([0.1, 0.5], dtype=sl.float64)),
                torch.linalg.pinv(*theirs, rtol=torch.tensor([0.1, 0.5], dtype=torch.float64)), 1e-9)


def test_matrix_rank():
    a = np.stack([np.eye(4), np.diag([1.0, 1e-5, 0, 0]), np.zeros((4, 4)), np.ones((4, 4))])
    ours, theirs = both(a)
    for arguments, options in (((), {}), ((0.5,), {}), ((), {"atol": 1e-3}), ((), {"rtol": 1e-3}), ((), {"atol": 1e-6, "rtol": 1e-3}),
                               ((), {"hermitian": True}), ((1e-3, True), {}), ((), {"tol": 1e-3})):
        got, want = sl.linalg.matrix_rank(*ours, *arguments, **options), torch.linalg.matrix_rank(*theirs, *arguments, **options)
        assert got.dtype == sl.int64 and got.tolist() == want.tolist()
    assert sl.linalg.matrix_rank(ours[0], atol=sl.tensor(0.5)).tolist() == [4, 1, 0, 1]
    assert sl.linalg.matrix_rank(sl.ones(3, 2)).item() == 1 and sl.linalg.matrix_rank(sl.empty(0, 3)).item() == 0


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("a, b", [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5, 1)), ((2, 4, 3), (2, 4)), ((4, 4), (4, 1))])
def test_lstsq(driver, a, b):
    ours, theirs = both(draw(a), draw(b, 1))
    got, want = sl.linalg.lstsq(*ours, driver=driver), torch.linalg.lstsq(*theirs, driver=driver)
    for name in ("solution", "residuals", "rank", "singular_values"):
        assert_same(getattr(got, name), getattr(want, name), 1e-8)
    check(lambda a, b: sl.linalg.lstsq(a, b).solution, lambda a, b: torch.linalg.lstsq(a, b).solution, draw(a), draw(b, 1),
          tolerance=1e-8)


def test_matrix_power_of_extreme_exponents():
    for n in (1 << 40, -(1 << 63)):
        assert sl.linalg.matrix_power(sl.eye(2), n).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 3, 7])
def test_matrix_power(n):
    for f, g in (same_call("matrix_power", n), top("matrix_power", n)):
        check(f, g, draw((2, 3, 3)), tolerance=1e-6)


def test_products():
    check(*same_call("matmul"), draw((2, 3, 4)), draw((4, 2), 1))
    check(*same_call("vecdot"), draw((2, 3)), draw((4, 1, 3), 1))
    check(*same_call("vecdot", dim=0), draw((3, 2)), draw((3, 1), 1))
    for shapes in ([(5, 3), (3, 4)], [(5, 30), (30, 2), (2, 7), (7, 3)], [(3,), (3, 4), (4, 2)], [(3, 4), (4, 2), (2,)],
                   [(3,), (3, 4), (4,)], [(2, 0), (0, 3), (3, 1)]):
        check(lambda *x: sl.linalg.multi_dot(x), lambda *x: torch.linalg.multi_dot(x), *[draw(s, i) for i, s in enumerate(shapes)])
    check(*same_call("cross"), draw((2, 3)), draw((1, 3), 1))
    check(*same_call("cross", dim=0), draw((3, 2, 1)), draw((3, 1, 4), 1))
    ours, theirs = sl.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert_same(sl.linalg.cross(ours, ours.flip(0)), torch.linalg.cross(theirs, theirs.flip(0)))


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


# Errors


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


# Graphs


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


# L D L^T


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
