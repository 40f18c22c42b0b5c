"""Message passing for several layers, with the denoisers of single ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from aimlib import _pairs as pairs
from aimlib._cluster import over
from aimlib._datasets import SequenceData
from aimlib._iteration import AMPResult, Callback, Denoised, Observation, iterate
from aimlib._shrinkage import denoise_symmetric
from aimlib._validation import FloatArray
from aimlib.amp import symmetric_pass
from aimlib.layers.channels import LayeredChannel
from aimlib.layers.denoising import Scheme, check_scheme, feature_moments
from aimlib.layers.evolution import second_moments
from aimlib.priors import Prior

__all__ = ["amp"]


def amp(
    dataset: SequenceData,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    *,
    scheme: Scheme = "combined",
    iterations: int = 100,
    tolerance: float = 1e-5,
    damping: float | None = 0.3,
    callback: Callback | None = None,
    progress: bool = False,
    client: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> AMPResult:
    r"""Estimate all layers by message passing with single-layer denoisers (``layers:iteration``).

    Parameters
    ----------
    dataset : layers.Dataset or StreamedDataset
        The teacher, if there is one, is used for ``estimation_error`` only.
    priors : sequence of Prior
        Law of each layer.
    channel : MixedLinearChannel or DeepSoftmaxChannel
    scheme : {"combined", "separate"}
        See :func:`denoising_error`.
    iterations : int
        Most iterations to do.
    tolerance : float
        Converged when the undamped step of every layer, squared and over d, is at most this share
        of the variance of its prior.
    damping : float or None
        Share of the old estimate that is kept, in [0, 1); None adapts it as in
        :func:`aimlib.amp`.
    callback, progress, client, checkpoint
        As in :func:`aimlib.amp`.

    Returns
    -------
    AMPResult
        ``estimate`` has shape (L, d, d), ``estimation_error`` (L,), ``predicted_error`` (L, L).

    Raises
    ------
    ValueError
        If data set, priors and channel do not belong together, an argument is out of range, or the
        channel does not fit the data; and as :func:`aimlib.amp` for ``client`` and ``checkpoint``.

    Examples
    --------
    >>> from aimlib import WignerPrior, layers
    >>> channel = layers.MixedLinearChannel([[1.0, 0.5], [0.5, 1.0]], noise=0.1)
    >>> priors = [WignerPrior()] * 2
    >>> data = layers.Model(30, priors, channel).sample(0.8, seed=1)
    >>> result = layers.amp(data, priors, channel)
    >>> result.status, result.estimate.shape, bool(result.estimation_error.max() < 0.3)
    ('converged', (2, 30, 30), True)
    """
    laws = pairs.match_layers(priors, channel, ("dataset", dataset))
    check_scheme(scheme, channel)
    pairs.match_tokens(channel, dataset, (channel.tokens,))
    known = None if dataset.teacher is None else len(dataset.teacher)
    if known not in (None, channel.layers):
        raise ValueError(
            f"channel must have the {known} layers of the dataset, got {channel.layers}"
        )
    return iterate(
        LayeredProblem(dataset, laws, channel, scheme, client),
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        relative_down_to=1.0,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )


class LayeredProblem:
    """L symmetric matrices behind one channel of all their indices."""

    def __init__(
        self,
        dataset: SequenceData,
        laws: list[Prior],
        channel: LayeredChannel,
        scheme: Scheme,
        client: Any = None,
    ) -> None:
        self.laws, self.channel, self.scheme = laws, channel, scheme
        self.total = over(dataset, client)
        self.start = np.stack([law.mean_eigenvalue * np.eye(dataset.dimension) for law in laws])
        self.teacher = dataset.teacher
        self.variances = np.array([law.variance for law in laws])
        self.second_moment = float(second_moments(laws).max())
        self.coordinate_variance = pairs.coordinate_variance(laws[0])
        freedom = sum(law.degrees_of_freedom for law in laws) * dataset.dimension**2
        self.parameters = freedom / self.coordinate_variance
        shape = (len(dataset.outputs), len(laws), channel.tokens, channel.tokens)
        self.g = np.zeros(shape)
        self.identity = (*dataset.identity, laws, channel, scheme)

    def observe(self, estimate: FloatArray, reaction: FloatArray, error: FloatArray) -> Observation:
        """One pass over the tokens, with the response that the outputs themselves show."""
        step = partial(_joint_pass, self.channel)
        fields, squares, response = self.total(step, self.g, estimate, reaction, error)
        return Observation(fields, squares, response / estimate.shape[1])

    def denoise(self, observed: FloatArray, noise: FloatArray) -> Denoised:
        """Denoise each layer by itself, and mix linearly if the scheme is "combined"."""
        count, d = observed.shape[:2]
        found = [
            denoise_symmetric(matrix, float(delta), law, "tangent")
            for matrix, delta, law in zip(observed, np.diag(noise), self.laws, strict=True)
        ]
        denoised = np.stack([pair[0] for pair in found])
        slopes = np.array([pair[1] for pair in found])
        moments = feature_moments(noise, self.laws)
        if self.scheme == "separate":
            return Denoised(denoised, np.diag(slopes), moments.separate_error())
        coefficients, error = moments.combined()
        features = np.concatenate([observed - self.start, denoised - self.start])
        estimate = self.start + np.einsum("fl,fij->lij", coefficients, features)
        raw, shrunk = coefficients[:count].T, coefficients[count:].T
        return Denoised(estimate, raw * (0.5 * d * (d + 1)) + shrunk * slopes, error)

    def can_recover(self) -> bool:
        """Whether an output still says something when its indices are nearly known."""
        small = 1e-6 * np.diag(self.variances)
        gamma = self.channel.information(small, second_moments(self.laws))
        return bool(np.trace(gamma @ small) > 1e-3)


def _joint_pass(
    channel: LayeredChannel,
    dataset: SequenceData,
    g: FloatArray,
    estimate: FloatArray,
    reaction: FloatArray,
    error: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    response = np.zeros_like(error)

    def output(rows: slice, omega: FloatArray) -> FloatArray:
        block, part = channel.output_function(dataset.outputs[rows], omega, error)
        response[...] += part
        return block

    return *symmetric_pass(dataset, estimate, reaction, g, output), response
