"""Message passing on a Dask cluster, recorded: time, memory, network and error of every iteration.

Starts as many workers on this machine as asked for, each with one BLAS thread, or uses a scheduler.
The record is written after each iteration, and a run that was killed goes on from its checkpoint:

    python benchmarks/scale.py --dimension 2000 --sample-complexity 0.05 --checkpoint scale.npz
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from distributed import Client, LocalCluster

from aimlib import (
    AttentionIndexedModel,
    SoftmaxChannel,
    StreamedDataset,
    WishartPrior,
    amp,
    bayes_optimal,
)
from aimlib.provenance import provenance
from aimlib.sweeps.store import write_json

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "notebooks" / "data" / "speed" / "scale.json"


def usage(dask_worker: Any) -> dict[str, float]:
    """What a worker has used so far, and received from others since it was asked last."""
    times = psutil.Process().cpu_times()
    log = dask_worker.transfer_incoming_log
    received = sum(entry["total"] for entry in log)
    log.clear()
    return {
        "cpu_seconds": times.user + times.system,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "received_megabytes": received / 1e6,
    }


def bare_product(dimension: int, rows: int = 1024) -> float:
    """Gigaflops a second of one product of tokens and estimate, best of three."""
    rng = np.random.default_rng(0)
    tokens, square = rng.standard_normal((rows, dimension)), np.eye(dimension)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        tokens @ square
        seconds.append(time.perf_counter() - start)
    return 2e-9 * rows * dimension**2 / min(seconds)


class Recorder:
    """Writes the record after each iteration, keeping what an earlier process recorded."""

    def __init__(self, path: Path, client: Any, facts: dict[str, Any], resumed: bool) -> None:
        self.path, self.client, self.facts = path, client, facts
        known = json.loads(path.read_text()) if resumed and path.exists() else {}
        self.rows: list[dict[str, Any]] = known.get("iterations", [])
        self.received = self.peak = 0.0
        self.last = self.now()

    def now(self) -> dict[str, Any]:
        workers = list(self.client.run(usage).values())
        self.received += sum(w["received_megabytes"] for w in workers)
        self.peak = max(w["peak_megabytes"] for w in workers)
        return {
            "seconds": time.perf_counter(),
            "root_cpu_seconds": time.process_time(),
            "worker_cpu_seconds": sum(w["cpu_seconds"] for w in workers),
            "received_megabytes": self.received,
        }

    def __call__(self, iteration: int, record: dict[str, Any]) -> None:
        before, self.last = self.last, self.now()
        spent = {name: round(self.last[name] - before[name], 3) for name in before}
        names = ("estimation_error", "predicted_error", "residual", "damping", "noise")
        # an iteration that was recorded but not kept in the checkpoint has been done again
        self.rows = [row for row in self.rows if row["iteration"] < iteration]
        self.rows.append({"iteration": iteration, **{k: record[k] for k in names}, **spent})
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        memory = {"root_peak_megabytes": round(own), "worker_peak_megabytes": round(self.peak)}
        write_json(self.path, {**self.facts, **memory, "iterations": self.rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=2000)
    parser.add_argument("--sample-complexity", type=float, default=0.05)
    parser.add_argument("--width-ratio", type=float, default=0.5)
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, default=512)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scheduler", help="address of a cluster, instead of one started here")
    parser.add_argument("--checkpoint", type=Path, default=Path("scale.npz"))
    parser.add_argument("--output", type=Path, default=RECORD)
    options = parser.parse_args()

    prior, channel = WishartPrior(options.width_ratio), SoftmaxChannel(options.tokens)
    model = AttentionIndexedModel(options.dimension, prior, channel)
    alpha = options.sample_complexity
    start = time.perf_counter()
    data = StreamedDataset.regenerate(model, alpha, seed=options.seed, block=options.block)
    n, d = len(data.outputs), options.dimension
    facts: dict[str, Any] = {
        "dimension": d,
        "sample_complexity": alpha,
        "width_ratio": options.width_ratio,
        "tokens": options.tokens,
        "seed": options.seed,
        "block": options.block,
        "sequences": n,
        "token_gigabytes": round(8e-9 * n * options.tokens * d, 3),
        "work_of_an_iteration": 4.0 * n * options.tokens * d**2,
        "workers": options.workers,
        "cores": os.cpu_count(),
        "product_gigaflops": round(bare_product(d), 1),
        "seconds_to_draw_outputs": round(time.perf_counter() - start, 1),
        "bayes_optimal_error": float(bayes_optimal(alpha, prior, channel).estimation_error),
        **provenance(HERE.parent),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    cluster: Any = options.scheduler or LocalCluster(
        n_workers=options.workers, threads_per_worker=1, dashboard_address=None
    )
    with Client(cluster) as client:
        recorder = Recorder(options.output, client, facts, options.checkpoint.exists())
        result = amp(
            data,
            prior,
            channel,
            iterations=options.iterations,
            tolerance=options.tolerance,
            callback=recorder,
            client=client,
            checkpoint=options.checkpoint,
        )
    print(
        f"{result.status} after {result.iterations} iterations: error {result.estimation_error:.4f}"
        f", claimed {result.predicted_error:.4f}, theory {facts['bayes_optimal_error']:.4f}"
    )
    if not options.scheduler:
        cluster.close()


if __name__ == "__main__":
    main()
