r"""The softmax of rows, the one place where it is computed.

The maximum is taken off *before* the scale :math:`\beta` is put on: the differences are at most
zero, so that nothing overflows upwards, and what overflows downwards has weight zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def scaled_gaps(scores: Any, inverse_temperature: float) -> Any:
    r"""Return :math:`\beta(h_{ab}-\max_c h_{ac})`, finite for any finite scores and :math:`\beta`.

    Parameters
    ----------
    scores : array, shape (..., T)
        h, of any floating type, which the result keeps.
    inverse_temperature : float
        :math:`\beta\ge0`, finite.

    Returns
    -------
    array, shape (..., T)
        At most zero.  What is below the range of the type is held at its end.
    """
    lowest = np.finfo(scores.dtype).min
    with np.errstate(over="ignore"):
        gaps = np.maximum(scores - scores.max(axis=-1, keepdims=True), lowest)
        gaps *= min(inverse_temperature, -float(lowest))
    return np.maximum(gaps, lowest, out=gaps)


def row_softmax(scores: Any, inverse_temperature: float) -> Any:
    r"""Return :math:`e^{\beta h_{ab}}/\sum_c e^{\beta h_{ac}}`.

    Never NaN for finite scores: see :func:`scaled_gaps`.

    Examples
    --------
    >>> row_softmax(np.array([[0.0, 3.0], [1.0, 1.0]]), 1e308)
    array([[0. , 1. ],
           [0.5, 0.5]])
    """
    weights = np.exp(scaled_gaps(scores, inverse_temperature))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def pair_error(variance: float, second_moment: float, beta: float) -> float:
    """Return E|y - E[y | data]|^2 at two tokens (``softmax:generalization``).

    In the sum and difference of two posterior samples of u, which are independent.

    Each of the four entries of y is a logistic function of one of the differences u of indices,
    of variance 3Q, and the errors of all four are equal: the sum is 2 E (sigma - sigma')^2.
    """
    steep = beta * math.sqrt(3.0 * second_moment)
    step = max(min(0.5, 0.5 / steep), 0.0125)
    z = np.arange(-math.ceil(9.0 / step), math.ceil(9.0 / step) + 1) * step
    weight = np.exp(-0.5 * z * z) * step / math.sqrt(2.0 * math.pi)
    common = 0.5 * beta * math.sqrt(3.0 * (2.0 * second_moment - variance) / 2.0) * z
    half = 0.5 * beta * math.sqrt(1.5 * variance) * z
    # sigma(2a) - sigma(2b) = sinh(a - b)/(2 cosh a cosh b), all positive and without cancellation
    log_cosh = np.logaddexp(common[:, None] + half, -common[:, None] - half) + np.logaddexp(
        common[:, None] - half, half - common[:, None]
    )
    difference = 2.0 * np.sinh(2.0 * np.clip(np.abs(half), None, 300.0)) * np.exp(-log_cosh)
    return float(2.0 * weight @ difference**2 @ weight)
