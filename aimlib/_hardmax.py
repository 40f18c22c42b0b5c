r"""Hardmax with any number of tokens: the posterior of the indices without sampling.

In units of :math:`\sqrt V` the indices are independent normals :math:`h_{ab}` of means
:math:`z_{ab}` and variances :math:`1+\delta_{ab}`, and the output names in every row the winner
:math:`w_a`.  Write :math:`m_a = h_{a w_a}` for the largest index of row a.

* Given the :math:`m_a`, every index that wins no row obeys only :math:`h_{ab}\le\min(m_a, m_b)`:
  it integrates to :math:`\Phi((\min(m_a,m_b)-z_{ab})/\sigma_{ab})`.
* What remains is an integral over the :math:`m_a`, of which rows that choose each other share one,
  under :math:`m_a\le m_{w_a}`.  Where the :math:`m_a` are sorted the minimum is the earlier one,
  and the integrand is a product of functions of one variable.
* So the integral is a sum over orders of nested one-dimensional integrals, and a recursion over
  the set of rows already placed does all orders at once (``hardmax:recursion``).

The recursion backwards gives the marginal of each :math:`m_a`, and with it every mean.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aimlib._compile import njit
from aimlib._hardmax_recursion import (
    factors,
    fill_means,
    marginals,
    masses,
    nodes_of,
    panels,
    rows_to_places,
    steps,
)
from aimlib._hardmax_sampler import gibbs, spread_of
from aimlib._validation import FloatArray

MOST_TOKENS = 8  # the recursion has 2^T sets; beyond, the Gibbs sampler takes over

_STEEPEST = 16.0  # slope of the logarithm of the density up to which the panels resolve it
_RESIDUAL = 1e-6  # of the masses of the marginals, which are all one
_PANEL = 1.5  # width of a panel


@njit
def is_possible(winner: np.ndarray) -> bool:
    """Whether symmetric indices have these winners: no cycle a -> w_a longer than two."""
    t = winner.size
    for a in range(t):
        row = a
        for _ in range(t):
            row = winner[row]
        if winner[winner[row]] != row:
            return False
    return True


@njit
def _mode(winner: np.ndarray, z: np.ndarray, h: np.ndarray) -> float:
    """Fill h with the most likely indices, by Hildreth's projection; return its steepest slope."""
    t = winner.size
    slopes = np.zeros((t, t))
    for a in range(t):
        for b in range(t):
            h[a, b] = z[a, b]
    total = 0.0
    for _ in range(1000):
        change = 0.0
        for a in range(t):
            w = winner[a]
            up = 2.0 if a == w else 1.0
            for c in range(t):
                if c != w:
                    down = 2.0 if a == c else 1.0
                    step = max((h[a, c] - h[a, w]) / (up + down), -slopes[a, c])
                    slopes[a, c] += step
                    total += step
                    h[a, w] += up * step
                    h[w, a] = h[a, w]
                    h[a, c] -= down * step
                    h[c, a] = h[a, c]
                    change = max(change, abs(step))
        if change < 1e-3:
            break
    return total


@njit
def posterior(winner: np.ndarray, z: np.ndarray, out: np.ndarray) -> tuple[float, float]:
    """Fill E[h | y] in units of sqrt(V); return log P(y) and the error of the masses.

    The error is infinite where the output lies too deep in the wrong tail for the panels; ``out``
    then holds the most likely indices.
    """
    t = winner.size
    steepest = _mode(winner, z, out)
    if steepest > _STEEPEST:
        return 0.0, math.inf
    place, first = np.empty(t, dtype=np.int64), np.empty(t, dtype=np.int64)
    below = np.empty(t, dtype=np.int64)
    count = rows_to_places(winner, place, first, below)
    first, below = first[:count], below[:count]
    centre, spread = np.empty(count), np.empty(count)
    for v in range(count):
        a = first[v]
        centre[v] = out[a, winner[a]]
        spread[v] = spread_of(a, winner[a])
    # where a steep rise meets a steep fall the low end of a panel carries weight: narrow it
    left, half = panels(centre, spread, min(_PANEL, 6.0 / max(steepest, 1.0)))
    x, weight = nodes_of(left, half)
    own, pair, logs, top = factors(winner, z, place, first, centre, spread, x)
    reachable, step = steps(own, pair, below)
    placed, density = masses(step, reachable, half, True)
    left_over, _ = masses(step, reachable, half, False)
    total = 0.0
    for i in range(x.size):
        total += weight[i] * density[i]
    marginal, earlier = marginals(step, reachable, placed, left_over, weight)
    error = fill_means(winner, z, place, first, x, logs, marginal, earlier, total, out)
    if not error < _RESIDUAL:  # also where it is not a number
        _mode(winner, z, out)
        return 0.0, math.inf
    return top + math.log(total), error


# ---------------------------------------------------------------------------------------------
# Many sequences
# ---------------------------------------------------------------------------------------------


@njit
def posterior_means(
    winners: np.ndarray,
    z: np.ndarray,
    uniforms: np.ndarray,
    out: np.ndarray,
    error: np.ndarray,
    log_probability: np.ndarray,
) -> None:
    """Fill means, root mean square errors and log P(y), in units of sqrt(V), for n sequences.

    Where the sampler was needed log P(y) is nan.
    """
    n, t = winners.shape
    means = np.empty((2, t, t))
    for k in range(n):
        error[k] = math.inf
        if t <= MOST_TOKENS:
            log_probability[k], error[k] = posterior(winners[k], z[k], out[k])
        else:
            _mode(winners[k], z[k], out[k])
        if error[k] == math.inf:
            log_probability[k] = math.nan
            # one table of uniforms, shifted by another multiple of the golden ratio each time
            gibbs(winners[k], z[k], out[k], uniforms, 0.61803398874989485 * k, means)
            square = 0.0
            for a in range(t):
                for b in range(t):
                    out[k, a, b] = 0.5 * (means[0, a, b] + means[1, a, b])
                    square += 0.25 * (means[0, a, b] - means[1, a, b]) ** 2
            error[k] = math.sqrt(square) / t


def sequence_means(
    winners: Any, omega: FloatArray, variance: float, sweeps: int
) -> tuple[FloatArray, FloatArray]:
    """Return E[h | y] and its root mean square error per sequence, for winners of shape (n, T)."""
    refuse_impossible("y", winners)
    n, t = winners.shape
    unit = math.sqrt(variance)
    means = np.empty((n, t, t))
    error, log_probability = np.empty(n), np.empty(n)
    uniforms = np.random.default_rng(0).random((sweeps, t * (t + 1) // 2 + t * t))
    posterior_means(
        np.ascontiguousarray(winners), omega / unit, uniforms, means, error, log_probability
    )
    return unit * means, unit * error


def refuse_impossible(name: str, winners: Any) -> None:
    """Raise ValueError if no symmetric indices have these winners, shape (n, T)."""
    bad = _first_impossible(np.ascontiguousarray(winners))
    if bad >= 0:
        raise ValueError(
            f"{name} must be the hardmax of symmetric indices, got rows with winners "
            f"{winners[bad].tolist()} in sequence {bad}, which no symmetric matrix has"
        )


@njit
def _first_impossible(winners: np.ndarray) -> int:
    for k in range(winners.shape[0]):
        if not is_possible(winners[k]):
            return k
    return -1
