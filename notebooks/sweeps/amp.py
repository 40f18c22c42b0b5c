"""The recorded runs of the chapter "Message passing".

    python notebooks/sweeps/amp.py [NAME ...]

Each named experiment is a list of cases with their seeds, in parts that differ in the number of
seeds.  Its table and provenance are stored as notebooks/data/amp/NAME.csv and NAME.json; an
interrupted experiment resumes where it stopped.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np
from recording import number, record, spread

from aimlib import (
    AttentionIndexedModel,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    StreamedDataset,
    WishartPrior,
    amp,
    bayes_optimal,
    strong_recovery_threshold,
    weak_recovery_threshold,
)

Part = tuple[list[dict[str, Any]], Any]  # cases and their seeds
IN_MEMORY = 800  # largest dimension whose tokens are held

# What the textbook takes from the infinite-size theory, and one cure after another.
TEXTBOOK = {"denoiser": "resolvent", "onsager": "limit", "damping": 0.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "A from squares": {**TEXTBOOK, "response": "squares"},
    "A from the channel": {**TEXTBOOK, "noise": "response"},
    "+ damping": {**TEXTBOOK, "noise": "response", "damping": 0.3},
    "+ edge": {
        "denoiser": "edge",
        "onsager": "limit",
        "noise": "response",
        "damping": 0.3,
    },
    "+ tangent": {
        "denoiser": "tangent",
        "onsager": "limit",
        "noise": "response",
        "damping": 0.3,
    },
    "+ measured noise": {
        "denoiser": "tangent",
        "onsager": "limit",
        "damping": 0.3,
    },
    "+ divergence": {"denoiser": "tangent", "damping": 0.3},
    "resolvent": {"denoiser": "resolvent"},
    "edge": {"denoiser": "edge"},
    "clip": {"denoiser": "clip"},
    "empirical": {"denoiser": "empirical"},
    "undamped": {"damping": 0.0},
    "damping 0.3": {"damping": 0.3},
    "damping 0.6": {"damping": 0.6},
    "loose": {"tolerance": 1e-4, "iterations": 60},
    "short": {"iterations": 60},
}
CHANNELS = (("softmax", 2), ("softmax", 3), ("hardmax", 2))


def make_channel(name: str, tokens: int, noise: float) -> Any:
    if name == "softmax":
        return SoftmaxChannel(tokens=tokens)
    if name == "hardmax":
        return HardmaxChannel(tokens=tokens)
    return LinearChannel(tokens=tokens, noise=noise)


def natural(name: str, tokens: int, rho: float) -> float:
    """Return the strong threshold of softmax; for hardmax twice the small-width weak one."""
    channel = make_channel(name, tokens, 0.0)
    if name == "hardmax":
        return 2.0 * weak_recovery_threshold(channel) * min(rho, 1.0)
    return strong_recovery_threshold(WishartPrior(rho), channel)


def case(
    name: str, tokens: int, rho: float, alpha: float, d: int, **extra: Any
) -> dict[str, Any]:
    return {
        "channel": name,
        "tokens": tokens,
        "noise": 0.0,
        "width_ratio": rho,
        "sample_complexity": float(f"{alpha:.6g}"),
        "dimension": d,
        "token_law": "gaussian",
        "variant": "default",
        **extra,
    }


# ---------------------------------------------------------------------------------------------
# The experiments
# ---------------------------------------------------------------------------------------------


def figure() -> list[Part]:
    """The Bayes-optimal curves at d = 100."""
    soft = (0.15, 0.35, 0.55, 0.75, 0.95, 1.2, 0.25, 0.45, 0.65, 0.85, 1.05, 1.4)
    hard = (0.1, 0.25, 0.45, 0.7, 1.0, 1.5, 0.175, 0.35, 0.575, 0.85, 1.2, 2.0)
    cases = []
    for (name, t), rho in product(CHANNELS, (0.1, 0.5, 1.0, 2.0)):
        shares, scale = hard, min(2.0 * rho, 1.0)
        if name == "softmax":
            shares, scale = soft, natural(name, t, rho)
        cases += [case(name, t, rho, share * scale, 100) for share in shares]
    return [(cases, 10)]


def cures() -> list[Part]:
    """One change to the iteration after another, on four problems of rising difficulty."""
    problems = (
        ("hardmax", 0.5, 0.4),
        ("hardmax", 0.1, 0.04),
        ("softmax", 0.5, 0.1),
        ("softmax", 0.1, 0.03),
    )
    cases = [
        case(name, 2, rho, alpha, 100, variant=variant)
        for (name, rho, alpha), variant in product(problems, VARIANTS)
        if variant not in ("loose", "short")
    ]
    return [(cases, 10)]


def grid() -> list[Part]:
    """Does anything diverge?  d = 100, 200: all, three seeds and one; d = 400: up to 0.1 d^2 tokens."""
    widths, shares = (
        (0.02, 0.05, 0.1, 0.5, 1.0, 2.0),
        (0.1, 0.2, 0.4, 0.8, 1.5, 3.0),
    )
    parts = []
    for d, seeds in ((100, 3), (200, 1), (400, 1)):
        variant, cases = "default" if d == 100 else "short", []
        for (name, t), rho, share in product(CHANNELS, widths, shares):
            alpha = share * natural(name, t, rho)
            if d < 400 or alpha * t <= 0.1:
                cases.append(case(name, t, rho, alpha, d, variant=variant))
        parts.append((cases, seeds))
    return parts


def sizes() -> list[Part]:
    """The gap to the limit as d grows."""
    problems = (("softmax", 2, 0.5, 0.1), ("hardmax", 2, 0.5, 0.2))
    counts = ((50, 60), (71, 40), (100, 20), (141, 10), (200, 10), (400, 10))
    parts = [([case(*p, d) for p in problems], seeds) for d, seeds in counts]
    return [*parts, ([case(*p, 800, variant="loose") for p in problems], 1)]


def small_width() -> list[Part]:
    """Weak recovery of hardmax on both sides of the thresholds 0.4034 and 0.563."""
    main, all_shares = (0.3, 0.5, 0.8), (0.3, 0.4, 0.5, 0.6, 0.8)
    plan = (
        (0.05, 400, 10, main),
        (0.02, 400, 10, main),
        (0.02, 800, 10, all_shares),
        (0.05, 800, 3, main),
    )
    return [
        (
            [
                case("hardmax", 2, rho, rho * s, d, variant="loose")
                for s in shares
            ],
            seeds,
        )
        for rho, d, seeds, shares in plan
    ]


def small_width_large() -> list[Part]:
    """Two teachers of the smallest width at d = 1600, tokens regenerated block by block."""
    return [([case("hardmax", 2, 0.02, 0.01, 1600, variant="loose")], 2)]


def quadratic() -> list[Part]:
    """One token: the quadratic network, with and without noise."""
    alphas = (0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.35)
    cases = [
        case("linear", 1, 0.5, alpha, 100, noise=noise)
        for noise, alpha in product((0.0, 0.25), alphas)
    ]
    return [(cases, 10)]


def universality() -> list[Part]:
    """Other laws of the tokens, same variance."""
    laws = ("gaussian", "rademacher", "uniform", "student")
    problems = (("softmax", 2, 0.5, 0.1), ("hardmax", 2, 0.5, 0.2))
    pairs = product(laws, problems)
    return [([case(*p, 100, token_law=law) for law, p in pairs], 10)]


def large() -> list[Part]:
    """One run of each channel at d = 1000, tokens regenerated block by block."""
    names = ("hardmax", "softmax")
    return [([case(n, 2, 0.5, 0.03, 1000, variant="loose") for n in names], 1)]


def trajectories() -> list[Part]:
    """Iteration by iteration, undamped for hardmax and with fixed damping for softmax."""
    cases = [
        case("hardmax", 2, 0.5, 0.4, 200, variant="undamped"),
        case("softmax", 2, 0.5, 0.1, 200, variant="damping 0.3"),
    ]
    return [(cases, 10)]


EXPERIMENTS = {
    f.__name__: f
    for f in (
        *(cures, universality, trajectories, quadratic, grid),
        *(small_width, sizes, figure, large, small_width_large),
    )
}
PATHS = {"undamped": 12, "damping 0.3": 20}


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


def run(
    channel: str,
    tokens: int,
    noise: float,
    width_ratio: float,
    sample_complexity: float,
    dimension: int,
    token_law: str,
    variant: str,
    seed: np.random.SeedSequence,
    **options: Any,
) -> dict[str, Any]:
    """One run of message passing."""
    output, prior = (
        make_channel(channel, tokens, noise),
        WishartPrior(width_ratio),
    )
    model = AttentionIndexedModel(dimension, prior, output, token_law)
    alpha = sample_complexity
    if dimension > IN_MEMORY:
        data: Any = StreamedDataset.regenerate(model, alpha, number(seed))
    else:
        data = model.sample(alpha, number(seed))
    result = amp(data, prior, output, **(VARIANTS[variant] | options))
    optimum = bayes_optimal(alpha, prior, output).estimation_error
    return {
        "status": result.status,
        "iterations": result.iterations,
        "estimation_error": result.estimation_error,
        "predicted_error": result.predicted_error,
        "bayes_optimal_error": optimum,
        "largest_damping": max(result.history.get("damping", [0.0])),
    }


def follow(
    variant: str, seed: np.random.SeedSequence, **problem: Any
) -> dict[str, Any]:
    """One run with a result for each of its iterations, in lists that make rows."""
    path: list[dict[str, Any]] = []
    length = PATHS[variant]
    row = run(
        **problem,
        variant=variant,
        seed=seed,
        iterations=length,
        tolerance=1e-300,
        callback=lambda _, entry: path.append(entry),
    )
    lists = {
        name: spread(entry[name] for entry in path)
        for name in ("estimation_error", "predicted_error")
    }
    return row | {"iterations": spread(range(1, length + 1))} | lists


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - set(EXPERIMENTS))
    if unknown:
        sys.exit(
            f"unknown experiments {unknown}; choose from {sorted(EXPERIMENTS)}"
        )
    for chosen in sys.argv[1:] or EXPERIMENTS:
        function = follow if chosen == "trajectories" else run
        record("amp", chosen, function, parts=EXPERIMENTS[chosen]())
