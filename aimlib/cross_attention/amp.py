"""Message passing for untied weights."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import numpy as np

from aimlib import _pairs as pairs
from aimlib._cluster import over
from aimlib._datasets import SequenceData
from aimlib._iteration import AMPResult, Callback, Denoised, Observation, iterate
from aimlib._shrinkage import denoise_rectangular
from aimlib._validation import FloatArray
from aimlib.cross_attention.channels import CrossChannel
from aimlib.cross_attention.prior import BilinearPrior

__all__ = ["amp"]


def amp(
    dataset: SequenceData,
    prior: BilinearPrior,
    channel: CrossChannel,
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
    damping: float | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    client: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> AMPResult:
    r"""Estimate untied weights by approximate message passing (``cross_attention:iteration``).

    The iteration of :func:`aimlib.amp` with its defaults: measured noise and reaction, the
    denoiser continued along its tangent outside the bulk, damping that adapts.  One thing differs:
    damping that has to rise again and again falls ever more slowly, and comes to rest.

    Parameters
    ----------
    dataset : cross_attention.Dataset or StreamedDataset
        The teacher, if there is one, is used for ``estimation_error`` only.
    prior : BilinearPrior
    channel : channel of cross-attention
    iterations, tolerance, damping, callback, progress, client, checkpoint
        As in :func:`aimlib.amp`.

    Returns
    -------
    AMPResult
        ``estimate`` has shape (d, d').

    Raises
    ------
    ValueError
        If data set, prior and channel do not belong together, an argument is out of range, the
        channel does not fit the outputs, or the aspect ratio of the prior not the dimensions of the
        tokens; and as :func:`aimlib.amp` for ``client`` and ``checkpoint``.

    Examples
    --------
    >>> from aimlib import cross_attention
    >>> prior = cross_attention.BilinearPrior(0.5)
    >>> channel = cross_attention.SoftmaxChannel(2, 2)
    >>> data = cross_attention.Model(40, prior, channel).sample(0.7, seed=1)
    >>> result = cross_attention.amp(data, prior, channel)
    >>> result.status, result.estimation_error < 1e-6
    ('converged', True)
    """
    pairs.match(prior, channel, ("dataset", dataset), weights="rectangular")
    pairs.match_tokens(channel, dataset, (channel.queries, channel.keys))
    shape = (dataset.shapes[0][1], dataset.shapes[1][1])
    if prior.shape(shape[0]) != shape:
        raise ValueError(
            f"prior must have the aspect ratio of the dataset, {shape[1]}/{shape[0]}, "
            f"got {prior.aspect_ratio!r}"
        )
    return iterate(
        RectangularProblem(dataset, prior, channel, client),
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        annealing=0.5,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )


class RectangularProblem:
    """One rectangular matrix behind a channel of its indices."""

    def __init__(
        self,
        dataset: SequenceData,
        prior: BilinearPrior,
        channel: CrossChannel,
        client: Any = None,
    ) -> None:
        self.prior, self.channel = prior, channel
        self.total = over(dataset, client)
        self.start = np.zeros((dataset.shapes[0][1], dataset.shapes[1][1]))
        self.teacher = dataset.teacher
        self.variances = np.array([prior.variance])
        self.second_moment = prior.second_moment
        self.coordinate_variance = pairs.coordinate_variance(prior)
        freedom = prior.degrees_of_freedom * dataset.dimension**2
        self.parameters = freedom / self.coordinate_variance
        self.g = np.zeros(dataset.outputs.shape)
        self.identity = (*dataset.identity, prior, channel)

    def observe(self, estimate: FloatArray, reaction: FloatArray, error: FloatArray) -> Observation:
        """One pass over queries and keys, with the response of the channel information."""
        variance, d = float(error[0, 0]), estimate.shape[1]
        step = partial(_bilinear_pass, self.channel)
        fields, squares = self.total(step, self.g, estimate, reaction, error)
        c = float(
            self.channel.information_at(min(variance, self.second_moment), self.second_moment)
        )
        slope = len(self.g) / d * c / variance
        return Observation(fields, squares, np.array([[slope]]))

    def denoise(self, observed: FloatArray, noise: FloatArray) -> Denoised:
        """The optimal denoiser, continued along its tangent outside the limiting support."""
        delta = float(noise[0, 0])
        estimate, divergence = denoise_rectangular(observed[0], delta, self.prior)
        predicted = np.array([[self.prior.mmse(delta)]])
        return Denoised(estimate[None], np.array([[divergence]]), predicted)

    def can_recover(self) -> bool:
        """Whether an output still says something when its indices are nearly known."""
        return float(self.channel.information_at(0.0, self.second_moment)) > 0.0


def _bilinear_pass(
    channel: CrossChannel,
    dataset: SequenceData,
    g: FloatArray,
    estimate: FloatArray,
    reaction: FloatArray,
    error: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Update g, shape (n, T, T'), in place; return sums of g Z, (1, d, d'), and of g^2, (1, 1)."""
    variance, d = float(error[0, 0]), estimate.shape[1]
    total, squares = np.zeros_like(estimate[0]), 0.0
    for rows, (x, z) in dataset.blocks():
        flat = x.reshape(-1, d)
        projected = (flat @ estimate[0]).reshape(*x.shape[:2], -1)
        omega = projected @ z.transpose(0, 2, 1) / math.sqrt(d) - reaction * g[rows]
        mean = channel.posterior_mean(dataset.outputs[rows], omega, variance)
        g[rows] = block = (mean - omega) / variance
        squares += float(np.sum(block * block))
        total += flat.T @ (block @ z).reshape(-1, estimate.shape[2])
    return (total / math.sqrt(d))[None], np.array([[squares]])
