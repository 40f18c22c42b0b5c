"""The recorded runs of the chapter "Gradient descent and averaging".

    python notebooks/sweeps/descent.py [NAME ...]

Each named experiment is a grid of runs with its seeds.  Its table and provenance are stored as
notebooks/data/descent/NAME.csv and NAME.json; an interrupted experiment resumes where it stopped.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from aimlib import (
    AttentionIndexedModel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    averaged_gradient_descent,
    sweep,
)

DATA = Path(__file__).resolve().parent.parent / "data" / "descent"
STORES = Path(tempfile.gettempdir()) / "aimlib-descent"

BASE: dict[str, list[Any]] = {
    "dimension": [50],
    "tokens": [2],
    "inverse_temperature": [1.0],
    "sample_complexity": [0.10],
    "starts": [16],
    "steps": [2000],
    "loss": ["squared"],
    "initial_scale": [1.0],
    "width": [0.5],
}
HALF, FULL = {"dimension": [50]}, {"dimension": [100]}
BELOW = [0.05, 0.10, 0.15]
NEAR = [0.17, 0.1875, 0.22, 0.26]
TWO, FOUR = [1, 2], [1, 2, 3, 4]
EXPERIMENTS: dict[str, tuple[dict[str, list[Any]], list[int]]] = {
    "figure-50": (HALF | {"sample_complexity": BELOW}, FOUR),
    "threshold-50": (
        HALF | {"sample_complexity": NEAR, "steps": [2000, 8000], "starts": [4]},
        TWO,
    ),
    "temperature": ({"inverse_temperature": [0.5, 2.0]}, TWO),
    "width": ({"width": [1.0]}, TWO),
    "loss": ({"loss": ["cross-entropy"]}, TWO),
    "figure-100": (FULL | {"sample_complexity": [*BELOW, 0.22]}, [1]),
    "quadratic": (FULL | {"tokens": [1], "sample_complexity": [0.1075]}, TWO),
}


def run(
    dimension: int,
    tokens: int,
    inverse_temperature: float,
    sample_complexity: float,
    starts: int,
    steps: int,
    loss: str,
    initial_scale: float,
    width: float,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Train students of width ratio ``width`` for a teacher of width ratio 1/2, in float32.

    One token stands for the quadratic network.  Overlaps are Tr(A B)/d; the histories are those
    of the mean over starts.
    """
    channel = (
        SoftmaxChannel(tokens, inverse_temperature)
        if tokens > 1
        else LinearChannel(1)
    )
    data_seed, start_seed = seed.spawn(2)
    model = AttentionIndexedModel(dimension, WishartPrior(0.5), channel)
    data = model.sample(sample_complexity, data_seed)
    result = averaged_gradient_descent(
        data,
        round(width * dimension),
        starts,
        seed=start_seed,
        channel=channel,
        loss=loss,
        initial_scale=initial_scale,
        steps=steps,
        final_learning_rate=0.0,
        record_every=steps // 20,
        single_precision=True,
        loss_tolerance=1e-13,
    )
    flat = result.estimates.reshape(starts, -1)
    gram = flat @ flat.T / dimension
    limit, slope = result.extrapolate()
    return {
        "single": float(result.history["error"][-1].mean()),
        "average": result.estimation_error,
        "limit": limit,
        "slope": slope,
        "self_overlap": float(np.trace(gram) / starts),
        "mutual_overlap": float(gram[~np.eye(starts, dtype=bool)].mean()),
        "teacher_overlap": float(
            (flat @ data.teacher.ravel()).mean() / dimension
        ),
        "teacher_norm": float(np.sum(data.teacher**2) / dimension),
        "loss_mean": float(result.loss.mean()),
        "loss_max": float(result.loss.max()),
        "steps_taken": result.steps,
        "status": result.status,
        "prefix_errors": _text(result.prefix_errors),
        "step_history": _text(result.history["step"]),
        "loss_history": _text(result.history["loss"].mean(axis=1)),
        "error_history": _text(result.history["error"].mean(axis=1)),
    }


def _text(values: Any) -> str:
    return " ".join(f"{float(value):.6g}" for value in values)


def record(name: str) -> None:
    """Run what is missing of one experiment and store its table."""
    changes, seeds = EXPERIMENTS[name]
    store = STORES / name
    outcome = sweep(run, BASE | changes, seeds, store, executor="serial")
    if outcome.failed:
        raise RuntimeError(f"{name}: {outcome.failed[0]['error']}")
    DATA.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(outcome.table, DATA / f"{name}.csv")
    shutil.copyfile(
        outcome.table.with_name("provenance.json"), DATA / f"{name}.json"
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXPERIMENTS:
        record(wanted)
