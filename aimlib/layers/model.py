"""The model of several layers: teachers, tokens and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._datasets import HeldData, Seed, SequenceModel, Sequences, sequences
from aimlib._validation import FloatArray
from aimlib.layers.channels import LayeredChannel
from aimlib.model import attention_indices
from aimlib.priors import Prior

__all__ = ["Dataset", "Model"]


@dataclass(frozen=True)
class Dataset(HeldData):
    """Sequences, their outputs and, where it is known, the teacher: the weights of L layers.

    Attributes
    ----------
    tokens : array, shape (n, T, d)
        Independent entries of mean 0 and variance 1.
    outputs : array, shape (n, ...)
        What the channel shows of the indices of all layers.
    teacher : array, shape (L, d, d), or None
        Symmetric matrices.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.

    Examples
    --------
    >>> data = Dataset(np.ones((8, 2, 4)), np.ones((8, 2, 2)), np.zeros((3, 4, 4)))
    >>> data.layers, data.sample_complexity
    (3, 0.5)
    """

    weights: ClassVar[str] = "layered"  # type: ignore[misc]

    tokens: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        self._store(tokens=sequences("tokens", self.tokens))
        self._check(len(self.tokens))

    @property
    def sequences(self) -> Sequences:
        """The tokens alone."""
        return (self.tokens,)

    @property
    def layers(self) -> int | None:
        """Number of layers L of the teacher; None when it is not known."""
        return None if self.teacher is None else int(self.teacher.shape[0])


@dataclass(frozen=True)
class Model(SequenceModel):
    """Several layers of attention with random teachers, seen through an output channel.

    Parameters
    ----------
    dimension : int
        Embedding dimension d.
    priors : sequence of Prior
        Law of each layer; the layers are independent.
    channel : MixedLinearChannel or DeepSoftmaxChannel

    Raises
    ------
    ValueError
        If ``dimension`` is below 2, or priors and channel do not belong together.

    Examples
    --------
    >>> from aimlib import WishartPrior, layers
    >>> channel = layers.MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    >>> data = layers.Model(10, [WishartPrior(0.5)] * 2, channel).sample(0.2, seed=0)
    >>> data.tokens.shape, data.outputs.shape, data.teacher.shape
    ((20, 1, 10), (20, 2, 1, 1), (2, 10, 10))
    """

    weights: ClassVar[str] = "layered"

    dimension: int
    priors: Sequence[Prior]
    channel: LayeredChannel

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        laws = pairs.match_layers(self.priors, self.channel)
        check.store(self, priors=tuple(laws))

    def draw_teacher(self, rng: np.random.Generator) -> FloatArray:
        """Draw the layers, shape (L, d, d)."""
        return np.stack([law.sample(self.dimension, rng) for law in self.priors])

    def indices(self, sequences: Sequences, teacher: FloatArray) -> FloatArray:
        """Return the indices of all layers, shape (n, L, T, T)."""
        return attention_indices(sequences[0], teacher)

    def sample(self, sample_complexity: float, seed: Seed) -> Dataset:
        return Dataset(*self.draw(sample_complexity, seed))


def sample_layers(
    dimension: int, priors: Any, channel: Any, sample_complexity: float, seed: Any
) -> Dataset:
    """Draw data as the last release did; now ``Model(dimension, priors, channel).sample(...)``."""
    return Model(dimension, priors, channel).sample(sample_complexity, seed)
