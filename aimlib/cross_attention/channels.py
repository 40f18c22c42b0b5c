"""Channels of T x T' independent indices, all of variance V given the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._normal import log_normal_cdf
from aimlib._validation import FloatArray
from aimlib.channels import Informative, _like, _softmax_error_pair, _uncertainty, _variances

__all__ = [
    "CrossChannel",
    "CrossHardmaxChannel",
    "CrossLinearChannel",
    "CrossSoftmaxChannel",
]


class CrossChannel(Informative, Protocol):
    """What message passing asks of a channel of rectangular indices."""

    @property
    def queries(self) -> int: ...
    @property
    def keys(self) -> int: ...

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray: ...
    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray: ...


class _Rectangular:
    """Checks shared by the channels."""

    weights: ClassVar[Literal["rectangular"]] = "rectangular"
    queries: int
    keys: int

    def _indices(self, name: str, value: ArrayLike) -> FloatArray:
        array = check.reals(name, value)
        shape = (self.queries, self.keys)
        if array.ndim < 2 or array.shape[-2:] != shape:
            raise ValueError(
                f"{name} must have shape (..., {shape[0]}, {shape[1]}), got shape {array.shape}"
            )
        return array

    def _posterior(
        self, y: ArrayLike, omega: ArrayLike, variance: float
    ) -> tuple[FloatArray, FloatArray, float]:
        outputs, centre = self._indices("y", y), self._indices("omega", omega)
        if outputs.shape != centre.shape:
            raise ValueError(f"omega must have the shape of y, {outputs.shape}, got {centre.shape}")
        return outputs, centre, check.real("variance", variance, low=0.0, open_low=True)


@dataclass(frozen=True)
class CrossLinearChannel(_Rectangular):
    r"""The indices with noise, :math:`y_{ab}=h_{ab}+\sqrt\tau\,\xi_{ab}`.

    Parameters
    ----------
    queries, keys : int
        T and T', at least 1.
    noise : float
        Variance :math:`\tau\ge0`.

    Examples
    --------
    >>> CrossLinearChannel(2, 3, noise=1.0).information(0.0, 1.0)
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
        h = self._indices("indices", indices)
        if self.noise == 0.0:
            return h.copy()
        if rng is None:
            raise ValueError(
                f"rng must be a numpy Generator when noise is {self.noise!r}, got None"
            )
        return np.asarray(h + math.sqrt(self.noise) * rng.standard_normal(h.shape))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] by Gaussian conditioning."""
        outputs, centre, v = self._posterior(y, omega, variance)
        return np.asarray(centre + v / (v + self.noise) * (outputs - centre))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = TT'V/(V+\tau)` (``cross_attention:information-linear``)."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        v = _variances(variance, second_moment)
        share = v / (v + self.noise) if self.noise > 0.0 else 1.0 + 0.0 * v
        return _like(self.queries * self.keys * share)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac{TT'}2\log(2\pi e(V+\tau))`."""
        v = _variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * (v + self.noise))
        return _like(0.5 * self.queries * self.keys * entropy)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`TT'V`, the error on the output without its noise."""
        return _like(self.queries * self.keys * _variances(variance, second_moment))


@dataclass(frozen=True)
class CrossSoftmaxChannel(_Rectangular):
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

    Examples
    --------
    >>> CrossSoftmaxChannel(2, 3).information(0.5, 1.0)
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
        h = self._indices("indices", indices)
        with np.errstate(over="ignore"):  # to -inf, of weight zero
            weights = np.exp(self.inverse_temperature * (h - h.max(axis=-1, keepdims=True)))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y]: least squares for the shift of each row (``cross_attention:softmax``).

        Raises
        ------
        ValueError
            If an output is not positive: use a smaller ``inverse_temperature``.
        """
        outputs, centre, _ = self._posterior(y, omega, variance)
        smallest = float(outputs.min()) if outputs.size else 1.0
        if smallest <= 0.0:
            raise ValueError(f"y must hold positive softmax outputs, got {smallest!r}")
        base = np.log(outputs) / self.inverse_temperature
        return np.asarray(base + (centre - base).mean(axis=-1, keepdims=True))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T(T'-1)`, whatever the overlap and :math:`\beta`."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q: a constant."""
        v = _variances(variance, second_moment)
        return _like(self.queries * (self.keys - 1.0) + 0.0 * v)

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`\frac c2\log(2\pi eV)` up to a constant of the coordinates of y."""
        v = _variances(variance, second_moment)
        with np.errstate(divide="ignore"):
            entropy = np.log(2.0 * math.pi * math.e * v)
        return _like(0.5 * self.queries * (self.keys - 1.0) * entropy)

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`E\|y-E[y\mid\mathrm{data}]\|_F^2` on a new pair of sequences.

        Two keys: by quadrature.  More: by quasi-Monte Carlo with a fixed seed, to about 1e-3.
        """
        v = _variances(variance, second_moment)
        values = [self._row_error(float(x), second_moment) for x in v.ravel()]
        return _like(self.queries * np.array(values).reshape(v.shape))

    def _row_error(self, variance: float, second_moment: float) -> float:
        if self.keys == 2:  # the difference of two indices has variance 2 Q, where tied ones have 3
            share = 2.0 / 3.0
            scaled = (share * variance, share * second_moment)
            return 0.5 * _softmax_error_pair(*scaled, self.inverse_temperature)
        from scipy.stats import qmc

        law = qmc.MultivariateNormalQMC(np.zeros(2 * self.keys), rng=np.random.default_rng(0))
        mean, spread = np.split(law.random(2**13), 2, axis=1)
        row = CrossSoftmaxChannel(1, self.keys, self.inverse_temperature)
        centre = math.sqrt(second_moment - 0.5 * variance) * mean
        y = [
            row.output((centre + sign * math.sqrt(0.5 * variance) * spread)[:, None])
            for sign in (1.0, -1.0)
        ]
        return float(0.5 * np.mean(np.sum((y[0] - y[1]) ** 2, axis=(1, 2))))


@dataclass(frozen=True)
class CrossHardmaxChannel(_Rectangular):
    r"""One-hot of the larger of two keys in each row.

    Only the sign of :math:`u_a=h_{a1}-h_{a2}` is seen, and rows are independent.

    Parameters
    ----------
    queries : int
        T, at least 1.
    keys : int
        T' = 2: with more keys the information has no one-dimensional form and is not implemented.

    Examples
    --------
    >>> round(CrossHardmaxChannel(2).information(0.0, 1.0), 10)  # T 2/pi
    1.2732395447
    """

    queries: int = 2
    keys: int = 2

    def __post_init__(self) -> None:
        check.integer("queries", self.queries, low=1)
        check.integer("keys", self.keys, low=2, high=2)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (..., T, 2), one-hot in every row; ``rng`` is not used."""
        h = self._indices("indices", indices)
        first = h[..., 0] >= h[..., 1]
        return np.stack([first, ~first], axis=-1).astype(np.float64)

    def posterior_mean(self, y: ArrayLike, omega: ArrayLike, variance: float) -> FloatArray:
        """Return E[h | y] from the half-line of each difference (``cross_attention:hardmax``)."""
        outputs, centre, v = self._posterior(y, omega, variance)
        sign = outputs[..., 0] - outputs[..., 1]
        if not np.all(np.abs(sign) == 1.0):
            raise ValueError("y must be one-hot in every row")
        gap = sign * (centre[..., 0] - centre[..., 1]) / math.sqrt(2.0 * v)
        shift = sign * math.sqrt(0.5 * v) * _mills(gap)
        return np.asarray(centre + np.stack([shift, -shift], axis=-1))

    def information(self, overlap: ArrayLike, second_moment: float) -> Any:
        r"""Return :math:`c = T\,E\,\varphi(w)^2/(\Phi(w)\Phi(-w))`, w of variance q/V."""
        return self.information_at(_uncertainty(overlap, second_moment), second_moment)

    def information_at(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return c as a function of the uncertainty V = Q - q."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(self.queries * self._row_average(x, _sign_information))

    def output_entropy(self, variance: ArrayLike, second_moment: float) -> Any:
        """Return T times the mean entropy of a sign, in nats."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(self.queries * self._row_average(x, _sign_entropy))

    def generalization_error(self, variance: ArrayLike, second_moment: float) -> Any:
        r"""Return the share of misclassified rows, :math:`\arcsin(\sqrt{V/Q})/\pi`."""
        x = np.sqrt(_variances(variance, second_moment) / second_moment)
        return _like(np.arcsin(np.minimum(x, 1.0)) / math.pi)

    @staticmethod
    def _row_average(x: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Average over w ~ N(0, q/V), x = sqrt(V/Q): in z where it is narrow, in w where wide."""
        out = np.empty(x.size)
        wide = function(_POINTS)
        for i, value in enumerate(np.minimum(x.ravel(), 1.0)):
            q = math.sqrt((1.0 - value) * (1.0 + value))  # sqrt(q/Q); w has scale q/x
            if q < value:
                law = np.exp(-0.5 * _POINTS**2)
                out[i] = law @ function(_POINTS * q / value) * _STEP / math.sqrt(2.0 * math.pi)
            else:
                law = np.exp(-0.5 * (_POINTS * value / q) ** 2)
                out[i] = law @ wide * _STEP / math.sqrt(2.0 * math.pi) * value / q
        return out.reshape(x.shape)


_STEP = 0.1
_POINTS: FloatArray = _STEP * np.arange(-120.0, 121.0)


@njit
def _log_cdf(w: np.ndarray, out: np.ndarray) -> None:
    for i in range(w.size):
        out[i] = log_normal_cdf(w[i])


def _log_cdfs(w: FloatArray) -> FloatArray:
    out = np.empty(w.size)
    _log_cdf(np.ascontiguousarray(w).ravel(), out)
    return out.reshape(w.shape)


def _mills(w: FloatArray) -> FloatArray:
    r"""Return :math:`\varphi(w)/\Phi(w)`."""
    return np.asarray(np.exp(-0.5 * w * w - 0.5 * math.log(2.0 * math.pi) - _log_cdfs(w)))


def _sign_information(w: FloatArray) -> FloatArray:
    return np.asarray(_mills(w) * _mills(-w))


def _sign_entropy(w: FloatArray) -> FloatArray:
    plus, minus = _log_cdfs(w), _log_cdfs(-w)
    return np.asarray(-np.exp(plus) * plus - np.exp(minus) * minus)
