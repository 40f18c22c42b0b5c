"""The wheel alone: installed into an empty environment it lists and runs the chapters."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The command in an environment that holds the wheel and what it declares to need.

    With AIMLIB_TEST_INSTALL=1 the needs are installed too, from the package index; without, they
    are lent by the environment of the tests, and the test below compares them with those declared.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    online = os.environ.get("AIMLIB_TEST_INSTALL") == "1"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, *([] if online else ["--no-deps"]), str(wheel)], check=True)
    if not online:
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        own = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        lent = sysconfig.get_path("purelib")
        Path(own.stdout.strip(), "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    return python.with_name("aimlib")


def run(command: Path, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "AIMLIB_BOOK")}
    if os.environ.get("AIMLIB_TEST_INSTALL") != "1":  # templates of nbconvert lie beside packages
        environment["JUPYTER_PATH"] = str(Path(sys.prefix) / "share" / "jupyter")
    return subprocess.run(
        [command, *words], capture_output=True, text=True, cwd=folder, env=environment, timeout=600
    )


def test_the_package_is_the_installed_one(installed, tmp_path) -> None:
    """And not the checkout of the tests."""
    ask = "import aimlib; print(aimlib.__file__)"
    python = installed.with_name("python")
    found = run(python, "-c", ask, folder=tmp_path).stdout.strip()
    assert Path(found).is_relative_to(installed.parent.parent)


def test_chapters_are_listed_and_run(installed, tmp_path) -> None:
    listing = run(installed, "chapters", folder=tmp_path)
    assert listing.returncode == 0, listing.stderr
    assert len(listing.stdout.splitlines()) == len(list((ROOT / "notebooks").glob("*.ipynb")))
    result = run(installed, "run", "softmax", "-p", "points", "8", "--json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert Path(found["folder"]).parent == tmp_path / "runs"
    assert found["parameters"]["points"] == 8
    assert found["revision"] is None  # not that of a repository around the environment
    assert Path(found["page"]).is_file()


def test_a_chapter_with_recorded_runs_runs(installed, tmp_path) -> None:
    result = run(installed, "run", "claims", folder=tmp_path)
    assert result.returncode == 0, result.stderr


def test_it_declares_what_running_imports(wheel) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("dist-info/METADATA"))
        text = archive.read(metadata).decode()
    needs = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", text, re.MULTILINE)
    for package in "papermill nbconvert nbformat ipykernel myst-nb psutil pyyaml tqdm".split():
        assert package in needs
    assert "aimlib/carried/CITATION.cff" in names
    for path in (ROOT / "notebooks").rglob("*"):
        if path.suffix in (".ipynb", ".csv", ".toml", ".py") and "__pycache__" not in path.parts:
            name = f"aimlib/carried/{path.relative_to(ROOT).as_posix()}"
            assert name in names
    assert not [name for name in names if ".ipynb_checkpoints" in name or name.startswith("tests")]
