r"""The attention-indexed model: teacher, tokens, indices and outputs.

A data set is made of :math:`n = \alpha d^2` sequences of :math:`T` Gaussian tokens
:math:`x_a \in \mathbb{R}^d`.  One matrix :math:`S` turns each into its attention indices
(``model:indices``)

.. math:: h_{ab} = \frac{x_a^\top S x_b - \delta_{ab}\,\mathrm{Tr}\,S}{\sqrt d},

and an output channel turns the indices into what the student sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._datasets import (
    Dataset,
    Seed,
    SequenceModel,
    Sequences,
    StreamedDataset,
    sequences,
)
from aimlib._validation import FloatArray
from aimlib.channels import Channel
from aimlib.priors import Prior

__all__ = [
    "TOKEN_LAWS",
    "AttentionIndexedModel",
    "Dataset",
    "StreamedDataset",
    "attention_indices",
    "estimation_error",
]

TokenLaw = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def _gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_normal(shape)


def _rademacher(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return np.asarray(2.0 * rng.integers(0, 2, size=shape) - 1.0)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), size=shape)


def _student(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    freedom = 10.0
    draws = rng.standard_t(freedom, size=shape)
    return np.asarray(draws * math.sqrt((freedom - 2.0) / freedom))


TOKEN_LAWS: dict[str, TokenLaw] = {
    "gaussian": _gaussian,
    "rademacher": _rademacher,
    "uniform": _uniform,
    "student": _student,
}
"""Laws of independent entries with mean 0 and variance 1; "student" has 10 degrees of freedom."""


@dataclass(frozen=True)
class AttentionIndexedModel(SequenceModel):
    """One layer of attention with a random teacher, seen through an output channel.

    Parameters
    ----------
    dimension : int
        Embedding dimension d.
    prior : Prior
        Law of the teacher S.
    channel : Channel
        From attention indices to outputs.
    token_law : str
        Law of the token entries, a key of :data:`TOKEN_LAWS`.  The theory is for "gaussian".

    Raises
    ------
    ValueError
        If an argument is out of range, or prior and channel do not belong together.

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(30, WishartPrior(0.5), SoftmaxChannel(tokens=2))
    >>> data = model.sample(0.1, seed=1)
    >>> data.tokens.shape, data.outputs.shape
    ((90, 2, 30), (90, 2, 2))
    """

    weights: ClassVar[str] = "symmetric"

    dimension: int
    prior: Prior
    channel: Channel
    token_law: str = "gaussian"

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        pairs.match(self.prior, self.channel, weights="symmetric")
        if self.token_law not in TOKEN_LAWS:
            raise ValueError(
                f"token_law must be one of {sorted(TOKEN_LAWS)}, got {self.token_law!r}"
            )

    def draw_teacher(self, rng: np.random.Generator) -> FloatArray:
        """Draw S, shape (d, d)."""
        return self.prior.sample(self.dimension, rng)

    def draw_sequences(self, rngs: list[np.random.Generator], count: int) -> Sequences:
        """Draw the tokens of ``count`` sequences, shape (count, T, d)."""
        return (TOKEN_LAWS[self.token_law](rngs[0], (count, self.channel.tokens, self.dimension)),)

    def indices(self, sequences: Sequences, teacher: FloatArray) -> FloatArray:
        """Return the attention indices, shape (n, T, T)."""
        return matrix_indices(sequences[0], teacher)

    def sample(self, sample_complexity: float, seed: Seed) -> Dataset:
        return Dataset(*self.draw(sample_complexity, seed))


def attention_indices(tokens: ArrayLike, weights: ArrayLike) -> FloatArray:
    r"""Return the attention indices of every sequence (``model:indices``).

    Parameters
    ----------
    tokens : array, shape (n, T, d)
    weights : array, shape (d, d) or (L, d, d)
        One symmetric matrix, or one for each layer.

    Returns
    -------
    array, shape (n, T, T) or (n, L, T, T)
        Symmetric in the last two axes; of order one when the spectrum of ``weights`` is.

    Raises
    ------
    ValueError
        If the shapes do not agree, an entry is not finite or a matrix is not symmetric.

    Examples
    --------
    >>> attention_indices(np.ones((1, 2, 4)), np.eye(4))[0]
    array([[0., 2.],
           [2., 0.]])
    """
    x = sequences("tokens", tokens)
    stack = check.reals("weights", weights)
    layers = [check.symmetric_matrix("weights", s) for s in (stack if stack.ndim == 3 else [stack])]
    d = x.shape[2]
    for s in layers:
        if s.shape[0] != d:
            raise ValueError(f"weights must have shape {(d, d)}, got shape {s.shape}")
    found = [matrix_indices(x, s) for s in layers]
    return np.stack(found, axis=1) if stack.ndim == 3 else found[0]


def matrix_indices(x: FloatArray, s: FloatArray) -> FloatArray:
    """Return the indices of tokens (n, T, d) and one symmetric matrix, which are not checked."""
    n, t, d = x.shape
    # one (nT x d)(d x d) product carries all the work; the T x T blocks are cheap beside it
    projected = (x.reshape(n * t, d) @ s).reshape(n, t, d)
    indices = projected @ x.transpose(0, 2, 1)
    indices = 0.5 * (indices + indices.transpose(0, 2, 1))
    indices[:, np.arange(t), np.arange(t)] -= np.trace(s)
    return np.asarray(indices / math.sqrt(d))


def estimation_error(estimate: ArrayLike, teacher: ArrayLike) -> float:
    r"""Return :math:`\|S-\hat S\|_F^2/d`, 1 at the best constant estimate of a Wishart S.

    Parameters
    ----------
    estimate, teacher : array, shape (d, d)

    Raises
    ------
    ValueError
        If a matrix is not square and symmetric or the shapes differ.

    Examples
    --------
    >>> estimation_error(np.eye(3), np.zeros((3, 3)))
    1.0
    """
    ours = check.symmetric_matrix("estimate", estimate)
    theirs = check.symmetric_matrix("teacher", teacher)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"estimate must have the shape of teacher, {theirs.shape}, got {ours.shape}"
        )
    return float(np.sum((ours - theirs) ** 2) / ours.shape[0])
