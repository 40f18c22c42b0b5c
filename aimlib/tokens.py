r"""Tokens that are not white and Gaussian: correlated directions, correlated positions, other laws.

Three reductions to the model of the book, for the chapter "Other priors, other tokens":

* Tokens :math:`x\sim N(0,\Sigma)` are white ones for the weights
  :math:`\Sigma^{1/2}S\,\Sigma^{1/2}`: :func:`whiten`.
* Tokens with correlated positions, :math:`E\,x_ax_b^\top = C_{ab}I`, have the indices
  :math:`C^{1/2}h_0C^{1/2}` of white ones: :class:`CorrelatedSoftmaxChannel`.
* Independent entries of fourth moment :math:`m_4` change the variance of a diagonal index, and
  nothing else: :class:`FourthMomentHardmaxChannel`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._channel_base import SymmetricChannel, like
from aimlib._channel_families import SoftmaxOutput
from aimlib._hardmax_information import one_sign_integral
from aimlib._hardmax_pair import pair_informations
from aimlib._normal import half_plane
from aimlib._validation import FloatArray
from aimlib.channels import HardmaxChannel, SoftmaxChannel
from aimlib.model import Dataset

__all__ = ["CorrelatedSoftmaxChannel", "FourthMomentHardmaxChannel", "whiten"]


def _root(name: str, covariance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the positive square root of a covariance and its inverse."""
    matrix = check.symmetric_matrix(name, covariance)
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    if values[0] <= 1e-12 * values[-1]:
        raise ValueError(
            f"{name} must be positive definite, got a smallest eigenvalue of {values[0]:.3g}"
        )
    if values[0] < 1e-150 or values[-1] > 1e150:
        raise ValueError(
            f"{name} must have eigenvalues between 1e-150 and 1e150, "
            f"got {values[0]:.3g} to {values[-1]:.3g}"
        )
    scale = np.sqrt(values)
    return (vectors * scale) @ vectors.T, (vectors / scale) @ vectors.T


# ---------------------------------------------------------------------------------------------
# Correlated directions
# ---------------------------------------------------------------------------------------------


def whiten(dataset: Dataset, covariance: ArrayLike) -> Dataset:
    r"""Return the same sequences with white tokens (``other_priors:whitening``).

    Parameters
    ----------
    dataset : Dataset
        Tokens with covariance :math:`\Sigma`, and outputs of
        :math:`(x_a^\top Sx_b-\delta_{ab}\mathrm{Tr}\,S\Sigma)/\sqrt d`.
    covariance : array, shape (d, d)
        :math:`\Sigma`, positive definite.

    Returns
    -------
    Dataset
        Tokens :math:`\Sigma^{-1/2}x`, the outputs as they are, and if there is a teacher
        :math:`\Sigma^{1/2}S\,\Sigma^{1/2}`.

    Raises
    ------
    ValueError
        If the covariance is not positive definite or its shape does not fit.

    Examples
    --------
    >>> data = Dataset(np.ones((1, 2, 2)), np.full((1, 2, 2), 0.5), np.eye(2))
    >>> white = whiten(data, np.diag([4.0, 1.0]))
    >>> white.tokens[0, 0], white.teacher.diagonal()
    (array([0.5, 1. ]), array([4., 1.]))
    """
    if not isinstance(dataset, Dataset):
        raise ValueError(f"dataset must be a Dataset, got {dataset!r}")
    root, inverse = _root("covariance", covariance)
    if root.shape[0] != dataset.dimension:
        raise ValueError(
            f"covariance must have shape {(dataset.dimension, dataset.dimension)}, "
            f"got shape {root.shape}"
        )
    teacher = dataset.teacher
    if teacher is not None:
        teacher = root @ teacher @ root
        teacher = 0.5 * (teacher + teacher.T)
    return Dataset(dataset.tokens @ inverse, dataset.outputs, teacher)


# ---------------------------------------------------------------------------------------------
# Correlated positions
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorrelatedSoftmaxChannel(SoftmaxOutput, SymmetricChannel):
    r"""Softmax of tokens whose positions are correlated, :math:`E\,x_ax_b^\top = C_{ab}I`.

    As a function of the indices :math:`h_0` of the white tokens :math:`C^{-1/2}X` the output is
    the softmax of :math:`C^{1/2}h_0C^{1/2}` (``other_priors:mixing``).  It determines
    :math:`h_0` up to a multiple of :math:`vv^\top`, :math:`v=C^{-1/2}1`.

    Parameters
    ----------
    covariance : array, shape (T, T)
        C, positive definite.
    inverse_temperature : float
        :math:`\beta > 0`.

    Examples
    --------
    >>> channel = CorrelatedSoftmaxChannel([[1.0, 0.5], [0.5, 1.0]])
    >>> channel.information(0.5, 1.5)
    2.0
    """

    covariance: ArrayLike
    inverse_temperature: float = 1.0
    _root: FloatArray = field(init=False, repr=False, compare=False)
    _inverse: FloatArray = field(init=False, repr=False, compare=False)
    _channel: SoftmaxChannel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        root, inverse = _root("covariance", self.covariance)
        if len(root) < 2:
            raise ValueError(f"covariance must be of at least two tokens, got {self.covariance!r}")
        channel = SoftmaxChannel(len(root), self.inverse_temperature)
        # a tuple: equal channels compare and hash alike, and nobody can change it later
        rows = tuple(map(tuple, np.asarray(self.covariance, dtype=np.float64).tolist()))
        fields = {"covariance": rows, "_root": root, "_inverse": inverse, "_channel": channel}
        check.store(self, **fields)

    @property
    def tokens(self) -> int:
        """T."""
        return self._channel.tokens

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the softmax of the mixed indices, shape (..., T, T); ``rng`` is not used."""
        mixed = self._root @ self.check_indices("indices", indices) @ self._root
        return self._channel.output(0.5 * (mixed + np.swapaxes(mixed, -1, -2)))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h_0 | y], least squares along v v^T (``other_priors:mixed-mean``)."""
        centre = self.check_indices("omega", omega)
        known = self._channel.posterior_mean(y, np.zeros_like(centre), variance)
        base = self._inverse @ known @ self._inverse
        v = self._inverse.sum(axis=1)
        constant = ((centre - base) @ v) @ v / (v @ v) ** 2
        mean = base + constant[..., None, None] * np.outer(v, v)
        return np.asarray(0.5 * (mean + np.swapaxes(mean, -1, -2)))

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless softmax of symmetric indices made the outputs."""
        self._channel.validate(outputs)


# ---------------------------------------------------------------------------------------------
# Entries of another fourth moment.  The mean of u = (h_11 - h_12, h_22 - h_12) has covariance
# [[s + q, q], [q, s + q]] with s = 2 q + (m_4 - 3) m^2; what is unknown keeps V [[3, 1], [1, 3]].
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FourthMomentHardmaxChannel(SymmetricChannel):
    r"""Hardmax with two tokens whose independent entries have fourth moment :math:`m_4`.

    The posterior mean is that of :class:`HardmaxChannel`.  The law of :math:`\omega` is not: the
    variance of :math:`\omega_{aa}` is :math:`2q+(m_4-3)m^2`, with m the mean eigenvalue of S
    (``other_priors:omega-variance``), and with it the information.

    Parameters
    ----------
    mean_eigenvalue : float
        m; :math:`\sqrt\rho` for a Wishart prior.
    fourth_moment : float
        :math:`m_4` from 1 to 100; 3 is Gaussian.

    Raises
    ------
    ValueError
        If an argument is out of range.  The second moment Q that the methods take must be at least
        :math:`m^2`; for the information and the entropy, at least :math:`m^2/0.999`.

    Examples
    --------
    >>> gaussian = FourthMomentHardmaxChannel(mean_eigenvalue=1.0, fourth_moment=3.0)
    >>> round(gaussian.information(1.0, 2.0) / HardmaxChannel().information(1.0, 2.0), 6)
    1.0
    """

    mean_eigenvalue: float
    fourth_moment: float

    def __post_init__(self) -> None:
        check.store(
            self,
            mean_eigenvalue=check.real("mean_eigenvalue", self.mean_eigenvalue),
            fourth_moment=check.real("fourth_moment", self.fourth_moment, low=1.0, high=100.0),
        )

    @property
    def tokens(self) -> int:
        """T = 2."""
        return 2

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the one-hot rows; ``rng`` is not used."""
        return HardmaxChannel().output(indices, rng)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y], that of :class:`HardmaxChannel`."""
        return HardmaxChannel().posterior_mean(y, omega, variance)

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless the rows are one-hot."""
        HardmaxChannel().validate(outputs)

    def _second_moment(self, second_moment: float, most_share: float) -> float:
        total = check.positive("second_moment", second_moment)
        least = self.mean_eigenvalue**2 / most_share
        if total * (1.0 + 1e-12) < least:
            raise ValueError(
                f"second_moment must be at least {least:g} "
                f"for mean_eigenvalue {self.mean_eigenvalue!r}, got {second_moment!r}"
            )
        return total

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of V = Q - q, up to Q - m^2 (``other_priors:fourth-moment``).

        To about 1e-6 relative.  Above Q - m^2, where no estimate is that bad, the value there.
        """
        total = self._second_moment(second_moment, _MOST_SHARE)
        v = check.reals("variance", variance, low=0.0, high=total)
        series = _fourth_moment_series(self.mean_eigenvalue**2 / total, self.fourth_moment)
        x = np.sqrt(v / total)
        value = x * series(np.minimum(x, series.domain[1]))
        return like(value)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\int_0^x(c/x')\,dx'` at :math:`x=\sqrt{V/Q}`, in nats."""
        total = self._second_moment(second_moment, _MOST_SHARE)
        v = check.reals("variance", variance, low=0.0, high=total)
        series = _fourth_moment_series(self.mean_eigenvalue**2 / total, self.fourth_moment)
        x, end = np.sqrt(v / total), series.domain[1]
        value = series.integ(lbnd=0.0)(np.minimum(x, end)) + series(end) * np.maximum(x - end, 0.0)
        return like(value)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows, :math:`\arctan\sqrt{3V/(s+q)}/\pi`."""
        total = self._second_moment(second_moment, 1.0)
        v = check.reals("variance", variance, low=0.0, high=total)
        known = 3.0 * (total - v) + (self.fourth_moment - 3.0) * self.mean_eigenvalue**2
        value = np.arctan2(np.sqrt(3.0 * v), np.sqrt(np.maximum(known, 0.0))) / math.pi
        return like(value)


_MOST_SHARE = 0.999  # of m^2 in Q: the sums below grow with 1/(Q - m^2)


@functools.lru_cache(maxsize=64)
def _fourth_moment_series(share: float, moment: float) -> np.polynomial.Chebyshev:
    """c/x over x = sqrt(V/Q) in [0, sqrt(1 - share)]; share = m^2/Q."""
    end = math.sqrt(1.0 - share)
    near = min(0.04, 0.4 * end)
    z = 0.5 * (1.0 + np.cos(np.pi * (np.arange(14) + 0.5) / 14)) * (end - near) + near
    values = [_fourth_moment_information(x, share, moment) / x for x in z]
    # at x = 0 each sign is uncertain on its own axis, where the mean of u has this density
    spread = 2.0 * math.pi * (3.0 + (moment - 3.0) * share) / 3.0
    start = 2.0 * one_sign_integral() / math.sqrt(spread)
    x, y = np.append(z, 0.0), np.append(values, start)
    return np.polynomial.Chebyshev.fit(x, y, 11, domain=[0.0, end])


def _fourth_moment_information(x: float, share: float, moment: float) -> float:
    """c by the trapezoid over the mean of u, in its principal axes; Q = 1, V = x^2."""
    q = 1.0 - x * x
    s = max(2.0 * q + (moment - 3.0) * share, 0.0)
    scale = 1.0 / math.sqrt(6.0 * x * x)  # standard deviation of u is sqrt(3 V)
    plus, minus = scale * math.sqrt(s + 2.0 * q), scale * math.sqrt(s)
    step = min(0.4, 0.5 / max(plus, minus, 1e-300))
    z1, z2, weight = half_plane(step, math.ceil(7.0 / step))
    w1, w2 = plus * z1 + minus * z2, plus * z1 - minus * z2
    near = np.minimum(np.abs(w1), np.abs(w2)) < 9.0
    return float(weight[near] @ pair_informations(w1[near], w2[near]))
