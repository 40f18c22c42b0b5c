"""The command line: what it prints, what it refuses, and in which surroundings it works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_chapters import CHAPTERS, ROOT, book, leftovers, write  # noqa: F401


def aim(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aimlib", *words],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        cwd=folder,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_command_line_lists_and_inspects() -> None:
    listing = aim("chapters")
    assert listing.returncode == 0
    assert all(chapter.name in listing.stdout for chapter in CHAPTERS)
    inspect = aim("parameters", "softmax")
    assert "tokens = 2" in inspect.stdout
    assert "from 2 to 12" in inspect.stdout
    assert "--preset" in inspect.stdout


def test_command_line_refuses_before_anything_runs(book) -> None:  # noqa: F811
    for name, content in {
        "empty.yml": b"# nothing yet",
        "unchanged.toml": b"[one]",
        "latin.toml": "[one]\nx = 3 # café".encode("latin-1"),
        "octal.yml": b"one: {x: 07}",
        "twice.yml": b"one:\n  x: 3\n  x: 4",
        "flat.yml": b"x: 3",
        "good.toml": b"[one]\nx = 3",
        "unknown.yml": b"y: 3",
        "record.json": b'{"chapter": "two", "parameters": {"x": 3}}',
    }.items():
        (book / name).write_bytes(content)
    for words, message in (
        (("run", "one", "-p", "X", "3"), "no parameter 'X'"),
        (("run", "one", "-p", "x", "10"), "int from 0 to 9"),
        (("run", "one", "-p", "x", "1", "-p", "x", "2"), "given twice"),
        (("run", "two"), "no chapter 'two'"),
        (("parameters", "two"), "no chapter 'two'"),
        (("edition", "nowhere.yml"), "cannot read"),
        (("edition", "empty.yml"), "empty.yml is empty"),
        (("edition", "unchanged.toml"), "the edition changes nothing"),
        (("edition", "latin.toml"), "byte 0xe9 in line 2 is not UTF-8"),
        (("edition", "octal.yml"), "octal number"),
        (("edition", "twice.yml"), "given twice, in lines 2 and 3"),
        (("edition", "flat.yml"), "must map chapters to mappings"),
        (("edition", "good.toml", "--output", "good.toml/x"), "output cannot be written"),
        (("run", "one", "--param-file", "nowhere.yml"), "cannot read"),
        (("run", "one", "--param-file", "empty.yml"), "empty.yml is empty"),
        (("run", "one", "--param-file", "unknown.yml"), "no parameter 'y'"),
        (("run", "one", "--param-file", "record.json"), "record of a run of 'two'"),
        (("run", "one", "--output", "good.toml/x"), "output cannot be written"),
        (("run", "one", "-p", "x", "1,10"), "int from 0 to 9"),
        (("run", "one", "-p", "x", "1,1"), "value 1 twice"),
    ):
        result = aim(*words, folder=book)
        assert result.returncode == 1
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert result.stdout == ""
    assert leftovers(book) == []


def test_command_line_runs(book) -> None:  # noqa: F811
    result = aim("run", "one", "-p", "x", "7", "--output", "out", folder=book)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{book / 'out'}\n"
    assert result.stderr == ""  # a good run has nothing to say
    assert (book / "out" / "notebook.ipynb").exists()
    assert aim("nonsense").returncode == 2


def test_command_line_with_a_file_prints_json(book) -> None:  # noqa: F811
    (book / "mine.yml").write_text("x: 3\n")
    result = aim("run", "one", "--param-file", "mine.yml", "--json", folder=book)
    found = json.loads(result.stdout)
    assert found["parameters"] == {"x": 3}
    assert Path(found["page"]).is_file()
    record = Path(found["folder"]) / "parameters.json"
    again = aim("run", "one", "--param-file", str(record), "--json", folder=book)
    assert json.loads(again.stdout)["folder"] == found["folder"]
    over = aim("run", "one", "--param-file", "mine.yml", "-p", "x", "5", "--json", folder=book)
    assert json.loads(over.stdout)["parameters"] == {"x": 5}
    wrong = aim("run", "one", "-p", "x", "10", "--json", folder=book)
    assert wrong.returncode == 1
    assert "int from 0 to 9" in json.loads(wrong.stdout)["error"]


def test_command_line_runs_a_grid_and_opens_its_index(book, monkeypatch) -> None:  # noqa: F811
    """Lists in a file and on the command line; the browser is a script that notes its address."""
    browser = book / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{book}/opened"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    (book / "mine.toml").write_text("x = [3, 4]\n")
    result = aim("run", "one", "--param-file", "mine.toml", "--open", folder=book)
    assert result.returncode == 0, result.stderr
    target = Path(result.stdout.strip())
    assert (book / "opened").read_text().strip() == (target / "index.html").as_uri()
    write(book / "notebooks" / "one.ipynb", ("x = 1", True), ("assert x != 4", False))
    failing = aim("run", "one", "-p", "x", "[3,4]", "--json", folder=book)
    assert failing.returncode == 1
    assert "a run failed" in failing.stderr
    assert ["error" in run for run in json.loads(failing.stdout)["runs"]] == [False, True]


@pytest.mark.skipif(os.name == "nt", reason="names of files are Unicode on Windows")
@pytest.mark.parametrize("name", ["é", "\udce9"], ids=["UTF-8", "no encoding"])
def test_any_folder_in_any_locale(book, name, monkeypatch) -> None:  # noqa: F811
    """A checkout and a result below a name that the locale does not know."""
    checkout = book / name / "book"
    shutil.copytree(book, checkout, ignore=lambda *_: [name])
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    for words in ((), ("--output", str(book / name / "out")), ("-p", "x", "2,3", "--json")):
        result = aim("run", "one", *words, folder=checkout)
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
    assert (book / name / "out" / "notebook.html").is_file()
    grid = book / name / "grid.yml"
    grid.write_text(
        "function: mine:f\ngrid: {scale: [1.0]}\nseeds: 1\nstore: out2\nexecutor: serial\n"
    )
    (book / name / "mine.py").write_text("def f(scale, seed):\n    return {'twice': 2 * scale}\n")
    result = aim("sweep", str(grid), folder=checkout)
    assert result.returncode == 0, result.stderr
    assert (book / name / "out2" / "table.csv").is_file()


def test_every_file_is_opened_with_its_encoding(book) -> None:  # noqa: F811
    """Not with that of the locale: the interpreter warns of it, and here a warning is an error."""
    code = (
        "import warnings; warnings.filterwarnings('error', category=EncodingWarning, "
        "module='aimlib'); from aimlib.cli import main; "
        "raise SystemExit(main(['run', 'one', '-p', 'x', '2,3']))"
    )
    result = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", code],
        capture_output=True,
        text=True,
        cwd=book,
    )
    assert result.returncode == 0, result.stderr
