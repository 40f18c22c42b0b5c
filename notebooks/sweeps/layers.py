"""The recorded runs of the chapter "Several layers".

    python notebooks/sweeps/layers.py [NAME ...]

Each named experiment is a grid of runs with its seeds.  Its table and provenance are stored as
notebooks/data/layers/NAME.csv and NAME.json; an interrupted experiment resumes where it stopped.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from recording import record

from aimlib import WishartPrior
from aimlib.layers import (
    DeepSoftmaxChannel,
    MixedLinearChannel,
    Model,
    amp,
    averaged_gradient_descent,
    state_evolution,
)

PRIORS = [WishartPrior(0.5), WishartPrior(0.5)]


def descend(
    dimension: int,
    sample_complexity: float,
    starts: int,
    steps: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Train both layers of two-layer softmax attention, in float32.

    Teacher and students have width ratio 1/2.  Columns end in the number of the layer.
    """
    data_seed, start_seed = seed.spawn(2)
    channel = DeepSoftmaxChannel()
    data = Model(dimension, PRIORS, channel).sample(sample_complexity, data_seed)
    result = averaged_gradient_descent(
        data,
        dimension // 2,
        channel,
        starts=starts,
        seed=start_seed,
        iterations=steps,
        final_learning_rate=0.0,
        record_every=steps // 20,
        single_precision=True,
        loss_tolerance=1e-13,
    )
    row: dict[str, Any] = {
        "loss_mean": float(result.loss.mean()),
        "loss_max": float(result.loss.max()),
        "steps_taken": result.iterations,
        "status": result.status,
    }
    errors = result.history["estimation_error"]
    for layer in range(2):
        row[f"single_{layer + 1}"] = float(errors[-1, :, layer].mean())
        row[f"worst_{layer + 1}"] = float(errors[-1, :, layer].max())
        row[f"average_{layer + 1}"] = float(result.prefix_errors[-1, layer])
        row[f"prefix_errors_{layer + 1}"] = _text(result.prefix_errors[:, layer])
        row[f"error_history_{layer + 1}"] = _text(
            errors[:, :, layer].mean(axis=1)
        )
    return row


def pass_messages(
    dimension: int,
    sample_complexity: float,
    scheme: str,
    channel: str,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Message passing for both layers: deep softmax attention or a mixed linear channel."""
    seen = CHANNELS[channel]
    data = Model(dimension, PRIORS, seen).sample(sample_complexity, seed)
    result = amp(data, PRIORS, seen, scheme=scheme, iterations=150)
    return {
        "error_1": float(result.estimation_error[0]),
        "error_2": float(result.estimation_error[1]),
        "claimed_1": float(result.predicted_error[0, 0]),
        "claimed_2": float(result.predicted_error[1, 1]),
        "claimed_12": float(result.predicted_error[0, 1]),
        "status": result.status,
        "iterations": result.iterations,
    }


def predict(
    sample_complexity: float, seed: np.random.SeedSequence
) -> dict[str, Any]:
    """State evolution of two-layer softmax attention; the seed is not used."""
    path = state_evolution(sample_complexity, PRIORS, CHANNELS["softmax"], 40)
    return {
        "error_1": float(path[-1, 0, 0]),
        "error_2": float(path[-1, 1, 1]),
        "error_12": float(path[-1, 0, 1]),
        "last_change": float(np.abs(path[-1] - path[-2]).max()),
    }


CHANNELS: dict[str, Any] = {
    "softmax": DeepSoftmaxChannel(),
    "softmax-fine": DeepSoftmaxChannel(nodes=48),
    "linear": MixedLinearChannel([[1.0, 0.8], [0.8, 1.0]], noise=0.25),
}
EXPERIMENTS: dict[str, tuple[Any, dict[str, list[Any]], list[int]]] = {
    "descent-50": (
        descend,
        {
            "dimension": [50],
            "sample_complexity": [0.1, 0.2, 0.3, 0.375, 0.45, 0.6, 0.8],
            "starts": [8],
            "steps": [2000],
        },
        [1, 2, 3, 4],
    ),
    "descent-100": (
        descend,
        {
            "dimension": [100],
            "sample_complexity": [0.2, 0.375, 0.6],
            "starts": [8],
            "steps": [2000],
        },
        [1],
    ),
    "descent-100-seeds": (
        descend,
        {
            "dimension": [100],
            "sample_complexity": [0.2],
            "starts": [8],
            "steps": [2000],
        },
        [1, 2, 3, 4],
    ),
    "descent-100-more": (
        descend,
        {
            "dimension": [100],
            "sample_complexity": [0.375, 0.6],
            "starts": [8],
            "steps": [2000],
        },
        [2, 3, 4],
    ),
    "descent-long": (
        descend,
        {
            "dimension": [50],
            "sample_complexity": [0.375, 0.45, 0.6],
            "starts": [4],
            "steps": [8000],
        },
        [1, 2],
    ),
    "amp-linear": (
        pass_messages,
        {
            "dimension": [100],
            "sample_complexity": [0.1, 0.2, 0.35, 0.5, 0.8, 1.2],
            "scheme": ["separate", "combined"],
            "channel": ["linear"],
        },
        [1, 2, 3, 4, 5, 6],
    ),
    "theory-softmax": (
        predict,
        {
            "sample_complexity": [
                *(0.02, 0.05, 0.1, 0.15, 0.2, 0.25),
                *(0.3, 0.33, 0.35, 0.375, 0.4, 0.45, 0.6),
            ]
        },
        [1],
    ),
    "amp-softmax": (
        pass_messages,
        {
            "dimension": [100],
            "sample_complexity": [0.1, 0.2, 0.3, 0.45],
            "scheme": ["combined"],
            "channel": ["softmax"],
        },
        [1, 2, 3, 4, 5, 6],
    ),
    "amp-quadrature": (
        pass_messages,
        {
            "dimension": [60],
            "sample_complexity": [0.3],
            "scheme": ["combined"],
            "channel": ["softmax", "softmax-fine"],
        },
        [1, 2, 3],
    ),
    "amp-sizes": (
        pass_messages,
        {
            "dimension": [50, 200],
            "sample_complexity": [0.2],
            "scheme": ["combined"],
            "channel": ["softmax"],
        },
        [1, 2, 3],
    ),
}


def _text(values: Any) -> str:
    return " ".join(f"{float(value):.6g}" for value in values)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXPERIMENTS:
        record("layers", wanted, *EXPERIMENTS[wanted])
