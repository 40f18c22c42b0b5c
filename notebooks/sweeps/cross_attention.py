"""The recorded runs of the chapter "Cross-attention".

    python notebooks/sweeps/cross_attention.py [NAME ...]

Each named experiment is a list of cases with its seeds.  Its table and provenance are stored as
notebooks/data/cross_attention/NAME.csv and NAME.json; an interrupted experiment resumes.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from typing import Any

import numpy as np
from recording import record

from aimlib import BilinearPrior, bayes_optimal, strong_recovery_threshold
from aimlib.cross_attention import (
    Dataset,
    HardmaxChannel,
    LinearChannel,
    Model,
    SoftmaxChannel,
    amp,
)


def make_channel(name: str) -> Any:
    return {
        "softmax": SoftmaxChannel(2, 2),
        "hardmax": HardmaxChannel(2),
        "hardmax-3": HardmaxChannel(2, 3),
    }[name]


# ---------------------------------------------------------------------------------------------
# Cross-attention
# ---------------------------------------------------------------------------------------------


def run(
    channel: str,
    width_ratio: float,
    aspect_ratio: float,
    sample_complexity: float,
    dimension: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """One run of message passing."""
    prior, output = (
        BilinearPrior(width_ratio, aspect_ratio),
        make_channel(channel),
    )
    model = Model(dimension, prior, output)
    result = amp(model.sample(sample_complexity, seed), prior, output)
    optimum = bayes_optimal(sample_complexity, prior, output)
    return {
        "status": result.status,
        "iterations": result.iterations,
        "estimation_error": result.estimation_error,
        "predicted_error": result.predicted_error,
        "bayes_optimal_error": optimum.estimation_error,
    }


def case(
    channel: str, rho: float, psi: float, alpha: float, d: int
) -> dict[str, Any]:
    return {
        "channel": channel,
        "width_ratio": rho,
        "aspect_ratio": psi,
        "sample_complexity": float(f"{alpha:.4g}"),
        "dimension": d,
    }


def curves() -> list[dict[str, Any]]:
    """Softmax up to beyond the threshold, hardmax on its slow decay; d = 100."""
    cases = []
    for rho in (0.1, 0.5, 1.0):
        threshold = strong_recovery_threshold(
            BilinearPrior(rho), make_channel("softmax")
        )
        for share in (0.25, 0.5, 0.75, 0.95, 1.2):
            cases.append(case("softmax", rho, 1.0, share * threshold, 100))
        for share in (0.1, 0.3, 0.7):
            alpha = share * min(2.0 * rho, 1.0)
            cases.append(case("hardmax", rho, 1.0, alpha, 100))
    return cases


def sizes() -> list[dict[str, Any]]:
    """The gap to the limit as d doubles twice."""
    problems = (("softmax", 0.2), ("hardmax", 0.4))
    return [
        case(name, 0.5, 1.0, alpha, d)
        for d, (name, alpha) in product((50, 100, 200), problems)
    ]


def small() -> list[dict[str, Any]]:
    """Softmax at d = 50, where six data sets do not tell the gap from their spread."""
    return [case("softmax", 0.5, 1.0, 0.2, 50)]


def shapes() -> list[dict[str, Any]]:
    """Keys of another dimension than the queries."""
    return [
        case("softmax", 0.5, psi, 0.2 * (0.5 + psi), 70)
        for psi in (0.6, 1.5, 2.0)
    ]


# ---------------------------------------------------------------------------------------------
# Untied self-attention: a good algorithm for another problem
# ---------------------------------------------------------------------------------------------


def parts(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric and antisymmetric part."""
    turned = np.swapaxes(matrices, -1, -2)
    return 0.5 * (matrices + turned), 0.5 * (matrices - turned)


def divergences(
    field: np.ndarray,
    noise: float,
    prior: BilinearPrior,
    rng: np.random.Generator,
    probes: int = 4,
) -> list[float]:
    """Divergence of the denoiser on the symmetric and on the antisymmetric matrices, by probing."""
    step, totals = 1e-4 * math.sqrt(noise), [0.0, 0.0]
    for _ in range(probes):
        for k, probe in enumerate(parts(rng.standard_normal(field.shape))):
            above = prior.denoise(field + step * probe, noise, "edge")
            below = prior.denoise(field - step * probe, noise, "edge")
            totals[k] += float(np.sum(probe * (above - below))) / (
                2.0 * step * probes
            )
    return totals


def self_attention(
    width_ratio: float,
    sample_complexity: float,
    dimension: int,
    seed: np.random.SeedSequence,
    iterations: int = 40,
) -> dict[str, Any]:
    """Noiseless indices of two tokens of one sequence, by all of them and by pairs a != b only.

    Both parts of S have their own response, reaction and noise; the denoiser, which knows no such
    thing, is given the mean of the two noises.
    """
    d, tokens, prior = dimension, 2, BilinearPrior(width_ratio)
    rng = np.random.default_rng(seed)
    teacher = prior.sample(d, rng)
    n = round(sample_complexity * d * d)
    x = rng.standard_normal((n, tokens, d))
    weights = 1.0 + np.eye(tokens)

    def indices(matrix: np.ndarray) -> np.ndarray:
        h = x @ matrix @ x.transpose(0, 2, 1)
        return (h - np.trace(matrix) * np.eye(tokens)) / math.sqrt(d)

    def back(residual: np.ndarray) -> np.ndarray:
        return np.einsum("nai,nab,nbj->ij", x, 0.5 * residual, x, optimize=True)

    y = indices(teacher)
    counts = (0.5 * tokens * (tokens + 1.0), 0.5 * tokens * (tokens - 1.0))
    responses = [sample_complexity * d * c for c in counts]
    estimate, residuals, reactions = (
        np.zeros((d, d)),
        [np.zeros_like(y)] * 2,
        [0.0, 0.0],
    )
    for _ in range(iterations):
        fresh = parts(y - indices(estimate))
        residuals = [
            f + b * r for f, b, r in zip(fresh, reactions, residuals, strict=True)
        ]
        sums = [back(r) for r in residuals]
        scaled = np.trace(residuals[0] / weights, axis1=1, axis2=2).sum()
        sums[0] = sums[0] - scaled * np.eye(d)
        field = estimate + sum(
            s / (math.sqrt(d) * a) for s, a in zip(sums, responses, strict=True)
        )
        upper = 0.5 * weights  # sums over a <= b from full matrices
        squares = [float(np.sum(r * r / weights * upper)) for r in residuals]
        noises = [s / a**2 for s, a in zip(squares, responses, strict=True)]
        noise = 0.5 * sum(noises)
        denoised = prior.denoise(field, noise, "edge")
        reactions = [
            v / (d * a)
            for v, a in zip(
                divergences(field, noise, prior, rng), responses, strict=True
            )
        ]
        estimate = estimate + 0.7 * (denoised - estimate)
    errors = [float(np.sum(e * e)) / d for e in parts(teacher - denoised)]
    pairs = Dataset(
        np.concatenate([x[:, [0]], x[:, [1]]]),
        np.concatenate([x[:, [1]], x[:, [0]]]),
        np.concatenate([y[:, :1, 1:], y[:, 1:, :1]]),
        teacher,
    )
    only_pairs = amp(pairs, prior, LinearChannel(1, 1))
    return {
        "all_error": sum(errors),
        "symmetric_error": errors[0],
        "antisymmetric_error": errors[1],
        "symmetric_noise": noises[0],
        "antisymmetric_noise": noises[1],
        "pairs_error": only_pairs.estimation_error,
        "pairs_status": only_pairs.status,
    }


def untied() -> list[dict[str, Any]]:
    return [
        {"width_ratio": 0.5, "sample_complexity": alpha, "dimension": 80}
        for alpha in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
    ]


def two_parts() -> list[dict[str, Any]]:
    """One sample complexity with enough data sets to tell the two parts of S apart."""
    return [
        {"width_ratio": 0.5, "sample_complexity": 0.2, "dimension": d}
        for d in (80, 160)
    ]


def three_keys() -> list[dict[str, Any]]:
    """Hardmax over three keys, two queries."""
    return [case("hardmax-3", 0.5, 1.0, alpha, 70) for alpha in (0.1, 0.3, 0.7)]


EXPERIMENTS: dict[str, Any] = {
    "curves": (run, curves, 10),
    "sizes": (run, sizes, 6),
    "small": (run, small, 40),
    "shapes": (run, shapes, 6),
    "three-keys": (run, three_keys, 6),
    "untied": (self_attention, untied, 3),
    "parts": (self_attention, two_parts, 10),
}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXPERIMENTS:
        function, cases, seeds = EXPERIMENTS[wanted]
        record("cross_attention", wanted, function, cases(), seeds)
