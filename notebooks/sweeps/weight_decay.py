"""The recorded runs of the chapter "What regularised training reaches".

    python notebooks/sweeps/weight_decay.py [NAME ...]

Each named experiment is a grid of runs with its seeds.  Its table and provenance are stored as
notebooks/data/weight_decay/NAME.csv and NAME.json; an interrupted experiment resumes where it
stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from recording import record

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    amp,
    averaged_gradient_descent,
    estimation_error,
    gradient_descent,
)
from aimlib.weight_decay import posterior_samples, regularised_fit

CHANNELS = {"softmax": SoftmaxChannel(2), "linear": LinearChannel(1, 0.5)}
CURVE = [0.03, 0.05, 0.075, 0.10, 0.125, 0.15, 0.165, 0.18]
NEAR = [0.19, 0.20, 0.205, 0.21, 0.215, 0.22, 0.23, 0.25]
DECAYS = [0.1, 0.3, 1.0, 3.0]
FOUR, SIX, EIGHT = [1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8]
SOFT = {"dimension": [50], "channel": ["softmax"]}
BOTH_SIDES = [0.10, 0.15, 0.20, 0.215, 0.25]
Plan = tuple[Callable[..., Any], list[tuple[dict[str, list[Any]], list[int]]]]


def run_fit(
    dimension: int,
    channel: str,
    sample_complexity: float,
    decay: float,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """The convex problem by proximal gradient; rho = 1/2, one data set."""
    data = _data(dimension, channel, sample_complexity, seed)
    found = regularised_fit(
        data, CHANNELS[channel], decay=decay, iterations=8000, tolerance=1e-6
    )
    return _of_fit(found, data)


def run_starts(
    dimension: int,
    channel: str,
    sample_complexity: float,
    initial_scale: float,
    learning_rate: float,
    width: float,
    steps: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Gradient descent with momentum, without decay, and the fit of least trace beside it."""
    data_seed, start_seed = seed.spawn(2)
    data = _data(dimension, channel, sample_complexity, data_seed)
    least = regularised_fit(data, CHANNELS[channel], iterations=8000)
    found = gradient_descent(
        data,
        round(width * dimension),
        CHANNELS[channel],
        seed=start_seed,
        method="momentum",
        learning_rate=learning_rate,
        iterations=steps,
        initial_scale=initial_scale,
        loss_tolerance=1e-9,
        record_every=steps,
        single_precision=True,
    )
    return _of_fit(least, data) | _of_descent(found, data, least.estimate)


def run_decay(
    dimension: int,
    channel: str,
    sample_complexity: float,
    decay: float,
    width: float,
    steps: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Adam with weight decay from starts at the law of the prior, and the convex minimum."""
    data_seed, start_seed = seed.spawn(2)
    data = _data(dimension, channel, sample_complexity, data_seed)
    convex = regularised_fit(
        data, CHANNELS[channel], decay=decay, iterations=8000
    )
    found = gradient_descent(
        data,
        round(width * dimension),
        CHANNELS[channel],
        seed=start_seed,
        learning_rate=0.05,
        final_learning_rate=0.0,
        iterations=steps,
        weight_decay=decay / np.sqrt(round(width * dimension) / dimension),
        record_every=steps,
    )
    return _of_fit(convex, data) | _of_descent(found, data, convex.estimate)


def run_samplers(
    dimension: int,
    sample_complexity: float,
    noise: float,
    chains: int,
    annealing: int,
    proposals: int,
    leapfrog: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """One data set, seen by every method.

    The chains sample the posterior of the visible combinations with noise of variance ``noise``;
    the others see them without.
    """
    data_seed, chain_seed, start_seed = seed.spawn(3)
    channel = CHANNELS["softmax"]
    data = _data(dimension, "softmax", sample_complexity, data_seed)
    width, teacher = dimension // 2, data.teacher
    assert teacher is not None
    chain = posterior_samples(
        data,
        width,
        channel,
        noise=noise,
        seed=chain_seed,
        chains=chains,
        annealing=annealing,
        proposals=proposals,
        leapfrog=leapfrog,
    )
    gram = np.einsum("kij,lij->kl", chain.means, chain.means) / dimension
    other = gram[~np.eye(chains, dtype=bool)]
    common = np.einsum("kij,ij->k", chain.means, teacher) / dimension
    descents = {
        name: averaged_gradient_descent(
            data,
            width,
            channel,
            starts=16,
            seed=start_seed,
            initial_scale=scale,
            iterations=2000,
            final_learning_rate=0.0,
            record_every=2000,
            single_precision=True,
        )
        for name, scale in (("start", 1.0), ("small", 0.1))
    }
    least = regularised_fit(data, channel, iterations=8000)
    passing = amp(data, WishartPrior(0.5), channel)
    last = chain.samples
    result = {
        "posterior_mean": estimation_error(chain.estimate, teacher),
        "posterior_sample": float(
            np.mean([estimation_error(s, teacher) for s in last])
        ),
        "mutual_overlap": float(other.mean()),
        "teacher_overlap": float(common.mean()),
        "self_overlap": float(chain.norms.mean()),
        "teacher_norm": float(np.sum(teacher**2) / dimension),
        "misfit": float(chain.energies.mean()),
        "acceptance": float(chain.acceptance.mean()),
        "message_passing": passing.estimation_error,
        "message_passing_status": passing.status,
        "least_trace": least.estimation_error,
        "least_trace_status": least.status,
    }
    for name, found in descents.items():
        limit, slope = found.extrapolate()
        result |= {
            f"{name}_single": limit + slope,
            f"{name}_average": found.estimation_error,
            f"{name}_limit": limit,
            f"{name}_loss": float(found.loss.max()),
        }
    return result


def _data(
    dimension: int,
    channel: str,
    sample_complexity: float,
    seed: np.random.SeedSequence,
) -> Dataset:
    model = AttentionIndexedModel(dimension, WishartPrior(0.5), CHANNELS[channel])
    return model.sample(sample_complexity, seed)


def _of_fit(found: Any, data: Dataset) -> dict[str, Any]:
    return {
        "error": found.estimation_error,
        "rank": found.rank,
        "trace": float(np.trace(found.estimate) / data.dimension),
        "training_loss": found.training_loss,
        "residual": found.residual,
        "iterations": found.iterations,
        "status": found.status,
    }


def _of_descent(found: Any, data: Dataset, convex: Any) -> dict[str, Any]:
    values = np.linalg.eigvalsh(found.estimate)
    return {
        "descent_error": found.estimation_error,
        "descent_distance": estimation_error(found.estimate, convex),
        "descent_trace": float(values.mean()),
        "descent_rank": float(np.mean(values > 0.01 * values[-1])),
        "descent_loss": float(found.loss[0]),
        "descent_steps": found.iterations,
        "descent_status": found.status,
    }


STARTS = SOFT | {
    "sample_complexity": BOTH_SIDES,
    "initial_scale": [0.001, 0.01, 0.1, 0.3, 1.0],
    "learning_rate": [0.03],
    "width": [1.0],
    "steps": [10000],
}
EXPERIMENTS: dict[str, Plan] = {
    # the fit of least trace against its state evolution
    "fit-50": (
        run_fit,
        [(SOFT | {"sample_complexity": CURVE + NEAR, "decay": [0.0]}, EIGHT)],
    ),
    "fit-100": (
        run_fit,
        [
            (
                SOFT
                | {
                    "dimension": [100],
                    "sample_complexity": [0.05, 0.10, 0.15, 0.19, 0.205, 0.23],
                    "decay": [0.0],
                },
                FOUR,
            )
        ],
    ),
    # the decay, for softmax without and one token with noise
    "decay-100": (
        run_fit,
        [
            (
                {
                    "dimension": [100],
                    "channel": ["softmax"],
                    "sample_complexity": [0.10, 0.25],
                    "decay": DECAYS,
                },
                FOUR,
            ),
            (
                {
                    "dimension": [100],
                    "channel": ["linear"],
                    "sample_complexity": [0.3, 0.6],
                    "decay": [0.0, *DECAYS],
                },
                FOUR,
            ),
        ],
    ),
    # gradient descent from small starts, and with a third of the rate
    "starts": (
        run_starts,
        [
            (STARTS, FOUR),
            (
                STARTS
                | {
                    "sample_complexity": [0.10],
                    "initial_scale": [0.001, 0.1],
                    "learning_rate": [0.01],
                    "steps": [30000],
                },
                FOUR,
            ),
            (STARTS | {"width": [0.5], "sample_complexity": [0.10]}, FOUR),
        ],
    ),
    # gradient descent with weight decay
    "gradient-decay": (
        run_decay,
        [
            (
                {
                    "dimension": [50],
                    "channel": ["linear"],
                    "sample_complexity": [0.3, 0.6],
                    "decay": DECAYS,
                    "width": [1.0],
                    "steps": [3000],
                },
                FOUR,
            ),
            (
                {
                    "dimension": [50],
                    "channel": ["softmax"],
                    "sample_complexity": BOTH_SIDES,
                    "decay": [1e-4, 1e-3, 1e-2],
                    "width": [1.0],
                    "steps": [6000],
                },
                FOUR,
            ),
        ],
    ),
    # every method on the same data
    "samplers": (
        run_samplers,
        [
            (
                {
                    "dimension": [50],
                    "sample_complexity": [0.05, 0.10, 0.15],
                    "noise": [0.02],
                    "chains": [4],
                    "annealing": [300],
                    "proposals": [200],
                    "leapfrog": [30],
                },
                SIX,
            )
        ],
    ),
}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXPERIMENTS:
        function, parts = EXPERIMENTS[wanted]
        if len(parts) == 1:
            record("weight_decay", wanted, function, *parts[0])
        else:
            record("weight_decay", wanted, function, parts=parts)
