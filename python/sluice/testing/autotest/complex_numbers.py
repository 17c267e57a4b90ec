"""Which ops are drawn with complex numbers: all but those whose complex forms are refused here."""

from __future__ import annotations

MATRICES = """cholesky cholesky_ex cholesky_inverse cholesky_solve cond det eigh eigvalsh geqrf householder_product inv
    inv_ex inverse logdet lstsq lu lu_factor lu_factor_ex lu_solve lu_unpack matrix_exp matrix_norm matrix_power matrix_rank
    nuclear_norm orgqr pinv pinverse qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv
    tensorsolve triangular_solve""".split()
# Logarithms of sums, and statistics: torch's complex forms are missing here, and refused.
REFUSED = """batch_norm corrcoef cov embedding_renorm_ logaddexp logcumsumexp logsumexp rms_norm""".split()
# These read memory beside the tensor; cases of real numbers say enough of them.
OF_MEMORY = ["as_strided", "as_strided_copy", "as_strided_scatter"]
REAL = {*MATRICES, *REFUSED, *OF_MEMORY}


def share(op: str) -> float:
    """The share of cases with complex numbers, among those whose numbers may be floating."""
    if op.rpartition(".")[2] in REAL or op == "linalg.norm":  # which takes those of matrices, too
        return 0.0
    return 0.4 if op.startswith("fft.") else 0.15
