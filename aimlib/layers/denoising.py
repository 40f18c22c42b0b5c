"""The prior side: denoisers of single layers, and their exact joint error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from aimlib import _pairs as pairs
from aimlib import _validation as check
from aimlib._validation import FloatArray, symmetrised
from aimlib.layers.channels import LayeredChannel, MixedLinearChannel
from aimlib.priors import Prior

Scheme = Literal["combined", "separate"]

__all__ = [
    "denoising_error",
]


def denoising_error(
    noise: ArrayLike, priors: Sequence[Prior], scheme: Scheme = "combined"
) -> FloatArray:
    r"""Return :math:`V_{\ell\ell'}=\lim\frac1d\E\,\mathrm{Tr}(S_\ell-\hat S_\ell)(S_{\ell'}-\hat
    S_{\ell'})` for correlated noises.

    Parameters
    ----------
    noise : array, shape (L, L)
        Covariance :math:`\Delta` of the noises, positive definite (``layers:observation``).
    priors : sequence of Prior
        Law of each layer; the layers are independent.
    scheme : {"combined", "separate"}
        "separate" denoises every :math:`R_\ell` optimally as if it were alone (``layers:cross``).
        "combined" takes the best linear combination of all :math:`R` and all separately denoised
        matrices (``layers:combined``).  Neither is optimal in general.

    Returns
    -------
    array, shape (L, L)

    Raises
    ------
    ValueError
        If the noise is not a covariance of this size, or a prior not one of symmetric matrices.

    Examples
    --------
    >>> from aimlib import WignerPrior
    >>> noise = np.array([[1.0, 0.5], [0.5, 2.0]])
    >>> exact = np.linalg.inv(np.eye(2) + np.linalg.inv(noise))
    >>> bool(np.allclose(denoising_error(noise, [WignerPrior()] * 2), exact))
    True
    """
    laws = pairs.symmetric_priors(priors)
    delta = check.covariance("noise", noise, len(laws))
    check_scheme(scheme)
    moments = feature_moments(delta, laws)
    if scheme == "separate":
        return moments.separate_error()
    return moments.combined()[1]


def check_scheme(scheme: str, channel: LayeredChannel | None = None) -> None:
    """Raise ``ValueError`` for an unknown scheme, or one that does not fit the channel."""
    if scheme not in ("combined", "separate"):
        raise ValueError(f"scheme must be 'combined' or 'separate', got {scheme!r}")
    if scheme == "separate" and not (channel is None or isinstance(channel, MixedLinearChannel)):
        raise ValueError(
            f"scheme must be 'combined' unless the channel is linear, got {scheme!r}: the output "
            "function needs errors that are not correlated with the estimates"
        )


@dataclass(frozen=True)
class FeatureMoments:
    """Second moments of the centred R_1, ..., R_L, D_1, ..., D_L, and those with the layers."""

    gram: FloatArray  # (2L, 2L)
    target: FloatArray  # (2L, L)
    variances: FloatArray  # (L,)

    def separate_error(self) -> FloatArray:
        """E (S - D)(S - D)^T; D_l and S_l' are uncorrelated for different layers."""
        count = self.variances.size
        denoised = self.gram[count:, count:]
        own = np.diag(self.variances - 2.0 * np.diag(self.target[count:]))
        return symmetrised(denoised + own)

    def combined(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (2L, L) of the best linear combination, and its error."""
        scale = 1.0 / np.sqrt(np.maximum(np.diag(self.gram), 1e-300))
        gram = self.gram * np.outer(scale, scale)
        scaled = scale[:, None] * self.target
        # R and D are collinear for a Gaussian prior: least squares of smallest norm
        weights = np.linalg.lstsq(gram, scaled, rcond=1e-11)[0]
        error = np.diag(self.variances) - symmetrised(scaled.T @ weights)
        return scale[:, None] * weights, error


def feature_moments(delta: FloatArray, priors: Sequence[Prior]) -> FeatureMoments:
    """Return the second moments of all R and D for the covariance ``delta`` of the noises."""
    count = len(priors)
    noises = np.diag(delta)
    variances = np.array([law.variance for law in priors])
    errors = np.array([float(law.mmse(float(x))) for law, x in zip(priors, noises, strict=True)])
    known = variances - errors
    gram, target = np.zeros((2 * count, 2 * count)), np.zeros((2 * count, count))
    gram[:count, :count] = np.diag(variances) + delta
    # a denoiser sees the noise of another layer through its slope, mmse/Delta
    crossed = delta * (errors / noises) + np.diag(variances - errors)
    gram[:count, count:], gram[count:, :count] = crossed, crossed.T
    components = [noise_components(law, float(x)) for law, x in zip(priors, noises, strict=True)]
    gram[count:, count:] = np.diag(known)
    for i in range(count):
        for j in range(i):
            ratio = delta[i, j] / math.sqrt(noises[i] * noises[j])
            powers = ratio ** np.arange(1, _COMPONENTS + 1)
            value = float(np.sum(powers * components[i] * components[j]))
            gram[count + i, count + j] = gram[count + j, count + i] = value
    target[:count], target[count:] = np.diag(variances), np.diag(known)
    return FeatureMoments(gram, target, variances)


_COMPONENTS = 60  # Chebyshev components of a denoiser that are kept
_NODES_OF_BULK = 240


def noise_components(prior: Prior, noise: float) -> FloatArray:
    r"""Return :math:`F_k`, k = 1, ..., 60 of the optimal denoiser (``layers:components``).

    They are the coefficients of E[D(R) | N] in Chebyshev polynomials of the second kind, to
    rounding for most noises, to 1e-3 of the largest where two bulks are about to merge.
    """
    edges = np.asarray(prior.support(noise)).reshape(-1, 2)
    # double exponential: at rho = 1 and little noise the bulk has a narrow layer at its edge
    t = np.linspace(-3.1, 3.1, _NODES_OF_BULK)
    place = np.tanh(0.5 * math.pi * np.sinh(t))
    density = 0.5 * math.pi * np.cosh(t) / np.cosh(0.5 * math.pi * np.sinh(t)) ** 2
    middle, half = edges.mean(axis=1), 0.5 * (edges[:, 1] - edges[:, 0])
    x = middle[:, None] + half[:, None] * place
    weight = half[:, None] * density * (t[1] - t[0])
    g = np.asarray(prior.resolvent(x.ravel(), noise))
    denoised = x.ravel() - 2.0 * noise * g.real - prior.mean_eigenvalue
    small = math.sqrt(noise) * g
    power, components = small.copy(), np.empty(_COMPONENTS)
    for k in range(_COMPONENTS):
        power = power * small
        components[k] = np.sum(weight.ravel() * denoised * power.imag)
    return -components / (math.pi * math.sqrt(noise))
