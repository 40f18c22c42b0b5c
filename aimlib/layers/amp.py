"""State evolution and message passing for several layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aimlib import _validation as check
from aimlib._training import errors_of
from aimlib._validation import FloatArray
from aimlib.amp import _contract, _denoise
from aimlib.layers.channels import LayeredChannel, MixedLinearChannel, _symmetric
from aimlib.layers.data import LayeredDataset, _check_channel, _check_dataset, _priors
from aimlib.layers.denoising import Scheme, _check_scheme, _moments, denoising_error
from aimlib.priors import Prior

__all__ = [
    "LayeredAMPResult",
    "layered_amp",
    "layered_state_evolution",
    "second_moments",
]


def layered_state_evolution(
    sample_complexity: float,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    iterations: int = 50,
    scheme: Scheme = "combined",
) -> FloatArray:
    r"""Return the error matrices :math:`V_t` of message passing (``layers:state-evolution``).

    .. math:: \Delta_t = \frac{\Gamma(V_t)^{-1}}{2\alpha},\qquad V_{t+1} = \mathcal V(\Delta_t).

    Parameters
    ----------
    sample_complexity : float
        alpha > 0.
    priors : sequence of Prior
    channel : MixedLinearChannel or DeepSoftmaxChannel
    iterations : int
        Number of steps, at least 1.
    scheme : {"combined", "separate"}
        See :func:`denoising_error`; "separate" needs a linear channel, for which the errors alone
        decide.

    Returns
    -------
    array, shape (iterations + 1, L, L)
        Constant from where an eigenvalue falls below 1e-10, or a step below 1e-14.
    """
    alpha = check.real("sample_complexity", sample_complexity, low=0.0, open_low=True)
    steps = check.integer("iterations", iterations, low=1)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    _check_scheme(scheme)
    _check_linear(channel, scheme)
    moments = second_moments(laws)
    v = np.empty((steps + 1, len(laws), len(laws)))
    v[0] = np.diag([law.variance for law in laws])
    for t in range(steps):
        settled = t > 0 and np.abs(v[t] - v[t - 1]).max() < 1e-14
        if settled or np.linalg.eigvalsh(v[t])[0] < 1e-10:
            v[t + 1 :] = v[t]
            break
        conjugate = 2.0 * alpha * channel.information(v[t], moments)
        v[t + 1] = denoising_error(_invert_response(conjugate), laws, scheme)
    return v


def second_moments(priors: Sequence[Prior]) -> FloatArray:
    r"""Return :math:`Q_{\ell\ell'}=\lim\mathrm{Tr}\,S_\ell S_{\ell'}/d` of independent layers."""
    means = np.array([law.mean_eigenvalue for law in priors])
    return np.asarray(np.outer(means, means) + np.diag([law.variance for law in priors]))


def _invert_response(matrix: FloatArray) -> FloatArray:
    """Inverse of a response; directions that are not seen get a large noise."""
    values, vectors = np.linalg.eigh(_symmetric(matrix))
    if values[-1] <= 0.0:
        raise ValueError(f"the response must have a positive eigenvalue, got {matrix!r}")
    return np.asarray((vectors / np.maximum(values, 1e-9 * values[-1])) @ vectors.T)


def _check_linear(channel: LayeredChannel, scheme: str) -> None:
    if scheme == "separate" and not isinstance(channel, MixedLinearChannel):
        raise ValueError(
            f"scheme must be 'combined' unless the channel is linear, got {scheme!r}: the output "
            "function needs errors that are not correlated with the estimates"
        )


@dataclass(frozen=True)
class LayeredAMPResult:
    """Where message passing for several layers ended, and how it got there.

    Attributes
    ----------
    estimates : array, shape (L, d, d)
    errors : array, shape (L,)
        ||S_l - estimate_l||_F^2/d of each layer.
    predicted : array, shape (L, L)
        The error matrix that the algorithm claims, from its measured noise.
    status : {"converged", "stalled", "diverged"}
        As for :class:`aimlib.AMPResult`.
    iterations : int
    history : dict of str to array
        "errors", shape (iterations, L), and "predicted", shape (iterations, L, L).
    """

    estimates: FloatArray
    errors: FloatArray
    predicted: FloatArray
    status: Literal["converged", "stalled", "diverged"]
    iterations: int
    history: dict[str, FloatArray]


def layered_amp(
    dataset: LayeredDataset,
    priors: Sequence[Prior],
    channel: LayeredChannel,
    *,
    scheme: Scheme = "combined",
    iterations: int = 100,
    tolerance: float = 1e-5,
    damping: float = 0.3,
) -> LayeredAMPResult:
    r"""Estimate all layers by message passing with single-layer denoisers (``layers:iteration``).

    Parameters
    ----------
    dataset : LayeredDataset
        The teachers are used for the reported errors only.
    priors : sequence of Prior
    channel : MixedLinearChannel or DeepSoftmaxChannel
    scheme : {"combined", "separate"}
        See :func:`denoising_error`.
    iterations : int
        Most iterations to do.
    tolerance : float
        Converged when the undamped step of every layer, squared and over d, is at most this share
        of the variance of its prior.
    damping : float
        Share of the old estimate that is kept, in [0, 1).

    Returns
    -------
    LayeredAMPResult

    Raises
    ------
    ValueError
        If an argument is out of range or the channel does not fit the data.
    """
    _check_dataset(dataset)
    _check_channel(channel)
    laws = _priors(priors, channel.layers)
    _check_scheme(scheme)
    _check_linear(channel, scheme)
    most = check.integer("iterations", iterations, low=1)
    tol = check.real("tolerance", tolerance, low=0.0, open_low=True)
    keep = check.real("damping", damping, low=0.0, high=1.0, open_high=True)
    if dataset.layers != channel.layers or dataset.tokens.shape[1] != channel.tokens:
        raise ValueError(
            f"channel must have {dataset.layers} layers and {dataset.tokens.shape[1]} tokens as "
            f"the dataset, got {channel.layers} and {channel.tokens}"
        )
    d, count = dataset.dimension, len(laws)
    variances = np.array([law.variance for law in laws])
    estimates = np.stack([law.mean_eigenvalue * np.eye(d) for law in laws])
    covariance, reaction = np.diag(variances), np.zeros((count, count))
    predicted = covariance
    g = np.zeros((dataset.tokens.shape[0], count, channel.tokens, channel.tokens))
    errors: list[FloatArray] = []
    claims: list[FloatArray] = []
    status: Literal["converged", "stalled", "diverged"] = "stalled"
    for _ in range(most):
        g, response, fields = _output_step(dataset, channel, estimates, covariance, reaction, g)
        if not (np.isfinite(fields).all() and np.isfinite(response).all()):
            status = "diverged"
            break
        gain = _invert_response(response)
        noise = _measured_noise(g, gain, d)
        observed = estimates + np.einsum("lm,mij->lij", gain, fields)
        denoised, divergences, predicted = _denoise_layers(observed, noise, laws, scheme)
        step = denoised - estimates
        reaction = divergences @ gain / d
        errors.append(errors_of(denoised, dataset.teachers))
        claims.append(predicted)
        if not np.sum(denoised**2, axis=(1, 2)).max() < 1e4 * d * second_moments(laws).max():
            status = "diverged"
            break
        if np.all(np.sum(step**2, axis=(1, 2)) / d <= tol * variances):
            estimates, status = denoised, "converged"
            break
        estimates = estimates + (1.0 - keep) * step
        covariance = keep * covariance + (1.0 - keep) * predicted
    return LayeredAMPResult(
        estimates=estimates,
        errors=errors_of(estimates, dataset.teachers),
        predicted=predicted,
        status=status,
        iterations=len(errors),
        history={"errors": np.array(errors), "predicted": np.array(claims)},
    )


def _output_step(
    dataset: LayeredDataset,
    channel: LayeredChannel,
    estimates: FloatArray,
    covariance: FloatArray,
    reaction: FloatArray,
    g: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the new g, the response A of shape (L, L), and the sums of g Z, shape (L, d, d)."""
    tokens = dataset.tokens
    n, t, d = tokens.shape
    flat = tokens.reshape(n * t, d)
    omega = np.empty((n, len(estimates), t, t))
    for layer, estimate in enumerate(estimates):
        _contract(tokens, (flat @ estimate).reshape(n, t, d), omega[:, layer])
        omega[:, layer] -= np.trace(estimate) * np.eye(t)
    weights = 1.0 + np.eye(t)
    omega = omega / math.sqrt(d) - weights * np.einsum("lm,nmab->nlab", reaction, g)
    g, response = channel.output_function(dataset.outputs, omega, covariance)
    fields = np.empty_like(estimates)
    for layer in range(len(estimates)):
        mixed = np.matmul(0.5 * weights * g[:, layer], tokens).reshape(n * t, d)
        total = flat.T @ mixed
        total[np.diag_indices(d)] -= np.trace(g[:, layer], axis1=1, axis2=2).sum()
        fields[layer] = _symmetric(total) / math.sqrt(d)
    return g, response / d, fields


def _measured_noise(g: FloatArray, gain: FloatArray, d: int) -> FloatArray:
    """Covariance of the noises, from the squares of g: A^-1 (sum (1+delta) g g^T) A^-1/2.

    At least a quarter of A^-1 d/2, as for one layer (``amp:floor``).
    """
    t = g.shape[-1]
    halves = np.sqrt(0.5 * np.ones((t, t)) + 1.5 * np.eye(t))
    flat = (g * halves).transpose(1, 0, 2, 3).reshape(g.shape[1], -1)
    measured = 0.5 * gain @ (flat @ flat.T) @ gain
    floor = 0.25 * 0.5 * d * gain
    root = np.linalg.cholesky(floor)
    whitened = np.linalg.solve(root, np.linalg.solve(root, measured).T)
    values, vectors = np.linalg.eigh(_symmetric(whitened))
    turned = root @ vectors
    return _symmetric((turned * np.maximum(values, 1.0)) @ turned.T)


def _denoise_layers(
    observed: FloatArray, noise: FloatArray, laws: Sequence[Prior], scheme: Scheme
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the estimates, the divergences dS_l/dR_l' (L, L) and the limiting error (L, L)."""
    count, d = len(laws), observed.shape[-1]
    pairs = [
        _denoise(observed[k], float(noise[k, k]), law, "tangent") for k, law in enumerate(laws)
    ]
    denoised = np.stack([pair[0] for pair in pairs])
    slopes = np.array([pair[1] for pair in pairs])
    moments = _moments(noise, laws)
    if scheme == "separate":
        return denoised, np.diag(slopes), moments.separate_error()
    coefficients, error = moments.combined()
    means = np.stack([law.mean_eigenvalue * np.eye(d) for law in laws])
    features = np.concatenate([observed - means, denoised - means])
    estimates = means + np.einsum("fl,fij->lij", coefficients, features)
    raw, shrunk = coefficients[:count].T, coefficients[count:].T
    return estimates, raw * (0.5 * d * (d + 1)) + shrunk * slopes, error
