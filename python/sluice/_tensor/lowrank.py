"""Decompositions that torch writes with others: of low rank, of a few eigenvalues, and by reflections."""

from __future__ import annotations

from typing import Any

from sluice import _C, linalg
from sluice._C import Tensor, fn
from sluice._tensor.creation import _finish, arange, eye, randn
from sluice._tensor.dtypes import finfo


def _check_floats(name: str, *tensors: Any) -> None:
    for t in tensors:
        if isinstance(t, Tensor) and not t.dtype.is_floating_point:
            raise _C.ValueError(f"{name}: input is of dtype {t.dtype}; dtype must be of floats")


def get_approximate_basis(A: Tensor, q: int, niter: int | None = 2, M: Any = None) -> Tensor:
    """Q (..., m, q) with orthonormal columns whose products Q Q^T A are near A (or A - M): the range of A met at random, by
    `niter` steps of subspace iteration. Halko, Martinsson and Tropp, 2009; torch._lowrank.get_approximate_basis."""
    shape, steps = A._shape, 2 if niter is None else niter
    R = randn(shape[-1], q, dtype=A.dtype, device=A._device)
    A = A if M is None else A - M
    Q = linalg.qr(fn.matmul(A, R)).Q
    for _ in range(steps):
        Q = linalg.qr(fn.matmul(A.mT, Q)).Q
        Q = linalg.qr(fn.matmul(A, Q)).Q
    return Q


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Any = None) -> tuple:
    """U, S, V of rank q near A (..., m, n), or A - M; torch.svd_lowrank. It draws q random vectors and refines them niter times."""
    _check_floats("svd_lowrank", A, M)
    q, rows, columns = 6 if q is None else q, A._shape[-2], A._shape[-1]
    wide = rows < columns
    M = None if M is None else M.expand(A._shape)
    if wide:
        A, M = A.mT, None if M is None else M.mT
    Q = get_approximate_basis(A, q, niter, M)
    B = fn.matmul(Q.mT, A if M is None else A - M)
    U, S, Vh = linalg.svd(B, full_matrices=False)
    U, V = fn.matmul(Q, U), Vh.mT
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple:
    """U, S, V of the q principal components of the rows of A (..., m, n); torch.pca_lowrank."""
    _check_floats("pca_lowrank", A)
    rows, columns = A._shape[-2:]
    q = min(6, rows, columns) if q is None else q
    if not 0 <= q <= min(rows, columns):
        raise _C.ValueError(f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={min(rows, columns)}")
    if niter < 0:
        raise _C.ValueError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


# Reflections


def _reflect(A: Tensor, v: Tensor, tau: Tensor) -> Tensor:
    """(I - tau v v^H) A for v (..., m) and tau (...)."""
    return A - tau.unsqueeze(-1).unsqueeze(-1) * v.unsqueeze(-1) * fn.matmul(v.conj().unsqueeze(-2), A)


def geqrf(input: Tensor, *, out: Any = None) -> Any:
    """R in the upper triangle, below it the vectors of the reflections whose product is Q, and their factors tau; torch.geqrf.

    It has no gradient, as torch's; linalg.qr has.
    """
    if input.ndim < 2:
        raise RuntimeError(f"torch.geqrf: input must have at least 2 dimensions; got {input.ndim}")
    if input.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise NotImplementedError(f"geqrf: not implemented for {input.dtype}; cast it to float32 or float64")
    A = input.detach()
    rows, columns = A._shape[-2:]
    taus, below = [], arange(rows)
    for k in range(min(rows, columns)):
        head, tail = A[..., k, k], fn.where(below > k, A[..., :, k], 0.0)
        rest = tail.abs().square().sum(-1)
        flat = rest == 0  # nothing to reflect: tau is 0
        if head.is_complex():
            flat = flat & (head.imag == 0)
        norm = (head.abs().square() + rest).sqrt()
        beta = fn.where(fn.signbit(head.real), norm, -norm)
        v = fn.where(below == k, 1.0, tail / fn.where(flat, 1.0, head - beta).unsqueeze(-1))
        tau = fn.where(flat, 0.0, (beta - head) / fn.where(flat, 1.0, beta))
        right = _reflect(A[..., k:], v, tau.conj())
        A = fn.cat([A[..., :k], fn.where(below > k, v, right[..., 0]).unsqueeze(-1), right[..., 1:]], -1)
        taus.append(tau)
    tau = fn.stack(taus, -1) if taus else A.new_zeros(A._shape[:-2] + (0,))
    result = _GeqrfResult(A, tau)
    if out is not None:
        for target, value in zip(out, result):
            _finish(value, None, False, target)
        return out
    return result


class _GeqrfResult(tuple):
    """torch.return_types.geqrf: (a, tau)."""

    __slots__ = ()

    def __new__(cls, a: Tensor, tau: Tensor) -> Any:
        return tuple.__new__(cls, (a, tau))

    def __getnewargs__(self) -> Any:
        return tuple(self)

    a = property(lambda self: self[0])
    tau = property(lambda self: self[1])


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False, *, out: Any = None) -> Tensor:
    """Q other, Q^H other (transpose), other Q or other Q^H (not left), of the reflections that geqrf gives; torch.ormqr."""
    if input.ndim < 2 or other.ndim < 2:
        raise RuntimeError("torch.ormqr: input and other must have at least 2 dimensions; got "
                           f"{input.ndim} and {other.ndim}")
    rows, side, count = input._shape[-2], other._shape[-2 if left else -1], tau._shape[-1]
    if side != rows:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] is {side}; must be equal to input.shape[-2], "
                           f"{rows}")
    if count != min(side, input._shape[-1]):
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] is {count}; must be equal to the lesser of input's last two dims, "
                           f"{min(side, input._shape[-1])}")
    if tau._shape[:-1] != input._shape[:-2] or other._shape[:-2] != input._shape[:-2]:
        raise RuntimeError("torch.ormqr: batch dimensions of tau and other must be equal to those of input: got "
                           f"{tau._shape[:-1]}, {other._shape[:-2]} and {input._shape[:-2]}")
    C = other if left else other.mH
    below = arange(rows)
    # Q = H_0 H_1 ...; Q C applies the last reflection first. C Q is (Q^H C^H)^H.
    adjoint = bool(transpose) == bool(left)
    order = range(count) if adjoint else reversed(range(count))
    for k in order:
        v = fn.where(below == k, 1.0, fn.where(below > k, input[..., :, k], 0.0)).to(C.dtype)
        C = _reflect(C, v, tau[..., k].conj() if adjoint else tau[..., k])
    C = C if left else C.mH
    return C if out is None else _finish(C, None, False, out)


# A few eigenvalues


def _orthonormal(S: Tensor, B: Any) -> Tensor:
    """A basis of the columns of S (m, k) that is orthonormal in the product of B, less what is dependent."""
    S = S / S.square().sum(0).sqrt().clamp(min=1e-300 if S.dtype is _C.float64 else 1e-38)
    for _ in range(2):
        gram = fn.matmul(S.mT, S if B is None else fn.matmul(B, S))
        values, vectors = linalg.eigh((gram + gram.mT) / 2)
        kept = values > values.max() * finfo(S.dtype).eps * 10
        S = fn.matmul(S, vectors[:, kept] / values[kept].sqrt())
    return S


def _lobpcg(A: Tensor, k: int, B: Any, X: Tensor, iK: Any, niter: int, tol: float, largest: bool, tracker: Any) -> tuple:
    sign = -1.0 if largest else 1.0
    of_A, of_B = (lambda S: fn.matmul(A, S)), (lambda S: S if B is None else fn.matmul(B, S))

    def best(S: Tensor) -> tuple:
        """The Ritz values and vectors of a basis, wanted ones first, as coefficients of it."""
        values, vectors = linalg.eigh(sign * (lambda T: (T + T.mT) / 2)(fn.matmul(S.mT, of_A(S))))
        return sign * values, vectors

    n = X._shape[-1]
    S = _orthonormal(X, B)
    values, C = best(S)
    X, E, P = fn.matmul(S, C[:, :n]), values[:n], None
    scale = float(A.norm()) + float(E.abs().max()) * (1.0 if B is None else float(B.norm()))
    steps = 0
    while niter < 0 or steps < niter:
        R = of_A(X) - of_B(X) * E
        if bool((R[:, :k].norm(dim=0) <= tol * scale * X[:, :k].norm(dim=0).clamp(min=1e-30)).all()):
            break
        W = R if iK is None else fn.matmul(iK, R)
        S = _orthonormal(fn.cat([X, W] if P is None else [X, W, P], 1), B)
        values, C = best(S)
        new = fn.matmul(S, C[:, :n])
        P = new - fn.matmul(X, fn.matmul(X.mT, of_B(new)))
        X, E, steps = new, values[:n], steps + 1
        if tracker is not None:
            tracker(_Progress(X, E, steps))
    return E[:k], X[:, :k]


class _Progress:
    """A tracker is given this after each step: eigenvalues E, vectors X, and ivars["istep"]."""

    def __init__(self, X: Tensor, E: Tensor, steps: int) -> None:
        self.X, self.E, self.ivars = X, E, {"istep": steps}


def lobpcg(A: Tensor, k: int | None = None, B: Any = None, X: Any = None, n: int | None = None, iK: Any = None,
           niter: int | None = None, tol: float | None = None, largest: bool | None = None, method: str | None = None,
           tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None, ortho_bparams: Any = None) -> tuple:
    """The k largest (or smallest) eigenvalues of a symmetric A (..., m, m), or of A x = e B x, and their vectors; torch.lobpcg.

    Knyazev's block method: steps of X, preconditioned residuals (by iK) and the last step together, until residuals are below
    `tol` relative to A, or `niter` steps were made (by default 1000; -1: no limit). `n`: vectors iterated on, X: those to begin with.
    method "basic" and "ortho" name one method here, which keeps its basis orthonormal, so the ortho_ parameters choose nothing.
    Gradients are those of linalg.eigh on the result's span where A alone requires them; B must not.
    """
    _check_floats("lobpcg", A, B, X, iK)
    if method not in (None, "basic", "ortho"):
        raise _C.ValueError(f"lobpcg: method is {method!r}; must be 'basic' or 'ortho'")
    if A.ndim < 2 or A._shape[-1] != A._shape[-2]:
        raise RuntimeError(f"lobpcg: A has shape {A._shape}; must be of square matrices")
    if isinstance(B, Tensor) and B.requires_grad:
        raise _C.ValueError("lobpcg: Backward for the generalized eigenvalue problem is not supported; detach B")
    m = A._shape[-1]
    k = (1 if X is None else X._shape[-1]) if k is None else k
    n = (k if X is None else X._shape[-1]) if n is None else n
    if m < 3 * n:
        raise _C.ValueError(f"lobpcg: LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the "
                            f"number of requested eigenpairs (={n})")
    if not 0 < k <= n:
        raise _C.ValueError(f"lobpcg: k is {k}; must be from 1 to n, {n}")
    tol = {_C.float32: 1e-4}.get(A.dtype, 1e-7) if tol is None else tol  # roots of what the dtype can tell apart, about
    batch, flat = A._shape[:-2], A.detach().reshape(-1, m, m)

    def part(t: Any, i: int) -> Any:
        return None if t is None else t.detach().expand(batch + t._shape[-2:]).reshape(-1, *t._shape[-2:])[i]

    found = []
    for i in range(flat._shape[0]):
        start = randn(m, n, dtype=A.dtype, device=A._device) if X is None else part(X, i)[:, :n]
        found.append(_lobpcg(flat[i], k, part(B, i), start, part(iK, i), 1000 if niter is None else niter, tol,
                             largest is not False,
                             tracker))
    E = fn.stack([e for e, _ in found]).reshape(batch + (k,)) if found else A.new_zeros(batch + (k,))
    V = fn.stack([v for _, v in found]).reshape(batch + (m, k)) if found else A.new_zeros(batch + (m, k))
    if not A.requires_grad:
        return E, V
    return _with_gradient(A, E, V, B)


def _with_gradient(A: Tensor, E: Tensor, V: Tensor, B: Any) -> tuple:
    """The same values with the gradient of symmetric A: one step of inverse iteration with the complement, exact to first order."""
    if B is not None:
        raise _C.ValueError("lobpcg: gradients are those of A x = e x; with B, detach A")
    symmetric = (A + A.mT) / 2
    change = fn.matmul(V.mT, fn.matmul(symmetric - symmetric.detach(), V))
    values = E + change.diagonal(dim1=-2, dim2=-1)
    columns = []
    identity = eye(A._shape[-1], dtype=A.dtype)
    for i in range(E._shape[-1]):
        v, e = V[..., i:i + 1], E[..., i:i + 1].unsqueeze(-1)
        shifted = symmetric.detach() - e * identity + fn.matmul(v, v.mT)  # regular where e is a single eigenvalue
        pushed = fn.matmul(symmetric - symmetric.detach(), v)
        step = linalg.solve(shifted, pushed - fn.matmul(v, fn.matmul(v.mT, pushed)))
        columns.append(v - step)
    return values, fn.cat(columns, -1)


