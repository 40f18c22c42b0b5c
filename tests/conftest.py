"""Shared by all tests: where published numbers to compare against may be found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def peer_data() -> Path:
    """Folder of published tables; a test that needs it is skipped, with a message, where absent."""
    folder = Path(os.environ.get("AIMLIB_PEER_DATA", ROOT.parent / "shared" / "peer-data"))
    if not folder.is_dir():
        pytest.skip(f"no published tables in {folder} (set AIMLIB_PEER_DATA to their folder)")
    return folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the book from clean with warnings as errors, once for all tests of a run."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    target = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (target / "html" / "index.html").exists():
            result = subprocess.run(
                [
                    *(
                        sys.executable,
                        "-c",
                        "from jupyter_book.cli.main import main; main()",
                        "build",
                        str(ROOT),
                    ),
                    *("--path-output", str(target), "-n", "-W", "--keep-going", "-q"),
                ],
                capture_output=True,
                text=True,
                timeout=900,
            )
            if result.returncode:
                pytest.fail(f"the book does not build:\n{result.stdout}\n{result.stderr[-6000:]}")
            (target / "_build" / "html").rename(target / "html")
    return target / "html"
