"""What a result was made with: versions, revision, time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

__all__ = ["provenance"]

_PACKAGES = ("aimlib", "numpy", "scipy", "numba", "matplotlib", "papermill")


def provenance(root: Path) -> dict[str, Any]:
    """Return versions, git revision of ``root`` and time for the record of a result."""
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "versions": versions,
        "revision": _revision(root),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _revision(root: Path) -> str | None:
    if not (root / ".git").exists():  # git would look above, and find the repository of others
        return None
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
