"""Random parameters through every prior and channel, and the identities that hold for all.

The checks need no reference: bounds by the best linear estimate and by the capacity of Gaussian
noise, monotony, the derivative of the information (I-MMSE), and both saddle-point equations.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aimlib import (
    BilinearPrior,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    bayes_optimal,
    cross_attention,
)
from aimlib import strong_recovery_threshold as strong

Row = dict[str, Any]
Failed = Iterator[str]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_STEP = 0.02  # of the logarithm, in differences


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))


def _spectral(rng: np.random.Generator) -> Any:
    count = int(rng.integers(2, 8))
    return SpectralPrior(rng.standard_normal(count), rng.uniform(0.05, 1.0, count))


PRIORS: dict[str, Callable[[np.random.Generator], Any]] = {
    "Wishart": lambda rng: WishartPrior(log_uniform(rng, 1e-3, 1e2)),
    "Wigner": lambda rng: WignerPrior(rng.normal(0.0, 3.0)),
    "spectral": _spectral,
    "bilinear": lambda rng: BilinearPrior(log_uniform(rng, 1e-3, 1e2), log_uniform(rng, 0.1, 10)),
}


def _noise(rng: np.random.Generator) -> float:
    return 0.0 if rng.random() < 0.3 else log_uniform(rng, 1e-6, 1e3)


CHANNELS: dict[str, Callable[[np.random.Generator], Any]] = {
    "linear": lambda rng: LinearChannel(int(rng.integers(1, 6)), _noise(rng)),
    "softmax": lambda rng: SoftmaxChannel(int(rng.integers(2, 6)), log_uniform(rng, 0.01, 30.0)),
    "hardmax": lambda rng: HardmaxChannel(int(rng.integers(2, 4))),
}
CROSS: dict[str, Callable[[np.random.Generator], Any]] = {
    "linear": lambda rng: cross_attention.LinearChannel(*_sizes(rng, 1), _noise(rng)),
    "softmax": lambda rng: cross_attention.SoftmaxChannel(
        *_sizes(rng, 2), log_uniform(rng, 0.01, 30.0)
    ),
    "hardmax": lambda rng: cross_attention.HardmaxChannel(int(rng.integers(1, 5)), 2),
}
PAIRS = [(p, c) for p in PRIORS for c in CHANNELS]


def _sizes(rng: np.random.Generator, fewest: int) -> tuple[int, int]:
    return int(rng.integers(1, 5)), int(rng.integers(fewest, 5))


# ---------------------------------------------------------------------------------------------
# Identities: each yields the names of those that do not hold
# ---------------------------------------------------------------------------------------------


def check_prior(prior: Any, noise: float, rng: np.random.Generator) -> Failed:
    """Bounds, monotony, I-MMSE, spectrum and denoiser at one noise."""
    mmse, information = prior.mmse(noise), prior.information(noise)
    if not (math.isfinite(mmse) and math.isfinite(information)):
        yield "prior finite"
        return
    rectangular = prior.weights == "rectangular"
    share = 0.5 if rectangular else 0.25
    size = prior.aspect_ratio if rectangular else 1.0  # coordinates, in the unit of the noise
    slack = 1.0 + 1e-9
    if not 0.0 <= mmse <= slack * min(noise * prior.degrees_of_freedom, prior.variance):
        yield "mmse between 0 and min(noise dof, variance)"
    if mmse > slack * prior.variance * noise * size / (prior.variance + noise * size):
        yield "mmse at most that of the linear estimate"
    if prior.mmse(1.1 * noise) * slack < mmse:
        yield "mmse grows with the noise"
    capacity = share * size * math.log1p(prior.variance / (size * noise))
    if not -1e-12 <= information <= slack * capacity + 1e-12:
        yield "information between 0 and the capacity"
    logs = math.log(noise) + _STEP * _NODES  # dI/d(1/noise) = share mmse, over log noise
    area = share * _STEP * float(_WEIGHTS @ (prior.mmse(np.exp(logs)) / np.exp(logs)))
    ends = noise * np.exp(_STEP * np.array([-1.0, 1.0]))
    drop = float(prior.information(ends[0]) - prior.information(ends[1]))
    if abs(drop - area) > 1e-12 + 1e-6 * area + 1e-7 * information:
        yield "I-MMSE"
    yield from _check_spectrum(prior, noise, rng)


def _check_spectrum(prior: Any, noise: float, rng: np.random.Generator) -> Failed:
    edges = prior.support(noise).ravel()
    if not (np.isfinite(edges).all() and (np.diff(edges) >= 0.0).all()):
        yield "edges of the spectrum ascend"
        return
    span = edges[-1] - edges[0]
    points = np.sort(rng.uniform(edges[0] - 0.2 * span, edges[-1] + 0.2 * span, 16))
    points = np.abs(points) if prior.weights == "rectangular" else points
    density = prior.density(points, noise)
    if not (np.isfinite(density).all() and (density >= 0.0).all()):
        yield "density finite, not negative"
    if not np.isfinite(prior.shrink(points, noise)).all():
        yield "denoiser finite"


def check_channel(channel: Any, total: float, rng: np.random.Generator) -> Failed:
    """Bounds and monotony of c, its integral, and the posterior mean."""
    share = log_uniform(rng, 1e-8, 1.0) if rng.random() < 0.8 else 1.0
    v = min(share, 1.0) * total
    values = channel.information_at(np.array([0.9 * v, v]), total)
    count = np.triu(np.ones(channel.index_shape)).sum() if channel.is_tied else math.prod(
        channel.index_shape
    )  # fmt: skip
    if not np.isfinite(values).all():
        yield "information of the channel finite"
        return
    if not ((values >= 0.0) & (values <= count * (1.0 + 1e-9))).all():
        yield "information of the channel between 0 and the number of indices"
    if values[0] / 0.9 < values[1] * (1.0 - 1e-9):
        yield "conjugate grows with the overlap"
    entropy = channel.output_entropy(np.array([0.9 * v, v]), total)
    half = -0.5 * math.log(0.9)
    points = np.minimum(v * np.exp(half * (_NODES - 1.0)), total)
    area = 0.5 * half * float(_WEIGHTS @ np.asarray(channel.information_at(points, total)))
    if not abs(entropy[1] - entropy[0] - area) <= 1e-9 * (1.0 + np.abs(entropy).max()):
        yield "output entropy is the integral of the information"
    yield from _check_posterior(channel, v, total, rng)


def _check_posterior(channel: Any, v: float, total: float, rng: np.random.Generator) -> Failed:
    scale = np.sqrt(channel.spreads)
    z, w = rng.standard_normal((2, 3, *channel.index_shape))
    if channel.is_tied:
        z, w = (np.triu(x) + np.swapaxes(np.triu(x, 1), -1, -2) for x in (z, w))
    omega = scale * math.sqrt(max(total - v, 0.0)) * z
    y = channel.output(omega + scale * math.sqrt(v) * w, rng)
    if not np.isfinite(y).all():
        yield "outputs finite"
        return
    softmax = hasattr(channel, "inverse_temperature")
    if softmax and y.min() <= 0.0:  # it has underflowed, and no longer says what the indices were
        try:
            channel.posterior_mean(y, omega, v)
        except ValueError:
            return
        yield "underflown outputs refused"
        return
    mean = channel.posterior_mean(y, omega, v)
    if not np.isfinite(mean).all():
        yield "posterior mean finite"
    elif getattr(channel, "noise", 0.0) == 0.0 and (not softmax or y.min() > 1e-290):
        again = channel.output(mean, rng)  # outputs fix a convex set, which holds its mean
        if np.abs(again - y).max() > 1e-7 * max(1.0, float(np.abs(y).max())):
            yield "posterior mean reproduces the output"


def check_saddle(alpha: float, prior: Any, channel: Any) -> Failed:
    """The solution solves both equations, lies within bounds and improves with data."""
    found = bayes_optimal(np.array([alpha, 1.1 * alpha]), prior, channel)
    v, later = found.estimation_error
    total, nu = prior.second_moment, 1.0 if prior.weights == "rectangular" else 2.0
    if not (math.isfinite(v) and math.isfinite(later) and np.all(found.converged)):
        yield "saddle point converged"
        return
    if not 0.0 <= v <= prior.variance * (1.0 + 1e-9):
        yield "error between 0 and the variance"
    if later > v * (1.0 + 1e-9):
        yield "error falls with data"
    if (v == 0.0) != (alpha >= strong(prior, channel)):
        yield "perfect recovery exactly from the threshold on"
    if v == 0.0:
        return
    conjugate = float(found.conjugate[0])
    if abs(prior.mmse(1.0 / conjugate) - v) > 1e-9 * v:
        yield "saddle point: V = mmse(1/conjugate)"
    c = float(channel.information_at(min(v, total), total))
    if abs(nu * alpha * c / v - conjugate) > 1e-6 * conjugate:
        yield "saddle point: conjugate = 2 alpha c/V"
    if not math.isfinite(found.free_entropy[0]):
        yield "free entropy finite"
    sampled = hasattr(channel, "inverse_temperature") and max(channel.index_shape) > 2
    if not sampled:  # those by quasi-Monte Carlo take a hundred times as long
        error = channel.generalization_error(min(v, total), total)
        if not (math.isfinite(error) and error >= 0.0):
            yield "generalisation error finite, not negative"


# ---------------------------------------------------------------------------------------------
# All of them
# ---------------------------------------------------------------------------------------------


def try_points(count: int, rng: np.random.Generator) -> Row:
    """Draw so many parameters, pairs in turn; return what did not hold, with examples."""
    failures: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for number in range(count):
        kind, output = PAIRS[number % len(PAIRS)]
        prior = PRIORS[kind](rng)
        channel = (CROSS if kind == "bilinear" else CHANNELS)[output](rng)
        noise, alpha = log_uniform(rng, 1e-8, 1e8), log_uniform(rng, 1e-4, 1e3)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            for failed in _failures(prior, channel, noise, alpha, rng):
                failures[failed] += 1
                examples.setdefault(failed, f"{prior!r}, {channel!r}, {noise=}, {alpha=}")
    return {
        "what": "random parameters",
        "tried": count,
        "faults": sum(failures.values()),
        "detail": f"{len(PRIORS)} priors, {len(CHANNELS) + len(CROSS)} channels, "
        f"{len(PAIRS)} pairs; finite, and all identities held"
        if not failures
        else "; ".join(f"{name}: {n}" for name, n in failures.items()),
        "examples": examples,
    }


def _failures(
    prior: Any, channel: Any, noise: float, alpha: float, rng: np.random.Generator
) -> Failed:
    for check, arguments in (
        (check_prior, (prior, noise, rng)),
        (check_channel, (channel, prior.second_moment, rng)),
        (check_saddle, (alpha, prior, channel)),
    ):
        try:
            yield from check(*arguments)  # type: ignore[operator]
        except Exception as error:
            yield f"{check.__name__}: {type(error).__name__}: {str(error)[:80]}"
