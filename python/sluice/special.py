"""torch.special: special functions."""

from sluice._C.special import *  # noqa: F403

_POLYNOMIALS = frozenset(f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw") | {
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p", "airy_ai"}


def __getattr__(name):
    if name in _POLYNOMIALS:
        from sluice._tensor import polynomials

        return getattr(polynomials, name)
    raise AttributeError(f"module 'sluice.special' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *_POLYNOMIALS])
