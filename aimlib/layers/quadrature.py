"""Posterior means of two layers of softmax attention of two tokens (``layers:quadrature``).

The first layer enters through u = (h1_11 - h1_12, h1_22 - h1_12) only, and given u the two revealed
numbers are linear in h2: Gauss-Hermite over u, Gaussian conditioning for the rest.  When the
indices are nearly known the posterior of u is much narrower than its prior.  A grid in the frame of
the prior then gives a g that depends on which of its points lies nearest, and message passing that
never settles; so the grid is fitted to the posterior of each sequence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray

if TYPE_CHECKING:
    from aimlib.layers.channels import DeepSoftmaxChannel

_ROUNDING = 2.0**-51  # of the logarithm of a ratio of two outputs
_SEARCH_NODES = 12  # in each direction, of the grids that look for the posterior
_SEARCHES = 40  # at most; each shrinks the grid threefold at most
_NEGLIGIBLE = 1e-14  # points of less mass, relative to the largest, are left out


def two_layer_output(
    omega: FloatArray, revealed: FloatArray, v: FloatArray, channel: DeepSoftmaxChannel
) -> tuple[FloatArray, FloatArray]:
    """Return g in the coordinates (11, 12, 22) of both layers, and its total response.

    g and ``omega`` have shape (n, 6), ``revealed`` (n, 2), the covariance ``v`` (2, 2).
    """
    weights = np.array([2.0, 1.0, 2.0])
    prior = np.kron(v, np.diag(weights))
    difference = np.zeros((2, 6))
    difference[0, :2], difference[1, 1:3] = (1.0, -1.0), (-1.0, 1.0)
    root = np.linalg.cholesky(difference @ prior @ difference.T)
    move = prior @ difference.T @ np.linalg.inv(root).T  # shift of the six indices with xi
    rest = prior - move @ move.T
    mean, covariance = _means(
        omega,
        revealed,
        np.ascontiguousarray(move),
        rest,
        *_grid(_SEARCH_NODES),
        *_grid(channel.nodes),
        channel.skip,
        channel.inverse_temperature,
    )
    inverse = np.linalg.inv(v)
    scaled = (mean.reshape(-1, 2, 3) / weights).transpose(0, 2, 1) @ inverse
    g = scaled.transpose(0, 2, 1).reshape(-1, 6)
    response = np.zeros((2, 2))
    for p in range(3):
        block = covariance[p] / weights[p]
        response += omega.shape[0] * inverse - inverse @ block @ inverse
    return g, response


def _grid(nodes: int) -> tuple[FloatArray, FloatArray]:
    """Points of a standard normal in the plane, shape (m, 2), and the logarithms of their mass."""
    points, mass = np.polynomial.hermite_e.hermegauss(nodes)
    mass = mass / mass.sum()
    plane = np.stack(np.meshgrid(points, points, indexing="ij"), axis=-1).reshape(-1, 2)
    both = np.outer(mass, mass).ravel()
    kept = both > _NEGLIGIBLE * both.max()
    return np.ascontiguousarray(plane[kept]), np.log(both[kept])


@njit
def _means(
    omega: np.ndarray,
    revealed: np.ndarray,
    move: np.ndarray,
    rest: np.ndarray,
    search: np.ndarray,
    search_mass: np.ndarray,
    grid: np.ndarray,
    grid_mass: np.ndarray,
    skip: float,
    beta: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of each sample less omega, and the total covariance of each index pair.

    The latter has shape (3, 2, 2): coordinate, layer, layer.  Where no point of the quadrature
    could have made an output, it is taken to say nothing.
    """
    n, most = omega.shape[0], max(grid.shape[0], search.shape[0])
    means, total = np.zeros((n, 6)), np.zeros((3, 2, 2))
    log_weight, xi, shift = np.empty(most), np.empty((most, 2)), np.empty(6)
    place, inner = np.empty((most, 6)), np.empty((most, 3, 2, 2))
    lines, gains = np.empty((2, 6)), np.empty((2, 6))
    frame, block = np.empty(5), np.empty((3, 2, 2))
    empty = rest + move @ move.T
    for k in range(n):
        seen = revealed[k]
        _fit(omega[k], seen, move, rest, search, search_mass, skip, beta, frame, log_weight, xi)
        for j in range(grid.shape[0]):
            log_weight[j] = _place(frame, grid[j], grid_mass[j], move, xi[j], shift)
            log_weight[j] += _condition(
                omega[k], seen, shift, rest, skip, beta, place[j], lines, gains
            )
            for p in range(3):
                for a in range(2):
                    for b in range(2):
                        i, o = 3 * a + p, 3 * b + p
                        change = gains[0, i] * lines[0, o] + gains[1, i] * lines[1, o]
                        inner[j, p, a, b] = rest[i, o] - change
        if not _moments(log_weight[: grid.shape[0]], place, inner, means[k], block):
            means[k, :] = 0.0
            for p in range(3):
                for a in range(2):
                    for b in range(2):
                        block[p, a, b] = empty[3 * a + p, 3 * b + p]
        total += block
    return means, total


@njit
def _place(
    frame: np.ndarray,
    z: np.ndarray,
    log_mass: float,
    move: np.ndarray,
    xi: np.ndarray,
    shift: np.ndarray,
) -> float:
    """Put a point of the grid into the plane; return the prior mass that it stands for (log).

    ``frame`` is the centre and the lower triangular root of the grid's covariance.
    """
    xi[0] = frame[0] + frame[2] * z[0]
    xi[1] = frame[1] + frame[3] * z[0] + frame[4] * z[1]
    for i in range(6):
        shift[i] = xi[0] * move[i, 0] + xi[1] * move[i, 1]
    return float(log_mass + 0.5 * (z[0] ** 2 + z[1] ** 2 - xi[0] ** 2 - xi[1] ** 2))


@njit
def _fit(
    omega: np.ndarray,
    revealed: np.ndarray,
    move: np.ndarray,
    rest: np.ndarray,
    search: np.ndarray,
    search_mass: np.ndarray,
    skip: float,
    beta: float,
    frame: np.ndarray,
    log_weight: np.ndarray,
    xi: np.ndarray,
) -> None:
    """Fill centre and root of a grid that resolves the posterior: iterated moments.

    Each grid measures mean and covariance of the posterior and the next is put there, somewhat
    wider, until they agree.  A share of the old covariance is kept, so that a grid which sees the
    posterior through one point only shrinks step by step.
    """
    shift, place = np.empty(6), np.empty(6)
    lines, gains = np.empty((2, 6)), np.empty((2, 6))
    frame[0], frame[1], frame[2], frame[3], frame[4] = 0.0, 0.0, 1.0, 0.0, 1.0
    points = search.shape[0]
    for _ in range(_SEARCHES):
        best = -np.inf
        for j in range(points):
            log_weight[j] = _place(frame, search[j], search_mass[j], move, xi[j], shift)
            log_weight[j] += _condition(
                omega, revealed, shift, rest, skip, beta, place, lines, gains
            )
            best = max(best, log_weight[j])
        if not -np.inf < best < np.inf:
            return
        mass, x, y, xx, xy, yy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(points):  # in the frame of the grid, so that nothing cancels
            weight, a, b = math.exp(log_weight[j] - best), search[j, 0], search[j, 1]
            mass += weight
            x += weight * a
            y += weight * b
            xx += weight * a * a
            xy += weight * a * b
            yy += weight * b * b
        x, y = x / mass, y / mass
        first = math.sqrt(1.3 * max(xx / mass - x * x, 0.0) + 0.1)
        mixed = 1.3 * (xy / mass - x * y) / first
        second = math.sqrt(max(1.3 * (yy / mass - y * y) + 0.1 - mixed * mixed, 0.01))
        if not (math.isfinite(first) and math.isfinite(mixed) and math.isfinite(second)):
            return
        near = x * x + y * y < 0.25 and abs(mixed) < 0.3
        if near and 0.75 < first < 1.33 and 0.75 < second < 1.33:
            return
        frame[0] += frame[2] * x
        frame[1] += frame[3] * x + frame[4] * y
        frame[3] = frame[3] * first + frame[4] * mixed
        frame[2], frame[4] = frame[2] * first, frame[4] * second


@njit
def _condition(
    omega: np.ndarray,
    revealed: np.ndarray,
    shift: np.ndarray,
    rest: np.ndarray,
    skip: float,
    beta: float,
    place: np.ndarray,
    lines: np.ndarray,
    gains: np.ndarray,
) -> float:
    """Condition h on the two revealed numbers, given u; return the logarithm of their density.

    With e = c + p + q - 1 the rows of B differ by e (1, -1).  The first number is e times a line of
    h2 that depends on u, the sum of both e^2 times the second difference h2_11 - 2 h2_12 + h2_22.
    Both carry the rounding of the outputs they are read from, so that nothing is learned from them
    when e is so small that they are nothing else.  Fills the mean of h less omega, the covariances
    of h with the two numbers and these times the inverse covariance of the numbers.
    """
    u1 = omega[0] - omega[1] + shift[0] - shift[1]
    u2 = omega[2] - omega[1] + shift[2] - shift[1]
    p, q = 1.0 / (1.0 + math.exp(-beta * u1)), 1.0 / (1.0 + math.exp(-beta * u2))
    e = (skip - 1.0) + p + q
    b11, b12 = skip + p, 1.0 - p
    l1, l2, l3 = b11, b12 - b11, -b12
    x, y, z = shift[3] + omega[3], shift[4] + omega[4], shift[5] + omega[5]
    r1 = revealed[0] - e * (l1 * x + l2 * y + l3 * z)
    r2 = (revealed[0] + revealed[1]) - e * e * (x - 2.0 * y + z)
    for i in range(6):
        lines[0, i] = e * (l1 * rest[i, 3] + l2 * rest[i, 4] + l3 * rest[i, 5])
        lines[1, i] = e * e * (rest[i, 3] - 2.0 * rest[i, 4] + rest[i, 5])
    rounding = (_ROUNDING / beta) ** 2
    s11 = e * (l1 * lines[0, 3] + l2 * lines[0, 4] + l3 * lines[0, 5]) + rounding
    s12 = e * e * (lines[0, 3] - 2.0 * lines[0, 4] + lines[0, 5]) + rounding
    s22 = e * e * (lines[1, 3] - 2.0 * lines[1, 4] + lines[1, 5]) + 2.0 * rounding
    determinant = s11 * s22 - s12 * s12
    c1 = (s22 * r1 - s12 * r2) / determinant
    c2 = (s11 * r2 - s12 * r1) / determinant
    for i in range(6):
        place[i] = shift[i] + lines[0, i] * c1 + lines[1, i] * c2
        gains[0, i] = (s22 * lines[0, i] - s12 * lines[1, i]) / determinant
        gains[1, i] = (s11 * lines[1, i] - s12 * lines[0, i]) / determinant
    return -0.5 * float(r1 * c1 + r2 * c2 + math.log(determinant))


@njit
def _moments(
    log_weight: np.ndarray,
    place: np.ndarray,
    inner: np.ndarray,
    mean: np.ndarray,
    block: np.ndarray,
) -> bool:
    """Fill mean and covariances of the mixture over the points; false where it has no weight."""
    best = log_weight.max()
    if not -np.inf < best < np.inf:  # also where it is not a number
        return False
    mass = 0.0
    mean[:], block[:] = 0.0, 0.0
    for j in range(log_weight.size):
        if log_weight[j] >= best - 32.0:
            weight = math.exp(log_weight[j] - best)
            mass += weight
            for i in range(6):
                mean[i] += weight * place[j, i]
    for i in range(6):
        mean[i] /= mass
    for j in range(log_weight.size):
        if log_weight[j] >= best - 32.0:
            weight = math.exp(log_weight[j] - best) / mass
            for p in range(3):
                for a in range(2):
                    away = weight * (place[j, 3 * a + p] - mean[3 * a + p])
                    for b in range(2):
                        move = away * (place[j, 3 * b + p] - mean[3 * b + p])
                        block[p, a, b] += weight * inner[j, p, a, b] + move
    return bool(np.isfinite(mean).all() and np.isfinite(block).all())
