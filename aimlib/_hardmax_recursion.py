r"""The integral over the winning indices of one hardmax output, by recursion over sets of rows.

See ``_hardmax``: given their order the integrand is a product of functions of one winning index
each, and what matters of the past is the set of those already placed (``hardmax:recursion``).
"""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit
from aimlib._hardmax_sampler import spread_of
from aimlib._normal import log_normal_cdf
from aimlib._validation import FloatArray

_BELOW, _ABOVE = 7.0, 8.0  # window around a mode, in standard deviations
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
def rows_to_places(
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
def panels(centre: np.ndarray, spread: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Left ends and half widths of panels that cover a window around every centre."""
    starts, ends = np.empty(centre.size), np.empty(centre.size)
    order = np.empty(centre.size, dtype=np.int64)
    most = 0
    for v in range(centre.size):
        starts[v], ends[v] = centre[v] - _BELOW * spread[v], centre[v] + _ABOVE * spread[v]
        most += int((ends[v] - starts[v]) / width) + 2
        k = v  # insertion sort: there are few
        while k > 0 and starts[order[k - 1]] > starts[v]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = v
    left, half = np.empty(most), np.empty(most)
    count, low, high = 0, starts[order[0]], -math.inf
    for k in range(centre.size):
        high = max(high, ends[order[k]])
        if k + 1 < centre.size and starts[order[k + 1]] <= high:
            continue
        pieces = math.ceil((high - low) / width)
        for piece in range(pieces):
            half[count] = 0.5 * (high - low) / pieces
            left[count] = low + 2.0 * half[count] * piece
            count += 1
        if k + 1 < centre.size:  # the next window begins beyond this one
            low = starts[order[k + 1]]
    return left[:count], half[:count]


@njit
def nodes_of(left: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
def factors(
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
def _is_reachable(members: int, below: np.ndarray) -> bool:
    for v in range(below.size):
        if (members >> v) & 1 and (below[v] & members) != below[v]:
            return False
    return True


@njit
def steps(own: np.ndarray, pair: np.ndarray, below: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
def masses(
    step: np.ndarray, reachable: np.ndarray, half: np.ndarray, forward: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mass of each set being placed below every node; or of all outside it, above every node.

    The second result is the density of the last step, at the nodes.
    """
    sets, count, size = step.shape
    mass, density = np.zeros((sets, size)), np.empty(size)
    mass[0 if forward else sets - 1] = 1.0
    for k in range(1, sets):
        members = k if forward else sets - 1 - k
        if not reachable[members]:
            continue
        density[:] = 0.0
        for v in range(count):
            other = members ^ (1 << v)
            if ((members >> v) & 1 == 1) == forward and reachable[other]:
                towards = members if forward else other
                for i in range(size):
                    density[i] += mass[other, i] * step[towards, v, i]
        _accumulate(density, half, forward, mass[members])
    return mass, density


@njit
def marginals(
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
def fill_means(
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
