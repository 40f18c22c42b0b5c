"""The recorded runs of the chapter "Gradient descent and averaging".

    python notebooks/sweeps/descent.py [NAME ...]

Each named experiment is a grid of runs with its seeds.  Its table and provenance are stored as
notebooks/data/descent/NAME.csv and NAME.json; an interrupted experiment resumes where it stopped.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from recording import record

from aimlib import (
    AttentionIndexedModel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    amp,
    averaged_gradient_descent,
)

BASE: dict[str, list[Any]] = {
    "dimension": [50],
    "tokens": [2],
    "inverse_temperature": [1.0],
    "sample_complexity": [0.10],
    "starts": [32],
    "steps": [2000],
    "learning_rate": [0.05],
    "schedule": ["cosine"],
    "loss": ["squared"],
    "initial_scale": [1.0],
    "width": [0.5],
}
FULL = {"dimension": [100]}
CURVE = [
    0.03,
    0.05,
    0.075,
    0.10,
    0.125,
    0.15,
    0.165,
    0.18,
    0.1875,
    0.20,
    0.22,
    0.25,
]
NEAR = [0.17, 0.18, 0.1875, 0.195, 0.205, 0.22, 0.26]
PUBLISHED = [0.05875, 0.1075, 0.15625, 0.199583, 0.25375]
TWO, FOUR, EIGHT = [1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8]
Plan = tuple[dict[str, list[Any]], list[int]]
EXPERIMENTS: dict[str, Plan] = {
    # the curve of errors, and the same with three tokens
    "figure-50": ({"sample_complexity": CURVE}, EIGHT),
    "figure-100": (FULL | {"sample_complexity": CURVE}, FOUR),
    "figure-200": (
        {
            "dimension": [200],
            "sample_complexity": [0.05, 0.10, 0.15],
            "starts": [8],
        },
        [1],
    ),
    "three-tokens": (
        {"tokens": [3], "sample_complexity": [0.02, 0.04, 0.06, 0.08]},
        FOUR,
    ),
    # training on and on, on both sides of the threshold
    "threshold-50": (
        {"sample_complexity": NEAR, "steps": [2000, 16000], "starts": [4]},
        TWO,
    ),
    "threshold-100": (
        FULL | {"sample_complexity": NEAR, "steps": [20000], "starts": [2]},
        TWO,
    ),
    # one choice at a time
    "temperature": ({"inverse_temperature": [0.5, 1.0, 2.0]}, FOUR),
    "width": ({"width": [0.5, 0.7, 1.0, 2.0]}, FOUR),
    "scale": ({"initial_scale": [0.01, 0.1, 0.3, 1.0, 2.0]}, FOUR),
    "starts": ({"starts": [128]}, FOUR),
    "loss": ({"loss": ["cross-entropy"]}, FOUR),
    # one token: the quadratic network, trained to rest
    "quadratic": (
        FULL | {"tokens": [1], "sample_complexity": PUBLISHED, "starts": [32]},
        TWO,
    ),
}
# the quadratic network trained as it was in the published runs
AS_PUBLISHED: Plan = (
    {
        "dimension": [100],
        "sample_complexity": PUBLISHED,
        "starts": [32],
        "steps": [3000],
        "learning_rate": [0.1],
    },
    TWO,
)


def run(
    dimension: int,
    tokens: int,
    inverse_temperature: float,
    sample_complexity: float,
    starts: int,
    steps: int,
    learning_rate: float,
    schedule: str,
    loss: str,
    initial_scale: float,
    width: float,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Train students of width ratio ``width`` for a teacher of width ratio 1/2, in float32.

    One token stands for the quadratic network.  Overlaps are Tr(A B)/d; the histories are those
    of the mean over starts.  Message passing runs on the same data.
    """
    channel = (
        SoftmaxChannel(tokens, inverse_temperature)
        if tokens > 1
        else LinearChannel(1)
    )
    data_seed, start_seed = seed.spawn(2)
    prior = WishartPrior(0.5)
    model = AttentionIndexedModel(dimension, prior, channel)
    data = model.sample(sample_complexity, data_seed)
    passing = amp(data, prior, channel)
    result = averaged_gradient_descent(
        data,
        round(width * dimension),
        channel,
        starts=starts,
        seed=start_seed,
        loss=loss,
        initial_scale=initial_scale,
        iterations=steps,
        learning_rate=learning_rate,
        final_learning_rate=0.0 if schedule == "cosine" else learning_rate,
        record_every=steps // 20,
        single_precision=True,
        loss_tolerance=1e-13 if schedule == "cosine" else 0.0,
    )
    flat = result.start_estimates.reshape(starts, -1)
    gram = flat @ flat.T / dimension
    limit, slope = result.extrapolate()
    errors = result.history["estimation_error"]
    return {
        "single": float(errors[-1].mean()),
        "single_lowest": float(errors.mean(axis=1).min()),
        "average": result.estimation_error,
        "limit": limit,
        "slope": slope,
        "message_passing": passing.estimation_error,
        "message_passing_status": passing.status,
        "self_overlap": float(np.trace(gram) / starts),
        "mutual_overlap": float(gram[~np.eye(starts, dtype=bool)].mean()),
        "teacher_overlap": float(
            (flat @ data.teacher.ravel()).mean() / dimension
        ),
        "teacher_norm": float(np.sum(data.teacher**2) / dimension),
        "loss_mean": float(result.loss.mean()),
        "loss_max": float(result.loss.max()),
        "steps_taken": result.iterations,
        "status": result.status,
        "prefix_errors": _text(result.prefix_errors),
        "step_history": _text(result.history["iteration"]),
        "loss_history": _text(result.history["loss"].mean(axis=1)),
        "error_history": _text(errors.mean(axis=1)),
    }


def run_as_published(
    dimension: int,
    sample_complexity: float,
    starts: int,
    steps: int,
    learning_rate: float,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Adam at a constant rate, in float32, on outputs from which the trace is not removed.

    This is the setting of the published runs of the quadratic network; the student sees
    x^T S x/sqrt(d) and has to learn Tr S with the rest.
    """
    data_seed, start_seed = seed.spawn(2)
    d, width = dimension, dimension // 2
    model = AttentionIndexedModel(d, WishartPrior(0.5), LinearChannel(1))
    data = model.sample(sample_complexity, data_seed)
    x = data.tokens[:, 0].astype(np.float32)
    y = np.einsum("ni,ij,nj->n", x, data.teacher, x)[:, None] / np.sqrt(d)
    y = y.astype(np.float32)
    streams = np.random.default_rng(start_seed).spawn(starts)
    w = np.stack([s.standard_normal((d, width)) for s in streams], axis=-1)
    w = w.astype(np.float32)
    first, second = np.zeros_like(w), np.zeros_like(w)
    errors, losses = [], []
    for step in range(1, steps + 1):
        p = (x @ w.reshape(d, -1)).reshape(len(x), width, starts)
        gap = np.einsum("nrk,nrk->nk", p, p) / (d * np.sqrt(width)) - y
        if step % (steps // 20) == 1:
            errors.append(_quadratic_errors(w, data.teacher))
            losses.append(np.mean(gap * gap))
        p *= gap[:, None]
        gradient = (x.T @ p.reshape(len(x), -1)).reshape(w.shape)
        gradient /= d * np.sqrt(width)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient * gradient
        rate = learning_rate / (1.0 - 0.9**step)
        root = np.sqrt(second / (1.0 - 0.999**step)) + 1e-8
        w = (w - rate * first / root).astype(np.float32)
    errors.append(_quadratic_errors(w, data.teacher))
    final = w.transpose(2, 0, 1).astype(float)
    estimates = final @ final.transpose(0, 2, 1) / np.sqrt(d * width)
    flat = estimates.reshape(starts, -1)
    gram = flat @ flat.T / d
    own, mutual = (
        np.trace(gram) / starts,
        gram[~np.eye(starts, dtype=bool)].mean(),
    )
    norm = float(np.sum(data.teacher**2) / d)
    limit = norm - 2 * (flat @ data.teacher.ravel()).mean() / d + mutual
    return {
        "single": float(errors[-1]),
        "plateau": float(errors[len(errors) // 4]),
        "limit": float(limit),
        "slope": float(own - mutual),
        "teacher_norm": norm,
        "loss_history": _text(losses),
        "error_history": _text(errors),
    }


def _quadratic_errors(w: Any, teacher: Any) -> float:
    d, width, _ = w.shape
    final = w.transpose(2, 0, 1).astype(float)
    estimates = final @ final.transpose(0, 2, 1) / np.sqrt(d * width)
    return float(np.mean(np.sum((estimates - teacher) ** 2, axis=(1, 2))) / d)


def _text(values: Any) -> str:
    return " ".join(f"{float(value):.6g}" for value in values)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*EXPERIMENTS, "quadratic-published"]:
        if wanted == "quadratic-published":
            record("descent", wanted, run_as_published, *AS_PUBLISHED)
        else:
            changes, seeds = EXPERIMENTS[wanted]
            record("descent", wanted, run, BASE | changes, seeds)
