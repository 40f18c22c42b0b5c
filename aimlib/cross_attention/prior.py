"""The prior of untied weights, seen through noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._rectangular import _average, _integrand, _shrink_values, _Spectrum, _spectrum
from aimlib._validation import FloatArray
from aimlib.channels import _like
from aimlib.priors import Outside, _map_noise, _noises, _outside

__all__ = [
    "BilinearPrior",
]


@dataclass(frozen=True)
class BilinearPrior:
    r"""Untied weights :math:`S = QK^\top/\sqrt{rd'}` of shape (d, d'), Gaussian Q and K.

    Everything is about :math:`R = S+\sqrt\Delta\,Z` with :math:`Z_{ij}` of variance 1/d, and is
    counted per d, the dimension of the queries: :math:`\mathrm{Tr}(SS^\top)/d\to1`.

    Parameters
    ----------
    width_ratio : float
        :math:`\rho = r/d > 0`.
    aspect_ratio : float
        :math:`\psi = d'/d > 0`, the dimension of the keys over that of the queries.

    Raises
    ------
    ValueError
        If a ratio is not a finite positive number.

    Examples
    --------
    >>> prior = BilinearPrior(0.5)
    >>> prior.degrees_of_freedom
    0.75
    >>> round(prior.mmse(1.0), 8)
    0.43904074
    """

    width_ratio: float
    aspect_ratio: float = 1.0
    weights: ClassVar[Literal["rectangular"]] = "rectangular"

    def __post_init__(self) -> None:
        for name in ("width_ratio", "aspect_ratio"):
            value = check.real(name, getattr(self, name), low=0.0, open_low=True)
            object.__setattr__(self, name, value)

    @property
    def coordinate_noise(self) -> float:
        """1: every entry of the noise has variance 1/d."""
        return 1.0

    @property
    def mean(self) -> float:
        """Mean of every entry of S: 0."""
        return 0.0

    @property
    def second_moment(self) -> float:
        """Q = lim Tr(S S^T)/d = 1."""
        return 1.0

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, the zero matrix: 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        r"""Parameters of S over :math:`d^2` (``cross_attention:degrees``).

        :math:`\kappa=\rho(1+\psi-\rho)` below full rank, :math:`\psi` from there on.
        """
        rho, psi = self.width_ratio, self.aspect_ratio
        return rho * (1.0 + psi - rho) if rho < min(1.0, psi) else psi

    def _spectrum(self, noise: Any) -> _Spectrum:
        delta = check.real("noise", noise, low=0.0, open_low=True)
        return _spectrum(self.width_ratio, self.aspect_ratio, delta)

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the singular values of R, shape (k, 2), k = 1 or 2."""
        return self._spectrum(noise).edges.copy()

    def density(self, x: ArrayLike, noise: float) -> Any:
        """Return the limiting density of the singular values of R at ``x``.

        Normalised to one: there are min(d, d') of them.  At x = 0 the value is the limit from the
        right.
        """
        points = check.reals("x", x)
        spectrum = self._spectrum(noise)
        rho, psi = self.width_ratio, self.aspect_ratio
        values = np.zeros(points.size)
        tiny = 1e-9 * spectrum.edges[-1, 1]
        for i, point in enumerate(points.ravel()):
            lam = max(float(point), tiny) if point >= 0.0 else -1.0
            if np.any((spectrum.edges[:, 0] < lam) & (lam < spectrum.edges[:, 1])):
                values[i] = _integrand(lam, spectrum.zeros, rho, psi, float(noise), 0)
        return _like(values.reshape(points.shape) / min(1.0, psi))

    @overload
    def mmse(self, noise: float) -> float: ...
    @overload
    def mmse(self, noise: ArrayLike) -> Any: ...
    def mmse(self, noise: ArrayLike) -> Any:
        r"""Return the minimal :math:`E\|S-\hat S\|_F^2/d` given R (``cross_attention:mmse``).

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.
        """
        return self._averages(noise, 1, lambda value, delta: value * delta)

    @overload
    def information(self, noise: float) -> float: ...
    @overload
    def information(self, noise: ArrayLike) -> Any: ...
    def information(self, noise: ArrayLike) -> Any:
        r"""Return the mutual information of S and R over d^2 (``cross_attention:information``).

        Its derivative in :math:`1/\Delta` is mmse/2.
        """
        psi = self.aspect_ratio
        pure = 0.25 * psi * (psi * math.log(psi) - 1.0)
        if psi != 1.0:
            pure -= 0.25 * (1.0 - psi) ** 2 * math.log(abs(1.0 - psi))
        return self._averages(
            noise, 2, lambda value, delta: value - 0.5 * psi * math.log(delta) - pure
        )

    def _averages(
        self, noise: ArrayLike, kind: int, finish: Callable[[float, float], float]
    ) -> Any:
        rho, psi = self.width_ratio, self.aspect_ratio

        def fill(noises: FloatArray, out: FloatArray) -> None:
            for i, delta in enumerate(noises):
                s = _spectrum(rho, psi, float(delta))
                value = _average(s.edges, s.necks, s.zeros, rho, psi, float(delta), kind)
                out[i] = finish(value, float(delta))

        return _map_noise(_noises(noise), fill)

    def shrink(
        self, eigenvalues: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        r"""Return the denoised singular values (``cross_attention:denoiser``).

        Parameters
        ----------
        eigenvalues : array
            Singular values of R, any shape, none negative.
        noise : float
            :math:`\Delta > 0`.
        outside : {"resolvent", "edge"}
            Outside the limiting support follow the resolvents (below it not to negative values),
            or hold the shift :math:`(\lambda-D)/\Delta` at its value at the nearest edge.
        """
        lam = check.reals("eigenvalues", eigenvalues, low=0.0)
        s = self._spectrum(noise)
        out = np.empty(lam.size)
        _shrink_values(
            lam.ravel(),
            s.edges,
            s.points,
            s.zeros,
            self.width_ratio,
            self.aspect_ratio,
            float(noise),
            _outside(outside),
            out,
        )
        return out.reshape(lam.shape)

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate of S given R, shape (d, d').

        Raises
        ------
        ValueError
            If ``matrix`` is not a finite matrix, d' is not aspect_ratio * d up to rounding, or
            ``noise`` is not positive.
        """
        observed = check.reals("matrix", matrix)
        if observed.ndim != 2 or 0 in observed.shape:
            raise ValueError(f"matrix must have shape (d, d'), got shape {observed.shape}")
        if observed.shape != self.shape(observed.shape[0]):
            raise ValueError(
                f"matrix must have shape {self.shape(observed.shape[0])} "
                f"for aspect_ratio {self.aspect_ratio!r}, got shape {observed.shape}"
            )
        left, values, right = np.linalg.svd(observed, full_matrices=False)
        return np.asarray((left * self.shrink(values, noise, outside)) @ right)

    def shape(self, dimension: int) -> tuple[int, int]:
        """Shape (d, d') of S, with d' the integer nearest to aspect_ratio * dimension."""
        d = check.integer("dimension", dimension, low=1)
        return d, max(round(self.aspect_ratio * d), 1)

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d'); the width is the integer nearest to width_ratio * d."""
        d, keys = self.shape(dimension)
        width = round(self.width_ratio * d)
        if width < 1:
            raise ValueError(
                f"dimension must make width_ratio * dimension round to at least 1, "
                f"got dimension {d} with width_ratio {self.width_ratio!r}"
            )
        generator = check.generator("rng", rng)
        q = generator.standard_normal((d, width))
        k = generator.standard_normal((keys, width))
        return np.asarray(q @ k.T / math.sqrt(width * keys))
