"""Shared by all tests: where published numbers to compare against may be found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def peer_data() -> Path:
    """Folder of published tables; a test that needs it is skipped, with a message, where absent."""
    folder = Path(os.environ.get("AIMLIB_PEER_DATA", ROOT.parent / "shared" / "peer-data"))
    if not folder.is_dir():
        pytest.skip(f"no published tables in {folder} (set AIMLIB_PEER_DATA to their folder)")
    return folder
