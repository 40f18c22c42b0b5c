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
from aimlib._hardmax_sampler import gibbs, spread_of
from aimlib._normal import log_normal_cdf
from aimlib._validation import FloatArray

MOST_TOKENS = 8  # the recursion has 2^T sets; beyond, the Gibbs sampler takes over

_STEEPEST = 16.0  # slope of the logarithm of the density up to which the panels resolve it
_RESIDUAL = 1e-6  # of the masses of the marginals, which are all one
_BELOW, _ABOVE, _PANEL = 7.0, 8.0, 1.5  # window around the mode, and width of a panel
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_ORDER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)


def _integration_matrix() -> FloatArray:
    """Row i integrates the interpolant through the Gauss nodes from -1 to node i."""
    legendre = np.polynomial.legendre
    rows = np.empty((_ORDER, _ORDER))
    values = legendre.legvander(_NODES, _ORDER - 1)
    for k in range(_ORDER):
        rows[k] = legendre.legval(_NODES, legendre.legint(np.eye(_ORDER)[k], lbnd=-1))
    projection = values * _WEIGHTS[:, None] * (np.arange(_ORDER) + 0.5)
    return np.ascontiguousarray((projection @ rows).T)


_CUMULATIVE = _integration_matrix()


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
def _rows_to_places(
    winner: np.ndarray, place: np.ndarray, first: np.ndarray, below: np.ndarray
) -> int:
    """Number the distinct winning indices; ``below`` masks those that each one must exceed."""
    count = 0
    for a in range(winner.size):
        w = winner[a]
        if w < a and winner[w] == a:
            place[a] = place[w]
        else:
            place[a] = count
            first[count] = a
            below[count] = 0
            count += 1
    for v in range(count):
        w = winner[first[v]]
        if place[w] != v:
            below[place[w]] |= 1 << v
    return count


@njit
def _start(centre: np.ndarray, spread: np.ndarray, v: int) -> float:
    return float(centre[v] - _BELOW * spread[v])


@njit
def _grid(centre: np.ndarray, spread: np.ndarray, panel: float) -> tuple[np.ndarray, np.ndarray]:
    """Left ends and half widths of panels that cover a window around every centre."""
    order = np.empty(centre.size, dtype=np.int64)
    most = 0
    for v in range(centre.size):
        k = v  # insertion sort: there are few
        while k > 0 and _start(centre, spread, order[k - 1]) > _start(centre, spread, v):
            order[k] = order[k - 1]
            k -= 1
        order[k] = v
        most += int((_BELOW + _ABOVE) * spread[v] / panel) + 2
    left, half = np.empty(most), np.empty(most)
    count = 0
    low, high = 0.0, -math.inf
    for k in range(centre.size + 1):
        if k < centre.size:
            v = order[k]
            start = _start(centre, spread, v)
            end = centre[v] + _ABOVE * spread[v]
            if k == 0:
                low, high = start, end
                continue
            if start <= high:
                high = max(high, end)
                continue
        else:
            start, end = 0.0, 0.0
        pieces = math.ceil((high - low) / panel)
        for i in range(pieces):
            half[count] = 0.5 * (high - low) / pieces
            left[count] = low + 2.0 * half[count] * i
            count += 1
        low, high = start, end
    return left[:count], half[:count]


@njit
def _accumulate(g: np.ndarray, half: np.ndarray, forward: bool, out: np.ndarray) -> None:
    """Integrate g from below (or from above) to every node."""
    total = 0.0
    for step in range(half.size):
        p = step if forward else half.size - 1 - step
        offset = p * _ORDER
        mass = 0.0
        for j in range(_ORDER):
            mass += _WEIGHTS[j] * g[offset + j]
        for i in range(_ORDER):
            part = 0.0
            for j in range(_ORDER):
                part += _CUMULATIVE[i, j] * g[offset + j]
            out[offset + i] = total + half[p] * (part if forward else mass - part)
        total += half[p] * mass


@njit
def _is_reachable(members: int, below: np.ndarray) -> bool:
    for v in range(below.size):
        if (members >> v) & 1 and (below[v] & members) != below[v]:
            return False
    return True


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
    count = _rows_to_places(winner, place, first, below)
    first, below = first[:count], below[:count]
    centre, spread = np.empty(count), np.empty(count)
    for v in range(count):
        a = first[v]
        centre[v] = out[a, winner[a]]
        spread[v] = spread_of(a, winner[a])
    # where a steep rise meets a steep fall the low end of a panel carries weight: narrow it
    left, half = _grid(centre, spread, min(_PANEL, 6.0 / max(steepest, 1.0)))
    x, weight = _nodes_of(left, half)
    own, pair, logs, top = _factors(winner, z, place, first, centre, spread, x)
    reachable, step = _steps(own, pair, below)
    placed, total = _forward(step, reachable, half, weight)
    left_over = _backward(step, reachable, half)
    marginal, earlier = _marginals(step, reachable, placed, left_over, weight)
    error = _fill_means(winner, z, place, first, x, logs, marginal, earlier, total, out)
    if not error < _RESIDUAL:  # also where it is not a number
        _mode(winner, z, out)
        return 0.0, math.inf
    return top + math.log(total), error


@njit
def _nodes_of(left: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes of all panels and their weights."""
    size = half.size * _ORDER
    x, weight = np.empty(size), np.empty(size)
    for p in range(half.size):
        for j in range(_ORDER):
            x[p * _ORDER + j] = left[p] + half[p] * (1.0 + _NODES[j])
            weight[p * _ORDER + j] = half[p] * _WEIGHTS[j]
    return x, weight


@njit
def _loses(winner: np.ndarray, a: int, b: int) -> bool:
    """Whether h_ab is the largest of no row."""
    return bool(winner[a] != b and winner[b] != a)


@njit
def _factors(
    winner: np.ndarray,
    z: np.ndarray,
    place: np.ndarray,
    first: np.ndarray,
    centre: np.ndarray,
    spread: np.ndarray,
    x: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Factors of the integrand, each a function of one winning index on the nodes.

    ``own[v]`` multiplies wherever v stands, ``pair[u, v]`` counts for the earlier of the two.  Each
    is one at the mode, so that no product can overflow; the logarithm of what was divided out is
    the last result.  The third holds the logarithms of the losers' distribution functions.
    """
    t, count, size = winner.size, first.size, x.size
    log_top = 0.0
    own, pair = np.empty((count, size)), np.zeros((count, count, size))
    for v in range(count):
        mean = z[first[v], winner[first[v]]]
        top = -0.5 * ((centre[v] - mean) / spread[v]) ** 2
        log_top += top - math.log(spread[v]) - _LOG_SQRT_2PI
        for i in range(size):
            own[v, i] = -0.5 * ((x[i] - mean) / spread[v]) ** 2 - top
    logs = np.empty((t, t, size))
    for a in range(t):
        for b in range(a, t):
            if not _loses(winner, a, b):
                continue
            u, v, s = place[a], place[b], spread_of(a, b)
            top = log_normal_cdf((min(centre[u], centre[v]) - z[a, b]) / s)
            log_top += top
            for i in range(size):
                value = log_normal_cdf((x[i] - z[a, b]) / s)
                logs[a, b, i] = value
                if u == v:
                    own[u, i] += value - top
                else:
                    pair[u, v, i] += value - top
                    pair[v, u, i] = pair[u, v, i]
    for v in range(count):
        for i in range(size):
            own[v, i] = math.exp(own[v, i])
            for u in range(count):
                pair[u, v, i] = math.exp(pair[u, v, i])
    return own, pair, logs, log_top


@njit
def _steps(own: np.ndarray, pair: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which sets of winning indices can come first, and the density of each last step into them.

    ``step[S, v]`` is the density that v comes next after S without v, with all outside S later.
    """
    count, size = own.shape
    sets = 1 << count
    reachable = np.empty(sets, dtype=np.bool_)
    step = np.empty((sets, count, size))
    for members in range(sets):
        reachable[members] = _is_reachable(members, below)
        if reachable[members]:
            for v in range(count):
                if (members >> v) & 1 and _is_reachable(members ^ (1 << v), below):
                    for i in range(size):
                        step[members, v, i] = own[v, i]
                    for u in range(count):
                        if not (members >> u) & 1:
                            for i in range(size):
                                step[members, v, i] *= pair[v, u, i]
    return reachable, step


@njit
def _forward(
    step: np.ndarray, reachable: np.ndarray, half: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, float]:
    """Mass of each set being placed below every node, and that of all being placed anywhere."""
    sets, count, size = step.shape
    placed, g = np.zeros((sets, size)), np.empty(size)
    placed[0] = 1.0
    for members in range(1, sets):
        if reachable[members]:
            g[:] = 0.0
            for v in range(count):
                before = members ^ (1 << v)
                if (members >> v) & 1 and reachable[before]:
                    for i in range(size):
                        g[i] += placed[before, i] * step[members, v, i]
            _accumulate(g, half, True, placed[members])
    total = 0.0
    for i in range(size):
        total += weight[i] * g[i]
    return placed, total


@njit
def _backward(step: np.ndarray, reachable: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Mass of all outside each set being placed above every node."""
    sets, count, size = step.shape
    left_over, g = np.zeros((sets, size)), np.empty(size)
    left_over[sets - 1] = 1.0
    for members in range(sets - 2, 0, -1):
        if reachable[members]:
            g[:] = 0.0
            for v in range(count):
                after = members | (1 << v)
                if not (members >> v) & 1 and reachable[after]:
                    for i in range(size):
                        g[i] += step[after, v, i] * left_over[after, i]
            _accumulate(g, half, False, left_over[members])
    return left_over


@njit
def _marginals(
    step: np.ndarray,
    reachable: np.ndarray,
    placed: np.ndarray,
    left_over: np.ndarray,
    weight: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mass at every node of each winning index, and of the earlier of each two."""
    sets, count, size = step.shape
    marginal, earlier = np.zeros((count, size)), np.zeros((count, count, size))
    g = np.empty(size)
    for members in range(1, sets):
        if not reachable[members]:
            continue
        for v in range(count):
            before = members ^ (1 << v)
            if (members >> v) & 1 and reachable[before]:
                for i in range(size):
                    p = placed[before, i] * step[members, v, i] * left_over[members, i]
                    g[i] = weight[i] * p
                    marginal[v, i] += g[i]
                for u in range(count):
                    if not (members >> u) & 1:
                        for i in range(size):
                            earlier[u, v, i] += g[i]
                            earlier[v, u, i] += g[i]
    return marginal, earlier


@njit
def _fill_means(
    winner: np.ndarray,
    z: np.ndarray,
    place: np.ndarray,
    first: np.ndarray,
    x: np.ndarray,
    logs: np.ndarray,
    marginal: np.ndarray,
    earlier: np.ndarray,
    total: float,
    out: np.ndarray,
) -> float:
    """Fill the means of all indices; return the largest error of a mass, all of which are one."""
    t = winner.size
    error = 0.0
    for v in range(first.size):
        mass, moment = 0.0, 0.0
        for i in range(x.size):
            mass += marginal[v, i]
            moment += marginal[v, i] * x[i]
        error = max(error, abs(mass / total - 1.0))
        out[first[v], winner[first[v]]] = moment / mass
    for a in range(t):
        for b in range(a, t):
            if not _loses(winner, a, b):
                continue
            law = marginal[place[a]] if place[a] == place[b] else earlier[place[a], place[b]]
            s = spread_of(a, b)
            mass, moment = 0.0, 0.0
            for i in range(x.size):
                distance = (x[i] - z[a, b]) / s
                ratio = math.exp(-0.5 * distance * distance - _LOG_SQRT_2PI - logs[a, b, i])
                mass += law[i]
                moment += law[i] * ratio
            error = max(error, abs(mass / total - 1.0))
            out[a, b] = out[b, a] = z[a, b] - s * moment / mass
    for a in range(t):
        w = winner[a]
        out[w, a] = out[a, w] = out[first[place[a]], winner[first[place[a]]]]
    return error


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


@njit
def start_of_information(outputs: np.ndarray, curvature: bool) -> np.ndarray:
    """What each output says if nothing is known: log P, |E h~|^2 and ||Cov h~ - 1||_F^2.

    h~ = h/spread, and Cov h~ is the derivative of its mean in its prior mean, by differences.
    The last is left out, as zero, unless ``curvature`` is set.
    """
    t = outputs.shape[1]
    step = 1e-4
    result = np.zeros((outputs.shape[0], 3))
    z, mean, other = np.zeros((t, t)), np.empty((t, t)), np.empty((t, t))
    for y in range(outputs.shape[0]):
        result[y, 0] = posterior(outputs[y], z, mean)[0]
        # half of the sum over the full matrix: a diagonal index has variance 2, any other is double
        for a in range(t):
            for b in range(t):
                result[y, 1] += 0.5 * mean[a, b] ** 2
        if not curvature:
            continue
        for a in range(t):
            for b in range(a, t):
                s = spread_of(a, b)
                z[a, b] = z[b, a] = step * s
                posterior(outputs[y], z, mean)
                z[a, b] = z[b, a] = -step * s
                posterior(outputs[y], z, other)
                z[a, b] = z[b, a] = 0.0
                for c in range(t):
                    for d in range(t):  # the covariance of h_cd with h~_ab, less that before y
                        slope = (mean[c, d] - other[c, d]) / (2.0 * step)
                        if (c == a and d == b) or (c == b and d == a):
                            slope -= s
                        result[y, 2] += 0.5 * slope * slope
    return result
