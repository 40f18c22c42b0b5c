"""The standard normal and its truncations, accurate in any tail, compiled."""

from __future__ import annotations

import math

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray

_SQRT_HALF = math.sqrt(0.5)
INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


@njit
def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x * _SQRT_HALF)


@njit
def normal_pdf(x: float) -> float:
    return INVERSE_SQRT_2PI * math.exp(-0.5 * x * x)


@njit
def log_normal_cdf(x: float) -> float:
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    return -0.5 * x * x + math.log(-INVERSE_SQRT_2PI / x * _tail_series(x))


@njit
def _tail_series(x: float) -> float:
    """-x Phi(x)/phi(x) deep in the lower tail, 1 - 1/x^2 + 3/x^4 - ..."""
    square = 1.0 / (x * x)
    return 1.0 - square * (
        1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square * (1.0 - 9.0 * square)))
    )


@njit
def mills(x: float) -> float:
    """phi(x)/Phi(x), the mean shift of a standard normal that is known to exceed -x."""
    if x > -30.0:
        return normal_pdf(x) / normal_cdf(x)
    return -x / _tail_series(x)


@njit
def sign_information(x: float) -> float:
    """phi(x)^2/(Phi(x) Phi(-x)), what the sign of a normal of mean x and variance 1 says of it."""
    return mills(x) * mills(-x)


@njit
def sign_information_of(x: np.ndarray) -> np.ndarray:
    """:func:`sign_information` of every entry of a vector."""
    out = np.empty(x.size)
    for i in range(x.size):
        out[i] = sign_information(x[i])
    return out


def half_plane(step: float, reach: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Trapezoid over two standard normals, for functions that (z1, -z2) or (-z1, -z2) leaves as is.

    Points z1 and z2 >= 0 on a grid of so many steps, and their weights, which count both halves.
    """
    i, j = np.indices((2 * reach + 1, reach + 1), dtype=np.float64).reshape(2, -1)
    z1, z2 = step * (i - reach), step * j
    weight = np.exp(-0.5 * (z1 * z1 + z2 * z2)) * (step * INVERSE_SQRT_2PI) ** 2
    weight[j > 0] *= 2.0
    kept = weight > 1e-20
    return z1[kept], z2[kept], weight[kept]


@njit
def truncated_normal(low: float, high: float, uniform: float) -> tuple[float, float]:
    """Return a draw and the mean of a standard normal truncated to (low, high), in any tail."""
    flip = low + high > 0.0 if high < math.inf else low > -high
    if high == math.inf and low == -math.inf:
        flip = False
    if flip:  # work where the distribution function is small and accurate
        low, high = -high, -low
    log_low = log_normal_cdf(low) if low > -math.inf else -math.inf
    log_high = log_normal_cdf(high) if high < math.inf else 0.0
    share = math.exp(log_low - log_high) if low > -math.inf else 0.0
    log_mass = log_high + math.log1p(-share) if share < 1.0 else -math.inf
    if log_mass == -math.inf or high - low < 1e-9:
        middle = 0.5 * (low + high)
        return (-middle, -middle) if flip else (middle, middle)
    below = math.exp(-0.5 * low * low - log_mass) if low > -math.inf else 0.0
    above = math.exp(-0.5 * high * high - log_mass) if high < math.inf else 0.0
    mean = INVERSE_SQRT_2PI * (below - above)
    mean = min(max(mean, low), high)
    probability = math.exp(log_high) * (share + uniform * (1.0 - share))
    if probability > 1e-290:
        draw = min(max(normal_quantile(probability), low), high)
    else:
        target = log_high + math.log(share + uniform * (1.0 - share))
        draw = _normal_quantile_of_log(target, max(low, -1e5), min(high, 40.0))
    return (-draw, -mean) if flip else (draw, mean)


_QUANTILE_CENTRE = (
    np.array([3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
              1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
              3.3430575583588128105e4, 2.5090809287301226727e3]),
    np.array([1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
              2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
              5.2264952788528545610e3]),
)  # fmt: skip
_QUANTILE_MIDDLE = (
    np.array([1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
              3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
              2.27238449892691845833e-2, 7.74545014278341407640e-4]),
    np.array([1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
              1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
              1.05075007164441684324e-9]),
)  # fmt: skip
_QUANTILE_TAIL = (
    np.array([6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
              2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
              2.71155556874348757815e-5, 2.01033439929228813265e-7]),
    np.array([1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
              7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
              2.04426310338993978564e-15]),
)  # fmt: skip


@njit
def _rational(x: float, numerator: np.ndarray, denominator: np.ndarray) -> float:
    top, bottom = 0.0, 0.0
    for k in range(7, -1, -1):
        top = top * x + numerator[k]
        bottom = bottom * x + denominator[k]
    return top / bottom


@njit
def normal_quantile(p: float) -> float:
    """Quantile of the standard normal by the rational functions of Wichura (1988, AS 241)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        return q * _rational(0.180625 - q * q, _QUANTILE_CENTRE[0], _QUANTILE_CENTRE[1])
    r = math.sqrt(-math.log(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        x = _rational(r - 1.6, _QUANTILE_MIDDLE[0], _QUANTILE_MIDDLE[1])
    else:
        x = _rational(r - 5.0, _QUANTILE_TAIL[0], _QUANTILE_TAIL[1])
    return -x if q < 0.0 else x


@njit
def _normal_quantile_of_log(target: float, low: float, high: float) -> float:
    """Solve log Phi(x) = target in (low, high) by Newton's iteration inside a bracket."""
    x = -math.sqrt(max(-2.0 * target, 0.0)) if target < -3.0 else 0.0
    if not low < x < high:
        x = 0.5 * (low + high)
    for _ in range(60):
        value = log_normal_cdf(x)
        if value > target:
            high = x
        else:
            low = x
        slope = math.exp(-0.5 * x * x - value) * INVERSE_SQRT_2PI if x > -30.0 else -x
        following = x - (value - target) / slope if slope > 0.0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - x) < 1e-9 * max(1.0, abs(x)):
            return following
        x = following
    return x
