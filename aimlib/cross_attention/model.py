"""The cross-attention model: teacher, queries, keys, indices and outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._datasets import HeldData, Seed, SequenceModel, Sequences, Shapes, sequences
from aimlib._validation import FloatArray
from aimlib.cross_attention.channels import CrossChannel
from aimlib.cross_attention.prior import BilinearPrior

__all__ = ["Dataset", "Model", "indices", "weak_recovery_threshold"]


@dataclass(frozen=True)
class Dataset(HeldData):
    """Pairs of sequences, their outputs and, where it is known, the teacher.

    Attributes
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    outputs : array, shape (n, T, T')
    teacher : array, shape (d, d'), or None

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.

    Examples
    --------
    >>> data = Dataset(np.ones((8, 2, 4)), np.ones((8, 3, 6)), np.full((8, 2, 3), 1 / 3))
    >>> data.dimension, data.sample_complexity
    (4, 0.5)
    """

    weights: ClassVar[str] = "rectangular"  # type: ignore[misc]

    queries: FloatArray
    keys: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        self._store(queries=sequences("queries", self.queries), keys=sequences("keys", self.keys))
        _same_count(self.queries, self.keys)
        self._check(len(self.queries))

    @property
    def sequences(self) -> Sequences:
        """The queries and the keys."""
        return self.queries, self.keys


def _same_count(queries: FloatArray, keys: FloatArray) -> None:
    if len(keys) != len(queries):
        raise ValueError(f"keys must have {len(queries)} sequences, got {len(keys)}")


@dataclass(frozen=True)
class Model(SequenceModel):
    """One layer of cross-attention with a random teacher, seen through an output channel.

    Parameters
    ----------
    dimension : int
        Dimension d of the queries; that of the keys is aspect_ratio * d.
    prior : BilinearPrior
    channel : channel of cross-attention

    Raises
    ------
    ValueError
        If ``dimension`` is below 2, or prior and channel do not belong together.

    Examples
    --------
    >>> from aimlib import cross_attention
    >>> channel = cross_attention.SoftmaxChannel(2, 3)
    >>> data = Model(20, BilinearPrior(0.5, 2.0), channel).sample(0.1, seed=1)
    >>> data.queries.shape, data.keys.shape, data.outputs.shape, data.teacher.shape
    ((40, 2, 20), (40, 3, 40), (40, 2, 3), (20, 40))
    """

    weights: ClassVar[str] = "rectangular"

    dimension: int
    prior: BilinearPrior
    channel: CrossChannel

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        pairs.match(self.prior, self.channel, weights="rectangular")

    @property
    def shapes(self) -> Shapes:
        """Tokens and dimension of queries and keys, (T, d) and (T', d')."""
        d, keys = self.prior.shape(self.dimension)
        return (self.channel.queries, d), (self.channel.keys, keys)

    def draw_teacher(self, rng: np.random.Generator) -> FloatArray:
        """Draw S, shape (d, d')."""
        return self.prior.sample(self.dimension, rng)

    def indices(self, sequences: Sequences, teacher: FloatArray) -> FloatArray:
        """Return the indices of queries and keys, shape (n, T, T')."""
        queries, keys = sequences
        return indices(queries, keys, teacher)

    def sample(self, sample_complexity: float, seed: Seed) -> Dataset:
        return Dataset(*self.draw(sample_complexity, seed))


def indices(queries: ArrayLike, keys: ArrayLike, weights: ArrayLike) -> FloatArray:
    r"""Return :math:`h_{ab}=x_a^\top Sz_b/\sqrt d` (``cross_attention:indices``).

    Parameters
    ----------
    queries : array, shape (n, T, d)
    keys : array, shape (n, T', d')
    weights : array, shape (d, d')

    Returns
    -------
    array, shape (n, T, T')
        Independent in the limit, of order one when Tr(S S^T)/d is.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.

    Examples
    --------
    >>> indices(np.ones((1, 2, 4)), np.ones((1, 3, 5)), np.ones((4, 5)))[0, 0]
    array([10., 10., 10.])
    """
    x, z = sequences("queries", queries), sequences("keys", keys)
    s = check.reals("weights", weights)
    if s.shape != (x.shape[2], z.shape[2]):
        raise ValueError(f"weights must have shape {(x.shape[2], z.shape[2])}, got {s.shape}")
    _same_count(x, z)
    n, t, d = x.shape
    projected = (x.reshape(n * t, d) @ s).reshape(n, t, s.shape[1])
    return np.asarray(projected @ z.transpose(0, 2, 1) / math.sqrt(d))


def weak_recovery_threshold(channel: CrossChannel, aspect_ratio: float = 1.0) -> float:
    r"""Return the threshold of :math:`\alpha/\rho` as :math:`\rho\to0`, :math:`\sqrt\psi/c(0)`.

    Below it the error stays at its value without data (``cross_attention:weak``).

    Parameters
    ----------
    channel : channel of cross-attention
    aspect_ratio : float
        :math:`\psi = d'/d > 0`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the channel is not one of cross-attention, or the ratio not positive.

    Examples
    --------
    >>> from aimlib import cross_attention
    >>> weak_recovery_threshold(cross_attention.SoftmaxChannel(2, 2))
    0.5
    """
    psi = check.positive("aspect_ratio", aspect_ratio)
    pairs.alone("channel", channel, "rectangular", "aimlib.weak_recovery_threshold")
    return float(math.sqrt(psi) / channel.information_at(1.0, 1.0))
