"""Experiments for sweeps: one call is one run on one random data set, with flat results."""

from __future__ import annotations

from typing import Any

import numpy as np

from aimlib.channels import Channel, HardmaxChannel, LinearChannel, SoftmaxChannel
from aimlib.descent import averaged_gradient_descent
from aimlib.model import AttentionIndexedModel
from aimlib.priors import WishartPrior
from aimlib.replica import bayes_optimal

__all__ = ["averaged_descent", "theory"]


def _channel(name: str, tokens: int, inverse_temperature: float) -> Channel:
    if name == "softmax":
        return SoftmaxChannel(tokens, inverse_temperature)
    if name == "hardmax":
        return HardmaxChannel(tokens)
    if name == "linear":
        return LinearChannel(tokens)
    raise ValueError(f"channel must be 'softmax', 'hardmax' or 'linear', got {name!r}")


def theory(
    channel: str, tokens: int, width_ratio: float, sample_complexity: float, seed: Any = None
) -> dict[str, Any]:
    """Return the Bayes-optimal error; nothing is random."""
    result = bayes_optimal(
        sample_complexity, WishartPrior(width_ratio), _channel(channel, tokens, 1.0)
    )
    return {"error": result.estimation_error, "converged": result.converged}


def averaged_descent(
    dimension: int,
    width_ratio: float,
    tokens: int,
    inverse_temperature: float,
    sample_complexity: float,
    starts: int,
    steps: int,
    seed: np.random.SeedSequence,
) -> dict[str, Any]:
    """Train students on softmax attention; return errors of single starts and of averages.

    Results
    -------
    single : mean error of the starts; average : error of their average; limit : the extrapolation
    to infinitely many; loss : largest final loss; alignment : mean overlap Tr(S S')/d between
    different starts; norm : mean Tr(S S)/d.  Exact posterior samples have alignment q and norm Q.
    """
    channel = SoftmaxChannel(tokens, inverse_temperature)
    data_seed, start_seed = seed.spawn(2)
    model = AttentionIndexedModel(dimension, WishartPrior(width_ratio), channel)
    data = model.sample(sample_complexity, data_seed)
    result = averaged_gradient_descent(
        data,
        round(width_ratio * dimension),
        starts=starts,
        seed=start_seed,
        channel=channel,
        steps=steps,
        final_learning_rate=0.0,
        record_every=steps,
    )
    flat = result.estimates.reshape(starts, -1)
    gram = flat @ flat.T / dimension
    limit, _ = result.extrapolate() if starts > 1 else (result.estimation_error, 0.0)
    off = gram[~np.eye(starts, dtype=bool)]
    return {
        "single": float(result.history["error"][-1].mean()),
        "average": result.estimation_error,
        "limit": limit,
        "loss": float(result.loss.max()),
        "alignment": float(off.mean()) if starts > 1 else float("nan"),
        "norm": float(np.trace(gram) / starts),
    }
