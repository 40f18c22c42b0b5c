"""Channels of several layers: linear mixtures, and two layers of softmax attention."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._channel_base import check_positive, check_rows_sum_to_one, check_shape
from aimlib._channel_families import with_noise
from aimlib._validation import FloatArray, symmetrised
from aimlib.deep import deep_attention_from_indices
from aimlib.layers.quadrature import two_layer_output

__all__ = [
    "DeepSoftmaxChannel",
    "LayeredChannel",
    "MixedLinearChannel",
]


class LayeredChannel(Protocol):
    """What sampling, message passing and state evolution ask of a channel of L layers."""

    @property
    def weights(self) -> str:
        """The kind of weights it is for, "layered", L symmetric matrices."""

    @property
    def tokens(self) -> int:
        """T, the number of tokens of a sequence."""

    @property
    def layers(self) -> int:
        """L, the number of layers."""

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the outputs of the indices of all layers; ``rng`` draws noise if there is any.

        Parameters
        ----------
        indices : array, shape (n, L, T, T)
            h of every layer, centred and on the tokens of the first.
        rng : numpy Generator, optional
            Needed by channels with noise, and by no other.

        Returns
        -------
        array, shape (n, ...)
        """

    def output_function(
        self, y: ArrayLike, omega: ArrayLike, covariance: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        r"""Return :math:`g=V^{-1}(E[h\mid y]-\omega)/(1+\delta_{ab})` and its response.

        Parameters
        ----------
        y : array, shape (n, ...)
            Outputs.
        omega : array, shape (n, L, T, T)
            Means of the indices given all other data, of order one.
        covariance : array, shape (L, L)
            V, positive definite: an index off the diagonal has this covariance over the layers, one
            on it twice that.

        Returns
        -------
        g : array, shape (n, L, T, T)
        response : array, shape (L, L)
            :math:`-\sum(1+\delta_{ab})\,\partial g_{ab}/\partial\omega_{ab}` over all sequences and
            :math:`a\le b`.
        """

    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray:
        r"""Return :math:`\Gamma=\sum_{a\le b}(1+\delta_{ab})E\,g_{ab}g_{ab}^\top`, shape (L, L).

        Parameters
        ----------
        covariance : array, shape (L, L)
            V, what is left of the covariance of the indices.
        second_moments : array, shape (L, L)
            Q, that covariance when nothing is known.
        """

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError if ``outputs``, shape (n, ...), cannot come from this channel."""


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

    Notes
    -----
    Methods and their arguments are those of :class:`LayeredChannel`.

    Examples
    --------
    >>> channel = MixedLinearChannel([[1.0, 0.0], [0.0, 2.0]], noise=1.0)
    >>> channel.information(np.eye(2), np.eye(2)).diagonal()  # 2/(2 + 1), 8/(8 + 1)
    array([0.66666667, 0.88888889])
    >>> channel == MixedLinearChannel(np.diag([1.0, 2.0]), 1.0)
    True
    """

    weights: ClassVar[Literal["layered"]] = "layered"
    mixing: FloatArray = field(compare=False)
    noise: float
    tokens: int = 1
    _rows: tuple[tuple[float, ...], ...] = field(init=False, repr=False)  # compares and hashes

    def __post_init__(self) -> None:
        mixing = check.reals("mixing", self.mixing)
        if mixing.ndim != 2 or 0 in mixing.shape:
            raise ValueError(f"mixing must have shape (K, L), got shape {mixing.shape}")
        if not mixing.any():
            raise ValueError(f"mixing must have an entry that is not zero, got {self.mixing!r}")
        mixing.setflags(write=False)
        rows = tuple(map(tuple, (mixing + 0.0).tolist()))
        noise = check.positive("noise", self.noise)
        check.store(self, mixing=mixing, _rows=rows, noise=noise)
        check.integer("tokens", self.tokens, low=1)

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.mixing.shape[1])

    def output(self, indices: ArrayLike, rng: np.random.Generator | None = None) -> FloatArray:
        """Return y, shape (n, K, T, T), from the indices, shape (n, L, T, T)."""
        y = np.einsum("kl,nlab->nkab", self.mixing, _layered_indices(indices, self))
        return with_noise(y, self.noise, rng, tied=True)

    def output_function(
        self, y: ArrayLike, omega: ArrayLike, covariance: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Return g, shape (n, L, T, T), and the (L, L) sum of -(1+delta) dg/domega."""
        centre = _layered_indices(omega, self)
        v = check.covariance("covariance", covariance, self.layers)
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
        return g, symmetrised(response)

    def _gain(self, v: FloatArray, weight: float) -> FloatArray:
        m = self.mixing
        spread = weight * m @ v @ m.T + self.noise * np.eye(m.shape[0])
        return np.asarray(np.linalg.solve(spread, m).T)

    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray:
        r"""Return :math:`\Gamma=\sum(1+\delta)M^\top((1+\delta)MVM^\top+\tau I)^{-1}M`."""
        v = check.covariance("covariance", covariance, self.layers)
        t = self.tokens
        off = 0.5 * t * (t - 1) * self._gain(v, 1.0)
        return symmetrised((2.0 * t * self._gain(v, 2.0) + off) @ self.mixing)

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError unless the outputs are K symmetric matrices of each sequence."""
        y = check_shape("outputs", outputs, (self.tokens, self.tokens))
        if y.ndim != 4 or y.shape[1] != len(self.mixing):
            raise ValueError(
                f"outputs must have shape (n, {len(self.mixing)}, {self.tokens}, {self.tokens}), "
                f"got shape {y.shape}"
            )
        gap = float(np.abs(y - np.swapaxes(y, -1, -2)).max()) if y.size else 0.0
        if gap > 1e-9 * max(1.0, float(np.abs(y).max(initial=0.0))):
            raise ValueError(f"outputs must be symmetric, got entries that differ by {gap:.3g}")


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
        Gauss-Hermite points in each of the two directions of the quadrature, whose grid is fitted
        to the posterior of every sequence.

    Notes
    -----
    Methods and their arguments are those of :class:`LayeredChannel`.

    Examples
    --------
    >>> channel = DeepSoftmaxChannel(layers=2, tokens=2)
    >>> channel.output(np.zeros((1, 2, 2, 2)))
    array([[[0.5, 0.5],
            [0.5, 0.5]]])
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
        beta = check.positive("inverse_temperature", self.inverse_temperature)
        check.store(self, skip=check.real("skip", self.skip), inverse_temperature=beta)
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
        v = check.covariance("covariance", covariance, 2)
        seen = check.reals("y", y, low=0.0, open_low=True)
        if seen.shape != (len(centre), 2, 2):
            raise ValueError(
                f"y must have shape (n, T, T) = {(len(centre), 2, 2)}, got {seen.shape}"
            )
        # a = A_11 - A_12 and A_22 - A_12 of the last scores: all that the output reveals
        revealed = np.log(seen[:, [0, 1], [0, 1]] / seen[:, [0, 1], [1, 0]])
        revealed = revealed / self.inverse_temperature
        flat = centre[:, :, [0, 0, 1], [0, 1, 1]].reshape(-1, 6)
        g, response = two_layer_output(flat, revealed, v, self)
        out = g.reshape(-1, 2, 3)[:, :, [0, 1, 1, 2]].reshape(-1, 2, 2, 2)
        return np.ascontiguousarray(out), symmetrised(response)

    def information(self, covariance: ArrayLike, second_moments: ArrayLike) -> FloatArray:
        r"""Return :math:`\Gamma=\sum(1+\delta)\E\,g\,g^\top`, by 4096 quasi-random outputs."""
        v = check.covariance("covariance", covariance, self.layers)
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
        return symmetrised(response / normal.shape[0])

    def validate(self, outputs: ArrayLike) -> None:
        """Raise ValueError, naming the worst row, unless all are positive and rows sum to one."""
        y = check_shape("outputs", outputs, (self.tokens, self.tokens))
        check_positive("outputs", y, self.inverse_temperature)
        check_rows_sum_to_one("outputs", y)


def _layered_indices(indices: ArrayLike, channel: Any) -> FloatArray:
    h = check.reals("indices", indices)
    shape = (channel.layers, channel.tokens, channel.tokens)
    if h.ndim != 4 or h.shape[1:] != shape or h.shape[0] == 0:
        raise ValueError(f"indices must have shape (n, L, T, T) = (n, *{shape}), got {h.shape}")
    return h


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
