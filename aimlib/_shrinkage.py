r"""Denoising of whole matrices: the optimal shrinkage of their values, and its divergence.

The eigenvalues of a finite matrix leave the limiting support of :math:`R=S+\sqrt\Delta\,Z`, where
the limit gives no advice.  Message passing needs a continuation there, and the divergence of the
denoiser that was applied, for its reaction term (``amp:divergence``).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from aimlib._compile import njit
from aimlib._validation import FloatArray
from aimlib.priors import Denoised, Prior

Continuation = Literal["tangent", "clip", "edge", "resolvent", "empirical"]
CONTINUATIONS = ("tangent", "clip", "edge", "resolvent", "empirical")


def denoise_symmetric(
    observed: FloatArray, delta: float, prior: Prior, continuation: Continuation
) -> tuple[FloatArray, float]:
    """Return D(R) and div D: the sum of dD_ij/dR_ij over i <= j (amp:divergence)."""
    lam, vectors = np.linalg.eigh(observed)
    values, slopes = shrink_with_slopes(lam, delta, prior, continuation)
    estimate = (vectors * values) @ vectors.T
    return 0.5 * (estimate + estimate.T), _symmetric_divergence(lam, values, slopes)


def denoise_rectangular(
    observed: FloatArray, delta: float, prior: Denoised, continuation: Continuation = "tangent"
) -> tuple[FloatArray, float]:
    """Return D(R) and the sum of dD_ij/dR_ij over all entries (cross_attention:divergence)."""
    left, lam, right = np.linalg.svd(observed, full_matrices=False)
    values, slopes = shrink_with_slopes(lam, delta, prior, continuation)
    excess = abs(observed.shape[0] - observed.shape[1])
    return np.asarray((left * values) @ right), _rectangular_divergence(lam, values, slopes, excess)


def shrink_with_slopes(
    lam: FloatArray, delta: float, prior: Denoised, continuation: Continuation
) -> tuple[FloatArray, FloatArray]:
    """Return D(lambda) and D'(lambda) of the denoiser that is applied."""
    if continuation == "empirical":  # each value depends on all eigenvalues
        values = shrink(lam, delta, prior, continuation)
        return values, np.gradient(values, lam) if lam.size > 1 else np.zeros(1)
    reach = 1e-4 * math.sqrt(delta)
    points = np.concatenate([lam, lam + reach, lam - reach])
    values, above, below = shrink(points, delta, prior, continuation).reshape(3, -1)
    return values, np.asarray((above - below) / (2.0 * reach))


def shrink(
    lam: FloatArray, delta: float, prior: Denoised, continuation: Continuation
) -> FloatArray:
    """Return D(lambda) with the chosen continuation outside the support."""
    if continuation == "empirical":
        smooth = math.sqrt(2.0 * delta) * lam.size ** (-1.0 / 3.0)
        gaps = lam[:, None] - lam
        real = np.sum(gaps / (gaps * gaps + smooth * smooth), axis=1) / lam.size
        return np.asarray(lam - 2.0 * delta * real)
    if continuation == "edge" or continuation == "resolvent":
        return prior.shrink(lam, delta, continuation)
    edges = prior.support(delta).ravel()
    nearest = np.argmin(np.abs(lam[:, None] - edges), axis=1)
    inside = np.searchsorted(edges, lam) % 2 == 1
    values = prior.shrink(np.where(inside, lam, edges[nearest]), delta, "edge")
    if continuation == "tangent":
        inward = np.repeat(1e-4 * np.diff(edges)[::2], 2) * np.tile([1.0, -1.0], edges.size // 2)
        ends, near = prior.shrink(np.stack([edges, edges + inward]), delta, "edge")
        slopes = ((near - ends) / inward)[nearest]
        values = values + np.where(inside, 0.0, slopes * (lam - edges[nearest]))
    return values


@njit
def _symmetric_divergence(lam: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> float:
    """Sum of D'(lam_i) and, over pairs, of (D_i - D_j)/(lam_i - lam_j)."""
    scale = 1e-13 * (abs(lam[0]) + abs(lam[-1]))
    total = 0.0
    for i in range(lam.size):
        total += slopes[i]
        for j in range(i):
            gap = lam[i] - lam[j]
            if gap > scale:
                total += (values[i] - values[j]) / gap
            else:
                total += 0.5 * (slopes[i] + slopes[j])
    return total


@njit
def _rectangular_divergence(
    lam: np.ndarray, values: np.ndarray, slopes: np.ndarray, excess: int
) -> float:
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
