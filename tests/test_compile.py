"""Compiled kernels: renewed by any edit, cached where a cache can be written, working elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aimlib import _compile

ROOT = Path(__file__).resolve().parent.parent
PROBE = """
import math
from aimlib._compile import njit
from aimlib._normal import normal_pdf

@njit
def probe(x: float) -> float:
    return math.sqrt(2.0 * math.pi) * normal_pdf(x)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package without caches, with a kernel that calls one of another module."""
    target = tmp_path / "aimlib"
    shutil.copytree(ROOT / "aimlib", target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "_probe.py").write_text(PROBE)
    return target


def start(copy: Path, **environment: str) -> subprocess.Popen[str]:
    """Print the value and how many kernels came from the cache."""
    code = (
        "from aimlib._probe import probe; value = probe(0.0);"
        "print(value, sum(probe.dispatcher.stats.cache_hits.values()))"
    )
    clean = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", code],
        env=clean | {"PYTHONPATH": str(copy.parent), "HOME": str(copy.parent)} | environment,
        cwd=copy.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[float, int]:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    value, hits = output.split()
    return float(value), int(hits)


def run(copy: Path, **environment: str) -> tuple[float, int]:
    return finish(start(copy, **environment))


def edit_helper(copy: Path) -> None:
    helper = copy / "_normal.py"
    text = helper.read_text()
    assert text.count("return INVERSE_SQRT_2PI * math.exp") == 1
    helper.write_text(
        text.replace(
            "return INVERSE_SQRT_2PI * math.exp", "return 1.5 * INVERSE_SQRT_2PI * math.exp"
        )
    )


def caches(copy: Path) -> set[str]:
    return {folder.name for folder in (copy / "__pycache__" / "kernels").iterdir()}


def test_an_edit_of_a_helper_renews_the_kernels_that_call_it(copy: Path) -> None:
    assert run(copy) == (pytest.approx(1.0, rel=1e-15), 0)
    assert run(copy) == (pytest.approx(1.0, rel=1e-15), 1)  # warm
    before = caches(copy)
    edit_helper(copy)
    assert run(copy) == (pytest.approx(1.5, rel=1e-15), 0)
    assert len(before) == 1
    assert len(caches(copy)) == 2


def test_a_pinned_key_keeps_the_cache_through_edits_of_other_files(copy: Path) -> None:
    """For mutation of modules without kernels; numba still renews those whose own file changes."""
    pinned = {_compile.KEY_VARIABLE: "mutants"}
    assert run(copy, **pinned)[0] == pytest.approx(1.0, rel=1e-15)
    edit_helper(copy)
    assert run(copy, **pinned) == (pytest.approx(1.0, rel=1e-15), 1)
    assert caches(copy) == {"mutants"}
    bad = start(copy, **{_compile.KEY_VARIABLE: "../elsewhere"})
    assert "AIMLIB_KERNEL_KEY must be made of letters" in bad.communicate(timeout=60)[1]


def test_old_caches_are_removed_and_recent_ones_kept(tmp_path: Path) -> None:
    names = [f"old{k}" for k in range(5)] + ["yesterday"]
    used = time.time() - 10 * 86400.0
    for k, name in enumerate(names):
        (tmp_path / name / "aimlib").mkdir(parents=True)
        (tmp_path / name / "aimlib" / "kernel.nbc").touch()
        moment = used + k if name != "yesterday" else time.time() - 3600.0
        os.utime(tmp_path / name, (moment, moment))
    (tmp_path / "mine").mkdir()
    os.utime(tmp_path / "mine", (0.0, 0.0))
    _compile.prune(tmp_path / "mine")
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {"mine", "yesterday", "old4", "old3"}


def test_a_read_only_install_caches_for_the_user_and_else_in_memory(copy: Path) -> None:
    """A file where the folder should be: what root may not write either."""
    (copy / "__pycache__").touch()
    home = copy.parent / "home"
    home.mkdir()
    user = {"HOME": str(home), "XDG_CACHE_HOME": str(home)}
    assert run(copy, **user) == (pytest.approx(1.0, rel=1e-15), 0)
    assert run(copy, **user) == (pytest.approx(1.0, rel=1e-15), 1)
    assert list(home.rglob("*.nbc"))
    nowhere = {"HOME": str(copy / "__pycache__"), "XDG_CACHE_HOME": str(copy / "__pycache__")}
    for _ in range(2):
        assert run(copy, **nowhere) == (pytest.approx(1.0, rel=1e-15), 0)


def test_a_folder_named_by_the_user_is_used(copy: Path) -> None:
    folder = copy.parent / "named"
    assert run(copy, NUMBA_CACHE_DIR=str(folder))[0] == pytest.approx(1.0, rel=1e-15)
    assert list(folder.rglob("*.nbc"))
    assert not (copy / "__pycache__").exists()


def test_processes_may_start_together(copy: Path) -> None:
    processes = [start(copy) for _ in range(4)]
    assert [finish(p)[0] for p in processes] == pytest.approx([1.0] * 4, rel=1e-15)
    assert run(copy)[1] == 1


def add_one(x: float) -> float:
    return x + 1.0


def test_kernels_do_not_relax_arithmetic() -> None:
    """fastmath would break the tests for NaN and infinity on which the kernels rely."""
    kernel = _compile.njit(add_one)
    assert kernel(2.0) == 3.0
    assert not kernel.dispatcher.targetoptions.get("fastmath")
    assert not kernel.dispatcher.targetoptions.get("parallel")


def test_numba_settings_are_left_as_they_were() -> None:
    import numba

    before = numba.config.CACHE_DIR
    assert _compile.njit(add_one)(1.0) == 2.0
    assert numba.config.CACHE_DIR == before


def test_importing_the_package_does_not_import_numba() -> None:
    """It takes longer than all the rest, and a command such as --help needs no kernel."""
    code = "import sys, aimlib; print('numba' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False"]


def test_all_kernels_go_through_the_one_decorator() -> None:
    """A bare numba.njit in a module would lose the key and the fallback."""
    for path in (ROOT / "aimlib").rglob("*.py"):
        if path.name != "_compile.py":
            assert not re.search(r"^\s*(import|from)\s+numba", path.read_text(), re.M), path
