"""The recorded runs of the chapter "Message passing".

    python notebooks/sweeps/amp.py [NAME ...]

Each named experiment is a list of cases; every case is run once for each of its seeds and appended
to notebooks/data/amp/NAME.csv as soon as it is done, so that an interrupted run resumes where it
stopped.  NAME.json records the versions, the machine and the total run time.
"""

from __future__ import annotations

import csv
import json
import platform
import resource
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy

import aimlib
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

DATA = Path(__file__).resolve().parent.parent / "data" / "amp"
COLUMNS = (
    "channel",
    "tokens",
    "noise",
    "width_ratio",
    "sample_complexity",
    "dimension",
    "token_law",
    "variant",
    "seed",
)
RESULTS = (
    "status",
    "iterations",
    "estimation_error",
    "predicted_error",
    "bayes_optimal_error",
    "largest_damping",
    "seconds",
)

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
    base = {"noise": 0.0, "token_law": "gaussian", "variant": "default"}
    return {
        "channel": name,
        "tokens": tokens,
        "width_ratio": rho,
        "sample_complexity": float(f"{alpha:.6g}"),
        "dimension": d,
        **base,
        **extra,
    }


# ---------------------------------------------------------------------------------------------
# The experiments: seed by seed, so that whatever is done is complete for its seeds
# ---------------------------------------------------------------------------------------------


def figure() -> Iterator[dict[str, Any]]:
    """The Bayes-optimal curves at d = 100."""
    soft = (0.15, 0.35, 0.55, 0.75, 0.95, 1.2, 0.25, 0.45, 0.65, 0.85, 1.05, 1.4)
    hard = (0.1, 0.25, 0.45, 0.7, 1.0, 1.5, 0.175, 0.35, 0.575, 0.85, 1.2, 2.0)
    for seed, (name, t), rho in product(
        range(10), CHANNELS, (0.1, 0.5, 1.0, 2.0)
    ):
        scale = (
            natural(name, t, rho) if name == "softmax" else min(2.0 * rho, 1.0)
        )
        for share in soft if name == "softmax" else hard:
            yield case(name, t, rho, share * scale, 100, seed=seed)


def cures() -> Iterator[dict[str, Any]]:
    """One change to the iteration after another, on four problems of rising difficulty."""
    problems = (
        ("hardmax", 0.5, 0.4),
        ("hardmax", 0.1, 0.04),
        ("softmax", 0.5, 0.1),
    )
    problems += (("softmax", 0.1, 0.03),)
    for seed, (name, rho, alpha), variant in product(
        range(10), problems, VARIANTS
    ):
        if variant not in ("loose", "short"):
            yield case(name, 2, rho, alpha, 100, variant=variant, seed=seed)


def grid() -> Iterator[dict[str, Any]]:
    """Does anything diverge?  d = 100, 200: all, three seeds and one; d = 400: up to 0.1 d^2 tokens."""
    widths, shares = (
        (0.02, 0.05, 0.1, 0.5, 1.0, 2.0),
        (0.1, 0.2, 0.4, 0.8, 1.5, 3.0),
    )
    for (d, seeds), seed in product(((100, 3), (200, 1), (400, 1)), range(3)):
        if seed >= seeds:
            continue
        for (name, t), rho, share in product(CHANNELS, widths, shares):
            alpha = share * natural(name, t, rho)
            if d == 400 and alpha * t > 0.1:
                continue
            variant = "default" if d == 100 else "short"
            yield case(name, t, rho, alpha, d, variant=variant, seed=seed)


def sizes() -> Iterator[dict[str, Any]]:
    """The gap to the limit as d grows."""
    problems = (("softmax", 2, 0.5, 0.1), ("hardmax", 2, 0.5, 0.2))
    counts = ((50, 60), (71, 40), (100, 20), (141, 10), (200, 10), (400, 10))
    for d, seeds in (*counts, (800, 1)):
        variant = "loose" if d == 800 else "default"
        for seed, (name, t, rho, alpha) in product(range(seeds), problems):
            yield case(name, t, rho, alpha, d, seed=seed, variant=variant)


def small_width() -> Iterator[dict[str, Any]]:
    """Weak recovery of hardmax on both sides of the thresholds 0.4034 and 0.563."""
    main, all_shares = (0.3, 0.5, 0.8), (0.3, 0.4, 0.5, 0.6, 0.8)
    plan = (
        (0.05, 400, 10, main),
        (0.02, 400, 10, main),
        (0.02, 800, 10, all_shares),
    )
    plan += ((0.05, 800, 3, main), (0.02, 1600, 2, (0.5,)))
    for rho, d, seeds, shares in plan:
        for seed, rescaled in product(range(seeds), shares):
            extra = {"stream": True} if d > 800 else {}
            yield case(
                "hardmax",
                2,
                rho,
                rho * rescaled,
                d,
                seed=seed,
                variant="loose",
                **extra,
            )


def quadratic() -> Iterator[dict[str, Any]]:
    """One token: the quadratic network, with and without noise."""
    alphas = (0.075, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.35)
    for seed, noise, alpha in product(range(10), (0.0, 0.25), alphas):
        yield case("linear", 1, 0.5, alpha, 100, noise=noise, seed=seed)


def universality() -> Iterator[dict[str, Any]]:
    """Other laws of the tokens, same variance."""
    laws = ("gaussian", "rademacher", "uniform", "student")
    for seed, law in product(range(10), laws):
        yield case("softmax", 2, 0.5, 0.1, 100, token_law=law, seed=seed)
        yield case("hardmax", 2, 0.5, 0.2, 100, token_law=law, seed=seed)


def large() -> Iterator[dict[str, Any]]:
    """One run of each channel at d = 1000, tokens regenerated block by block."""
    for name, alpha in (("hardmax", 0.03), ("softmax", 0.03)):
        yield case(
            name, 2, 0.5, alpha, 1000, variant="loose", seed=0, stream=True
        )


def trajectories() -> Iterator[dict[str, Any]]:
    """Iteration by iteration, undamped for hardmax and with fixed damping for softmax."""
    for seed in range(10):
        yield case(
            "hardmax", 2, 0.5, 0.4, 200, variant="undamped", seed=seed, path=12
        )
        yield case(
            "softmax", 2, 0.5, 0.1, 200, variant="damping 0.3", seed=seed, path=20
        )


EXPERIMENTS = {
    f.__name__: f
    for f in (
        cures,
        universality,
        trajectories,
        quadratic,
        grid,
        small_width,
        sizes,
        figure,
        large,
    )
}


# ---------------------------------------------------------------------------------------------
# Running and storing
# ---------------------------------------------------------------------------------------------


def run(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One run of message passing; with "path" one row for each iteration."""
    channel = make_channel(
        settings["channel"], settings["tokens"], settings["noise"]
    )
    prior, alpha = (
        WishartPrior(settings["width_ratio"]),
        settings["sample_complexity"],
    )
    model = AttentionIndexedModel(
        settings["dimension"], prior, channel, settings["token_law"]
    )
    if settings.get("stream"):
        data: Any = StreamedDataset.regenerate(model, alpha, settings["seed"])
    else:
        data = model.sample(alpha, settings["seed"])
    options = dict(VARIANTS[settings["variant"]])
    if "path" in settings:
        options |= {"iterations": settings["path"], "tolerance": 1e-300}
    start = time.perf_counter()
    result = amp(data, prior, channel, **options)
    seconds = time.perf_counter() - start
    row = {
        "status": result.status,
        "iterations": result.iterations,
        "estimation_error": result.estimation_error,
        "predicted_error": result.predicted_error,
        "bayes_optimal_error": bayes_optimal(
            alpha, prior, channel
        ).estimation_error,
        "largest_damping": max(result.history.get("damping", [0.0])),
        "seconds": seconds,
    }
    keys = {name: settings[name] for name in COLUMNS}
    if "path" not in settings:
        return [keys | row]
    paths = zip(
        result.history["estimation_error"],
        result.history["predicted_error"],
        strict=True,
    )
    return [
        keys
        | row
        | {
            "iterations": t + 1,
            "estimation_error": error,
            "predicted_error": predicted,
        }
        for t, (error, predicted) in enumerate(paths)
    ]


def record(name: str) -> None:
    table = DATA / f"{name}.csv"
    done: set[tuple[str, ...]] = set()
    if table.exists():
        with table.open(newline="") as handle:
            done = {
                tuple(row[c] for c in COLUMNS) for row in csv.DictReader(handle)
            }
    fresh = not done
    with table.open("a", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS + RESULTS)
        if fresh:
            writer.writeheader()
        for settings in EXPERIMENTS[name]():
            if tuple(str(settings[c]) for c in COLUMNS) in done:
                continue
            for row in run(settings):
                shown = {
                    k: f"{v:.7g}" if k in RESULTS and isinstance(v, float) else v
                    for k, v in row.items()
                }
                writer.writerow(shown)
            handle.flush()
    with table.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    runs = {tuple(row[c] for c in COLUMNS): float(row["seconds"]) for row in rows}
    provenance = {
        "experiment": name,
        "description": " ".join((EXPERIMENTS[name].__doc__ or "").split()),
        "command": f"python notebooks/sweeps/amp.py {name}",
        "variants": {
            v: VARIANTS[v] for v in sorted({row["variant"] for row in rows})
        },
        "runs": len(runs),
        "seconds": round(sum(runs.values()), 1),
        "versions": {
            "aimlib": aimlib.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "numba": numba.__version__,
            "python": platform.python_version(),
        },
        "machine": f"{platform.machine()}, {platform.system()}, one thread",
    }
    if not done:  # meaningful for a process that ran this experiment alone
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        provenance["peak_memory_megabytes"] = round(peak)
    (DATA / f"{name}.json").write_text(json.dumps(provenance, indent=2) + "\n")


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - set(EXPERIMENTS))
    if unknown:
        sys.exit(
            f"unknown experiments {unknown}; choose from {sorted(EXPERIMENTS)}"
        )
    DATA.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or EXPERIMENTS:
        record(chosen)
