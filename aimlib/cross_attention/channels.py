"""Channels of T x T' independent indices, all of variance V given the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._channel_base import (
    RectangularChannel,
    check_one_hot,
    check_positive,
    check_rows_sum_to_one,
    check_shape,
    like,
    sampled_error,
    variances,
)
from aimlib._softmax import pair_error, row_softmax
from aimlib._validation import FloatArray
from aimlib.channels import Informative
from aimlib.cross_attention import hardmax

__all__ = ["CrossChannel", "HardmaxChannel", "LinearChannel", "SoftmaxChannel"]


class CrossChannel(Informative, Protocol):
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

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the outputs of indices of shape (..., T, T'); ``rng`` draws noise if any.

        Parameters
        ----------
        indices : array, shape (..., T, T')
            h; nothing ties its entries together.
        rng : numpy Generator, optional
            Needed by channels with noise, and by no other.

        Returns
        -------
        array, shape (..., T, T')
        """

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        r"""Return :math:`E[h\mid y]` where :math:`h_{ab}\sim\mathcal N(\omega_{ab}, V)` before.

        Parameters
        ----------
        y, omega : array, shape (..., T, T')
            Outputs, and the means of the indices given all other data; of order one.
        variance : float
            V > 0, of every index.

        Returns
        -------
        array, shape (..., T, T')
        """

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError if ``outputs``, shape (n, T, T'), cannot come from this channel."""


@dataclass(frozen=True)
class LinearChannel(RectangularChannel):
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
        object.__setattr__(self, "noise", check.real("noise", self.noise, low=0.0))

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T'); a positive noise needs ``rng``."""
        h = self.check_indices("indices", indices)
        if self.noise == 0.0:
            return h.copy()
        if rng is None:
            raise ValueError(
                f"rng must be a numpy Generator when noise is {self.noise!r}, got None"
            )
        return np.asarray(h + math.sqrt(self.noise) * rng.standard_normal(h.shape))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] by Gaussian conditioning."""
        outputs, centre, v = self.check_posterior(y, omega, variance)
        return np.asarray(centre + v / (v + self.noise) * (outputs - centre))

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = TT'V/(V+\tau)` (``cross_attention:information-linear``)."""
        v = variances(variance, second_moment)
        share = v / (v + self.noise) if self.noise > 0.0 else 1.0 + 0.0 * v
        return like(self.queries * self.keys * share)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac{TT'}2\log(2\pi e(V+\tau))`."""
        v = variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * (v + self.noise))
        return like(0.5 * self.queries * self.keys * entropy)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`TT'V`, the error on the output without its noise."""
        return like(self.queries * self.keys * variances(variance, second_moment))


@dataclass(frozen=True)
class SoftmaxChannel(RectangularChannel):
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
        beta = check.real("inverse_temperature", self.inverse_temperature, low=0.0, open_low=True)
        object.__setattr__(self, "inverse_temperature", beta)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T'), rows summing to one; ``rng`` is not used."""
        h = self.check_indices("indices", indices)
        return np.asarray(row_softmax(h, self.inverse_temperature))

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

    def validate(self, outputs: ArrayLike) -> None:
        r"""Raise ValueError, naming the worst row, unless all are positive and rows sum to one.

        Within :math:`10^{-6}T'`, the rounding of single precision.
        """
        y = check_shape("outputs", outputs, self.index_shape)
        check_positive("outputs", y, self.inverse_temperature)
        check_rows_sum_to_one("outputs", y)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T(T'-1)`, whatever V and :math:`\beta`."""
        v = variances(variance, second_moment)
        return like(self.queries * (self.keys - 1.0) + 0.0 * v)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac c2\log(2\pi eV)` up to a constant of the coordinates of y."""
        v = variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * v)
        return like(0.5 * self.queries * (self.keys - 1.0) * entropy)

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
class HardmaxChannel(RectangularChannel):
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

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, T'), one-hot in every row; ``rng`` is not used."""
        h = self.check_indices("indices", indices)
        return np.asarray(np.arange(self.keys) == h.argmax(axis=-1)[..., None], dtype=np.float64)

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

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless every row is one-hot."""
        check_one_hot("outputs", check_shape("outputs", outputs, self.index_shape))

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return c as a function of V, of V/Q alone.

        With two keys :math:`T\,E\,\varphi(w)^2/(\Phi(w)\Phi(-w))`, w of variance q/V.
        """
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        return like(np.asarray(self.queries * x * hardmax.row_series(self.keys)[0](x)))

    def information_with_error(self, overlap: float, second_moment: float) -> tuple[float, float]:
        """Return c(q) and an estimate of its error: zero for two keys, three, and at q = 0.

        Parameters
        ----------
        overlap : float
            q from 0 to Q.
        second_moment : float
            Q > 0.
        """
        value = float(self.information(overlap, second_moment))
        relative = hardmax.row_series(self.keys)[1] if overlap > 0.0 else 0.0
        return value, value * relative

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\int_0^x(c/x')\,dx'` at :math:`x=\sqrt{V/Q}`: the entropy in nats."""
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        return like(np.asarray(self.queries * hardmax.row_entropy(self.keys)(x)))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows, at two keys :math:`\arcsin(\sqrt{V/Q})/\pi`."""
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        values = [hardmax.misclassified(self.keys, min(float(ratio), 1.0)) for ratio in x.ravel()]
        return like(np.array(values).reshape(np.shape(x)))
