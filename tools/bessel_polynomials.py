#!/usr/bin/env python3
"""Prints the tables of base/scalar/bessel_functions.inc: coefficients of polynomials, highest degree first, that
interpolate at Chebyshev's points, of the lowest degree that is within the tolerance. Needs mpmath; takes a minute.
"""
from mpmath import besseli, besselj, besselk, bessely, cos, euler, exp, log, mp, mpf, pi, sin, sqrt

mp.dps = 40


def interpolation(f, degree):
    """Coefficients, constant first, of a polynomial near f on [-1, 1]."""
    n = degree + 1
    angles = [pi * (k + mpf(1) / 2) / n for k in range(n)]
    values = [f(cos(angle)) for angle in angles]
    chebyshev = [(1 if j == 0 else 2) * sum(v * cos(j * a) for v, a in zip(values, angles)) / n for j in range(n)]
    before, here = [mpf(1)], [mpf(0), mpf(1)]
    powers = [mpf(0)] * n
    for j, c in enumerate(chebyshev):
        for i, x in enumerate(before):
            powers[i] += c * x
        twice = [mpf(0)] + [2 * x for x in here]
        before, here = here, [x - (before[i] if i < len(before) else 0) for i, x in enumerate(twice)]
    return powers


def worst_error(f, powers, relative):
    worst = 0.0
    for k in range(300):
        t, y = -1 + (2 * k + 1) / 300, 0.0
        for c in reversed(powers):
            y = y * t + float(c)
        exact = f(mpf(t))
        worst = max(worst, float(abs((y - exact) / exact if relative else y - exact)))
    return worst


def table(name, f, tolerance, relative=True):
    """f is a function of t in [-1, 1]."""
    degree = 3
    while worst_error(f, powers := interpolation(f, degree), relative) > tolerance:
        degree += 1
    words = ", ".join(f"{float(c):.17g}" for c in reversed(powers))
    print(f"{name}: degree {degree}\n    {words}\n")


def square(t):
    """x from the t of x^2 in [0, 64]."""
    return sqrt(32 * (t + 1))


def over(f, x, n):
    """f(x) / (x / 2)^n, of functions that have a limit there."""
    return f(n, x) / (x / 2) ** n if x else mpf(1)


def hankel(n, cosine):
    """P, or x Q, of Hankel's expansion, of the t of 1 / x^2 in [0, 1 / 64]."""

    def value(t):
        x = sqrt(128 / (t + 1))
        angle, scale = x - (2 * n + 1) * pi / 4, sqrt(pi * x / 2)
        j, y = besselj(n, x), bessely(n, x)
        return scale * (j * cos(angle) + y * sin(angle)) if cosine else scale * x * (y * cos(angle) - j * sin(angle))
    return value


def main():
    for n in (0, 1):
        table(f"I{n} / (x / 2)^{n} to 8, of x^2", lambda t: over(besseli, square(t), n), 1e-9)
        table(f"sqrt(x) exp(-x) I{n} from 8, of 1 / x", lambda t: sqrt(16 / (t + 1)) * exp(-16 / (t + 1)) * besseli(n, 16 / (t + 1)), 1e-9)

        def rest(t, n=n):
            x = sqrt(2 * (t + 1))
            log_part = log(x / 2) * besseli(n, x)
            return besselk(0, x) + log_part if n == 0 else x * (besselk(1, x) - log_part)
        table(f"{'K0 + log(x / 2) I0' if n == 0 else 'x (K1 - log(x / 2) I1)'} to 2, of x^2", rest, 1e-9)
        table(f"sqrt(x) exp(x) K{n} from 2, of 1 / x", lambda t: sqrt(4 / (t + 1)) * exp(4 / (t + 1)) * besselk(n, 4 / (t + 1)), 1e-9)
        table(f"J{n} / (x / 2)^{n} to 8, of x^2", lambda t: over(besselj, square(t), n), 1e-14, relative=False)

        def other(t, n=n):
            x = square(t)
            found = bessely(n, x) - 2 / pi * (log(x / 2) * besselj(n, x) - (1 / x if n else 0))
            return found if n == 0 else found / x
        table(f"{'Y0 - 2 / pi log(x / 2) J0' if n == 0 else '(Y1 - 2 / pi (log(x / 2) J1 - 1 / x)) / x'} to 8, of x^2", other, 1e-14,
              relative=False)
        for cosine in (True, False):
            table(f"{'P' if cosine else 'x Q'} of order {n} from 8, of 1 / x^2", hankel(n, cosine), 1e-13, relative=False)


if __name__ == "__main__":
    main()
