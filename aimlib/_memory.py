"""How much memory a new process, or a new data set, may take."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_memory() -> int:
    """Return the bytes that a new process may take.

    The smaller one of the memory that is free on this machine and of what is left of the limit of
    the container or job; ``$AIMLIB_MEMORY``, in gigabytes, overrides both.
    """
    chosen = os.environ.get("AIMLIB_MEMORY")
    if chosen is not None:
        try:
            gigabytes = float(chosen)
        except ValueError:
            gigabytes = math.nan
        if not 0 < gigabytes < math.inf:
            raise ValueError(f"AIMLIB_MEMORY must be a number of gigabytes, got {chosen!r}")
        return int(gigabytes * 10**9)
    import psutil

    return min(int(psutil.virtual_memory().available), _left_in_group())


def _left_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int:
    """What is left of the limit of the control group that this process runs in, on Linux."""
    try:
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        cached = dict(
            line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines()
        )
        return limit - used + int(cached.get("inactive_file", 0))
    except (OSError, ValueError):  # no limit ("max"), no such files, another system
        return 2**63


def readable(count: float) -> str:
    """Return a number of bytes with its unit."""
    power = min(int(math.log(max(count, 1.0), 1024.0)), 5)
    return f"{count / 1024.0**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"
