"""The recorded runs of the chapter "Other priors, other tokens".

    python notebooks/sweeps/other_priors.py [NAME ...]

Each named experiment is a list of problems with ten seeds each.  Its table and provenance are
stored as notebooks/data/other_priors/NAME.csv and NAME.json; an interrupted experiment resumes
where it stopped.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from recording import record

from aimlib import (
    AttentionIndexedModel,
    CorrelatedSoftmaxChannel,
    Dataset,
    FourthMomentHardmaxChannel,
    HardmaxChannel,
    SoftmaxChannel,
    SpectralPrior,
    WignerPrior,
    WishartPrior,
    amp,
    attention_indices,
    bayes_optimal,
    whiten,
)

DIMENSION, SEEDS = 100, 10
MOMENTS = {"gaussian": 3.0, "rademacher": 1.0, "uniform": 1.8, "student": 4.0}


# ---------------------------------------------------------------------------------------------
# Teachers, and what a student may believe about them
# ---------------------------------------------------------------------------------------------


def make_prior(name: str) -> Any:
    """Read a prior from its name, such as "wishart 0.5", "projector 0.3" or "wigner 1.0"."""
    kind, *numbers = name.split()
    values = [float(number) for number in numbers]
    if kind == "wishart":
        return WishartPrior(*values)
    if kind == "wigner":
        return WignerPrior(*values)
    if kind == "projector":
        return SpectralPrior([0.0, 1.0], [1.0 - values[0], values[0]])
    return SpectralPrior([-1.0, 0.5, 2.0], [0.5, 0.3, 0.2])  # three points


def make_channel(name: str) -> Any:
    return SoftmaxChannel(2) if name == "softmax" else HardmaxChannel(2)


def feature_covariance(dimension: int, spread: float) -> np.ndarray:
    """Eigenvalues of Sigma, geometric from 1/spread to spread, with mean one."""
    levels = (np.arange(dimension) + 0.5) / dimension
    values = spread ** (2.0 * levels - 1.0)
    return values / values.mean()


def own_spectrum(teacher: np.ndarray) -> SpectralPrior:
    """The prior of a student that knows the d eigenvalues of this teacher."""
    values = np.linalg.eigvalsh(teacher)
    values[np.abs(values) < 1e-9] = 0.0
    return SpectralPrior(values)


# ---------------------------------------------------------------------------------------------
# The experiments
# ---------------------------------------------------------------------------------------------


def problem(kind: str, **changes: Any) -> dict[str, Any]:
    base = {
        "teacher": "wishart 0.5",
        "student": "the same",
        "channel": "softmax",
        "sample_complexity": 0.1,
        "token_law": "gaussian",
        "corrected": False,
        "correlation": 0.0,
        "spread": 1.0,
    }
    return {"kind": kind} | base | changes


def priors() -> Iterator[dict[str, Any]]:
    """Three priors, both channels, over their range."""
    scale = {"wigner": 1.0, "projector 0.3": 0.42, "three-points": 0.62}
    for name, kappa in scale.items():
        for share in (0.2, 0.4, 0.6, 0.8, 1.15):
            yield problem(
                "plain", teacher=name, sample_complexity=share * kappa / 4.0
            )
        for alpha in (0.1, 0.2, 0.4, 0.8, 1.6):
            yield problem(
                "plain", teacher=name, channel="hardmax", sample_complexity=alpha
            )


def mismatch() -> Iterator[dict[str, Any]]:
    """Wishart teachers, students that know two moments of the spectrum or one."""
    for rho in (0.2, 0.5):
        linear = f"wigner {math.sqrt(rho)!r}"
        for alpha in (0.05, 0.1, 0.15, 0.2):
            for student in (linear, "wigner"):
                yield problem(
                    "plain",
                    teacher=f"wishart {rho}",
                    student=student,
                    sample_complexity=alpha,
                )
        for alpha in (0.1, 0.2, 0.4, 0.8):
            yield problem(
                "plain",
                teacher=f"wishart {rho}",
                student=linear,
                channel="hardmax",
                sample_complexity=alpha,
            )


def laws() -> Iterator[dict[str, Any]]:
    """Hardmax at rho = 1, three laws of the entries, with and without the corrected response."""
    for law, alpha in product(
        ("gaussian", "rademacher", "student"), (0.1, 0.2, 0.4, 0.8)
    ):
        for corrected in (False, True)[: 1 if law == "gaussian" else 2]:
            yield problem(
                "plain",
                teacher="wishart 1.0",
                channel="hardmax",
                sample_complexity=alpha,
                token_law=law,
                corrected=corrected,
            )


def features() -> Iterator[dict[str, Any]]:
    """Covariance across the directions of the embedding."""
    for alpha in (0.05, 0.1, 0.15, 0.22):
        yield problem("features", sample_complexity=alpha, spread=4.0)


def positions() -> Iterator[dict[str, Any]]:
    """Correlated positions."""
    for correlation, alpha in product((-0.5, 0.7), (0.05, 0.1, 0.15, 0.22)):
        yield problem(
            "positions", sample_complexity=alpha, correlation=correlation
        )


EXPERIMENTS = {
    f.__name__: f for f in (mismatch, positions, laws, features, priors)
}


def run(
    kind: str,
    teacher: str,
    student: str,
    channel: str,
    sample_complexity: float,
    token_law: str,
    corrected: bool,
    correlation: float,
    spread: float,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Draw one data set and estimate its teacher by message passing."""
    law, shown = make_prior(teacher), make_channel(channel)
    believed: Any = law if student == "the same" else make_prior(student)
    model = AttentionIndexedModel(DIMENSION, law, shown, token_law)
    data = model.sample(sample_complexity, seed)
    used: Any = shown
    if corrected:
        used = FourthMomentHardmaxChannel(law.mean_eigenvalue, MOMENTS[token_law])
    if kind == "positions":
        covariance = np.array([[1.0, correlation], [correlation, 1.0]])
        data, used = correlate(data, covariance)
    if kind == "features":
        data = colour(data, feature_covariance(DIMENSION, spread))
        believed = own_spectrum(data.teacher)
    wrong_mean = believed.mean_eigenvalue != law.mean_eigenvalue
    options: dict[str, Any] = (
        {"noise": "response"} if wrong_mean and kind == "plain" else {}
    )
    result = amp(data, believed, used, **options)
    theory = bayes_optimal(sample_complexity, believed, used)
    return {
        "status": result.status,
        "iterations": result.iterations,
        "estimation_error": result.estimation_error,
        "claimed_error": result.predicted_error,
        "theory": theory.estimation_error,
        "blind_error": float(
            np.sum(
                (data.teacher - believed.mean_eigenvalue * np.eye(DIMENSION)) ** 2
            )
            / DIMENSION
        ),
    }


def correlate(data: Dataset, covariance: np.ndarray) -> tuple[Dataset, Any]:
    """Mix the tokens of a sequence, show the outputs of the mixed ones, return the white ones."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values)) @ vectors.T
    mixed = root @ data.tokens
    indices = attention_indices(mixed, data.teacher)
    # attention_indices has subtracted delta_ab Tr S/sqrt(d); the mean is C_ab Tr S/sqrt(d)
    trace = np.trace(data.teacher) / math.sqrt(DIMENSION)
    centred = indices + (np.eye(2) - covariance) * trace
    white = Dataset(data.tokens, SoftmaxChannel(2).output(centred), data.teacher)
    return white, CorrelatedSoftmaxChannel(covariance)


def colour(data: Dataset, values: np.ndarray) -> Dataset:
    """Give the tokens a diagonal covariance, compute their outputs, whiten them again."""
    coloured = data.tokens * np.sqrt(values)
    indices = attention_indices(coloured, data.teacher)
    trace = np.trace(data.teacher) - np.sum(np.diag(data.teacher) * values)
    centred = indices + np.eye(2) * trace / math.sqrt(DIMENSION)
    outputs = SoftmaxChannel(2).output(centred)
    return whiten(Dataset(coloured, outputs, data.teacher), np.diag(values))


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXPERIMENTS:
        record("other_priors", wanted, run, list(EXPERIMENTS[wanted]()), SEEDS)
