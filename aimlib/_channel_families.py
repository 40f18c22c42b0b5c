r"""Linear, softmax and hardmax outputs, as far as they do not depend on what ties the indices.

The channels of symmetric and of rectangular indices share these: what is shown, and how c, the
entropy and the error follow from one number or one series.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib._channel_base import (
    BaseChannel,
    check_one_hot,
    check_positive,
    check_rows_sum_to_one,
    check_shape,
    like,
    variances,
)
from aimlib._softmax import row_softmax
from aimlib._validation import FloatArray

Series = np.polynomial.Chebyshev  # in x on [0, 1]


def as_series(function: Any) -> Series:
    """Return a polynomial in x of any kind as a series on [0, 1]."""
    return function.convert(domain=[0.0, 1.0], kind=Series)  # type: ignore[no-any-return]


def with_noise(values: FloatArray, noise: float, rng: Any, *, tied: bool) -> FloatArray:
    """Add independent Gaussian noise of this variance, equal at (a, b) and (b, a) if tied."""
    if noise == 0.0:
        return values.copy()
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy Generator when noise is {noise!r}, got {rng!r}")
    z = rng.standard_normal(values.shape)
    if tied:
        z = np.triu(z) + np.swapaxes(np.triu(z, 1), -1, -2)
    return np.asarray(values + math.sqrt(noise) * z)


class LinearOutput(BaseChannel):
    """The indices with Gaussian noise of variance tau, the field ``noise``."""

    noise: float

    @property
    def kinds(self) -> tuple[tuple[float, int], ...]:
        """Variance over V, and number, of the independent indices of each kind."""
        rows, columns = self.index_shape
        if self.is_tied:
            return (2.0, rows), (1.0, rows * (rows - 1) // 2)
        return ((1.0, rows * columns),)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        h = self.check_indices("indices", indices)
        return with_noise(h, self.noise, rng, tied=self.is_tied)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] by Gaussian conditioning (``channels:linear``)."""
        outputs, centre, v = self.check_posterior(y, omega, variance)
        prior = self.spreads * v
        return np.asarray(centre + prior / (prior + self.noise) * (outputs - centre))

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return c as a function of V (``channels:linear-c``).

        .. math:: c = \sum\frac{(1+\delta_{ab})V}{(1+\delta_{ab})V+\tau}

        over the independent indices, without the :math:`\delta_{ab}` where nothing ties them
        (``cross_attention:information-linear``).
        """
        v, tau = variances(variance, second_moment), self.noise
        c = 0.0 * v
        for spread, count in self.kinds:
            x = spread * v
            c += count * (x / (x + tau) if tau > 0.0 else 1.0)
        return like(c)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out}`, the entropy of y given the indices up to V."""
        v = variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            parts = [n * normal_entropy(s * v + self.noise) for s, n in self.kinds if n]
        return like(sum(parts, 0.0 * v))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|h-E[h]\|_F^2`, the error on the output without its noise.

        That is T(T+1)V for symmetric indices and TT'V for rectangular ones.
        """
        return like(float(self.spreads.sum()) * variances(variance, second_moment))


class SoftmaxOutput(BaseChannel):
    """Row-wise softmax: some directions of the indices exactly, and nothing of the others."""

    inverse_temperature: float

    @property
    def directions(self) -> int:
        """Number c of index directions that an output gives away (``channels:softmax-c``).

        All but one constant, T(T+1)/2 - 1, of symmetric indices; all but one constant in every row,
        T(T' - 1), of rectangular ones.
        """
        rows, columns = self.index_shape
        return rows * (rows + 1) // 2 - 1 if self.is_tied else rows * (columns - 1)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        h = self.check_indices("indices", indices)
        return np.asarray(row_softmax(h, self.inverse_temperature))

    def validate(self, outputs: ArrayLike) -> None:
        r"""Raise ValueError, naming the worst row, unless all are positive and rows sum to one.

        Within :math:`10^{-6}T'`, the rounding of single precision.
        """
        y = check_shape("outputs", outputs, self.index_shape)
        check_positive("outputs", y, self.inverse_temperature)
        check_rows_sum_to_one("outputs", y)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return c = :attr:`directions`, whatever V and :math:`\beta`."""
        return like(self.directions + 0.0 * variances(variance, second_moment))

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out} = \frac c2\log(2\pi e V)`, up to a constant.

        The constant depends on the coordinates chosen for y, and on nothing that is learned.
        """
        with np.errstate(divide="ignore"):
            entropy = normal_entropy(variances(variance, second_moment))
        return like(self.directions * entropy)


class HardmaxOutput(BaseChannel):
    """Row-wise hardmax, of which c/x is a series in x = sqrt(V/Q)."""

    @property
    @abstractmethod
    def series(self) -> tuple[Series, float]:
        """c/x on [0, 1], and an estimate of its largest relative error."""

    @property
    def is_sampled(self) -> bool:
        """Whether the series has its error where nothing is known, too."""
        return False

    @abstractmethod
    def misclassified(self, x: float) -> float:
        """Share of rows whose largest index changes between omega and h, of three or more."""

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        h = self.check_indices("indices", indices)
        winners = h.argmax(axis=-1)[..., None]
        return np.asarray(np.arange(h.shape[-1]) == winners, dtype=np.float64)

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless every row is one-hot."""
        check_one_hot("outputs", check_shape("outputs", outputs, self.index_shape))

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of V, of V/Q alone (``hardmax:information``).

        With two keys of cross-attention it is T E phi(w)^2/(Phi(w) Phi(-w)), w of variance q/V.
        To about 1e-12 unless :meth:`information_with_error` states an error.
        """
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        coefficients = self.series[0].coef
        return like(np.asarray(x * np.polynomial.chebyshev.chebval(2.0 * x - 1.0, coefficients)))

    def information_with_error(self, overlap: float, second_moment: float) -> tuple[float, float]:
        """Return c(q) and an estimate of its error: 1e-6 at three tokens, 0.2 percent at four.

        The error is zero for two tokens, for three keys of cross-attention, and for up to six
        tokens where nothing is known, q = 0.

        Parameters
        ----------
        overlap : float
            q from 0 to Q.
        second_moment : float
            Q > 0.
        """
        value = float(self.information(overlap, second_moment))
        return value, value * self.series[1] if overlap > 0.0 or self.is_sampled else 0.0

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`-\Psi_{out} = \int_0^x (c/x')\,dx'` at :math:`x=\sqrt{V/Q}`, in nats."""
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        return like(np.asarray(self.series[0].integ(lbnd=0.0)(x)))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows by the guess hardmax(omega).

        For two tokens :math:`\arccos(\sqrt{q/Q})/\pi`, computed as :math:`\arcsin(\sqrt{V/Q})/\pi`
        (``hardmax:misclassification``); above by quadrature, to about 1e-9 plus 1e-5 relative.  For
        three tokens or more of symmetric indices this guess is not quite the likeliest one, because
        the diagonal index of a row is known less well than the others.
        """
        x = np.sqrt(variances(variance, second_moment) / second_moment)
        if self.index_shape[1] == 2:
            return like(np.asarray(np.arcsin(np.minimum(x, 1.0)) / math.pi))
        values = [self.misclassified(min(float(ratio), 1.0)) for ratio in np.ravel(x)]
        return like(np.array(values).reshape(np.shape(x)))


def normal_entropy(variance: Any) -> Any:
    """Entropy of a normal of this variance, in nats."""
    return 0.5 * np.log(2.0 * math.pi * math.e * variance)
