"""Complex matrices: sluice.linalg as torch.linalg, with gradients of both orders, in graphs, and of odd sizes."""

import numpy as np
import pytest
import torch

import sluice as sl

BATCHES = [(), (2,), (0,), (2, 1)]


def matrices(seed, *shape, dtype="complex128", hermitian=False):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    if hermitian:
        a = a @ a.conj().swapaxes(-1, -2) + 2 * np.eye(shape[-1])
    return a.astype(dtype)


def square(seed, n=3, batch=()):
    return [matrices(seed, *batch, n, n)]


def system(seed, n=3, batch=()):
    return [matrices(seed, *batch, n, n), matrices(seed + 1, *batch, n, 2)]


def definite(seed, n=3, batch=()):
    return [matrices(seed, *batch, n, n, hermitian=True)]


def triangular(seed, n=3, batch=()):
    a, b = system(seed, n, batch)
    return [a + 3 * np.eye(n), b]


def projector(v):
    """The part of vectors of any argument that the argument does not change."""
    return v.unsqueeze(-2) * v.conj().unsqueeze(-3) if v.ndim >= 2 else v


def herm(a):
    return (a + a.mH) / 2


# name: (how the operands are drawn, f(module, *operands))
CASES = {
    "inv": (square, lambda m, a: m.linalg.inv(a)),
    "inverse": (square, lambda m, a: m.inverse(a)),
    "solve": (system, lambda m, a, b: m.linalg.solve(a, b)),
    "solve right": (system, lambda m, a, b: m.linalg.solve(a, b.mT, left=False)),
    "solve_ex": (system, lambda m, a, b: m.linalg.solve_ex(a, b)[0]),
    "det": (square, lambda m, a: m.linalg.det(a)),
    "slogdet": (square, lambda m, a: tuple(m.linalg.slogdet(a))),
    "logdet": (square, lambda m, a: m.logdet(a)),
    "cholesky": (definite, lambda m, a: m.linalg.cholesky(herm(a))),
    "cholesky upper": (definite, lambda m, a: m.linalg.cholesky(herm(a), upper=True)),
    "cholesky_inverse": (definite, lambda m, a: m.cholesky_inverse(m.linalg.cholesky(herm(a)))),
    "cholesky_solve": (lambda *k: [*definite(*k), system(*k)[1]],
                       lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(herm(a)))),
    "cholesky_solve upper": (lambda *k: [*definite(*k), system(*k)[1]],
                             lambda m, a, b: m.cholesky_solve(b, m.linalg.cholesky(herm(a), upper=True), upper=True)),
    "solve_triangular": (triangular, lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True)),
    "solve_triangular lower right": (triangular, lambda m, a, b: m.linalg.solve_triangular(a, b.mT, upper=False, left=False)),
    "solve_triangular unit": (system, lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, unitriangular=True)),
    "triangular_solve": (triangular, lambda m, a, b: m.triangular_solve(b, a, transpose=True)[0]),
    "lu": (square, lambda m, a: tuple(m.linalg.lu(a))[1:]),
    "lu_factor": (square, lambda m, a: m.linalg.lu_factor(a)[0]),
    "lu_solve": (system, lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b)),
    "lu_solve adjoint": (system, lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True)),
    "lu_solve right": (system, lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b.mT, left=False)),
    "qr": (square, lambda m, a: tuple(m.linalg.qr(a))),
    "qr tall": (system, lambda m, a, b: tuple(m.linalg.qr(b)) if b.shape[-2] >= 2 else m.linalg.det(a)),
    "qr wide": (system, lambda m, a, b: tuple(m.linalg.qr(b.mH))),
    "eigvalsh": (definite, lambda m, a: m.linalg.eigvalsh(a)),
    "eigvalsh upper": (definite, lambda m, a: m.linalg.eigvalsh(herm(a), UPLO="U")),
    "eigh": (definite, lambda m, a: (m.linalg.eigh(herm(a))[0], projector(m.linalg.eigh(herm(a))[1]))),
    "eigh of real": (definite, lambda m, a: m.linalg.eigvalsh(a.real)),
    "svdvals": (square, lambda m, a: m.linalg.svdvals(a)),
    "svd": (square, lambda m, a: (lambda u, s, v: (s, projector(u), projector(v.mH), u @ v))(*m.linalg.svd(a))),
    "svd tall": (system, lambda m, a, b: (lambda u, s, v: (s, projector(u), u @ v))(*m.linalg.svd(b, full_matrices=False))),
    "svd wide": (system, lambda m, a, b: (lambda u, s, v: (s, projector(v.mH), u @ v))(*m.linalg.svd(b.mH, full_matrices=False))),
    "torch.svd": (square, lambda m, a: (lambda u, s, v: u @ v.mH)(*m.svd(a))),
    "pinv": (system, lambda m, a, b: m.linalg.pinv(b)),
    "pinv hermitian": (definite, lambda m, a: m.linalg.pinv(herm(a), hermitian=True)),
    "matrix_exp": (square, lambda m, a: m.linalg.matrix_exp(a)),
    "matrix_power": (square, lambda m, a: m.linalg.matrix_power(a, 3)),
    "matrix_power -2": (square, lambda m, a: m.linalg.matrix_power(a, -2)),
    "matrix_norm": (square, lambda m, a: m.linalg.matrix_norm(a)),
    "nuclear norm": (square, lambda m, a: m.linalg.matrix_norm(a, "nuc")),
    "norm 2": (square, lambda m, a: m.linalg.matrix_norm(a, 2)),
    "norm 1": (square, lambda m, a: m.linalg.matrix_norm(a, 1)),
    "cond": (square, lambda m, a: m.linalg.cond(a)),
    "lstsq": (system, lambda m, a, b: m.linalg.lstsq(b, a).solution),
    "householder_product": (system, lambda m, a, b: m.linalg.householder_product(b, b[..., 0, :])
                            if b.shape[-2] >= 2 else m.linalg.det(a)),
    "tensorinv": (lambda s, n=3, batch=(): [matrices(s, 2, 3, 6)], lambda m, a: m.linalg.tensorinv(a)),
    "tensorsolve": (lambda s, n=3, batch=(): [matrices(s, 2, 3, 6), matrices(s + 1, 2, 3)],
                    lambda m, a, b: m.linalg.tensorsolve(a, b)),
    "cov": (lambda s, n=3, batch=(): [matrices(s, 3, 5)], lambda m, a: m.cov(a)),
    "corrcoef": (lambda s, n=3, batch=(): [matrices(s, 3, 5)], lambda m, a: m.corrcoef(a)),
    "vander": (lambda s, n=3, batch=(): [matrices(s, 3)], lambda m, a: m.linalg.vander(a)),
    "eigvals": (square, lambda m, a: (lambda w: (w.sum(-1), (w * w).sum(-1), (w * w * w).sum(-1)))(m.linalg.eigvals(a))),
    "eigvals of real": (square, lambda m, a: (m.linalg.eigvals(a.real) ** 3).sum(-1)),
    "eig": (square, lambda m, a: (lambda w, v: v @ (w.exp().unsqueeze(-1) * m.linalg.inv(v)))(*m.linalg.eig(a))),
    "eig of real": (square, lambda m, a: (lambda w, v: v @ (w.exp().unsqueeze(-1) * m.linalg.inv(v)))(*m.linalg.eig(a.imag))),
    "eig vectors": (square, lambda m, a: (lambda w, v: (projector(v) * w.unsqueeze(-2).unsqueeze(-2)).sum(-1))(*m.linalg.eig(a))),
}
WITHOUT_MATRICES = {"tensorinv", "tensorsolve", "cov", "corrcoef", "vander"}


def as_list(y):
    return list(y) if isinstance(y, tuple) else [y]


def total(m, outputs, seed):
    """A real number of all parts of all outputs."""
    rng, loss = np.random.default_rng(seed), 0
    for y in outputs:
        w = rng.standard_normal((2, *y.shape))
        weight = m.tensor(w[0] + 1j * w[1] if y.is_complex() else w[0])
        loss = loss + ((y * weight).real if y.is_complex() else y * weight).sum()
    return loss


def results(m, f, operands, seed, twice=True):
    xs = [m.tensor(x, requires_grad=True) for x in operands]
    ys = as_list(f(m, *xs))
    first = m.autograd.grad(total(m, ys, seed), xs, create_graph=twice, allow_unused=True)
    given = [g for g in first if g is not None]
    found = ys + given
    if twice and any(g.requires_grad for g in given):
        found += [g for g in m.autograd.grad(total(m, given, seed + 1), xs, allow_unused=True) if g is not None]
    return [y.detach().resolve_conj().numpy() for y in found]


def same(ours, theirs, tolerance=1e-7):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, abs(b).max(initial=0)))


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_of_both_orders_are_torchs(name):
    drawn, f = CASES[name]
    for seed, batch in enumerate(BATCHES[:1] if name in WITHOUT_MATRICES else BATCHES):
        if 0 in batch and name in ("cond", "householder_product"):  # of which torch has no gradients
            continue
        operands, twice = drawn(seed * 10, 3, batch), 0 not in batch
        same(results(sl, f, operands, seed, twice), results(torch, f, operands, seed, twice))


@pytest.mark.parametrize("name", CASES)
def test_a_graph_gives_the_values_and_gradients_of_eager_calls(name):
    drawn, f = CASES[name]
    operands = [sl.tensor(x) for x in drawn(5, 3, () if name in WITHOUT_MATRICES else (2,))]
    weights = [sl.nn.Parameter(x.clone()) for x in operands]

    def gradients(y, xs):
        return [g for g in sl.autograd.grad(y, xs, allow_unused=True) if g is not None]

    class Step(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.weights = sl.nn.ParameterList(weights)

        def build(self):
            loss = total(sl, as_list(f(sl, *self.weights)), 3)
            return (loss, *gradients(loss, list(self.weights)))

    eager = total(sl, as_list(f(sl, *weights)), 3)
    wanted = [eager, *gradients(eager, weights)]
    same([y.numpy() for y in Step()()], [y.detach().numpy() for y in wanted], 1e-12)


@pytest.mark.parametrize("n", [1, 2, 33, 70])
def test_larger_matrices_of_both_precisions(n):
    for dtype, tolerance in (("complex64", 3e-3), ("complex128", 1e-9)):
        a, b = matrices(n, n, n, dtype=dtype), matrices(n + 1, n, 3, dtype=dtype)
        h = matrices(n, n, n, hermitian=True).astype(dtype)
        for f in (lambda m, a, b, h: m.linalg.solve(a, b), lambda m, a, b, h: m.linalg.lu_factor(a),
                  lambda m, a, b, h: m.linalg.cholesky(h), lambda m, a, b, h: m.linalg.svdvals(a),
                  lambda m, a, b, h: m.linalg.eigvalsh(h), lambda m, a, b, h: tuple(m.linalg.qr(b))):
            ours, theirs = ([y.numpy() for y in as_list(f(m, *map(m.tensor, (a, b, h))))] for m in (sl, torch))
            same(ours, theirs, tolerance)
        u, s, vh = sl.linalg.svd(sl.tensor(a))
        same([(u * s @ vh).numpy()], [a], tolerance)
        w, v = sl.linalg.eigh(sl.tensor(h))
        same([(v * w @ v.mH).numpy()], [h], tolerance)
        w, v = sl.linalg.eig(sl.tensor(a))
        same([(v * w.unsqueeze(0)).numpy()], [a @ v.numpy()], tolerance)


def test_eigenvalues_of_general_matrices_are_torchs_in_some_order():
    rng = np.random.default_rng(3)
    for dtype in ("float32", "float64", "complex64", "complex128"):
        a = (rng.standard_normal((4, 6, 6)) + (1j * rng.standard_normal((4, 6, 6)) if dtype.startswith("c") else 0)).astype(dtype)
        w, v = sl.linalg.eig(sl.tensor(a))
        theirs = torch.linalg.eig(torch.tensor(a))
        assert str(w.dtype).split(".")[1] == str(v.dtype).split(".")[1] == str(theirs[0].dtype).split(".")[1]
        tolerance = 1e-3 if "32" in dtype or dtype == "complex64" else 1e-9
        for ours, of_torch in zip(w.numpy(), theirs[0].numpy()):
            assert abs(ours[:, None] - of_torch).min(1).max() < tolerance and abs(ours[:, None] - of_torch).min(0).max() < tolerance
        np.testing.assert_allclose(abs(v.numpy() ** 2).sum(-2), 1, rtol=1e-4)
        largest = np.take_along_axis(v.numpy(), abs(v.numpy()).argmax(-2)[:, None], -2)
        assert abs(largest.imag).max() < 1e-6 and largest.real.min() > 0
    assert sl.linalg.eigvals(sl.ones(0, 0)).shape == (0,) and sl.linalg.eig(sl.ones(2, 0, 0))[1].shape == (2, 0, 0)
    rotation = sl.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert sorted(sl.linalg.eigvals(rotation).imag.tolist()) == [-1, 1]


def test_results_come_back_as_operands():
    a = sl.tensor(matrices(4, 4, 4).real)
    w, v = sl.linalg.eig(a)
    np.testing.assert_allclose((v @ sl.diag(w) @ sl.linalg.inv(v)).numpy(), a.numpy() + 0j, atol=1e-9)
    np.testing.assert_allclose(sl.linalg.det(a).item(), sl.prod(w).item(), rtol=1e-9)
    np.testing.assert_allclose(sl.linalg.matrix_rank(v).item(), 4)


def test_what_is_no_matrix_is_refused():
    z = sl.tensor(matrices(0, 2, 3))
    for f in (sl.linalg.eig, sl.linalg.eigvals, sl.linalg.inv, sl.linalg.det):
        with pytest.raises(RuntimeError, match="must be batches of square matrices"):
            f(z)
        with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
            f(z[0])
    with pytest.raises(RuntimeError, match="linalg.eig: Expected a floating point or complex tensor"):
        sl.linalg.eig(sl.ones(2, 2, dtype=sl.int64))
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        sl.linalg.eig(sl.tensor([[1.0, float("nan")], [0.0, 1.0]]))
    with pytest.raises(sl.linalg.LinAlgError, match="singular"):
        sl.linalg.inv(sl.zeros(2, 2, dtype=sl.complex64))
    with pytest.raises(sl.linalg.LinAlgError, match="not positive-definite"):
        sl.linalg.cholesky(-sl.eye(2, dtype=sl.complex64))
    with pytest.raises(RuntimeError, match="same dtype"):
        sl.linalg.solve(sl.eye(2, dtype=sl.complex64), sl.eye(2))
