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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.channels import Channel
from aimlib.priors import Prior

__all__ = [
    "TOKEN_LAWS",
    "AttentionIndexedModel",
    "Dataset",
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
class Dataset:
    """Sequences, their outputs and, where it is known, the teacher that made them.

    Attributes
    ----------
    tokens : array, shape (n, T, d)
        Independent entries of mean 0 and variance 1.
    outputs : array, shape (n, T, T)
        What the channel shows of the attention indices.
    teacher : array, shape (d, d), or None
        The symmetric matrix S; None when it is not known.

    Raises
    ------
    ValueError
        If the shapes do not agree, or an entry is not finite.
    """

    tokens: FloatArray
    outputs: FloatArray
    teacher: FloatArray | None = None

    def __post_init__(self) -> None:
        tokens = _tokens(self.tokens)
        outputs = check.reals("outputs", self.outputs)
        n, t, d = tokens.shape
        if outputs.shape != (n, t, t):
            raise ValueError(f"outputs must have shape {(n, t, t)}, got shape {outputs.shape}")
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "outputs", outputs)
        if self.teacher is not None:
            teacher = check.symmetric_matrix("teacher", self.teacher)
            if teacher.shape != (d, d):
                raise ValueError(f"teacher must have shape {(d, d)}, got shape {teacher.shape}")
            object.__setattr__(self, "teacher", teacher)

    @property
    def dimension(self) -> int:
        """Embedding dimension d."""
        return int(self.tokens.shape[2])

    @property
    def sample_complexity(self) -> float:
        """alpha = n/d^2."""
        return float(self.tokens.shape[0] / self.tokens.shape[2] ** 2)


@dataclass(frozen=True)
class AttentionIndexedModel:
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

    Examples
    --------
    >>> from aimlib import SoftmaxChannel, WishartPrior
    >>> model = AttentionIndexedModel(30, WishartPrior(0.5), SoftmaxChannel(tokens=2))
    >>> data = model.sample(0.1, seed=1)
    >>> data.tokens.shape, data.outputs.shape
    ((90, 2, 30), (90, 2, 2))
    """

    dimension: int
    prior: Prior
    channel: Channel
    token_law: str = "gaussian"

    def __post_init__(self) -> None:
        check.integer("dimension", self.dimension, low=2)
        if self.token_law not in TOKEN_LAWS:
            raise ValueError(
                f"token_law must be one of {sorted(TOKEN_LAWS)}, got {self.token_law!r}"
            )

    def sample(
        self, sample_complexity: float, seed: int | np.random.SeedSequence | np.random.Generator
    ) -> Dataset:
        """Draw a teacher and n = round(sample_complexity * d^2) sequences with their outputs.

        Parameters
        ----------
        sample_complexity : float
            alpha > 0, large enough for at least one sequence.
        seed : int, SeedSequence or Generator
            The only source of randomness.  Teacher, tokens and channel noise have independent
            streams, so that the teacher does not depend on ``sample_complexity``.

        Returns
        -------
        Dataset
        """
        alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
        d, count = self.dimension, self.channel.tokens
        n = round(alpha * d * d)
        if n < 1:
            raise ValueError(
                f"sample_complexity must be at least 0.5/dimension^2 = {0.5 / d**2:g}, "
                f"got {alpha!r}"
            )
        teacher_rng, token_rng, noise_rng = check.generator("seed", seed).spawn(3)
        teacher = self.prior.sample(d, teacher_rng)
        tokens = TOKEN_LAWS[self.token_law](token_rng, (n, count, d))
        outputs = self.channel.output(attention_indices(tokens, teacher), noise_rng)
        return Dataset(tokens, outputs, teacher)


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

    Examples
    --------
    >>> attention_indices(np.ones((1, 2, 4)), np.eye(4))[0]
    array([[0., 2.],
           [2., 0.]])
    """
    x = _tokens(tokens)
    stack = check.reals("weights", weights)
    if stack.ndim == 3:
        return np.stack([attention_indices(x, layer) for layer in stack], axis=1)
    s = check.symmetric_matrix("weights", stack)
    n, t, d = x.shape
    if s.shape[0] != d:
        raise ValueError(f"weights must have shape {(d, d)}, got shape {s.shape}")
    # one (nT x d)(d x d) product carries all the work; the T x T blocks are cheap beside it
    projected = (x.reshape(n * t, d) @ s).reshape(n, t, d)
    indices = projected @ x.transpose(0, 2, 1)
    indices = 0.5 * (indices + indices.transpose(0, 2, 1))
    indices[:, np.arange(t), np.arange(t)] -= np.trace(s)
    return np.asarray(indices / math.sqrt(d))


def estimation_error(estimate: ArrayLike, teacher: ArrayLike) -> float:
    r"""Return :math:`\|S-\hat S\|_F^2/d`: 1 for the best constant estimate of a Wishart teacher.

    Parameters
    ----------
    estimate, teacher : array, shape (d, d)

    Raises
    ------
    ValueError
        If a matrix is not square and symmetric or the shapes differ.
    """
    ours = check.symmetric_matrix("estimate", estimate)
    theirs = check.symmetric_matrix("teacher", teacher)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"estimate must have the shape of teacher, {theirs.shape}, got {ours.shape}"
        )
    return float(np.sum((ours - theirs) ** 2) / ours.shape[0])


def _tokens(value: Any) -> FloatArray:
    tokens = check.reals("tokens", value)
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(f"tokens must have shape (n, T, d), got shape {tokens.shape}")
    return tokens
