"""Cases of linear algebra: matrices that are far from singular, and results that are determined up to signs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from sluice.testing.autotest.arrays import Array
from sluice.testing.autotest.draw import Draw


def square(draw: Draw, kind: str = "general", largest: int = 4) -> Array:
    """Matrices with eigenvalues or singular values apart from each other and from 0, mostly one."""
    n = draw.whole(0 if draw.chance(0.1) else 1, largest)
    batch = draw.shape((0, 0, 0, 1, 2))
    a = draw.array((*batch, n, n), draw.dtype("wide"))
    values = a.values + np.diag(np.arange(1, n + 1) * 3.0)
    if kind in ("symmetric", "positive"):
        values = (values + np.swapaxes(values, -1, -2)) / 2
    if kind == "positive":
        values = values @ np.swapaxes(values, -1, -2) + np.eye(n)
    return replace(a, values=values.astype(a.values.dtype), layout="plain" if a.layout == "expanded" else a.layout).fitting()


def tall(draw: Draw, wide: bool = True) -> Array:
    draw.ties = False  # matrices of equal rows have no slopes
    batch = draw.shape((0, 0, 1))
    m, n = draw.whole(1, 5), draw.whole(1, 5)
    if not wide:
        m, n = max(m, n), min(m, n)
    return draw.array((*batch, m, n), draw.dtype("wide"))


def right(draw: Draw, a: Array, left: bool = True) -> Array:
    n, k = a.shape[-1], draw.whole(1, 3)
    return draw.array((*a.shape[:-2], n, k) if left else (*a.shape[:-2], k, n), a.dtype)


def _of(kind: str, **choices: tuple[Any, ...]) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        return [square(draw, kind)], {k: draw.pick(v) for k, v in choices.items() if draw.chance(0.6)}, "!double !strict"

    return made


def _of_tall(**choices: tuple[Any, ...]) -> Callable[[Draw], Any]:
    def made(draw: Draw) -> Any:
        return [tall(draw)], {k: draw.pick(v) for k, v in choices.items() if draw.chance(0.6)}, "!double !strict"

    return made


def _decomposed(draw: Draw) -> Any:
    return [tall(draw, wide=False)], {}, "!double !strict !forms"


def _solve(draw: Draw) -> Any:
    left = draw.chance(0.6)
    a = square(draw)
    if draw.chance(0.2) and len(a.shape) == 2:
        return [a, draw.array(a.shape[:1], a.dtype)], {}, "!double !strict"
    return [a, right(draw, a, left)], {} if left else {"left": False}, "!double !strict"


def _triangular(draw: Draw) -> Any:
    a, upper, left = square(draw), draw.chance(0.5), draw.chance(0.6)
    a = replace(a, values=np.triu(a.values) if upper else np.tril(a.values))
    return [a, right(draw, a, left)], {"upper": upper, "left": left, "unitriangular": draw.chance(0.2)}, "!double !strict"


def _factored(draw: Draw) -> tuple[Array, Array]:
    a = square(draw)
    n = a.shape[-1]
    return a, Array(np.broadcast_to(np.arange(1, n + 1, dtype=np.int32), a.shape[:-1]).copy(), "int32")


def _lu_solve(draw: Draw) -> Any:
    lu, pivots = _factored(draw)
    return [lu, pivots, right(draw, lu)], {"adjoint": True} if draw.chance(0.3) else {}, "!double !strict"


def _ldl(draw: Draw) -> Any:
    a = square(draw, "symmetric")
    return [a], {"hermitian": draw.chance(0.5)} if draw.chance(0.6) else {}, "!grad !strict !forms"


def _ldl_solve(draw: Draw) -> Any:
    factors, pivots = _factored(draw)  # without exchanges
    return [factors, pivots, right(draw, factors)], {"hermitian": False} if draw.chance(0.3) else {}, "!grad !strict !forms"


def _lu_solve_old(draw: Draw) -> Any:
    lu, pivots = _factored(draw)
    return [right(draw, lu), lu, pivots], {}, "!double !strict"


def _lstsq(draw: Draw) -> Any:
    a = tall(draw, wide=False)
    b = draw.array((*a.shape[:-1], draw.whole(1, 3)), a.dtype)
    return [a, b], {}, "!grad !strict !forms"


def _matrix_norm(draw: Draw) -> Any:
    return [tall(draw)], {"ord": draw.pick(("fro", "nuc", 1, -1, 2, -2, float("inf"))), "keepdim": draw.chance(0.5)}, "!double !strict"


def _norm(draw: Draw) -> Any:
    a = draw.array(draw.shape((1, 2)), draw.dtype("floats"))
    options: dict[str, Any] = {"ord": draw.pick((None, 1, 2, float("inf"), -float("inf")))} if len(a.shape) < 3 else {}
    if draw.chance(0.4):
        options["dim"] = draw.whole(-len(a.shape), len(a.shape) - 1)
    return [a], options, "!double !strict"


def _power(draw: Draw) -> Any:
    return [square(draw), draw.whole(-2, 4)], {}, "!double !strict"


def _householder(draw: Draw) -> Any:
    a = tall(draw, wide=False)
    return [a, draw.array((*a.shape[:-2], draw.whole(1, a.shape[-1])), a.dtype, "small")], {}, "!double !strict"


def _tensorinv(draw: Draw) -> Any:
    a = draw.array((2, 3, 6), draw.dtype("wide"))
    a = replace(a, values=a.values + 4 * np.eye(6).reshape(2, 3, 6).astype(a.values.dtype), layout="plain")
    return [a, 2], {}, "!double !strict"


def _tensorsolve(draw: Draw) -> Any:
    (a, _), _, flags = _tensorinv(draw)
    a = replace(a, values=a.values.reshape(2, 3, 2, 3))
    return [a, draw.array((2, 3), a.dtype)], {}, flags


def _cholesky_solve(draw: Draw) -> Any:
    a, upper = square(draw, "positive"), draw.chance(0.4)
    factor = replace(a, values=np.triu(a.values) if upper else np.tril(a.values))
    return [right(draw, a), factor], {"upper": upper}, "!double !strict"


def _cholesky_inverse(draw: Draw) -> Any:
    args, keywords, flags = _cholesky_solve(draw)
    return args[1:], keywords, flags


def _triangular_old(draw: Draw) -> Any:
    (a, b), _, flags = _solve(draw)
    b = right(draw, a)
    return [b, replace(a, values=np.triu(a.values))], {}, flags


LINEAR_ALGEBRA: dict[str, Any] = {
    **dict.fromkeys(("linalg.inv", "linalg.inv_ex", "inverse", "linalg.det", "det", "linalg.slogdet", "slogdet", "linalg.lu",
                     "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.matrix_exp", "matrix_exp"), _of("general")),
    **dict.fromkeys(("linalg.cholesky", "linalg.cholesky_ex", "cholesky"), _of("positive", upper=(False, True))),
    "logdet": _of("positive"),
    "linalg.eigvalsh": _of("symmetric", UPLO=("L", "U")),
    "linalg.ldl_factor": _ldl, "linalg.ldl_factor_ex": _ldl, "linalg.ldl_solve": _ldl_solve,
    "linalg.eigh": lambda d: (*_of("symmetric", UPLO=("L", "U"))(d)[:2], "!double !strict !forms"),
    "linalg.svd": _decomposed, "svd": _decomposed, "linalg.qr": _decomposed, "qr": _decomposed, "linalg.svdvals": _of_tall(),
    "linalg.solve": _solve, "linalg.solve_ex": _solve, "linalg.solve_triangular": _triangular,
    "triangular_solve": _triangular_old,
    "cholesky_solve": _cholesky_solve, "cholesky_inverse": _cholesky_inverse, "linalg.lu_solve": _lu_solve,
    "lu_solve": _lu_solve_old,
    "lu_unpack": lambda d: (list(_factored(d)), {}, "!double !strict"), "linalg.lstsq": _lstsq, "linalg.pinv": _of_tall(),
    "pinverse": _of_tall(),
    "linalg.matrix_rank": _of_tall(), "linalg.cond": _of("general", p=(None, 1, 2, "fro", "nuc", float("inf"))),
    "linalg.matrix_power": _power, "matrix_power": _power, "linalg.householder_product": _householder, "orgqr": _householder,
    "linalg.matrix_norm": _matrix_norm, "linalg.norm": _norm, "linalg.tensorinv": _tensorinv,
    "linalg.tensorsolve": _tensorsolve,
    "linalg.vector_norm": "input=[N M] ord=1|2|3|0.5|0|float('inf')|-float('inf') dim=dim|None @floats",
    "nuclear_norm": lambda d: ([tall(d)], {}, "!double !strict"),
}


def _product(library: Any, outputs: Any) -> Any:
    """The part of U, S and V that does not depend on signs: the factors' product, and S."""
    u, s, v = outputs
    return s, (u * s.unsqueeze(-2)).abs(), v.abs()


def _eigh(library: Any, outputs: Any) -> Any:
    w, v = outputs
    return w, (v * w.unsqueeze(-2)) @ v.transpose(-1, -2)


def _qr(library: Any, outputs: Any) -> Any:
    q, r = outputs
    return q @ r, r.abs()


def _chosen(library: Any, outputs: Any) -> Any:
    """Which of equal elements was chosen is not determined."""
    values, indices = outputs
    return values, indices * 0


# These are compared instead of the results, as the results are not determined.
INVARIANT: dict[str, Callable[[Any, Any], Any]] = {"linalg.eigh": _eigh, "linalg.svd": _product, "svd": _product, "linalg.qr": _qr, "qr": _qr,
                                                            "topk": _chosen, "kthvalue": _chosen}
