"""A line search for the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6), by cubic interpolation."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple


class Point(NamedTuple):
    """A point of the line: how far along the direction, the value there, its gradient, and the slope along the line."""

    t: float
    value: float
    grad: Any
    slope: float


def cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """The minimum of the cubic through both, with their slopes, within [low, high]; the middle where it has none."""
    if a.t > b.t:
        a, b = b, a
    if a.t == b.t:
        return min(max(b.t, low), high)
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    below = b.slope - a.slope + 2 * math.sqrt(square) if square >= 0 else 0.0
    if not square >= 0 or below == 0:
        return (low + high) / 2
    return min(max(b.t - (b.t - a.t) * (b.slope + math.sqrt(square) - d1) / below, low), high)


def strong_wolfe(at: Callable[[float], Point], start: Point, t: float, width: float, tolerance: float, most: int,
                 c1: float = 1e-4, c2: float = 0.9) -> tuple[Point, int]:
    """A point with enough descent and a slope that is flat enough, and how many were looked at: `most` + 1 at the most.

    at: evaluates a point. start: t = 0. width: the largest element of the direction.
    """

    def rises(p: Point) -> bool:
        return p.value > start.value + c1 * p.t * start.slope

    def flat(p: Point) -> bool:
        return abs(p.slope) <= -c2 * start.slope

    before, point, looks = start, at(t), 1
    bracket = None
    while looks <= most:  # until two points have one between them that will do
        if rises(point) or (looks > 2 and point.value >= before.value):
            bracket = [before, point]
            break
        if flat(point):
            return point, looks
        if point.slope >= 0:
            bracket = [before, point]
            break
        t = cubic_minimum(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point, looks = point, at(t), looks + 1
    if bracket is None:
        bracket = [start, point]

    stuck = False
    low = 0 if bracket[0].value <= bracket[1].value else 1
    while looks <= most and abs(bracket[1].t - bracket[0].t) * width >= tolerance:
        left, right = sorted(p.t for p in bracket)
        t, margin = cubic_minimum(bracket[0], bracket[1], left, right), 0.1 * (right - left)
        if min(right - t, t - left) >= margin:
            stuck = False
        elif stuck or t >= right or t <= left:
            t = right - margin if right - t < t - left else left + margin
            stuck = False
        else:
            stuck = True
        point, looks = at(t), looks + 1
        if rises(point) or point.value >= bracket[low].value:
            bracket[1 - low] = point
            low = 0 if bracket[0].value <= bracket[1].value else 1
            continue
        done = flat(point)
        if not done and point.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = point
        if done:
            break
    return bracket[low], looks
