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

import numpy as np

from aimlib._compile import njit
from aimlib._normal import log_normal_cdf, truncated_normal
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
def _spread(a: int, b: int) -> float:
    return math.sqrt(2.0) if a == b else 1.0


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
def _posterior(winner: np.ndarray, z: np.ndarray, out: np.ndarray) -> tuple[float, float]:
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
    below = below[:count]
    centre, spread = np.empty(count), np.empty(count)
    for v in range(count):
        a = first[v]
        centre[v] = out[a, winner[a]]
        spread[v] = _spread(a, winner[a])
    # where a steep rise meets a steep fall the low end of a panel carries weight: narrow it
    left, half = _grid(centre, spread, min(_PANEL, 6.0 / max(steepest, 1.0)))
    size = half.size * _ORDER
    x, weight = np.empty(size), np.empty(size)
    for p in range(half.size):
        for j in range(_ORDER):
            x[p * _ORDER + j] = left[p] + half[p] * (1.0 + _NODES[j])
            weight[p * _ORDER + j] = half[p] * _WEIGHTS[j]

    # factors of one variable, each equal to one at the mode: no product can overflow
    log_probability = 0.0
    log_own, log_pair = np.empty((count, size)), np.zeros((count, count, size))
    for v in range(count):
        mean = z[first[v], winner[first[v]]]
        top = -0.5 * ((centre[v] - mean) / spread[v]) ** 2
        log_probability += top - math.log(spread[v]) - _LOG_SQRT_2PI
        for i in range(size):
            log_own[v, i] = -0.5 * ((x[i] - mean) / spread[v]) ** 2 - top
    logs = np.empty((t, t, size))  # of the losers' distribution functions
    for a in range(t):
        for b in range(a, t):
            if winner[a] == b or winner[b] == a:
                continue
            u, v, s = place[a], place[b], _spread(a, b)
            top = log_normal_cdf((min(centre[u], centre[v]) - z[a, b]) / s)
            log_probability += top
            for i in range(size):
                value = log_normal_cdf((x[i] - z[a, b]) / s)
                logs[a, b, i] = value
                if u == v:
                    log_own[u, i] += value - top
                else:
                    log_pair[u, v, i] += value - top
                    log_pair[v, u, i] = log_pair[u, v, i]
    for v in range(count):
        for i in range(size):
            log_own[v, i] = math.exp(log_own[v, i])
            for u in range(count):
                log_pair[u, v, i] = math.exp(log_pair[u, v, i])
    own, pair = log_own, log_pair

    sets = 1 << count
    reachable = np.empty(sets, dtype=np.bool_)
    # step[S, v]: density that v comes next after S without v, all outside S later
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

    placed, left_over = np.zeros((sets, size)), np.zeros((sets, size))
    g = np.empty(size)
    for i in range(size):
        placed[0, i] = left_over[sets - 1, i] = 1.0
    for members in range(1, sets):
        if reachable[members]:
            for i in range(size):
                g[i] = 0.0
            for v in range(count):
                before = members ^ (1 << v)
                if (members >> v) & 1 and reachable[before]:
                    for i in range(size):
                        g[i] += placed[before, i] * step[members, v, i]
            _accumulate(g, half, True, placed[members])
    total = 0.0
    for i in range(size):
        total += weight[i] * g[i]
    for members in range(sets - 2, 0, -1):
        if reachable[members]:
            for i in range(size):
                g[i] = 0.0
            for v in range(count):
                after = members | (1 << v)
                if not (members >> v) & 1 and reachable[after]:
                    for i in range(size):
                        g[i] += step[after, v, i] * left_over[after, i]
            _accumulate(g, half, False, left_over[members])

    marginal, earlier = np.zeros((count, size)), np.zeros((count, count, size))
    for members in range(1, sets):
        if reachable[members]:
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

    error = 0.0
    for v in range(count):
        mass, moment = 0.0, 0.0
        for i in range(size):
            mass += marginal[v, i]
            moment += marginal[v, i] * x[i]
        error = max(error, abs(mass / total - 1.0))
        out[first[v], winner[first[v]]] = moment / mass
    for a in range(t):
        for b in range(a, t):
            if winner[a] == b or winner[b] == a:
                continue
            law = marginal[place[a]] if place[a] == place[b] else earlier[place[a], place[b]]
            s = _spread(a, b)
            mass, moment = 0.0, 0.0
            for i in range(size):
                distance = (x[i] - z[a, b]) / s
                ratio = math.exp(-0.5 * distance * distance - _LOG_SQRT_2PI - logs[a, b, i])
                mass += law[i]
                moment += law[i] * ratio
            error = max(error, abs(mass / total - 1.0))
            out[a, b] = z[a, b] - s * moment / mass
    for a in range(t):
        w = winner[a]
        out[w, a] = out[a, w] = out[first[place[a]], winner[first[place[a]]]]
        for b in range(a):
            if winner[a] != b and winner[b] != a:
                out[a, b] = out[b, a]
    if not error < _RESIDUAL:  # also where it is not a number
        _mode(winner, z, out)
        return 0.0, math.inf
    return log_probability + math.log(total), error


# ---------------------------------------------------------------------------------------------
# What is left: outputs deep in the wrong tail, or very many tokens.  Given all others, one index is
# a normal truncated to an interval, so that a Gibbs sampler is exact and never leaves the cone;
# it starts at the most likely indices, and the means of its conditional laws are averaged.
# ---------------------------------------------------------------------------------------------


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
def _gibbs(
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
                s = _spread(a, b)
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


@njit
def posterior_means(
    winners: np.ndarray,
    z: np.ndarray,
    uniforms: np.ndarray,
    out: np.ndarray,
    error: np.ndarray,
    log_probability: np.ndarray,
) -> int:
    """Fill means, root mean square errors and log P(y), in units of sqrt(V), for n sequences.

    Returns the first sequence whose output no symmetric indices have, or -1.  Where the sampler
    was needed log P(y) is nan.
    """
    n, t = winners.shape
    means = np.empty((2, t, t))
    for k in range(n):
        if not is_possible(winners[k]):
            return k
        error[k] = math.inf
        if t <= MOST_TOKENS:
            log_probability[k], error[k] = _posterior(winners[k], z[k], out[k])
        else:
            _mode(winners[k], z[k], out[k])
        if error[k] == math.inf:
            log_probability[k] = math.nan
            # one table of uniforms, shifted by another multiple of the golden ratio each time
            _gibbs(winners[k], z[k], out[k], uniforms, 0.61803398874989485 * k, means)
            square = 0.0
            for a in range(t):
                for b in range(t):
                    out[k, a, b] = 0.5 * (means[0, a, b] + means[1, a, b])
                    square += 0.25 * (means[0, a, b] - means[1, a, b]) ** 2
            error[k] = math.sqrt(square) / t
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
        result[y, 0] = _posterior(outputs[y], z, mean)[0]
        # half of the sum over the full matrix: a diagonal index has variance 2, any other is double
        for a in range(t):
            for b in range(t):
                result[y, 1] += 0.5 * mean[a, b] ** 2
        if not curvature:
            continue
        for a in range(t):
            for b in range(a, t):
                s = _spread(a, b)
                z[a, b] = z[b, a] = step * s
                _posterior(outputs[y], z, mean)
                z[a, b] = z[b, a] = -step * s
                _posterior(outputs[y], z, other)
                z[a, b] = z[b, a] = 0.0
                for c in range(t):
                    for d in range(t):  # the covariance of h_cd with h~_ab, less that before y
                        slope = (mean[c, d] - other[c, d]) / (2.0 * step)
                        if (c == a and d == b) or (c == b and d == a):
                            slope -= s
                        result[y, 2] += 0.5 * slope * slope
    return result
