"""The recorded runs of the chapter "Soft labels or samples?".

    python notebooks/sweeps/sampled_tokens.py [NAME ...]

Each named experiment is a list of cases with their seeds.  Its table and provenance are stored as
notebooks/data/sampled_tokens/NAME.csv and NAME.json; an interrupted experiment resumes.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from typing import Any

import numpy as np
from recording import number, record
from scipy.optimize import brentq

from aimlib import (
    AttentionIndexedModel,
    SampledSoftmaxChannel,
    WishartPrior,
    amp,
    averaged_gradient_descent,
)
from aimlib._sampled_pair import pair_information

PRIOR = WishartPrior(0.5)


def passing(
    seed: np.random.SeedSequence, dimension: int, alpha: float, draws: int
) -> dict[str, Any]:
    """Message passing on one data set."""
    channel = SampledSoftmaxChannel(2, draws=draws)
    model = AttentionIndexedModel(dimension, PRIOR, channel)
    run = amp(model.sample(alpha, seed=number(seed)), PRIOR, channel)
    return {
        "status": run.status,
        "error": run.estimation_error,
        "claimed": run.predicted_error,
        "iterations": run.iterations,
    }


def training(
    seed: np.random.SeedSequence,
    dimension: int,
    alpha: float,
    draws: int,
    starts: int,
    steps: int,
) -> dict[str, Any]:
    """Cross-entropy training of several students on one data set."""
    channel = SampledSoftmaxChannel(2, draws=draws)
    model = AttentionIndexedModel(dimension, PRIOR, channel)
    run = averaged_gradient_descent(
        model.sample(alpha, seed=number(seed)),
        dimension // 2,
        channel,
        starts=starts,
        seed=1000 + number(seed),
        loss="cross-entropy",
        final_learning_rate=0.0,
        iterations=steps,
        record_every=steps,
        single_precision=True,
    )
    return {
        "one": float(run.prefix_errors[0]),
        "averaged": run.estimation_error,
        "loss": float(run.loss.mean()),
    }


def precision(
    seed: np.random.SeedSequence, alpha: float, noise: float, beta: float
) -> dict[str, Any]:
    """Bayes-optimal error of noisy probabilities; the seed is not used."""
    total = PRIOR.second_moment

    def excess(log_noise: float) -> float:
        delta = math.exp(log_noise)
        v = float(PRIOR.mmse(delta))
        c = pair_information(v / total, beta * math.sqrt(total), 0, noise)
        return math.log(v / (2.0 * delta * c * alpha))

    root = brentq(excess, math.log(1e-7), math.log(1e3), xtol=1e-6)
    return {"error": float(PRIOR.mmse(math.exp(root)))}


def cases(**axes: list[Any]) -> list[dict[str, Any]]:
    """All combinations."""
    return [
        dict(zip(axes, values, strict=True)) for values in product(*axes.values())
    ]


EXPERIMENTS: dict[str, tuple[Any, Any, Any]] = {
    "passing": (
        passing,
        cases(dimension=[100], alpha=[0.1, 0.2, 0.4, 0.8], draws=[1, 4])
        + cases(dimension=[100], alpha=[1.6], draws=[1]),
        range(4),
    ),
    "training": (
        training,
        cases(
            dimension=[50],
            alpha=[0.2, 0.8],
            draws=[1, 4],
            starts=[8],
            steps=[800],
        ),
        range(3),
    ),
    "precision": (
        precision,
        cases(alpha=[0.4], noise=[1e-2], beta=[0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
        + cases(alpha=[0.4], noise=[1e-4], beta=[0.1, 0.3, 1.0, 3.0]),
        range(1),
    ),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or EXPERIMENTS:
        function, grid, seeds = EXPERIMENTS[name]
        record("sampled_tokens", name, function, grid, seeds)
