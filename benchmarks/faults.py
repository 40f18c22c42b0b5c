"""What goes wrong?  One run tries: processes killed, random parameters, wrong inputs, full disks.

Writes benchmarks/faults.json and the section "Faults" of benchmarks/RESULTS.md; the exit code is 1
if there was a fault.

    python benchmarks/faults.py                       # about ten minutes
    python benchmarks/faults.py --only points disks   # these anew, the rest stays
    python benchmarks/faults.py --tiny                # a minute: to see that it runs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fault_inputs
import fault_points
import fault_record
import fault_runs
import numpy as np
import suite
from timing import environment

from aimlib.sweeps.store import read_json, write_json

Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    kills: int = 20
    cells: int = 400
    dimension: int = 100
    points: int = 10_000
    inputs: int = 10_000  # at most: all that there are
    apart: int = 25


TINY = Size(kills=2, cells=40, dimension=30, points=48, inputs=60, apart=2)
Part = Callable[[Path, Size, np.random.Generator], Row]
PARTS: dict[str, Part] = {
    "sweeps": lambda folder, size, rng: fault_runs.kill_sweeps(
        folder, size.kills, rng, size.cells, longest=1.5 if size.cells > 100 else 0.3
    ),
    "amp": lambda folder, size, rng: fault_runs.kill_message_passing(
        folder, size.kills, rng, size.dimension, longest=0.6 if size.dimension > 50 else 0.1
    ),
    "points": lambda folder, size, rng: fault_points.try_points(size.points, rng),
    "inputs": lambda folder, size, rng: fault_inputs.try_inputs(
        folder, size.inputs, size.apart, rng
    ),
    "disks": lambda folder, size, rng: fault_inputs.try_disks(folder),
}


def try_all(size: Size, seed: int, only: list[str], record: Path, page: Path) -> int:
    """Try the parts, each with a stream of its own, and keep each as soon as it is there."""
    rows = {row["part"]: row for row in read_json(record)["rows"]} if record.exists() else {}
    for number, (name, part) in enumerate(PARTS.items()):
        if name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = {
                "part": name,
                **part(Path(folder), size, np.random.default_rng([seed, number])),
            }
        print(f"{name}: {rows[name]['tried']} tried, {rows[name]['faults']} faults", flush=True)
        for example, found in rows[name].get("examples", {}).items():
            print(f"    {example}: {found}", flush=True)
        kept = {
            "seed": seed,
            "environment": environment("wall"),
            "rows": [rows[name] for name in PARTS if name in rows],
        }
        write_json(record, kept)
    if page.exists() and record == fault_record.RECORD:
        page.write_text(suite.table(read_json(suite.RESULTS)), encoding="utf-8")
    print(fault_record.table(read_json(record)))
    return int(any(rows[name]["faults"] for name in only))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--tiny", action="store_true", help="a minute: to see that it runs")
    parser.add_argument("--record", type=Path, default=fault_record.RECORD)
    options = parser.parse_args()
    size = TINY if options.tiny else Size()
    return try_all(size, options.seed, options.only, options.record, suite.PAGE)


if __name__ == "__main__":
    sys.exit(main())
