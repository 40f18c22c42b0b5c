r"""Rotationally invariant priors of the attention weights, observed through Gaussian noise.

The matrix to be learned, :math:`S \in \mathbb{R}^{d\times d}`, is symmetric with eigenvectors that
are uniform on the orthogonal group.  Everything the theory asks of such a prior is asked of the
noisy matrix

.. math:: R = S + \sqrt{\Delta}\, G,

with :math:`G` from the GOE (off-diagonal variance :math:`1/d`, diagonal :math:`2/d`, so that its
spectrum is the semicircle of radius 2).  The chapter "Random-matrix toolbox" derives what follows.

The real axis is described by the *subordination point* :math:`u = \lambda - \Delta g(\lambda + i0)
= x + iv`, with :math:`g` the resolvent of :math:`R`.  The weights :math:`\Delta/|u-s|^2` that
:math:`u` gives to the clean eigenvalues :math:`s` sum to one inside the support.  Their mean is the
optimal denoiser :math:`D(\lambda) = \lambda - 2\Delta\,\mathrm{Re}\,g(\lambda)` and the average of
their variance over the spectrum of :math:`R` is the MMSE: sums of positive terms only, which keep
their relative accuracy at any noise.

Three families share one short list of methods: :class:`WishartPrior` (tied attention),
:class:`WignerPrior` (no structure) and :class:`SpectralPrior` (any spectrum).  A prior of your own
subclasses :class:`SpectralPrior`, or :class:`SymmetricPrior` where its resolvent is known.  What
all share is in ``_prior_base``; the compiled kernels live beside, in ``_wishart``, ``_atoms`` and
``_quadrature``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _atoms, _wishart
from aimlib import _quadrature as quadrature
from aimlib import _validation as check
from aimlib._prior_base import (
    Denoised,
    Estimated,
    Outside,
    Prior,
    SymmetricPrior,
    is_held,
    map_points,
    of_noise,
    width_of,
)
from aimlib._validation import FloatArray

__all__ = [
    "Denoised",
    "Estimated",
    "Prior",
    "SpectralPrior",
    "SymmetricPrior",
    "WignerPrior",
    "WishartPrior",
]

_COLUMNS = 4096


def gram(w: FloatArray) -> FloatArray:
    """Return w w^T, in blocks of columns where numpy's threaded product has crashed (d = 20000)."""
    if len(w) <= 2 * _COLUMNS:
        return np.asarray(w @ w.T)
    out = np.empty((len(w), len(w)))
    for start in range(0, len(w), _COLUMNS):
        stop = start + _COLUMNS
        block = w[start:stop]
        out[start:stop, start:stop] = block @ block.T
        np.matmul(w[stop:], block.T, out=out[stop:, start:stop])
        out[start:stop, stop:] = out[stop:, start:stop].T
    return out


def haar_basis(dimension: int, rng: np.random.Generator) -> FloatArray:
    """Draw an orthogonal matrix from the Haar measure: QR, and the signs that it leaves free."""
    q, r = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    return np.asarray(q * np.sign(np.diag(r)))


@dataclass(frozen=True)
class WishartPrior(SymmetricPrior):
    r"""Tied attention: :math:`S = W W^\top/\sqrt{rd}`, Gaussian :math:`W\in\mathbb{R}^{d\times r}`.

    The spectrum of :math:`S` is :math:`\sqrt\rho` times a Marchenko–Pastur law (free Poisson of
    rate :math:`\rho = r/d` and jump :math:`\rho^{-1/2}`), so that the resolvent :math:`g` of
    :math:`R = S + \sqrt\Delta G` solves (``priors:cubic``)

    .. math:: z = \frac1g + \Delta g + \frac{\sqrt\rho}{1 - g/\sqrt\rho}.

    Parameters
    ----------
    width_ratio : float
        :math:`\rho = r/d > 0`, the width of the attention head over the embedding dimension.

    Raises
    ------
    ValueError
        If ``width_ratio`` is not a finite positive number.

    Examples
    --------
    >>> prior = WishartPrior(0.5)
    >>> round(prior.mmse(1.0), 10)
    0.3969486359
    >>> prior.support(0.001).shape
    (2, 2)
    """

    width_ratio: float

    def __post_init__(self) -> None:
        check.store(self, width_ratio=check.positive("width_ratio", self.width_ratio))

    @property
    def mean_eigenvalue(self) -> float:
        r"""Mean eigenvalue :math:`\sqrt\rho`."""
        return math.sqrt(self.width_ratio)

    @property
    def second_moment(self) -> float:
        r""":math:`Q = \lim \mathrm{Tr}\,S^2/d = 1 + \rho`."""
        return 1.0 + self.width_ratio

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, Q minus the squared mean, which is 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        r"""Parameters of :math:`S` over :math:`d^2/2`: :math:`\kappa = 2\rho-\rho^2`, at most 1."""
        rho = self.width_ratio
        return 2.0 * rho - rho * rho if rho < 1.0 else 1.0

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the spectrum of R, shape (k, 2), with k = 1 or 2 bulks.

        There are two bulks if and only if rho (1 + noise^{1/3})^3 < 1 (``priors:merging``).
        """
        delta = check.positive("noise", noise)
        _, edges, _ = _wishart.find_edges(self.width_ratio, delta)
        return np.asarray(edges, dtype=np.float64).reshape(-1, 2)

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise`` (``priors:cubic``)."""
        rho = self.width_ratio
        return map_points(x, noise, lambda p, n, re, im: _wishart.fill_resolvent(p, rho, n, re, im))

    @of_noise
    def mmse(self, noise: float) -> float:
        return float(noise * quadrature.wishart_average(self.width_ratio, noise, quadrature.ERROR))

    @of_noise
    def information(self, noise: float) -> float:
        if noise > 1e4 * (1.0 + 1.0 / self.width_ratio):  # what follows would be lost in rounding
            nodes, weights = np.polynomial.legendre.leggauss(8)
            signal = (0.5 + 0.5 * nodes) / noise
            return float(0.125 / noise * (weights @ self.mmse(1.0 / signal)))  # of mmse/4
        average = quadrature.wishart_average(self.width_ratio, noise, quadrature.POTENTIAL)
        return 0.5 * average - 0.25 * math.log(noise) + 0.125

    def shrink(self, values: ArrayLike, noise: float, outside: Outside = "resolvent") -> FloatArray:
        lam = check.reals("values", values)
        delta = check.positive("noise", noise)
        out = np.empty(lam.size)
        _wishart.fill_shrunk(lam.ravel(), self.width_ratio, delta, is_held(outside), out)
        return out.reshape(lam.shape)

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d); the width is the integer nearest to width_ratio * dimension."""
        d = check.integer("dimension", dimension, low=1)
        width = width_of(self.width_ratio, d)
        w = check.generator("rng", rng).standard_normal((d, width))
        return gram(w) / math.sqrt(width * d)


@dataclass(frozen=True)
class WignerPrior(SymmetricPrior):
    r"""No structure: :math:`S = m I + G` with G from the GOE, a semicircle of radius 2 around m.

    Then :math:`R` is a semicircle of variance :math:`1+\Delta`, the denoiser is the linear
    shrinkage :math:`m + (\lambda-m)/(1+\Delta)` and :math:`\mathrm{mmse} = \Delta/(1+\Delta)`
    (``priors:wigner``).

    Parameters
    ----------
    mean : float
        Mean eigenvalue m.

    Examples
    --------
    >>> WignerPrior().mmse(1.0)
    0.5
    """

    mean: float = 0.0

    def __post_init__(self) -> None:
        check.store(self, mean=check.real("mean", self.mean))

    @property
    def mean_eigenvalue(self) -> float:
        """Mean of the semicircle, m."""
        return self.mean

    @property
    def second_moment(self) -> float:
        """Q = 1 + m^2."""
        return 1.0 + self.mean**2

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, 1."""
        return 1.0

    @property
    def degrees_of_freedom(self) -> float:
        """All d^2/2 parameters count, so 1."""
        return 1.0

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the semicircle of R, shape (1, 2)."""
        delta = check.positive("noise", noise)
        edge = 2.0 * math.sqrt(1.0 + delta)
        return self.mean + np.array([[-edge, edge]])

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise``."""

        def fill(
            points: FloatArray, noises: FloatArray, real: FloatArray, imaginary: FloatArray
        ) -> None:
            centred = points - self.mean
            variance = 1.0 + noises
            inside = centred**2 < 4.0 * variance
            root = np.sqrt(np.abs(centred**2 - 4.0 * variance))
            far = 2.0 / (centred + np.copysign(root, centred) + inside)  # inside: not used
            real[:] = np.where(inside, centred / (2.0 * variance), far)
            imaginary[:] = np.where(inside, root / (2.0 * variance), 0.0)

        return map_points(x, noise, fill)

    @of_noise
    def mmse(self, noise: float) -> float:
        return noise / (1.0 + noise)

    @of_noise
    def information(self, noise: float) -> float:
        return 0.25 * math.log1p(1.0 / noise)

    def shrink(self, values: ArrayLike, noise: float, outside: Outside = "resolvent") -> FloatArray:
        """Return the denoised eigenvalues.

        The posterior of a GOE matrix is Gaussian, so the linear shrinkage is optimal for every
        eigenvalue at every d; ``outside`` is accepted for the common protocol and changes nothing.
        """
        lam = check.reals("values", values)
        delta = check.positive("noise", noise)
        is_held(outside)
        return self.mean + (lam - self.mean) / (1.0 + delta)

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate m I + (R - m I)/(1 + Delta) of S."""
        observed = check.symmetric_matrix("matrix", matrix)
        delta = check.positive("noise", noise)
        is_held(outside)
        shrunk = 0.5 * (observed + observed.T) / (1.0 + delta)
        return np.asarray(shrunk + self.mean * delta / (1.0 + delta) * np.eye(len(shrunk)))

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d): m I and a GOE matrix with off-diagonal variance 1/d."""
        d = check.integer("dimension", dimension, low=1)
        a = check.generator("rng", rng).standard_normal((d, d))
        return (a + a.T) / math.sqrt(2.0 * d) + self.mean * np.eye(d)


@dataclass(frozen=True, init=False, eq=False)
class SpectralPrior(SymmetricPrior):
    r"""Any rotationally invariant prior, its spectrum given by atoms or by samples.

    :math:`S = O\,\mathrm{diag}(s)\,O^\top` with Haar-distributed :math:`O`.  The spectrum of R is
    the free convolution of the atoms with a semicircle, :math:`g(z) = g_S(z - \Delta g(z))`
    (``priors:subordination``).

    Parameters
    ----------
    eigenvalues : array, shape (k,)
        Positions of the atoms, or samples of the spectrum.
    weights : array, shape (k,), optional
        Positive weights; they are normalised to sum to one.  Equal by default.

    Raises
    ------
    ValueError
        If the arrays are empty, not finite, of different shape, or a weight is not positive.

    Examples
    --------
    A projector on half of the space, shifted to mean zero:

    >>> prior = SpectralPrior([-1.0, 1.0])
    >>> prior.degrees_of_freedom
    0.5
    >>> prior.support(0.01).shape
    (2, 2)
    """

    eigenvalues: FloatArray  # distinct and ascending
    masses: FloatArray  # their shares, which sum to one

    def __init__(self, eigenvalues: ArrayLike, weights: ArrayLike | None = None) -> None:
        positions = check.reals("eigenvalues", eigenvalues)
        if positions.ndim != 1 or positions.size == 0:
            raise ValueError(
                f"eigenvalues must be a non-empty array of shape (k,), got shape {positions.shape}"
            )
        shares = (
            np.ones(positions.size)
            if weights is None
            else check.reals("weights", weights, low=0.0, open_low=True)
        )
        if shares.shape != positions.shape:
            raise ValueError(
                f"weights must have the shape of eigenvalues, {positions.shape}, got {shares.shape}"
            )
        atoms, inverse = np.unique(positions + 0.0, return_inverse=True)
        masses = np.bincount(inverse, weights=shares / shares.sum(), minlength=atoms.size)
        for array in (atoms, masses):
            array.setflags(write=False)
        check.store(self, eigenvalues=atoms, masses=masses)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpectralPrior):
            return NotImplemented
        return np.array_equal(self.eigenvalues, other.eigenvalues) and np.array_equal(
            self.masses, other.masses
        )

    def __hash__(self) -> int:
        return hash((self.eigenvalues.tobytes(), self.masses.tobytes()))

    @property
    def mean_eigenvalue(self) -> float:
        """Mean of the spectrum."""
        return float(self.masses @ self.eigenvalues)

    @property
    def second_moment(self) -> float:
        """Q, the mean square of the spectrum."""
        return float(self.masses @ self.eigenvalues**2)

    @property
    def variance(self) -> float:
        """Variance of the spectrum, the error of the best constant estimate."""
        return float(self.masses @ (self.eigenvalues - self.mean_eigenvalue) ** 2)

    @property
    def degrees_of_freedom(self) -> float:
        r""":math:`1 - \sum_i w_i^2`: rotations inside an eigenspace change nothing."""
        return float(1.0 - self.masses @ self.masses)

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the spectrum of R, shape (k, 2)."""
        delta = check.positive("noise", noise)
        ends, _ = _atoms.intervals(self.eigenvalues, self.masses, delta)
        gaps = ends[:, None] - self.eigenvalues
        return np.asarray(ends + delta * (self.masses / gaps).sum(axis=1)).reshape(-1, 2)

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise``."""
        return map_points(
            x,
            noise,
            lambda p, n, re, im: _atoms.fill_resolvent(p, self.eigenvalues, self.masses, n, re, im),
        )

    @of_noise
    def mmse(self, noise: float) -> float:
        return self._average(noise, quadrature.ERROR)

    @of_noise
    def information(self, noise: float) -> float:
        return 0.5 * self._average(noise, quadrature.POTENTIAL) - 0.25 * math.log(noise) + 0.125

    def _average(self, noise: float, kind: int) -> float:
        return float(quadrature.atoms_average(self.eigenvalues, self.masses, noise, kind))

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d): the quantiles of the spectrum in a Haar-random basis."""
        d = check.integer("dimension", dimension, low=1)
        generator = check.generator("rng", rng)
        levels = (np.arange(d) + 0.5) / d
        index = np.searchsorted(np.cumsum(self.masses), levels)
        spectrum = self.eigenvalues[np.minimum(index, self.eigenvalues.size - 1)]
        basis = haar_basis(d, generator)
        return np.asarray((basis * spectrum) @ basis.T)
