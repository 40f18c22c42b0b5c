"""The record of the faults that were looked for, and its section of RESULTS.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timing import ROOT

from aimlib.sweeps.store import read_json

RECORD = ROOT / "benchmarks" / "faults.json"


def section(path: Path = RECORD) -> str:
    """Write the record as Markdown; nothing if there is none."""
    return f"\n{table(read_json(path))}" if path.exists() else ""


def table(record: dict[str, Any]) -> str:
    """Write one row for each kind of fault."""
    machine = record["environment"]
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items())
    lines = [
        "## Faults",
        "",
        "Written by `benchmarks/faults.py`: what was tried, and how often it went wrong.",
        "",
        f"Seed {record['seed']}; Python {machine['python']}; {versions}; revision "
        f"{machine['revision']}; {machine['time']}.",
        "",
        "| what | tried | faults | how |",
        "|---|---|---|---|",
    ]
    for row in record["rows"]:
        detail = row["detail"].replace("|", "\\|")
        lines.append(f"| {row['what']} | {row['tried']} | {row['faults']} | {detail} |")
    return "\n".join(lines) + "\n"
