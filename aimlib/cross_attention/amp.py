"""Message passing for untied weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.amp import AMPResult, Problem, iterate, shrink, shrink_slopes
from aimlib.cross_attention.channels import CrossChannel
from aimlib.cross_attention.model import CrossDataset, _check_model
from aimlib.cross_attention.prior import BilinearPrior

_BLOCK_BYTES = 1 << 20  # tokens of one block: small enough for the cache

__all__ = [
    "cross_attention_amp",
]


def cross_attention_amp(
    dataset: CrossDataset,
    prior: BilinearPrior,
    channel: CrossChannel,
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
    damping: float | None = None,
    callback: Callable[[int, dict[str, float]], object] | None = None,
    progress: bool = False,
) -> AMPResult:
    r"""Estimate untied weights by approximate message passing (``cross_attention:iteration``).

    The iteration of :func:`aimlib.amp` with its defaults: measured noise and reaction, the
    denoiser continued along its tangent outside the bulk, damping that adapts.  One thing differs:
    damping that has to rise again and again falls ever more slowly, and comes to rest.

    Parameters
    ----------
    dataset : CrossDataset
        The teacher, if there is one, is used for ``estimation_error`` only.
    prior : BilinearPrior
    channel : cross-attention channel
    iterations, tolerance, damping, callback, progress
        As in :func:`aimlib.amp`.

    Returns
    -------
    AMPResult
        ``estimate`` has shape (d, d').

    Raises
    ------
    TypeError
        If the prior is not a BilinearPrior or the channel not one of cross-attention.
    ValueError
        If an argument is out of range, the channel does not fit the outputs, or the aspect ratio
        of the prior not the dimensions of the tokens.

    Examples
    --------
    >>> prior, channel = BilinearPrior(0.5), CrossSoftmaxChannel(2, 2)
    >>> data = CrossAttentionModel(40, prior, channel).sample(0.7, seed=1)
    >>> result = cross_attention_amp(data, prior, channel)
    >>> result.status, result.estimation_error < 1e-6
    ('converged', True)
    """
    if not isinstance(dataset, CrossDataset):
        raise TypeError(f"dataset must be a CrossDataset, got {type(dataset)!r}")
    _check_model(prior, channel)
    shape = (dataset.queries.shape[2], dataset.keys.shape[2])
    if prior.shape(shape[0]) != shape:
        raise ValueError(
            f"prior must have the aspect ratio of the dataset, {shape[1]}/{shape[0]}, "
            f"got {prior.aspect_ratio!r}"
        )
    if dataset.outputs.shape[1:] != (channel.queries, channel.keys):
        raise ValueError(
            f"channel must have the {dataset.outputs.shape[1:]} queries and keys of the dataset, "
            f"got {(channel.queries, channel.keys)}"
        )

    def sweep(
        estimate: FloatArray, reaction: float, variance: float, g: FloatArray
    ) -> tuple[FloatArray, float]:
        return _pass(dataset, channel, estimate, reaction, variance, g)

    problem = Problem(
        prior=prior,
        channel=channel,
        start=np.zeros(shape),
        outputs_shape=dataset.outputs.shape,
        teacher=dataset.teacher,
        sweep=sweep,
        denoise=lambda observed, delta: _denoise(observed, delta, prior),
    )
    return iterate(
        problem,
        iterations=iterations,
        tolerance=tolerance,
        damping=damping,
        settle=0.5,
        callback=callback,
        progress=progress,
    )


def _pass(
    dataset: CrossDataset,
    channel: CrossChannel,
    estimate: FloatArray,
    reaction: float,
    variance: float,
    g: FloatArray,
) -> tuple[FloatArray, float]:
    """Update g in place; return sum of g Z, shape (d, d'), and the sum of g^2."""
    n, t, d = dataset.queries.shape
    total, squares = np.zeros_like(estimate), 0.0
    size = max(_BLOCK_BYTES // (8 * (t * d + dataset.keys[0].size)), 64)
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        x, z = dataset.queries[rows], dataset.keys[rows]
        flat = x.reshape(-1, d)
        projected = (flat @ estimate).reshape(x.shape[0], t, -1)
        omega = projected @ z.transpose(0, 2, 1) / math.sqrt(d) - reaction * g[rows]
        block = (channel.posterior_mean(dataset.outputs[rows], omega, variance) - omega) / variance
        g[rows] = block
        squares += float(np.sum(block * block))
        total += flat.T @ (block @ z).reshape(-1, estimate.shape[1])
    return total / math.sqrt(d), squares


def _denoise(observed: FloatArray, delta: float, prior: BilinearPrior) -> tuple[FloatArray, float]:
    """Return D(R) and its divergence (cross_attention:divergence)."""
    left, lam, right = np.linalg.svd(observed, full_matrices=False)
    values = shrink(lam, delta, prior, "tangent")
    slopes = shrink_slopes(lam, delta, prior, "tangent")
    excess = abs(observed.shape[0] - observed.shape[1])
    return np.asarray((left * values) @ right), _divergence(lam, values, slopes, excess)


@njit
def _divergence(lam: np.ndarray, values: np.ndarray, slopes: np.ndarray, excess: int) -> float:
    """Sum of D', of |d - d'| D/lambda and, over pairs, of 2 (lD - mD')/(l^2 - m^2)."""
    total = 0.0
    for i in range(lam.size):
        ratio = values[i] / lam[i] if lam[i] > 0.0 else slopes[i]
        total += slopes[i] + excess * ratio
        for j in range(i):
            gap = (lam[j] - lam[i]) * (lam[j] + lam[i])
            if gap > 1e-13 * lam[0] * lam[0]:
                total += 2.0 * (lam[j] * values[j] - lam[i] * values[i]) / gap
            else:
                total += slopes[i] + ratio
    return total
