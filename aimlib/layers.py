r"""Several layers of attention: what can be learned of many matrices at once, and by what.

The outputs are functions of the indices of L matrices, :math:`y = g(h^{(1)},\dots,h^{(L)})`.  The
overlap and its conjugate become L x L matrices, and all data are equivalent to noisy copies of the
layers with *correlated* noises (``layers:observation``)

.. math:: R_\ell = S_\ell + N_\ell,\qquad
          \mathrm{E}\,N_{\ell,ij}N_{\ell',ij} = \frac{\Delta_{\ell\ell'}}d\ (i\ne j),\qquad
          \Delta = \hat q^{-1}.

The optimal denoiser of that problem is not known for L > 1.  This module holds what is: gradient
descent through all layers, the exact error of denoisers that treat each layer by itself and mix
linearly (``layers:cross``, ``layers:combined``), message passing with them and its state evolution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.amp import _contract, _denoise
from aimlib.channels import Channel
from aimlib.deep import deep_attention_from_indices
from aimlib.descent import Method, _descend, _Schedule, _through_indices
from aimlib.model import _tokens, attention_indices
from aimlib.priors import Prior, WishartPrior
from aimlib.replica import bayes_optimal

__all__ = [
    "DeepSoftmaxChannel",
    "LayeredAMPResult",
    "LayeredChannel",
    "LayeredDataset",
    "LayeredDescentResult",
    "MixedLinearChannel",
    "denoising_error",
    "error_through_the_sum",
    "error_with_the_others_known",
    "layered_amp",
    "layered_descent",
    "layered_loss_and_gradient",
    "layered_state_evolution",
    "sample_layers",
    "second_moments",
]

Scheme = Literal["combined", "separate"]


# ---------------------------------------------------------------------------------------------
# Data
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayeredDataset:
    """Sequences, their outputs and the weights of the L layers that made them.

    Attributes
    ----------
    tokens : array, shape (n, T, d)
        Independent entries of mean 0 and variance 1.
    outputs : array, shape (n, ...)
        What the channel shows of the indices of all layers.
    teachers : array, shape (L, d, d)
        Symmetric matrices.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.
    """

    tokens: FloatArray
    outputs: FloatArray
    teachers: FloatArray

    def __post_init__(self) -> None:
        tokens = _tokens(self.tokens)
        n, _, d = tokens.shape
        outputs = check.reals("outputs", self.outputs)
        if outputs.ndim == 0 or outputs.shape[0] != n:
            raise ValueError(f"outputs must have shape ({n}, ...), got shape {outputs.shape}")
        teachers = check.reals("teachers", self.teachers)
        if teachers.ndim != 3 or teachers.shape[1:] != (d, d) or teachers.shape[0] == 0:
            raise ValueError(f"teachers must have shape (L, {d}, {d}), got {teachers.shape}")
        for layer in teachers:
            check.symmetric_matrix("teachers", layer)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "teachers", teachers)

    @property
    def dimension(self) -> int:
        """Embedding dimension d."""
        return int(self.tokens.shape[2])

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.teachers.shape[0])


def sample_layers(
    dimension: int,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    sample_complexity: float,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> LayeredDataset:
    """Draw independent layers and n = round(sample_complexity * d^2) sequences with their outputs.

    Parameters
    ----------
    dimension : int
        Embedding dimension d.
    priors : sequence of Prior
        Law of each layer.
    channel : MixedLinearChannel or DeepSoftmaxChannel
    sample_complexity : float
        alpha > 0, large enough for at least one sequence.
    seed : int, SeedSequence or Generator
        The only source of randomness; teachers, tokens and channel noise have their own streams.

    Examples
    --------
    >>> from aimlib import WishartPrior
    >>> channel = MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    >>> data = sample_layers(10, [WishartPrior(0.5)] * 2, channel, 0.2, seed=0)
    >>> data.tokens.shape, data.outputs.shape, data.teachers.shape
    ((20, 1, 10), (20, 2, 1, 1), (2, 10, 10))
    """
    d = check.integer("dimension", dimension, low=2)
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    n = round(alpha * d * d)
    if n < 1:
        raise ValueError(
            f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, got {alpha!r}"
        )
    teacher_rng, token_rng, noise_rng = check.generator("seed", seed).spawn(3)
    teachers = np.stack([law.sample(d, teacher_rng) for law in laws])
    tokens = token_rng.standard_normal((n, channel.tokens, d))
    indices = attention_indices(tokens, teachers)
    return LayeredDataset(tokens, channel.output(indices, noise_rng), teachers)


def _priors(priors: Sequence[Prior], layers: int) -> list[Prior]:
    laws = _laws(priors)
    if len(laws) != layers:
        raise ValueError(f"priors must hold {layers} priors, one for each layer, got {len(laws)}")
    return laws


def _laws(priors: Any) -> list[Prior]:
    laws = list(priors) if isinstance(priors, Sequence) else []
    if not laws or not all(hasattr(law, "resolvent") for law in laws):
        raise TypeError(
            f"priors must be a sequence of priors of symmetric matrices, got {priors!r}"
        )
    return laws


def _check_channel(channel: Any) -> None:
    if not (hasattr(channel, "layers") and hasattr(channel, "tokens")):
        raise TypeError(f"channel must be one of several layers, got {channel!r}")


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, LayeredDataset):
        raise TypeError(f"dataset must be a LayeredDataset, got {type(dataset)!r}")


# ---------------------------------------------------------------------------------------------
# Channels of several layers
# ---------------------------------------------------------------------------------------------


class LayeredChannel(Protocol):
    """What sampling, message passing and state evolution ask of a channel of L layers."""

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


# ---------------------------------------------------------------------------------------------
# Gradient descent through the layers
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayeredDescentResult:
    """The outcome of training one start or several of a network of L layers.

    Attributes
    ----------
    estimates : array, shape (starts, L, d, d)
        The estimates of the single starts; their mean over starts is averaged gradient descent.
    loss : array, shape (starts,)
        Final training loss of each start.
    errors : array, shape (starts, L)
        Estimation error of each layer, for each start.
    prefix_errors : array, shape (starts, L)
        Errors of the average over the first 1, ..., K starts.
    history : dict of str to array
        "step", shape (m,), "loss", shape (m, starts), and "error", shape (m, starts, L).
    weights : array, shape (starts, L, d, r)
    steps : int
    status : str
        "converged", "stopped" (at the last step) or "diverged".
    """

    estimates: FloatArray
    loss: FloatArray
    errors: FloatArray
    prefix_errors: FloatArray
    history: dict[str, FloatArray]
    weights: FloatArray
    steps: int
    status: str


def layered_loss_and_gradient(
    weights: FloatArray, dataset: LayeredDataset, channel: DeepSoftmaxChannel
) -> tuple[FloatArray, FloatArray]:
    """Return the squared loss of each start and its gradient (``layers:backward``).

    Parameters
    ----------
    weights : array, shape (K, L, d, r)
    dataset : LayeredDataset
    channel : DeepSoftmaxChannel
        The student; its outputs have the shape of the data's.

    Returns
    -------
    (array of shape (K,), array of shape (K, L, d, r))
    """
    _check_student(dataset, channel)
    w = check.reals("weights", weights)
    expected = (channel.layers, dataset.dimension)
    if w.ndim != 4 or w.shape[1:3] != expected or 0 in w.shape:
        raise ValueError(f"weights must have shape (K, L, d, r) = (K, *{expected}, r), "
                         f"got shape {w.shape}")  # fmt: skip
    return _layered_evaluate(w, dataset.tokens, dataset.outputs, channel)


def _layered_evaluate(
    w: Any, tokens: Any, outputs: Any, channel: DeepSoftmaxChannel
) -> tuple[Any, Any]:
    starts, layers, d, r = w.shape
    n = tokens.shape[0]

    def pointwise(h: Any) -> tuple[Any, Any]:
        stacked = h.reshape(starts, layers, *h.shape[1:])
        values, slopes = _backpropagate(stacked, outputs, channel)
        return values, slopes.reshape(h.shape)

    values, direction = _through_indices(w.reshape(starts * layers, d, r), tokens, pointwise)
    gradient = 2.0 / (n * d * math.sqrt(r)) * direction
    return values.mean(axis=1), gradient.reshape(w.shape)


def _backpropagate(h: Any, y: Any, channel: DeepSoftmaxChannel) -> tuple[Any, Any]:
    """Loss of every sequence and its derivative in the matrices h, shape (K, L, n, T, T)."""
    layers, t = h.shape[1], h.shape[-1]
    skip = np.asarray(channel.skip * np.eye(t), dtype=h.dtype)
    mixing, attention = [np.broadcast_to(np.eye(t, dtype=h.dtype), h[:, 0].shape)], []
    for layer in range(layers):
        b = mixing[-1]
        scores = channel.inverse_temperature * (b @ h[:, layer] @ b.swapaxes(-1, -2))
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p = exponentials / exponentials.sum(axis=-1, keepdims=True)
        attention.append(p)
        mixing.append((skip + p) @ b)
    gap = attention[-1] - y
    values, slopes = np.sum(gap * gap, axis=(-1, -2)), np.empty_like(h)
    towards_p, towards_b = 2.0 * gap, np.zeros_like(gap)
    for layer in reversed(range(layers)):
        p, b = attention[layer], mixing[layer]
        inner = np.sum(towards_p * p, axis=-1, keepdims=True)
        scores = channel.inverse_temperature * p * (towards_p - inner)
        slopes[:, layer] = b.swapaxes(-1, -2) @ scores @ b
        if layer:
            both = scores + scores.swapaxes(-1, -2)
            carried = (skip + p).swapaxes(-1, -2) @ towards_b
            towards_b = carried + both @ b @ h[:, layer]
            towards_p = towards_b @ mixing[layer - 1].swapaxes(-1, -2)
    return values, slopes


def layered_descent(
    dataset: LayeredDataset,
    width: int,
    channel: DeepSoftmaxChannel,
    starts: int = 8,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    *,
    method: Method = "adam",
    learning_rate: float = 0.05,
    final_learning_rate: float | None = None,
    momentum: float = 0.9,
    steps: int = 2000,
    loss_tolerance: float = 1e-14,
    record_every: int = 50,
    single_precision: bool = False,
    callback: Callable[[int, FloatArray], None] | None = None,
) -> LayeredDescentResult:
    """Train all layers together from independent starts, by the optimiser of one layer.

    Parameters
    ----------
    dataset : LayeredDataset
        The teachers are used for the reported errors only.
    width : int
        Width r of every layer of the student.
    channel : DeepSoftmaxChannel
        The student's network.
    starts, seed, method, learning_rate, final_learning_rate, momentum, steps, loss_tolerance, \
record_every, single_precision, callback
        As in :func:`aimlib.averaged_gradient_descent`.

    Returns
    -------
    LayeredDescentResult

    Raises
    ------
    ValueError
        If an argument is out of range, before training starts.
    """
    _check_student(dataset, channel)
    d, layers = dataset.dimension, channel.layers
    r = check.integer("width", width, low=1)
    count = check.integer("starts", starts, low=1)
    rate = check.real("learning_rate", learning_rate, low=0.0, open_low=True)
    final = rate if final_learning_rate is None else final_learning_rate
    if method not in ("adam", "momentum"):
        raise ValueError(f"method must be 'adam' or 'momentum', got {method!r}")
    schedule = _Schedule(
        method,
        rate,
        check.real("final_learning_rate", final, low=0.0),
        check.real("momentum", momentum, low=0.0, high=1.0, open_high=True),
        check.integer("steps", steps, low=1),
        check.integer("record_every", record_every, low=1),
        check.real("loss_tolerance", loss_tolerance, low=0.0),
        0.0,
    )
    dtype = np.float32 if single_precision else np.float64
    streams = check.generator("seed", seed).spawn(count)
    w = np.stack([stream.standard_normal((layers, d, r)) for stream in streams]).astype(dtype)
    tokens, outputs = dataset.tokens.astype(dtype), dataset.outputs.astype(dtype)
    w, record, step, status = _descend(
        w,
        lambda weights: _layered_evaluate(weights, tokens, outputs, channel),
        lambda weights: _layer_errors(_layer_estimates(weights), dataset.teachers),
        schedule,
        callback=callback,
    )
    estimates = _layer_estimates(w)
    counts = np.arange(1, count + 1)[:, None, None, None]
    return LayeredDescentResult(
        estimates=estimates,
        loss=np.asarray(record["loss"][-1]),
        errors=_layer_errors(estimates, dataset.teachers),
        prefix_errors=_layer_errors(np.cumsum(estimates, axis=0) / counts, dataset.teachers),
        history={name: np.array(values) for name, values in record.items()},
        weights=w.astype(np.float64),
        steps=step,
        status=status,
    )


def _check_student(dataset: LayeredDataset, channel: DeepSoftmaxChannel) -> None:
    _check_dataset(dataset)
    if not isinstance(channel, DeepSoftmaxChannel):
        raise TypeError(f"channel must be a DeepSoftmaxChannel, got {channel!r}")
    n, t, _ = dataset.tokens.shape
    if channel.tokens != t or channel.layers != dataset.layers:
        raise ValueError(
            f"channel must have {t} tokens and {dataset.layers} layers as the dataset, "
            f"got {channel.tokens} and {channel.layers}"
        )
    if dataset.outputs.shape != (n, t, t):
        raise ValueError(
            f"dataset must have outputs of shape {(n, t, t)}, got {dataset.outputs.shape}"
        )


def _layer_estimates(w: Any) -> FloatArray:
    w = np.asarray(w, dtype=np.float64)
    return np.asarray(w @ w.swapaxes(-1, -2) / math.sqrt(w.shape[-1] * w.shape[-2]))


def _layer_errors(estimates: FloatArray, teachers: FloatArray) -> FloatArray:
    gap = estimates - teachers
    return np.asarray(np.sum(gap * gap, axis=(-1, -2)) / teachers.shape[-1])


# ---------------------------------------------------------------------------------------------
# The prior side: denoisers of single layers, and their exact joint error
# ---------------------------------------------------------------------------------------------


def denoising_error(
    noise: ArrayLike, priors: Sequence[Prior], scheme: Scheme = "combined"
) -> FloatArray:
    r"""Return :math:`V_{\ell\ell'}=\lim\frac1d\E\,\mathrm{Tr}(S_\ell-\hat S_\ell)(S_{\ell'}-\hat
    S_{\ell'})` for correlated noises.

    Parameters
    ----------
    noise : array, shape (L, L)
        Covariance :math:`\Delta` of the noises, positive definite (``layers:observation``).
    priors : sequence of Prior
        Law of each layer; the layers are independent.
    scheme : {"combined", "separate"}
        "separate" denoises every :math:`R_\ell` optimally as if it were alone (``layers:cross``).
        "combined" takes the best linear combination of all :math:`R` and all separately denoised
        matrices (``layers:combined``).  Neither is optimal in general.

    Returns
    -------
    array, shape (L, L)

    Examples
    --------
    >>> from aimlib import WignerPrior
    >>> noise = np.array([[1.0, 0.5], [0.5, 2.0]])
    >>> exact = np.linalg.inv(np.eye(2) + np.linalg.inv(noise))
    >>> bool(np.allclose(denoising_error(noise, [WignerPrior()] * 2), exact))
    True
    """
    laws = _laws(priors)
    delta = _covariance("noise", noise, len(laws))
    _check_scheme(scheme)
    moments = _moments(delta, laws)
    if scheme == "separate":
        return moments.separate_error()
    return moments.combined()[1]


def _check_scheme(scheme: str) -> None:
    if scheme not in ("combined", "separate"):
        raise ValueError(f"scheme must be 'combined' or 'separate', got {scheme!r}")


@dataclass(frozen=True)
class _Moments:
    """Second moments of the centred R_1, ..., R_L, D_1, ..., D_L, and those with the layers."""

    gram: FloatArray  # (2L, 2L)
    target: FloatArray  # (2L, L)
    variances: FloatArray  # (L,)

    def separate_error(self) -> FloatArray:
        """E (S - D)(S - D)^T; D_l and S_l' are uncorrelated for different layers."""
        count = self.variances.size
        denoised = self.gram[count:, count:]
        own = np.diag(self.variances - 2.0 * np.diag(self.target[count:]))
        return _symmetric(denoised + own)

    def combined(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (2L, L) of the best linear combination, and its error."""
        scale = 1.0 / np.sqrt(np.maximum(np.diag(self.gram), 1e-300))
        gram = self.gram * np.outer(scale, scale)
        scaled = scale[:, None] * self.target
        # R and D are collinear for a Gaussian prior: least squares of smallest norm
        weights = np.linalg.lstsq(gram, scaled, rcond=1e-11)[0]
        error = np.diag(self.variances) - _symmetric(scaled.T @ weights)
        return scale[:, None] * weights, error


def _moments(delta: FloatArray, priors: Sequence[Prior]) -> _Moments:
    count = len(priors)
    noises = np.diag(delta)
    variances = np.array([law.variance for law in priors])
    errors = np.array([float(law.mmse(float(x))) for law, x in zip(priors, noises, strict=True)])
    known = variances - errors
    gram, target = np.zeros((2 * count, 2 * count)), np.zeros((2 * count, count))
    gram[:count, :count] = np.diag(variances) + delta
    # a denoiser sees the noise of another layer through its slope, mmse/Delta
    crossed = delta * (errors / noises) + np.diag(variances - errors)
    gram[:count, count:], gram[count:, :count] = crossed, crossed.T
    components = [_noise_components(law, float(x)) for law, x in zip(priors, noises, strict=True)]
    gram[count:, count:] = np.diag(known)
    for i in range(count):
        for j in range(i):
            ratio = delta[i, j] / math.sqrt(noises[i] * noises[j])
            powers = ratio ** np.arange(1, _COMPONENTS + 1)
            value = float(np.sum(powers * components[i] * components[j]))
            gram[count + i, count + j] = gram[count + j, count + i] = value
    target[:count], target[count:] = np.diag(variances), np.diag(known)
    return _Moments(gram, target, variances)


_COMPONENTS = 60  # Chebyshev components of a denoiser that are kept
_NODES_OF_BULK = 240


def _noise_components(prior: Prior, noise: float) -> FloatArray:
    r"""Return :math:`F_k`, k = 1, ..., 60 of the optimal denoiser (``layers:components``).

    They are the coefficients of E[D(R) | N] in Chebyshev polynomials of the second kind, to
    rounding for most noises, to 1e-3 of the largest where two bulks are about to merge.
    """
    edges = np.asarray(prior.support(noise)).reshape(-1, 2)
    # double exponential: at rho = 1 and little noise the bulk has a narrow layer at its edge
    t = np.linspace(-3.1, 3.1, _NODES_OF_BULK)
    place = np.tanh(0.5 * math.pi * np.sinh(t))
    density = 0.5 * math.pi * np.cosh(t) / np.cosh(0.5 * math.pi * np.sinh(t)) ** 2
    middle, half = edges.mean(axis=1), 0.5 * (edges[:, 1] - edges[:, 0])
    x = middle[:, None] + half[:, None] * place
    weight = half[:, None] * density * (t[1] - t[0])
    g = np.asarray(prior.resolvent(x.ravel(), noise))
    denoised = x.ravel() - 2.0 * noise * g.real - prior.mean_eigenvalue
    small = math.sqrt(noise) * g
    power, components = small.copy(), np.empty(_COMPONENTS)
    for k in range(_COMPONENTS):
        power = power * small
        components[k] = np.sum(weight.ravel() * denoised * power.imag)
    return -components / (math.pi * math.sqrt(noise))


# ---------------------------------------------------------------------------------------------
# State evolution and message passing
# ---------------------------------------------------------------------------------------------


def layered_state_evolution(
    sample_complexity: float,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    iterations: int = 50,
    scheme: Scheme = "combined",
) -> FloatArray:
    r"""Return the error matrices :math:`V_t` of message passing (``layers:state-evolution``).

    .. math:: \Delta_t = \frac{\Gamma(V_t)^{-1}}{2\alpha},\qquad V_{t+1} = \mathcal V(\Delta_t).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    priors : sequence of Prior
    channel : MixedLinearChannel or DeepSoftmaxChannel
    iterations : int
        Number of steps, at least 1.
    scheme : {"combined", "separate"}
        See :func:`denoising_error`; "separate" needs a linear channel, for which the errors alone
        decide.

    Returns
    -------
    array, shape (iterations + 1, L, L)
        Constant from where an eigenvalue falls below 1e-10, or a step below 1e-14.
    """
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    steps = check.integer("iterations", iterations, low=1)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    _check_scheme(scheme)
    _check_linear(channel, scheme)
    moments = second_moments(laws)
    v = np.empty((steps + 1, len(laws), len(laws)))
    v[0] = np.diag([law.variance for law in laws])
    for t in range(steps):
        settled = t > 0 and np.abs(v[t] - v[t - 1]).max() < 1e-14
        if settled or np.linalg.eigvalsh(v[t])[0] < 1e-10:
            v[t + 1 :] = v[t]
            break
        conjugate = 2.0 * alpha * channel.information(v[t], moments)
        v[t + 1] = denoising_error(_invert_response(conjugate), laws, scheme)
    return v


def second_moments(priors: Sequence[Prior]) -> FloatArray:
    r"""Return :math:`Q_{\ell\ell'}=\lim\mathrm{Tr}\,S_\ell S_{\ell'}/d` of independent layers."""
    means = np.array([law.mean_eigenvalue for law in priors])
    return np.asarray(np.outer(means, means) + np.diag([law.variance for law in priors]))


def _invert_response(matrix: FloatArray) -> FloatArray:
    """Inverse of a response; directions that are not seen get a large noise."""
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    if values[-1] <= 0.0:
        raise ValueError(f"the response must have a positive eigenvalue, got {matrix!r}")
    return np.asarray((vectors / np.maximum(values, 1e-9 * values[-1])) @ vectors.T)


def _check_linear(channel: LayeredChannel, scheme: str) -> None:
    if scheme == "separate" and not isinstance(channel, MixedLinearChannel):
        raise ValueError(
            f"scheme must be 'combined' unless the channel is linear, got {scheme!r}: the output "
            "function needs errors that are not correlated with the estimates"
        )


@dataclass(frozen=True)
class LayeredAMPResult:
    """Where message passing for several layers ended, and how it got there.

    Attributes
    ----------
    estimates : array, shape (L, d, d)
    errors : array, shape (L,)
        ||S_l - estimate_l||_F^2/d of each layer.
    predicted : array, shape (L, L)
        The error matrix that the algorithm claims, from its measured noise.
    status : {"converged", "stalled", "diverged"}
        As for :class:`aimlib.AMPResult`.
    iterations : int
    history : dict of str to array
        "errors", shape (iterations, L), and "predicted", shape (iterations, L, L).
    """

    estimates: FloatArray
    errors: FloatArray
    predicted: FloatArray
    status: Literal["converged", "stalled", "diverged"]
    iterations: int
    history: dict[str, FloatArray]


def layered_amp(
    dataset: LayeredDataset,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    *,
    scheme: Scheme = "combined",
    iterations: int = 100,
    tolerance: float = 1e-5,
    damping: float = 0.3,
) -> LayeredAMPResult:
    r"""Estimate all layers by message passing with single-layer denoisers (``layers:iteration``).

    Parameters
    ----------
    dataset : LayeredDataset
        The teachers are used for the reported errors only.
    priors : sequence of Prior
    channel : MixedLinearChannel or DeepSoftmaxChannel
    scheme : {"combined", "separate"}
        See :func:`denoising_error`.
    iterations : int
        Most iterations to do.
    tolerance : float
        Converged when the undamped step of every layer, squared and over d, is at most this share
        of the variance of its prior.
    damping : float
        Share of the old estimate that is kept, in [0, 1).

    Returns
    -------
    LayeredAMPResult

    Raises
    ------
    ValueError
        If an argument is out of range or the channel does not fit the data.
    """
    _check_dataset(dataset)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    _check_scheme(scheme)
    _check_linear(channel, scheme)
    most = check.integer("iterations", iterations, low=1)
    tol = check.real("tolerance", tolerance, low=0.0, open_low=True)
    keep = check.real("damping", damping, low=0.0, high=1.0, open_high=True)
    if dataset.layers != channel.layers or dataset.tokens.shape[1] != channel.tokens:
        raise ValueError(
            f"channel must have {dataset.layers} layers and {dataset.tokens.shape[1]} tokens as "
            f"the dataset, got {channel.layers} and {channel.tokens}"
        )
    d, count = dataset.dimension, len(laws)
    variances = np.array([law.variance for law in laws])
    estimates = np.stack([law.mean_eigenvalue * np.eye(d) for law in laws])
    covariance, reaction = np.diag(variances), np.zeros((count, count))
    predicted = covariance
    g = np.zeros((dataset.tokens.shape[0], count, channel.tokens, channel.tokens))
    errors: list[FloatArray] = []
    claims: list[FloatArray] = []
    status: Literal["converged", "stalled", "diverged"] = "stalled"
    for _ in range(most):
        g, response, fields = _output_step(dataset, channel, estimates, covariance, reaction, g)
        if not (np.isfinite(fields).all() and np.isfinite(response).all()):
            status = "diverged"
            break
        gain = _invert_response(response)
        noise = _measured_noise(g, gain, d)
        observed = estimates + np.einsum("lm,mij->lij", gain, fields)
        denoised, divergences, predicted = _denoise_layers(observed, noise, laws, scheme)
        step = denoised - estimates
        reaction = divergences @ gain / d
        errors.append(_layer_errors(denoised, dataset.teachers))
        claims.append(predicted)
        if not np.sum(denoised**2, axis=(1, 2)).max() < 1e4 * d * second_moments(laws).max():
            status = "diverged"
            break
        if np.all(np.sum(step**2, axis=(1, 2)) / d <= tol * variances):
            estimates, status = denoised, "converged"
            break
        estimates = estimates + (1.0 - keep) * step
        covariance = keep * covariance + (1.0 - keep) * predicted
    return LayeredAMPResult(
        estimates=estimates,
        errors=_layer_errors(estimates, dataset.teachers),
        predicted=predicted,
        status=status,
        iterations=len(errors),
        history={"errors": np.array(errors), "predicted": np.array(claims)},
    )


def _output_step(
    dataset: LayeredDataset,
    channel: LayeredChannel,
    estimates: FloatArray,
    covariance: FloatArray,
    reaction: FloatArray,
    g: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the new g, the response A of shape (L, L), and the sums of g Z, shape (L, d, d)."""
    tokens = dataset.tokens
    n, t, d = tokens.shape
    flat = tokens.reshape(n * t, d)
    omega = np.empty((n, len(estimates), t, t))
    for layer, estimate in enumerate(estimates):
        _contract(tokens, (flat @ estimate).reshape(n, t, d), omega[:, layer])
        omega[:, layer] -= np.trace(estimate) * np.eye(t)
    weights = 1.0 + np.eye(t)
    omega = omega / math.sqrt(d) - weights * np.einsum("lm,nmab->nlab", reaction, g)
    g, response = channel.output_function(dataset.outputs, omega, covariance)
    fields = np.empty_like(estimates)
    for layer in range(len(estimates)):
        mixed = np.matmul(0.5 * weights * g[:, layer], tokens).reshape(n * t, d)
        total = flat.T @ mixed
        total[np.diag_indices(d)] -= np.trace(g[:, layer], axis1=1, axis2=2).sum()
        fields[layer] = _symmetric(total) / math.sqrt(d)
    return g, response / d, fields


def _measured_noise(g: FloatArray, gain: FloatArray, d: int) -> FloatArray:
    """Covariance of the noises, from the squares of g: A^-1 (sum (1+delta) g g^T) A^-1/2.

    At least a quarter of A^-1 d/2, as for one layer (``amp:floor``).
    """
    t = g.shape[-1]
    halves = np.sqrt(0.5 * np.ones((t, t)) + 1.5 * np.eye(t))
    flat = (g * halves).transpose(1, 0, 2, 3).reshape(g.shape[1], -1)
    measured = 0.5 * gain @ (flat @ flat.T) @ gain
    floor = 0.25 * 0.5 * d * gain
    root = np.linalg.cholesky(floor)
    whitened = np.linalg.solve(root, np.linalg.solve(root, measured).T)
    values, vectors = np.linalg.eigh(_symmetric(whitened))
    turned = root @ vectors
    return _symmetric((turned * np.maximum(values, 1.0)) @ turned.T)


def _denoise_layers(
    observed: FloatArray, noise: FloatArray, laws: Sequence[Prior], scheme: Scheme
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the estimates, the divergences dS_l/dR_l' (L, L) and the limiting error (L, L)."""
    count, d = len(laws), observed.shape[-1]
    pairs = [
        _denoise(observed[k], float(noise[k, k]), law, "tangent") for k, law in enumerate(laws)
    ]
    denoised = np.stack([pair[0] for pair in pairs])
    slopes = np.array([pair[1] for pair in pairs])
    moments = _moments(noise, laws)
    if scheme == "separate":
        return denoised, np.diag(slopes), moments.separate_error()
    coefficients, error = moments.combined()
    means = np.stack([law.mean_eigenvalue * np.eye(d) for law in laws])
    features = np.concatenate([observed - means, denoised - means])
    estimates = means + np.einsum("fl,fij->lij", coefficients, features)
    raw, shrunk = coefficients[:count].T, coefficients[count:].T
    return estimates, raw * (0.5 * d * (d + 1)) + shrunk * slopes, error


# ---------------------------------------------------------------------------------------------
# What is known exactly
# ---------------------------------------------------------------------------------------------


def error_through_the_sum(
    sample_complexity: ArrayLike, width_ratio: float, layers: int, channel: Channel
) -> Any:
    r"""Return the Bayes-optimal error of each of L Wishart layers seen through their sum only.

    The outputs are those of one layer with the indices :math:`\sum_\ell h^{(\ell)}/\sqrt L`, which
    are those of a Wishart matrix of width ratio :math:`L\rho` (``layers:sum``):

    .. math:: \mathcal E_\ell = 1-\frac1L+\frac1L\,\mathcal E_{\rm Bayes}(\alpha; L\rho).

    Parameters
    ----------
    sample_complexity : float or array
        alpha.
    width_ratio : float
        rho of every layer.
    layers : int
        L, at least 1.
    channel : Channel
        Of one layer.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel
    >>> error_through_the_sum(9.0, 0.5, 2, SoftmaxChannel(tokens=2))
    0.5
    """
    count = check.integer("layers", layers, low=1)
    rho = check.real("width_ratio", width_ratio, low=0.0, open_low=True)
    whole = bayes_optimal(sample_complexity, WishartPrior(count * rho), channel)
    return 1.0 - 1.0 / count + whole.estimation_error / count


def error_with_the_others_known(
    sample_complexity: float, priors: Sequence[Prior], channel: MixedLinearChannel
) -> FloatArray:
    """Return the Bayes-optimal error of each layer when all other layers are revealed.

    No method can do better without them: a lower bound for every estimate (``layers:genie``).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    priors : sequence of Prior
    channel : MixedLinearChannel

    Returns
    -------
    array, shape (L,)
    """
    if not isinstance(channel, MixedLinearChannel):
        raise TypeError(f"channel must be a MixedLinearChannel, got {channel!r}")
    check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    laws = _priors(priors, channel.layers)
    errors = np.array([law.variance for law in laws])
    for k, law in enumerate(laws):
        if not channel.mixing[:, k].any():  # not seen at all
            continue
        alone = MixedLinearChannel(channel.mixing[:, k : k + 1], channel.noise, channel.tokens)
        errors[k] = layered_state_evolution(sample_complexity, [law], alone, 500)[-1, 0, 0]
    return errors
