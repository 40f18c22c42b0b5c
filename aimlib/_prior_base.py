r"""What all priors share: the protocols, and what follows from a spectrum alone.

A prior of one's own states three numbers, the spectrum of the noisy matrix and how to sample.  The
rest is derived here: density, MMSE, information, shrinkage and the denoised matrix.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aimlib import _quadrature as quadrature
from aimlib import _validation as check
from aimlib._validation import FloatArray

Outside = Literal["resolvent", "edge"]


class OfNoise(Protocol):
    """A function of the noise Delta > 0: a float for a float, an array for an array."""

    @overload
    def __call__(self, noise: float) -> float: ...
    @overload
    def __call__(self, noise: ArrayLike) -> Any: ...


def of_noise(method: Callable[[Any, float], float]) -> OfNoise:
    """Make a method of one noise check its argument and accept arrays."""

    @functools.wraps(method)
    def broadcast(self: Any, noise: Any) -> Any:
        if type(noise) is float and 0.0 < noise < math.inf:  # the inner loop of every root search
            return method(self, noise)
        noises = check.reals("noise", noise, low=0.0, open_low=True)
        if noises.ndim == 0:
            return method(self, float(noises))
        return np.array([method(self, n) for n in noises.ravel().tolist()]).reshape(noises.shape)

    return cast(OfNoise, broadcast)


class Estimated(Protocol):
    r"""What state evolution asks of the law of a matrix, symmetric or not.

    :math:`R = S + \sqrt\Delta\,G` is the matrix observed through noise, with :math:`G` from the GOE
    where ``weights`` is "symmetric", and :math:`G_{ij}` independent of variance 1/d where it is
    "rectangular".  The first class attribute of a prior says which, and with which channels it
    fits.  Errors are :math:`E\|S-\hat S\|_F^2/d`, informations are over :math:`d^2`.
    """

    @property
    def weights(self) -> Literal["symmetric", "rectangular"]:
        """Whether S is a symmetric (d, d) or any (d, d') matrix."""

    @property
    def second_moment(self) -> float:
        r""":math:`Q = \lim \mathrm{Tr}(SS^\top)/d`."""

    @property
    def variance(self) -> float:
        """Error of the best constant estimate, to which ``mmse`` tends at large noise."""

    @property
    def degrees_of_freedom(self) -> float:
        r""":math:`\kappa = \lim_{\Delta\to0} \mathrm{mmse}(\Delta)/\Delta` (``priors:kappa``)."""

    @property
    def mmse(self) -> OfNoise:
        """Minimal error of S given R, a function of the noise (``priors:mmse``)."""

    @property
    def information(self) -> OfNoise:
        """Mutual information of S and R over d^2, a function of the noise (``priors:i-mmse``).

        Its derivative in 1/noise is mmse/4 for symmetric and mmse/2 for rectangular weights.
        """


class Denoised(Estimated, Protocol):
    """What message passing asks beside: where the values of R are, and what becomes of them.

    The values are the eigenvalues of symmetric and the singular values of rectangular matrices.
    """

    def support(self, noise: float) -> FloatArray:
        """Return the edges of the limiting spectrum of R, shape (k, 2), ascending."""

    def shrink(self, values: ArrayLike, noise: float, outside: Outside = "resolvent") -> FloatArray:
        """Return what the optimal estimate makes of values of R; see :class:`SymmetricPrior`."""


class Prior(Denoised, Protocol):
    """What the theory and the algorithms ask of a prior of symmetric matrices."""

    @property
    def mean_eigenvalue(self) -> float:
        """Limit of Tr S/d, the start of every algorithm."""

    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the Stieltjes transform g(x + i0) of the spectrum of R: complex; broadcast."""

    def density(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the limiting eigenvalue density of R at ``x``; broadcast."""

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the optimal estimate of S, shape (d, d), given R (``priors:rie``)."""

    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d)."""


def is_held(outside: str) -> bool:
    """Whether ``outside`` asks for edge values, or raise ``ValueError``."""
    if outside not in ("resolvent", "edge"):
        raise ValueError(f"outside must be 'resolvent' or 'edge', got {outside!r}")
    return outside == "edge"


def width_of(width_ratio: float, dimension: int) -> int:
    """Width r nearest to width_ratio * dimension, or ``ValueError`` where it is zero."""
    width = round(width_ratio * dimension)
    if width < 1:
        raise ValueError(
            f"dimension must make width_ratio * dimension round to at least 1, "
            f"got dimension {dimension} with width_ratio {width_ratio!r}"
        )
    return width


class SymmetricPrior(abc.ABC):
    r"""Base of the priors of symmetric matrices, and of a reader's own.

    A subclass gives ``mean_eigenvalue``, ``second_moment``, ``degrees_of_freedom`` (numbers), the
    spectrum of :math:`R = S + \sqrt\Delta\,G` as ``support(noise)`` and ``resolvent(x, noise)``,
    and ``sample(dimension, rng)``.  All else follows, and may be overridden where more is known:
    the MMSE by quadrature of ``priors:mmse-cubed``, to about 1e-12 of ``noise``, and the
    information by integration of ``priors:i-mmse``.

    Examples
    --------
    The semicircle of variance 1, of which :class:`WignerPrior` knows the closed forms:

    >>> from aimlib import WignerPrior
    >>> class Semicircle(SymmetricPrior):
    ...     mean_eigenvalue, second_moment, degrees_of_freedom = 0.0, 1.0, 1.0
    ...     def support(self, noise):
    ...         return 2.0 * np.sqrt(1.0 + noise) * np.array([[-1.0, 1.0]])
    ...     def resolvent(self, x, noise):
    ...         x = np.asarray(x, dtype=complex)
    ...         edge = 2.0 * np.sqrt(1.0 + np.asarray(noise))
    ...         return 2.0 / (x + np.sqrt(x - edge) * np.sqrt(x + edge))
    ...     def sample(self, dimension, rng):
    ...         return WignerPrior().sample(dimension, rng)
    >>> f"{Semicircle().mmse(1.0):.10f} {Semicircle().information(0.5):.10f}"
    '0.5000000000 0.2746530722'
    """

    weights: ClassVar[Literal["symmetric"]] = "symmetric"
    mean_eigenvalue: Any
    second_moment: Any
    degrees_of_freedom: Any

    @property
    def variance(self) -> float:
        """Variance of the spectrum, Q minus the squared mean, the error of the best constant."""
        return float(self.second_moment - self.mean_eigenvalue**2)

    @abc.abstractmethod
    def support(self, noise: float) -> FloatArray:
        """Return the edges of the spectrum of R, shape (k, 2), ascending (``priors:edges``).

        Parameters
        ----------
        noise : float
            Delta > 0.
        """

    @abc.abstractmethod
    def resolvent(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return g(x + i0) of R: complex, broadcast over ``x`` and ``noise``.

        Its imaginary part is not positive; outside the support it is zero.
        """

    @abc.abstractmethod
    def sample(self, dimension: int, rng: np.random.Generator | int) -> FloatArray:
        """Draw S of shape (d, d).

        Parameters
        ----------
        dimension : int
            d, at least 1.
        rng : Generator or int
            Source of randomness, or its seed.

        Raises
        ------
        ValueError
            If an argument is not of that kind.
        """

    def density(self, x: ArrayLike, noise: ArrayLike) -> Any:
        """Return the limiting eigenvalue density of R at ``x``; arrays broadcast.

        ``priors:inversion``.
        """
        values = -np.imag(self.resolvent(x, noise)) / math.pi + 0.0
        return float(values) if np.ndim(values) == 0 else values

    @of_noise
    def mmse(self, noise: float) -> float:
        r"""Return the minimal error :math:`E\|S-\hat S\|_F^2/d` given R (``priors:mmse``).

        Parameters
        ----------
        noise : float or array
            :math:`\Delta > 0`.

        Returns
        -------
        float or array
            Between 0 and min(noise, variance).

        Raises
        ------
        ValueError
            If a noise is not finite and positive.
        """
        cubed = quadrature.integral(lambda x: self.density(x, noise) ** 3, self.support(noise))
        return float(noise - 4.0 * math.pi**2 / 3.0 * noise * noise * cubed)

    @of_noise
    def information(self, noise: float) -> float:
        """Return the mutual information of S and R over d^2 (``priors:information``).

        Parameters
        ----------
        noise : float or array
            Delta > 0.

        Returns
        -------
        float or array
            Not negative; its derivative in 1/noise is mmse/4 (``priors:i-mmse``).

        Raises
        ------
        ValueError
            If a noise is not finite and positive.
        """
        return quadrature.integrated_error(self.mmse, noise, self.variance) / 4.0

    def shrink(self, values: ArrayLike, noise: float, outside: Outside = "resolvent") -> FloatArray:
        r"""Return the denoised eigenvalues :math:`\lambda - 2\Delta\,\mathrm{Re}\,g(\lambda)`.

        Parameters
        ----------
        values : array
            Eigenvalues of R, any shape.
        noise : float
            :math:`\Delta > 0`.
        outside : {"resolvent", "edge"}
            What to do with eigenvalues outside the limiting support, which every finite matrix
            has: follow the resolvent (the limit theory), or hold Re g at its value at the nearest
            edge, which keeps the slope of the map at 1 there.

        Raises
        ------
        ValueError
            If an argument is not as described.
        """
        lam = check.reals("values", values)
        delta = check.positive("noise", noise)
        probe = lam
        if is_held(outside):
            edges = self.support(delta).ravel()
            nearest = edges[np.argmin(np.abs(lam[..., None] - edges), axis=-1)]
            probe = np.where(np.searchsorted(edges, lam) % 2 == 1, lam, nearest)
        held: NDArray[np.complex128] = np.asarray(self.resolvent(probe, delta))
        return lam - 2.0 * delta * held.real

    def denoise(
        self, matrix: ArrayLike, noise: float, outside: Outside = "resolvent"
    ) -> FloatArray:
        """Return the Bayes-optimal estimate of S given R (``priors:rie``).

        Parameters
        ----------
        matrix : array, shape (d, d)
            The observed symmetric matrix R.
        noise : float
            Its noise level Delta > 0.
        outside : {"resolvent", "edge"}
            See :meth:`shrink`.

        Returns
        -------
        array, shape (d, d)
            R with the same eigenvectors and shrunk eigenvalues.

        Raises
        ------
        ValueError
            If ``matrix`` is not square, finite and symmetric or ``noise`` is not positive.
        """
        observed = check.symmetric_matrix("matrix", matrix)
        check.positive("noise", noise)
        eigenvalues, vectors = np.linalg.eigh(0.5 * (observed + observed.T))
        estimate: FloatArray = (vectors * self.shrink(eigenvalues, noise, outside)) @ vectors.T
        return 0.5 * (estimate + estimate.T)


def map_points(
    x: ArrayLike,
    noise: ArrayLike,
    kernel: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], None],
) -> Any:
    """Apply a kernel that fills Re g and -Im g; returns complex values of the broadcast shape."""
    noises = check.reals("noise", noise, low=0.0, open_low=True)
    points, noises = np.broadcast_arrays(check.reals("x", x), noises)
    real, imaginary = np.empty(points.size), np.empty(points.size)
    kernel(points.ravel(), noises.ravel(), real, imaginary)
    values = (real - 1j * imaginary).reshape(points.shape)
    return complex(values) if points.ndim == 0 else values
