"""Channels of T x T' independent indices, all of variance V given the data."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._channel_base import (
    Observed,
    RectangularChannel,
    check_one_hot,
    check_positive,
    like,
    sampled_error,
    variances,
)
from aimlib._channel_families import HardmaxOutput, LinearOutput, Series, SoftmaxOutput, as_series
from aimlib._softmax import pair_error
from aimlib._validation import FloatArray
from aimlib.cross_attention import hardmax

__all__ = ["CrossChannel", "HardmaxChannel", "LinearChannel", "SoftmaxChannel"]


class CrossChannel(Observed, Protocol):
    """What the theory and message passing ask of a channel of rectangular indices.

    Derive from :class:`aimlib.channels.RectangularChannel`, state ``queries``, ``keys``,
    :meth:`output`, :meth:`posterior_mean` and ``information_at``, and the rest is there.
    """

    @property
    def queries(self) -> int:
        """T, the number of queries."""

    @property
    def keys(self) -> int:
        """T', the number of keys."""


@dataclass(frozen=True)
class LinearChannel(LinearOutput, RectangularChannel):
    r"""The indices with noise, :math:`y_{ab}=h_{ab}+\sqrt\tau\,\xi_{ab}`.

    Parameters
    ----------
    queries, keys : int
        T and T', at least 1.
    noise : float
        Variance :math:`\tau\ge0`.

    Notes
    -----
    Methods and their arguments are those of :class:`CrossChannel`.

    Examples
    --------
    >>> LinearChannel(2, 3, noise=1.0).information(0.0, 1.0)
    3.0
    """

    queries: int = 1
    keys: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=1)
        check.store(self, noise=check.real("noise", self.noise, low=0.0))


@dataclass(frozen=True)
class SoftmaxChannel(SoftmaxOutput, RectangularChannel):
    r"""Row-wise softmax over the keys, :math:`y_{ab}=e^{\beta h_{ab}}/\sum_{b'}e^{\beta h_{ab'}}`.

    Each row of h is known up to its own shift: nothing ties the rows together.

    Parameters
    ----------
    queries : int
        T, at least 1.
    keys : int
        T', at least 2.
    inverse_temperature : float
        :math:`\beta > 0`.

    Notes
    -----
    Methods and their arguments are those of :class:`CrossChannel`.

    Examples
    --------
    >>> SoftmaxChannel(2, 3).information(0.5, 1.0)
    4.0
    """

    queries: int = 2
    keys: int = 2
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=2)
        beta = check.positive("inverse_temperature", self.inverse_temperature)
        check.store(self, inverse_temperature=beta)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y]: least squares for the shift of each row (``cross_attention:softmax``).

        Raises
        ------
        ValueError
            If an output is not positive: use a smaller ``inverse_temperature``.
        """
        outputs, centre, _ = self.check_posterior(y, omega, variance)
        check_positive("y", outputs, self.inverse_temperature)
        base = np.log(outputs) / self.inverse_temperature
        return np.asarray(base + (centre - base).mean(axis=-1, keepdims=True))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|y-E[y\mid\mathrm{data}]\|_F^2` on a new pair of sequences.

        Two keys: by quadrature.  More: by quasi-Monte Carlo with a fixed seed, to about 1e-3.
        """
        v = variances(variance, second_moment)
        row = SoftmaxChannel(1, self.keys, self.inverse_temperature)
        values = [row._row_error(float(x), float(second_moment)) for x in np.ravel(v)]
        return like(self.queries * np.array(values).reshape(np.shape(v)))

    def _row_error(self, variance: float, second_moment: float) -> float:
        if self.keys > 2:
            return sampled_error(self, variance, second_moment, log_count=13)
        # the difference of two indices has variance 2 Q, where that of tied ones has 3 Q
        share = 2.0 / 3.0
        return 0.5 * pair_error(share * variance, share * second_moment, self.inverse_temperature)


@dataclass(frozen=True)
class HardmaxChannel(HardmaxOutput, RectangularChannel):
    r"""Row-wise hardmax over the keys: 1 where :math:`h_{ab}` is the largest of its row, else 0.

    Rows are independent, and of each the winner is seen.  The posterior mean is exact for any
    number of keys.  The information is exact for two keys and three; for more it has a stated error
    (:meth:`information_with_error`).

    Parameters
    ----------
    queries : int
        T, at least 1.
    keys : int
        T', at least 2.

    Notes
    -----
    Methods and their arguments are those of :class:`CrossChannel`.

    Examples
    --------
    >>> round(HardmaxChannel(2).information(0.0, 1.0), 10)  # T 2/pi
    1.2732395447
    >>> round(HardmaxChannel(1, 3).output_entropy(1.0, 1.0), 10)  # log 3
    1.0986122887
    """

    queries: int = 2
    keys: int = 2

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=2)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y], row by row (``cross_attention:hardmax``), finite for any input.

        Raises
        ------
        ValueError
            If ``y`` is not one-hot in every row.
        """
        outputs, centre, v = self.check_posterior(y, omega, variance)
        check_one_hot("y", outputs)
        unit = math.sqrt(v)
        rows = np.ascontiguousarray(centre.reshape(-1, self.keys) / unit)
        shifts = np.empty_like(rows)
        hardmax.fill_row_shifts(outputs.reshape(-1, self.keys).argmax(axis=1), rows, shifts)
        return np.asarray(centre + unit * shifts.reshape(centre.shape))

    @property
    def series(self) -> tuple[Series, float]:
        """By quadrature for two keys and three; a cubic with a stated error for more."""
        return _series(self.queries, self.keys)

    def misclassified(self, x: float) -> float:
        """Share of rows whose largest index changes between omega and h, at x = sqrt(V/Q)."""
        return hardmax.misclassified(self.keys, x)


@functools.cache
def _series(queries: int, keys: int) -> tuple[Series, float]:
    row, error = hardmax.row_series(keys)
    return as_series(queries * row), error
