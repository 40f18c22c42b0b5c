"""The prior of untied weights, seen through noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _quadrature as quadrature
from aimlib import _rectangular
from aimlib import _validation as check
from aimlib._prior_base import Outside, is_held, of_noise, width_of
from aimlib._validation import FloatArray

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
            check.store(self, **{name: check.positive(name, getattr(self, name))})

    @property
    def second_moment(self) -> float:
        """Q = lim Tr(S S^T)/d = 1."""
        return 1.0

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, the zero matrix, which is 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        r"""Parameters of S over :math:`d^2` (``cross_attention:degrees``).

        :math:`\kappa=\rho(1+\psi-\rho)` below full rank, :math:`\psi` from there on.
        """
        rho, psi = self.width_ratio, self.aspect_ratio
        return rho * (1.0 + psi - rho) if rho < min(1.0, psi) else psi

    def _parameters(self, noise: Any) -> FloatArray:
        delta = check.positive("noise", noise)
        return _rectangular.parameters(self.width_ratio, self.aspect_ratio, delta)

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the singular values of R, shape (k, 2), k = 1 or 2."""
        edges, _ = _rectangular.find_edges(self._parameters(noise))
        return np.asarray(edges).reshape(-1, 2)

    def density(self, x: ArrayLike, noise: float) -> Any:
        """Return the limiting density of the singular values of R at ``x``.

        Normalised to one: there are min(d, d') of them.  At x = 0 the value is the limit from the
        right (``cross_attention:density``).

        Parameters
        ----------
        x : array
            Any shape; the density is zero at negative points.
        noise : float
            Delta > 0.

        Raises
        ------
        ValueError
            If ``x`` is not finite or ``noise`` is not positive.
        """
        points = check.reals("x", x)
        out = np.empty(points.size)
        _rectangular.fill_density(points.ravel(), self._parameters(noise), out)
        out /= min(1.0, self.aspect_ratio)
        return float(out[0]) if points.ndim == 0 else out.reshape(points.shape)

    @of_noise
    def mmse(self, noise: float) -> float:
        r"""Return the minimal :math:`E\|S-\hat S\|_F^2/d` given R (``cross_attention:mmse``).

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.

        Returns
        -------
        float or array
            Between 0 and min(aspect_ratio * noise, 1).

        Raises
        ------
        ValueError
            If a noise is not finite and positive.
        """
        rho, psi = self.width_ratio, self.aspect_ratio
        return float(noise * quadrature.rectangular_average(rho, psi, noise, quadrature.ERROR))

    @of_noise
    def information(self, noise: float) -> float:
        r"""Return the mutual information of S and R over d^2 (``cross_attention:information``).

        It is integrated from its derivative in :math:`1/\Delta`, mmse/2
        (``cross_attention:i-mmse``): a sum of positive terms, right to ten digits at any noise.

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.

        Raises
        ------
        ValueError
            If a noise is not finite and positive.
        """
        return quadrature.integrated_error(self.mmse, noise, self.variance) / 2.0

    def shrink(self, values: ArrayLike, noise: float, outside: Outside = "resolvent") -> FloatArray:
        r"""Return the denoised singular values (``cross_attention:denoiser``).

        Parameters
        ----------
        values : array
            Singular values of R, any shape, none negative.
        noise : float
            :math:`\Delta > 0`.
        outside : {"resolvent", "edge"}
            Outside the limiting support follow the resolvents (below it not to negative values),
            or hold the shift :math:`(\lambda-D)/\Delta` at its value at the nearest edge.

        Raises
        ------
        ValueError
            If an argument is not as described.
        """
        lam = check.reals("values", values, low=0.0)
        out = np.empty(lam.size)
        _rectangular.fill_shrunk(lam.ravel(), self._parameters(noise), is_held(outside), out)
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
        width = width_of(self.width_ratio, d)
        generator = check.generator("rng", rng)
        q = generator.standard_normal((d, width))
        k = generator.standard_normal((keys, width))
        return np.asarray(q @ k.T / math.sqrt(width * keys))
