r"""Hardmax outputs that no quadrature reaches: deep in the wrong tail, or of very many tokens.

Given all others, one index is a normal truncated to an interval, so that a Gibbs sampler is exact
and never leaves the cone of the output.  It starts at the most likely indices, and the means of its
conditional laws are averaged.  Indices are in units of :math:`\sqrt V`.
"""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit
from aimlib._normal import truncated_normal


@njit
def spread_of(a: int, b: int) -> float:
    """Standard deviation of h_ab."""
    return math.sqrt(2.0) if a == b else 1.0


@njit
def _interval(h: np.ndarray, winner: np.ndarray, a: int, b: int) -> tuple[float, float]:
    """Interval of h_ab that the output allows, all other indices given."""
    t = winner.size
    low, high = -math.inf, math.inf
    for side in range(2):
        row, column = (a, b) if side == 0 else (b, a)
        if winner[row] == column:
            for c in range(t):
                if c != column:
                    low = max(low, h[row, c])
        else:
            high = min(high, h[row, winner[row]])
        if a == b:
            break
    return low, max(low, high)


@njit
def _pressed_together(winner: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Label the entries; those that a winner shares with its losers at the mode share a label."""
    t = winner.size
    label = np.empty((t, t), dtype=np.int64)
    for a in range(t):
        for b in range(t):
            label[a, b] = min(a, b) * t + max(a, b)
    for _ in range(t * t):
        for a in range(t):
            w = winner[a]
            for c in range(t):
                if c != w and h[a, w] - h[a, c] < 0.1:
                    label[a, w] = label[w, a] = min(label[a, w], label[a, c])
                    label[a, c] = label[c, a] = label[a, w]
    return label


@njit
def _shift_together(
    winner: np.ndarray, z: np.ndarray, h: np.ndarray, label: np.ndarray, which: int, uniform: float
) -> None:
    """Draw a common shift of the entries with one label from its conditional law."""
    t = winner.size
    precision, pull = 0.0, 0.0
    for a in range(t):
        for b in range(a, t):
            if label[a, b] == which:
                weight = 0.5 if a == b else 1.0
                precision += weight
                pull += weight * (z[a, b] - h[a, b])
    low, high = -math.inf, math.inf
    for a in range(t):
        w = winner[a]
        for c in range(t):
            gap = h[a, w] - h[a, c]
            if label[a, w] == which and label[a, c] != which:
                low = max(low, -gap)
            elif label[a, w] != which and label[a, c] == which:
                high = min(high, gap)
    centre, s = pull / precision, 1.0 / math.sqrt(precision)
    draw, _ = truncated_normal((low - centre) / s, (max(low, high) - centre) / s, uniform)
    move = min(max(centre + s * draw, low), high)
    for a in range(t):
        for b in range(t):
            if label[a, b] == which:
                h[a, b] += move


@njit
def gibbs(
    winner: np.ndarray,
    z: np.ndarray,
    h: np.ndarray,
    uniforms: np.ndarray,
    shift: float,
    means: np.ndarray,
) -> None:
    """Fill the means of E[h | y] over the two halves of a chain that starts at h.

    Entries that are pressed against each other move by little one at a time: they also move
    together, once a sweep.
    """
    t = winner.size
    label = _pressed_together(winner, h)
    burn = uniforms.shape[0] // 5
    half = (uniforms.shape[0] - burn) // 2
    for a in range(t):
        for b in range(t):
            means[0, a, b] = means[1, a, b] = 0.0
    for sweep in range(burn + 2 * half):
        for a in range(t):
            for b in range(a, t):
                if label[a, b] == a * t + b:
                    u = uniforms[sweep, t * (t + 1) // 2 + label[a, b]] + shift
                    _shift_together(winner, z, h, label, a * t + b, u - math.floor(u))
        position = 0
        for a in range(t):
            for b in range(a, t):
                s = spread_of(a, b)
                low, high = _interval(h, winner, a, b)
                u = uniforms[sweep, position] + shift
                draw, mean = truncated_normal(
                    (low - z[a, b]) / s, (high - z[a, b]) / s, u - math.floor(u)
                )
                position += 1
                h[a, b] = h[b, a] = min(max(z[a, b] + s * draw, low), high)
                if sweep >= burn:
                    which = 0 if sweep < burn + half else 1
                    means[which, a, b] += (z[a, b] + s * mean) / half
    for a in range(t):
        for b in range(a):
            means[0, a, b], means[1, a, b] = means[0, b, a], means[1, b, a]
