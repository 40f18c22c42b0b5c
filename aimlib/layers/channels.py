"""Channels of several layers: linear mixtures, and two layers of softmax attention."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.deep import deep_attention_from_indices

__all__ = [
    "DeepSoftmaxChannel",
    "LayeredChannel",
    "MixedLinearChannel",
]


class LayeredChannel(Protocol):
    """What sampling, message passing and state evolution ask of a channel of L layers."""

    @property
    def weights(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def layers(self) -> int: ...

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray: ...
    def output_function(
        self, y: ArrayLike, omega: ArrayLike, covariance: ArrayLike
    ) -> tuple[FloatArray, FloatArray]: ...
    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray: ...


@dataclass(frozen=True)
class MixedLinearChannel:
    r"""Linear mixtures of the layers' indices, :math:`y_k = \sum_\ell M_{k\ell}h^{(\ell)}` + noise.

    The noise has variance :math:`\tau` on every y_{k,ab}, a <= b (``layers:linear``).

    Parameters
    ----------
    mixing : array, shape (K, L)
        M.
    noise : float
        :math:`\tau>0`.
    tokens : int
        T, at least 1.
    """

    weights: ClassVar[Literal["layered"]] = "layered"
    mixing: FloatArray
    noise: float
    tokens: int = 1

    def __post_init__(self) -> None:
        mixing = check.reals("mixing", self.mixing)
        if mixing.ndim != 2 or 0 in mixing.shape:
            raise ValueError(f"mixing must have shape (K, L), got shape {mixing.shape}")
        if not mixing.any():
            raise ValueError(f"mixing must have an entry that is not zero, got {self.mixing!r}")
        mixing.setflags(write=False)
        object.__setattr__(self, "mixing", mixing)
        tau = check.real("noise", self.noise, low=0.0, open_low=True)
        object.__setattr__(self, "noise", tau)
        check.integer("tokens", self.tokens, low=1)

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.mixing.shape[1])

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (n, K, T, T), from the indices, shape (n, L, T, T)."""
        h = _layered_indices(indices, self)
        if not isinstance(rng, np.random.Generator):
            raise ValueError(
                f"rng must be a numpy Generator when noise is {self.noise!r}, got {rng!r}"
            )
        y = np.einsum("kl,nlab->nkab", self.mixing, h)
        z = np.triu(rng.standard_normal(y.shape))
        return np.asarray(y + math.sqrt(self.noise) * (z + np.swapaxes(np.triu(z, 1), -1, -2)))

    def output_function(
        self, y: ArrayLike, omega: ArrayLike, covariance: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Return g, shape (n, L, T, T), and the (L, L) sum of -(1+delta) dg/domega."""
        centre = _layered_indices(omega, self)
        v = _covariance("covariance", covariance, self.layers)
        seen = check.reals("y", y)
        shape = (len(centre), len(self.mixing), self.tokens, self.tokens)
        if seen.shape != shape:
            raise ValueError(f"y must have shape (n, K, T, T) = {shape}, got {seen.shape}")
        gap = seen - np.einsum("kl,nlab->nkab", self.mixing, centre)
        t, g = self.tokens, np.empty_like(centre)
        response = np.zeros((self.layers, self.layers))
        on = np.eye(t, dtype=bool)
        for pairs, weight, count in ((on, 2.0, t), (~on, 1.0, t * (t - 1) / 2)):
            gain = self._gain(v, weight)
            g[..., pairs] = np.einsum("lk,nkp->nlp", gain, gap[..., pairs])
            response += gap.shape[0] * count * weight * gain @ self.mixing
        return g, _symmetric(response)

    def _gain(self, v: FloatArray, weight: float) -> FloatArray:
        m = self.mixing
        spread = weight * m @ v @ m.T + self.noise * np.eye(m.shape[0])
        return np.asarray(np.linalg.solve(spread, m).T)

    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray:
        r"""Return :math:`\Gamma=\sum(1+\delta)M^\top((1+\delta)MVM^\top+\tau I)^{-1}M`."""
        v = _covariance("covariance", covariance, self.layers)
        t = self.tokens
        off = 0.5 * t * (t - 1) * self._gain(v, 1.0)
        return _symmetric((2.0 * t * self._gain(v, 2.0) + off) @ self.mixing)


@dataclass(frozen=True)
class DeepSoftmaxChannel:
    r"""Attention of the last of L layers, in the centred indices of the first layer's tokens.

    .. math:: y = \sigma_\beta(B_{L-1}h^{(L)}B_{L-1}^\top),\qquad
              B_\ell = [cI+\sigma_\beta(B_{\ell-1}h^{(\ell)}B_{\ell-1}^\top)]B_{\ell-1}.

    The posterior mean of the indices is available for two layers and two tokens, by quadrature
    (``layers:quadrature``).

    Parameters
    ----------
    layers : int
        L, at least 1.
    tokens : int
        T, at least 2.
    skip : float
        Strength c of the skip connection.
    inverse_temperature : float
        :math:`\beta>0`.
    nodes : int
        Gauss-Hermite points in each of the two directions of the quadrature.  Its error shows for
        rare sequences whose posterior is narrow.
    """

    weights: ClassVar[Literal["layered"]] = "layered"
    layers: int = 2
    tokens: int = 2
    skip: float = 1.0
    inverse_temperature: float = 1.0
    nodes: int = 24

    def __post_init__(self) -> None:
        check.integer("layers", self.layers, low=1)
        check.integer("tokens", self.tokens, low=2)
        object.__setattr__(self, "skip", check.real("skip", self.skip))
        beta = check.real("inverse_temperature", self.inverse_temperature, low=0.0, open_low=True)
        object.__setattr__(self, "inverse_temperature", beta)
        check.integer("nodes", self.nodes, low=8, high=100)

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (n, T, T), from the indices, shape (n, L, T, T); ``rng`` is not used."""
        h = _layered_indices(indices, self)
        return deep_attention_from_indices(h, self.skip, self.inverse_temperature)

    def output_function(
        self, y: ArrayLike, omega: ArrayLike, covariance: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Return g, shape (n, 2, 2, 2), and its response, as :class:`MixedLinearChannel` does."""
        if self.layers != 2 or self.tokens != 2:
            raise ValueError(
                "output_function needs two layers and two tokens, "
                f"got layers = {self.layers} and tokens = {self.tokens}"
            )
        if self.skip < 1.0:
            raise ValueError(
                f"output_function needs a skip of at least 1, got {self.skip!r}: below it the two "
                "mixed tokens can coincide, and the quadrature is not accurate there"
            )
        centre = _layered_indices(omega, self)
        v = _covariance("covariance", covariance, 2)
        seen = check.reals("y", y, low=0.0, open_low=True)
        if seen.shape != (len(centre), 2, 2):
            raise ValueError(
                f"y must have shape (n, T, T) = {(len(centre), 2, 2)}, got {seen.shape}"
            )
        # a = A_11 - A_12 and A_22 - A_12 of the last scores: all that the output reveals
        revealed = np.log(seen[:, [0, 1], [0, 1]] / seen[:, [0, 1], [1, 0]])
        revealed = revealed / self.inverse_temperature
        flat = centre[:, :, [0, 0, 1], [0, 1, 1]].reshape(-1, 6)
        g, response = _two_layer_output(flat, revealed, v, self)
        out = g.reshape(-1, 2, 3)[:, :, [0, 1, 1, 2]].reshape(-1, 2, 2, 2)
        return np.ascontiguousarray(out), _symmetric(response)

    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray:
        r"""Return :math:`\Gamma=\sum(1+\delta)\E\,g\,g^\top`, by 4096 quasi-random outputs."""
        v = _covariance("covariance", covariance, self.layers)
        total = check.symmetric_matrix("second_moments", second_moments)
        if total.shape != v.shape:
            raise ValueError(f"second_moments must have shape {v.shape}, got {total.shape}")
        if np.linalg.eigvalsh(total - v)[0] < -1e-9 * np.trace(total):
            raise ValueError(
                "second_moments must exceed the covariance by a positive semidefinite matrix, "
                f"got {second_moments!r} for the covariance {covariance!r}"
            )
        normal = _normal_points(4 * self.tokens * (self.tokens + 1) // 2)
        weights = np.sqrt(1.0 + np.eye(self.tokens))
        rows, columns = np.triu_indices(self.tokens)
        fields = np.zeros((2, normal.shape[0], 2, self.tokens, self.tokens))
        parts = normal.reshape(normal.shape[0], 2, 2, -1)
        for k, root in enumerate((_root(total - v), _root(v))):
            mixed = np.einsum("lm,nmp->nlp", root, parts[:, k])
            fields[k][:, :, rows, columns] = mixed
            fields[k][:, :, columns, rows] = mixed
        omega, spread = fields * weights
        response = self.output_function(self.output(omega + spread), omega, v)[1]
        return _symmetric(response / normal.shape[0])


def _layered_indices(indices: ArrayLike, channel: Any) -> FloatArray:
    h = check.reals("indices", indices)
    shape = (channel.layers, channel.tokens, channel.tokens)
    if h.ndim != 4 or h.shape[1:] != shape or h.shape[0] == 0:
        raise ValueError(f"indices must have shape (n, L, T, T) = (n, *{shape}), got {h.shape}")
    return h


def _covariance(name: str, value: ArrayLike, layers: int) -> FloatArray:
    matrix = check.symmetric_matrix(name, value)
    if matrix.shape[0] != layers or np.linalg.eigvalsh(matrix)[0] <= 0.0:
        raise ValueError(
            f"{name} must be a positive definite matrix of shape {(layers, layers)}, got {value!r}"
        )
    if np.diag(matrix).min() < 1e-100 or np.diag(matrix).max() > 1e100:
        raise ValueError(
            f"{name} must have diagonal entries between 1e-100 and 1e100, got {value!r}"
        )
    return matrix


def _symmetric(matrix: Any) -> FloatArray:
    return np.asarray(0.5 * (matrix + matrix.T))


def _root(matrix: FloatArray) -> FloatArray:
    """Symmetric root; negative eigenvalues, which only rounding makes, count as zero."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


@functools.cache
def _normal_points(columns: int, log_count: int = 12) -> FloatArray:
    from scipy.special import ndtri
    from scipy.stats import qmc  # half a second of import that few sessions need

    points = ndtri(qmc.Sobol(columns, rng=np.random.default_rng(0)).random_base2(log_count))
    points.setflags(write=False)
    return np.asarray(points)


def _two_layer_output(
    omega: FloatArray, revealed: FloatArray, v: FloatArray, channel: DeepSoftmaxChannel
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of (h1, h2) in the coordinates (11, 12, 22), as g and its total response.

    The first layer enters through u = (h1_11 - h1_12, h1_22 - h1_12) only, and given u the two
    revealed numbers are linear in h2: Gauss-Hermite over u, Gaussian conditioning for the rest.
    """
    weights = np.array([2.0, 1.0, 2.0])
    prior = np.kron(v, np.diag(weights))
    difference = np.zeros((2, 6))
    difference[0, :2], difference[1, 1:3] = (1.0, -1.0), (-1.0, 1.0)
    spread = difference @ prior @ difference.T
    root = np.linalg.cholesky(spread)
    move = prior @ difference.T @ np.linalg.inv(root).T  # shift of the six indices with xi
    rest = prior - move @ move.T
    nodes, mass = np.polynomial.hermite_e.hermegauss(channel.nodes)
    mass = mass / mass.sum()
    xi = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    log_mass = np.log(np.outer(mass, mass)).ravel()
    shift = np.ascontiguousarray(xi @ move.T)
    mean, covariance = _two_layer_means(
        omega, revealed, shift, rest, log_mass, channel.skip, channel.inverse_temperature
    )
    inverse = np.linalg.inv(v)
    scaled = ((mean - omega).reshape(-1, 2, 3) / weights).transpose(0, 2, 1) @ inverse
    g = scaled.transpose(0, 2, 1).reshape(-1, 6)
    response = np.zeros((2, 2))
    for p in range(3):
        block = covariance[np.ix_([p, 3 + p], [p, 3 + p])] / weights[p]
        response += omega.shape[0] * inverse - inverse @ block @ inverse
    return g, response


@njit
def _two_layer_means(
    omega: np.ndarray,
    revealed: np.ndarray,
    shift: np.ndarray,
    rest: np.ndarray,
    log_mass: np.ndarray,
    skip: float,
    beta: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of each sample, and the sum over samples of posterior covariances.

    With e = c + p + q - 1 the rows of B differ by e (1, -1).  The revealed numbers are, up to
    powers of e that keep the two lines apart when e is small, a line of h2 that depends on u and
    the second difference h2_11 - 2 h2_12 + h2_22.
    """
    n, points = omega.shape[0], shift.shape[0]
    means, total = np.empty((n, 6)), np.zeros((6, 6))
    log_w, place, gains = np.empty(points), np.empty((points, 6)), np.empty((points, 6))
    parts = np.empty((points, 3))
    straight = np.empty(6)
    for i in range(6):
        straight[i] = rest[i, 3] - 2.0 * rest[i, 4] + rest[i, 5]
    s22 = straight[3] - 2.0 * straight[4] + straight[5]
    for k in range(n):
        best = -np.inf
        for j in range(points):
            x, y, z = (
                shift[j, 3] + omega[k, 3],
                shift[j, 4] + omega[k, 4],
                shift[j, 5] + omega[k, 5],
            )
            u1 = omega[k, 0] - omega[k, 1] + shift[j, 0] - shift[j, 1]
            u2 = omega[k, 2] - omega[k, 1] + shift[j, 2] - shift[j, 1]
            p, q = 1.0 / (1.0 + math.exp(-beta * u1)), 1.0 / (1.0 + math.exp(-beta * u2))
            e = skip + p + q - 1.0
            if abs(e) < 1e-100:
                log_w[j] = -np.inf
                continue
            b11, b12 = skip + p, 1.0 - p
            l1, l2, l3 = b11, b12 - b11, -b12
            r1 = revealed[k, 0] / e - (l1 * x + l2 * y + l3 * z)
            r2 = (revealed[k, 0] + revealed[k, 1]) / e**2 - (x - 2.0 * y + z)
            for i in range(6):
                gains[j, i] = l1 * rest[i, 3] + l2 * rest[i, 4] + l3 * rest[i, 5]
            s11 = l1 * gains[j, 3] + l2 * gains[j, 4] + l3 * gains[j, 5]
            s12 = gains[j, 3] - 2.0 * gains[j, 4] + gains[j, 5]
            determinant = s11 * s22 - s12 * s12
            parts[j, 0], parts[j, 1], parts[j, 2] = s11, s12, determinant
            c1 = (s22 * r1 - s12 * r2) / determinant
            c2 = (s11 * r2 - s12 * r1) / determinant
            log_w[j] = log_mass[j] - 0.5 * (r1 * c1 + r2 * c2)
            log_w[j] -= 0.5 * math.log(determinant) + 3.0 * math.log(abs(e))
            best = max(best, log_w[j])
            for i in range(6):
                place[j, i] = shift[j, i] + gains[j, i] * c1 + straight[i] * c2
        mass, mean, second = 0.0, np.zeros(6), np.zeros((6, 6))
        for j in range(points):
            if log_w[j] < best - 32.0:
                continue
            weight = math.exp(log_w[j] - best)
            mass += weight
            s11, s12, determinant = parts[j]
            for i in range(6):
                mean[i] += weight * place[j, i]
                a1 = (s22 * gains[j, i] - s12 * straight[i]) / determinant
                a2 = (s11 * straight[i] - s12 * gains[j, i]) / determinant
                for m in range(6):
                    inner = rest[i, m] - a1 * gains[j, m] - a2 * straight[m]
                    second[i, m] += weight * (place[j, i] * place[j, m] + inner)
        for i in range(6):
            means[k, i] = omega[k, i] + mean[i] / mass
            for m in range(6):
                total[i, m] += second[i, m] / mass - mean[i] * mean[m] / mass**2
    return means, total
