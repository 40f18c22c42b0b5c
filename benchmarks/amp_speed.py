"""Message passing against the hardware: one iteration over its two bare matrix products.

Prints the ratio for several dimensions; both times are the best of three, measured in one run.
Then the time, the error and the memory of whole runs of the quadratic network (one token) and,
with ``--peer``, of the notebook published with arXiv:2408.03733 on the same problem.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
import timeit
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import quad

from aimlib import (
    AttentionIndexedModel,
    Dataset,
    HardmaxChannel,
    LinearChannel,
    SoftmaxChannel,
    WishartPrior,
    amp,
    bayes_optimal,
)


def best_of(repeats: int, function: Callable[[], object]) -> float:
    return min(timeit.repeat(function, number=1, repeat=repeats))


def products(data: Dataset) -> Callable[[], object]:
    """X S and X^T (X S) at the shape of the data: what no first-order method can avoid."""
    flat = data.tokens.reshape(-1, data.dimension)
    weights = np.eye(data.dimension)
    out = np.empty_like(flat)
    return lambda: flat.T @ np.matmul(flat, weights, out=out)


def iteration_seconds(data: Dataset, prior: WishartPrior, channel: object, repeats: int) -> float:
    """Seconds per iteration, start and checks of the data left out."""
    stamps: list[float] = []

    def stamp(iteration: int, record: dict[str, float]) -> None:
        stamps.append(time.perf_counter())

    amp(data, prior, channel, iterations=1 + repeats, tolerance=1e-300, callback=stamp)
    return float(np.min(np.diff(stamps)))


def ratios(dimensions: list[int], repeats: int) -> None:
    print("dimension  channel   alpha   products (ms)  iteration (ms)  ratio")
    prior = WishartPrior(0.5)
    for d in dimensions:
        for channel in (SoftmaxChannel(tokens=2), HardmaxChannel(tokens=2)):
            alpha = 0.15 if isinstance(channel, SoftmaxChannel) else 0.4
            data = AttentionIndexedModel(d, prior, channel).sample(alpha, seed=0)
            bare = best_of(repeats, products(data))
            full = iteration_seconds(data, prior, channel, repeats)
            name = type(channel).__name__[:7].lower()
            print(
                f"{d:9d}  {name}  {alpha:6.2f}  {1e3 * bare:13.1f}  {1e3 * full:14.1f}"
                f"  {full / bare:5.2f}"
            )


def quadratic(instances: int, dimension: int, alpha: float) -> float:
    """Whole noiseless runs of the quadratic network at rho = 1/2; return seconds a run."""
    prior, channel = WishartPrior(0.5), LinearChannel(tokens=1)
    amp(AttentionIndexedModel(10, prior, channel).sample(0.5, seed=0), prior, channel)  # compile
    errors, seconds = [], []
    for seed in range(instances):
        data = AttentionIndexedModel(dimension, prior, channel).sample(alpha, seed=seed)
        tracemalloc.start()
        amp(data, prior, channel, iterations=2)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        start = time.perf_counter()
        result = amp(data, prior, channel)
        seconds.append(time.perf_counter() - start)
        errors.append(result.estimation_error)
    theory = bayes_optimal(alpha, prior, channel).estimation_error
    print(f"\none token, d = {dimension}, alpha = {alpha}; theory {theory:.4f}")
    print(f"ours:  {np.mean(seconds):7.2f} s a run, error {describe(errors)}, memory {peak:.1f} MB")
    return float(np.mean(seconds))


def peer(notebook: str, instances: int, dimension: int, alpha: float, ours: float) -> None:
    """Run the functions of a published notebook, in memory, on the same problem."""
    space: dict[str, Any] = {"noise": 0.0, "np": np, "quad": quad}
    for cell in json.loads(open(notebook, encoding="utf-8").read())["cells"]:
        tree = ast.parse("".join(cell["source"])) if cell["cell_type"] == "code" else ast.parse("")
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        exec(compile(ast.Module(functions, []), notebook, "exec"), space)
    errors, seconds = [], []
    for seed in range(instances):
        np.random.seed(seed)  # noqa: NPY002 -- the notebook draws from the global generator
        x, y, s = space["data_generation"](dimension, 0.5, alpha, 0.0)
        start = time.perf_counter()
        errors.append(space["AMP"](x, y, s, 0.5, damping=0.5)[1])
        seconds.append(time.perf_counter() - start)
    print(
        f"peer:  {np.mean(seconds):7.2f} s a run, error {describe(errors)}, "
        f"memory {2 * x.nbytes / 1e6:.0f} MB for its tensor alone"
    )
    print(f"ratio: {np.mean(seconds) / ours:7.1f} times faster")


def describe(errors: list[Any]) -> str:
    spread = np.std(errors, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else float("nan")
    return f"{np.mean(errors):.4f} +- {spread:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--instances", type=int, default=3, help="runs of the quadratic network")
    parser.add_argument(
        "--peer", help="a copy of AMP.ipynb of SPOC-group/ExtensiveWidthQuadraticSamples"
    )
    arguments = parser.parse_args()
    ratios(arguments.dimensions, arguments.repeats)
    if arguments.instances > 0:
        seconds = quadratic(arguments.instances, dimension=100, alpha=0.25)
        if arguments.peer:
            peer(arguments.peer, arguments.instances, dimension=100, alpha=0.25, ours=seconds)


if __name__ == "__main__":
    main()
