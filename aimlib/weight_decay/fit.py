r"""The regularised estimator of a data set: accelerated proximal gradient over S >= 0.

The objective ``weight_decay:objective`` times n/(4d) is

.. math:: \frac1{4d}\sum_\mu\|P(h_\mu(S)-y_\mu)\|_F^2+\frac{\alpha\lambda}4\,\mathrm{Tr}\,S,

whose Hessian is of order one in the scalar product Tr AB.  A step goes down its gradient and
applies the proximal map of the trace, which takes a constant off the eigenvalues and sets negative
ones to zero (``weight_decay:step``).  Momentum restarts where it points uphill.  The limit of no
decay is reached exactly and not by a small factor: what a solution leaves of the data is added to
the targets (``weight_decay:add-back``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aimlib import _validation as check
from aimlib._validation import FloatArray
from aimlib.channels import Channel, LinearChannel, SoftmaxChannel
from aimlib.model import Dataset, estimation_error, matrix_indices

_ROUND = 50  # steps between two additions to the targets
_WORKING_DECAY = 0.3  # of the limit of no decay; its solution does not depend on it


@dataclass(frozen=True)
class RegularisedFit:
    """The minimiser that :func:`regularised_fit` found.

    Attributes
    ----------
    estimate : array, shape (d, d)
        S_hat, positive semi-definite.
    estimation_error : float or None
        ||S - S_hat||_F^2/d; None when the teacher is not known.
    training_loss : float
        Mean over sequences of ||P(h - y)||_F^2, without the penalty.
    rank : float
        Share of positive eigenvalues.
    residual : float
        Norm of the last proximal step over that of the estimate, or the misfit of the data over
        their norm if that is larger and there is no decay.
    iterations : int
    status : {"converged", "stalled"}
        Whether the residual is below the tolerance.
    """

    estimate: FloatArray
    estimation_error: float | None
    training_loss: float
    rank: float
    residual: float
    iterations: int
    status: Literal["converged", "stalled"]

    @property
    def converged(self) -> bool:
        """Whether status is "converged"."""
        return self.status == "converged"


class Visible:
    """The combinations of the indices that a channel shows, and their adjoint."""

    def __init__(self, dataset: Dataset, channel: Channel | None) -> None:
        tokens, d = dataset.shapes[0]
        chosen = SoftmaxChannel(tokens) if channel is None else channel
        if not isinstance(chosen, SoftmaxChannel | LinearChannel) or chosen.tokens != tokens:
            raise ValueError(
                f"channel must be a SoftmaxChannel or a LinearChannel of {tokens} tokens, as the "
                f"dataset, got {channel!r}"
            )
        chosen.validate(dataset.outputs)
        self.tokens, self.dimension = dataset.tokens, d
        self.centred = isinstance(chosen, SoftmaxChannel)
        outputs = dataset.outputs
        if self.centred:  # what is left of the indices when their one free constant is zero
            outputs = chosen.posterior_mean(outputs, np.zeros_like(outputs), 1.0)
        self.data = self.project(outputs)

    def project(self, indices: FloatArray) -> FloatArray:
        """P: take off the mean of all T^2 indices, which the softmax hides."""
        if not self.centred:
            return indices
        return np.asarray(indices - indices.mean(axis=(1, 2), keepdims=True))

    def of(self, weights: FloatArray) -> FloatArray:
        """P h(S), shape (n, T, T)."""
        return self.project(matrix_indices(self.tokens, weights))

    def gradient(self, gaps: FloatArray) -> FloatArray:
        """Gradient in S of sum ||gaps||^2/(4d), for gaps = P (h(S) - y)."""
        n, t, d = self.tokens.shape
        mixed = (gaps @ self.tokens).reshape(n * t, d)
        total = self.tokens.reshape(n * t, d).T @ mixed
        total -= np.trace(gaps, axis1=1, axis2=2).sum() * np.eye(d)
        return np.asarray(check.symmetrised(total) / (2.0 * d * math.sqrt(d)))

    def curvature(self) -> float:
        """Largest eigenvalue of the Hessian, by power iteration, rounded up."""
        s = check.symmetrised(np.random.default_rng(0).standard_normal((self.dimension,) * 2))
        norm = 0.0
        for _ in range(30):
            s = self.gradient(self.of(s / np.linalg.norm(s)))
            norm = float(np.linalg.norm(s))
        return 1.1 * norm


def regularised_fit(
    dataset: Dataset,
    channel: Channel | None = None,
    *,
    decay: float = 0.0,
    iterations: int = 4000,
    tolerance: float = 1e-6,
    initial: FloatArray | None = None,
) -> RegularisedFit:
    r"""Minimise loss plus trace penalty over :math:`S\succeq0` (``weight_decay:objective``).

    Parameters
    ----------
    dataset : Dataset
        Tokens (n, T, d) and outputs; the teacher, if known, is used for the error only.
    channel : SoftmaxChannel or LinearChannel, optional
        Softmax at inverse temperature 1 by default.
    decay : float
        :math:`\lambda \ge 0` of :math:`\lambda\,\mathrm{Tr}\,S/d`; zero asks for the matrix of
        least trace among those that fit all data.
    iterations : int
        Largest number of steps, each of two products with the tokens and an eigendecomposition.
    tolerance : float
        For ``RegularisedFit.residual``.
    initial : array, shape (d, d), optional
        Where to start, for example the solution at another decay; zero by default.

    Returns
    -------
    RegularisedFit

    Raises
    ------
    ValueError
        If an argument is out of range, or the channel does not fit the data.

    Examples
    --------
    >>> from aimlib import AttentionIndexedModel, WishartPrior
    >>> data = AttentionIndexedModel(12, WishartPrior(0.5), SoftmaxChannel(2)).sample(0.3, seed=1)
    >>> regularised_fit(data).estimation_error < 1e-8
    True
    """
    visible = Visible(dataset, channel)
    factor = check.real("decay", decay, low=0.0)
    most = check.integer("iterations", iterations, low=1)
    goal = check.real("tolerance", tolerance, low=0.0, open_low=True)
    d = dataset.dimension
    s = np.zeros((d, d))
    if initial is not None:
        s = check.symmetric_matrix("initial", initial)
        if s.shape != (d, d):
            raise ValueError(f"initial must have shape {(d, d)}, got shape {s.shape}")
    s, residual, taken = _minimise(visible, s, factor, len(dataset.tokens), most, goal)
    gaps = visible.of(s) - visible.data
    return RegularisedFit(
        estimate=s,
        estimation_error=None if dataset.teacher is None else estimation_error(s, dataset.teacher),
        training_loss=float(np.sum(gaps**2) / len(gaps)),
        rank=float(np.mean(np.linalg.eigvalsh(s) > 1e-6 * max(np.abs(s).max(), 1e-300))),
        residual=residual,
        iterations=taken,
        status="converged" if residual <= goal else "stalled",
    )


def _minimise(
    visible: Visible, s: FloatArray, decay: float, count: int, most: int, goal: float
) -> tuple[FloatArray, float, int]:
    """Return the last iterate, its residual and the number of steps."""
    step = 1.0 / visible.curvature()
    alpha = count / visible.dimension**2
    penalty = 0.25 * alpha * (decay if decay > 0.0 else _WORKING_DECAY)
    targets = visible.data
    size = float(np.linalg.norm(targets))
    ahead, momentum, residual = s, 1.0, math.inf
    for taken in range(1, most + 1):
        gaps = visible.of(ahead) - targets
        new = _shrunk(ahead - step * visible.gradient(gaps), step * penalty)
        move = new - s
        if float(np.sum((ahead - new) * move)) > 0.0:  # momentum points uphill
            momentum, ahead = 1.0, new
        else:
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            ahead = new + (momentum - 1.0) / following * move
            momentum = following
        s = new
        if taken % _ROUND == 0 or taken == most:
            # the length of a plain step from s: zero at the minimum and nowhere else
            gaps = visible.of(s) - targets
            plain = _shrunk(s - step * visible.gradient(gaps), step * penalty)
            residual = float(np.linalg.norm(plain - s)) / max(float(np.linalg.norm(s)), 1e-300)
            if decay == 0.0:
                left = visible.data - visible.of(s)
                residual = max(residual, float(np.linalg.norm(left)) / size)
                targets = targets + left
                momentum, ahead = 1.0, s
            if residual <= goal:
                return s, residual, taken
    return s, residual, most


def _shrunk(matrix: FloatArray, amount: float) -> FloatArray:
    """The proximal map of amount * Tr over S >= 0."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > amount
    part = vectors[:, kept]
    return np.asarray((part * (values[kept] - amount)) @ part.T)
