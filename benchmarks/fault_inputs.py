"""Wrong inputs to the command line: each must be refused, with a message, and change no file.

They are tried in this process, because five hundred interpreters would take an hour, and a sample
of them once more in processes of their own.  The book that they go to is a small one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import numpy as np

from aimlib.cli import main

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]


@dataclass(frozen=True)
class Wrong:
    """Words of a command line and the kind of mistake in them."""

    kind: str
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------
# A small book, and files that are wrong
# ---------------------------------------------------------------------------------------------

CARD = """
[one]
title = "One"
summary = "A chapter with a parameter of every type."
seconds = 1
[one.parameters]
count = { type = "int", low = 0, high = 9, description = "a number" }
width = { type = "float", low = 0.1, high = 10, description = "a width" }
exact = { type = "bool", description = "whether" }
law = { type = "str", choices = ["softmax", "hardmax"], description = "a law" }
sizes = { type = "ints", low = 1, high = 99, description = "numbers" }
widths = { type = "floats", low = 0.1, high = 10, description = "widths" }
[one.presets.quick]
seconds = 1
values = { count = 2 }
"""
SOURCE = "count = 1\nwidth = 1.0\nexact = True\nlaw = 'softmax'\nsizes = [1]\nwidths = [1.0]"
TEXTS = {
    "count": "x 1.5 0x1 007 1_0 ０１ १ nan inf -inf 1e400 None [ ] [1 1]] true -1 10 1e9 1,,2 1,1"
    " 1;2 -0.5 1/2 2**3 1e-1 π ∞ 1j ' ½",
    "width": "x 0 -1 10.1 nan inf 1e400 1e-400 ０.５ 1,5,x true None [ ] 1_0 007 0x1 1..2 --1 1e"
    " ½ 1,1 1.0,1 2;3 ١ + - . e",
    "exact": "1 0 yes no on truth None x [true true] ja True,True ✓ 0.0 ,",
    "law": "soft Softmax SOFTMAX softmax,softmax softmax,linear ｓoftmax sоftmax None 1 [ ;",
    "sizes": "0 100 1.5 x 1,x 1,,2 [1 1] [1,2 [[1],[x]] 1;1 [] nan -1,2 1,0 ; é 1,inf 07 1_1",
    "widths": "0 11 x 1,nan 1,inf 1,,2 [1 1] [] ; 1;1 [[1],[1]] 0.05,1 1e999 ½ 0x1 1_1 -1 [[x]]",
}
PARAMETERS: dict[str, bytes] = {  # files of parameters, of which none can be used
    "empty.yml": b"",
    "comment.toml": b"# nothing yet",
    "nothing.json": b"{}",
    "list.json": b"[1, 2]",
    "number.json": b"3",
    "null.json": b"null",
    "text.yml": b"just words",
    "open.json": b'{"count": 1',
    "open.toml": b"count = ",
    "open.yml": b"count: [1, 2",
    "twice.json": b'{"count": 1, "count": 2}',
    "twice.toml": b"count = 1\ncount = 2",
    "twice.yml": b"count: 1\ncount: 2",
    "octal.yml": b"count: 07",
    "sixty.yml": b"count: 1:30",
    "yes.yml": b"exact: yes",
    "date.yml": b"law: 2026-12-03",
    "tag.yml": b"count: !!python/object/apply:os.system [ls]",
    "merge.yml": b"<<: {count: 1}",
    "number_key.yml": b"1: 2",
    "tab.yml": b"count:\n\t- 1",
    "documents.yml": b"count: 1\n---\ncount: 2",
    "latin.yml": "law: caf\u00e9".encode("latin-1"),
    "utf16.yml": "count: 1".encode("utf-16"),
    "zeros.yml": b"\0" * 100,
    "noise.json": bytes(range(256)),
    "picture.toml": b"\x89PNG\r\n\x1a\n",
    "deep.json": b'{"count": ' + b"[" * 100_000,
    "deep.yml": b"count: " + b"[" * 3000,
    "deep.toml": b"count = " + b"[" * 3000,
    "laughs.yml": b"a: &a [1, 2]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghij")
    + b"count: *j",
    "itself.yml": b"count: &a [*a]",
    "digits.json": b'{"count": ' + b"9" * 5000 + b"}",
    "digits.toml": b"count = " + b"9" * 5000,
    "digits.yml": b"count: " + b"9" * 5000,
    "huge.json": b'{"width": 1e999}',
    "hugeint.json": b'{"width": ' + b"9" * 400 + b"}",
    "nan.json": b'{"width": NaN}',
    "inf.toml": b"width = inf",
    "nan.yml": b"width: .nan",
    "unknown.yml": b"counts: 3",
    "unicode.yml": "cоunt: 3".encode(),
    "case.toml": b"Count = 3",
    "float.toml": b"count = 1.0",
    "text.toml": b'count = "1"',
    "truth.toml": b"count = true",
    "number.toml": b"exact = 1",
    "range.toml": b"count = 10",
    "negative.yml": b"count: -1",
    "null.yml": b"count:",
    "mapping.yml": b"count: {low: 1}",
    "nested.json": b'{"sizes": [[1], ["x"]]}',
    "deeper.json": b'{"sizes": [[[1]]]}',
    "hollow.json": b'{"sizes": []}',
    "hollows.json": b'{"sizes": [[], [1]]}',
    "none.json": b'{"count": []}',
    "same.json": b'{"count": [1, 1]}',
    "mixed.json": b'{"sizes": [1, "2"]}',
    "choice.toml": b'law = "linear"',
    "record.json": b'{"chapter": "two", "parameters": {"count": 3}}',
    "records.json": b'{"chapter": "one", "parameters": {"count": 30}}',
    "time.toml": b"count = 07:32:00",
}
EDITIONS: dict[str, bytes] = {
    "flat.yml": b"count: 3",
    "unchanged.toml": b"[one]",
    "chapter.toml": b"[two]\ncount = 3",
    "preset.yml": b"one: {preset: 3}",
    "presets.yml": b"one: {preset: slow}",
    "list.yml": b"one: [count, 3]",
    "path.json": b'{"../one": {"count": 3}}',
    "none.yml": b"one:",
}
_SWEEP = {"function": '"good:cell"', "grid": "{ x = [1, 2] }", "seeds": "1", "store": '"fresh"'}
SWEEPS: dict[str, tuple[str, ...]] = {
    "function": ('""', '":"', '"good"', '"good:"', '":cell"', '"good:nothing"', '"good:number"',
                 '"nowhere:f"', '".good:cell"', '"good.cell:x"', '"broken:f"', '"quits:f"',
                 '"syntax:f"', "3", "[]", '"é:ü"', '"../good:cell"', '"good:cell:cell"', "true",
                 '"good cell"'),
    "grid": ("3", '"x"', "[]", "{}", "{ x = 1 }", '{ x = "12" }', "{ x = [] }", "{ x = [1, 1] }",
             "{ x = [nan] }", "{ x = [inf] }", '{ x = ["1"] }', "{ x = [[1]] }", "{ x = [{}] }",
             "{ seed = [1] }", "{ y = [1] }", "[1]", "[{ x = 1 }, { y = 1 }]", "[{}]", "true",
             "[{ x = 1 }, { x = 1 }]", "{ x = [2026-12-03] }", '{ "" = [1] }', '{ "ü" = [1] }'),
    "seeds": ("0", "-1", "1.5", '"1"', "[]", "[1, 1]", "[-1]", "[0.5]", '["a"]', "true", "{}",
              "nan", "[[1]]", "inf"),
    "store": ('""', "3", '"good.py"', '"good.py/x"', '"full"', '"a\\u0000b"', "[]", "true",
              '"/proc/nothing"', '"/proc/self/x/y"', '"/dev/null"', '"/dev/null/x"', '"notebooks"',
              '"other"', '"loop"', f'"{"x" * 300}"', f'"{"x/" * 3000}"', '"."', '"spoilt"'),
    "executor": ('"fast"', "1", '""', '"Local"', "[]", "true", "{}"),
    "jobs": ("0", "-1", "1.5", '"2"', "true", "[]", "nan"),
    "steps": ("1",),
}  # fmt: skip
PATHS = ("nowhere", "", ".", "full", "loop", "good.py/x", "/proc/self/mem", "x" * 300, "a\0")
OUTPUTS = (
    "good.py", "good.py/x", "good.py/x/y", "notebooks", "notebooks/x", "book", "book/x", "tests/x",
    "aimlib", "benchmarks", ".git", ".", "..", "/", "full", "loop", "loop/x", "/proc/nothing",
    "/proc/self/fd/none/x", "/proc/1/x", "/dev/null", "/dev/null/x", "/sys/nothing/x", "x" * 300,
    "ü" * 200, "x/" * 3000, "a\0b", "_toc.yml", "full/../full", "notebooks/../notebooks/x",
)  # fmt: skip
NAMES = (
    "two", "", " ", "One", "one ", "öne", "оne", "ｏne", "../one", "one/../one", "/etc/passwd",
    "one\n",
    "one\0", "*", "one.ipynb", "o", "None", "🦉", "x" * 100_000, "\udcff",
    "parameters", "%s", "$HOME",
)  # fmt: skip


def make_book(folder: Path) -> None:
    """Write the small book and all wrong files."""
    for part in ("notebooks", "book", "full", "other", "spoilt"):
        (folder / part).mkdir()
    (folder / "_toc.yml").write_text("root: x\n")
    (folder / "_config.yml").write_text("title: x\n")
    (folder / "notebooks" / "parameters.toml").write_text(CARD)
    notebook = nbformat.v4.new_notebook()
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    notebook.cells = [nbformat.v4.new_code_cell(SOURCE, metadata={"tags": ["parameters"]})]
    nbformat.write(notebook, folder / "notebooks" / "one.ipynb")
    (folder / "full" / "letter.txt").write_text("not to be lost")
    (folder / "other" / "sweep.json").write_text('{"function": "other:f", "parameters": ["x"]}')
    (folder / "spoilt" / "sweep.json").write_text("{")
    (folder / "loop").symlink_to("loop")
    (folder / "good.py").write_text("number = 3\ndef cell(x, seed):\n    return {'y': x}\n")
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "quits.py").write_text("raise SystemExit(0)\n")
    (folder / "syntax.py").write_text("def f(:\n")
    (folder / "wrong").mkdir()
    for name, content in {**PARAMETERS, **{f"edition-{n}": c for n, c in EDITIONS.items()}}.items():
        (folder / "wrong" / name).write_bytes(content)
    for number, (_, text) in enumerate(_sweep_files()):
        (folder / f"sweep{number}.toml").write_text(text)
    (folder / "right.toml").write_text("[one]\ncount = 3\n")
    for number, card in enumerate(_broken_cards()):
        book = folder / f"book{number}"
        (book / "notebooks").mkdir(parents=True)
        (book / "_toc.yml").write_text("root: x\n")
        (book / "notebooks" / "parameters.toml").write_text(card)


def _sweep_files() -> Iterator[tuple[str, str]]:
    for name, values in SWEEPS.items():
        for value in values:
            content = {**_SWEEP, "executor": '"serial"', name: value}
            yield name, "".join(f"{key} = {text}\n" for key, text in content.items())
    for name in _SWEEP:
        content = {key: text for key, text in _SWEEP.items() if key != name}
        yield "absent", "".join(f"{key} = {text}\n" for key, text in content.items())


def _broken_cards() -> list[str]:
    """Books whose cards are wrong: no notebook, not TOML, wrong fields and wrong types."""
    changes = (
        ("", ""), ("[one]", "[one"), ('type = "int"', 'type = "integer"'),
        ("low = 0,", 'low = "0",'),
        ("seconds = 1", 'seconds = "1"'), ("title", "titel"), ("[one]", "one = 3\n[two]"),
    )  # fmt: skip
    return [CARD.replace(old, new, 1) for old, new in changes]


# ---------------------------------------------------------------------------------------------
# What is tried
# ---------------------------------------------------------------------------------------------


def wrong_inputs(folder: Path) -> list[Wrong]:
    """All of them, in a fixed order."""
    found = [Wrong("chapter", (c, n)) for c in ("run", "parameters") for n in NAMES]
    found += [Wrong("usage", tuple(line.split())) for line in _USAGE]
    for name, texts in TEXTS.items():
        found += [Wrong("value", ("run", "one", "-p", name, text)) for text in texts.split(" ")]
        huge = ("9" * 5000, "x" * 100_000, "1," * 2000, "[" * 5000, "é" * 1000, "", " ", "\n")
        found += [Wrong("value", ("run", "one", "-p", name, text)) for text in huge]
        found += [Wrong("value", ("run", "one", "-p", name, "1", "-p", name, "1"))]
    for name in (n for n in NAMES if n != "x" * 100_000):
        found += [Wrong("parameter", ("run", "one", "-p", name, "1"))]
        found += [Wrong("preset", ("run", "one", "--preset", name))]
    for name in PARAMETERS:
        found += [Wrong("file", ("run", "one", "--param-file", f"wrong/{name}"))]
        found += [Wrong("file", (c, f"wrong/{name}")) for c in ("edition", "sweep")]
    found += [Wrong("file", ("edition", f"wrong/edition-{name}")) for name in EDITIONS]
    for path in PATHS:
        found += [Wrong("file", ("run", "one", "--param-file", path))]
        found += [Wrong("file", (c, path)) for c in ("edition", "sweep")]
    found += [Wrong("sweep", ("sweep", f"sweep{n}.toml")) for n, _ in enumerate(_sweep_files())]
    for path in OUTPUTS:
        found += [Wrong("folder", ("run", "one", "--output", path))]
        found += [Wrong("folder", ("run", "one", "-p", "count", "1,2", "--output", path))]
        found += [Wrong("folder", ("edition", "right.toml", "--output", path))]
    for book in ("nowhere", "good.py", "full", "\udcff", *(f"book{n}" for n in range(7))):
        environment = {"AIMLIB_BOOK": str(folder / book)}
        found += [
            Wrong("book", words, environment)
            for words in (("chapters",), ("run", "one"), ("edition", "right.toml"))
        ]
    return found


_USAGE = (
    "", "chapter", "chapters one", "chapters --all", "parameters", "parameters one two", "run",
    "run one two", "run one -p", "run one -p count", "run one -p count 1 2", "run one --preset",
    "run one --param-file", "run one --output", "run one --jsn", "sweep", "sweep a b", "edition",
    "edition a b", "edition right.toml --output", "-x", "--versoin", "RUN one", "läufe", "run -- ",
    "sweep --jobs 3 sweep0.toml", "edition --json right.toml", "run one --seed 3",
)  # fmt: skip


def snapshot(folder: Path) -> dict[str, str]:
    """Hash, target or kind of everything in a folder, except bytecode that Python keeps."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        if path.is_symlink():
            content = f"link {os.readlink(path)}"
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = "folder"
        found[str(path.relative_to(folder))] = content
    return found


def refusal(wrong: Wrong, folder: Path) -> tuple[Any, str]:
    """Run a command line in this process; return its exit code and what it said."""
    out, err = io.StringIO(), io.StringIO()
    kept, path = dict(os.environ), list(sys.path)
    here = Path.cwd()
    os.environ.update(wrong.environment)
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code: Any = main(list(wrong.words))
    except SystemExit as error:
        code = error.code
    except BaseException as error:  # what a user would see as a traceback
        code = 1
        err.write(f"Traceback: {type(error).__name__}: {error}")
    finally:
        os.chdir(here)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(kept)
    return code, err.getvalue()


def refusal_apart(wrong: Wrong, folder: Path) -> tuple[Any, str]:
    """The same in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "aimlib", *wrong.words],
        cwd=folder,
        env={**os.environ, **wrong.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=300,
    )
    return done.returncode, done.stderr


def judge(code: Any, message: str, before: dict[str, str], after: dict[str, str]) -> str:
    """Say what is wrong with a refusal, if anything."""
    if code in (0, None):
        return "accepted"
    if "Traceback" in message:
        return "traceback " + message[message.index("Traceback") :][:200].replace("\n", " ")
    if not message.strip():
        return "no message"
    changed = sorted(set(before.items()) ^ set(after.items()))
    return f"files changed: {changed[:3]}" if changed else ""


def try_inputs(folder: Path, count: int, apart: int, rng: np.random.Generator) -> Row:
    """Try so many of the wrong inputs, and so many of these once more by themselves."""
    make_book(folder)
    everything = wrong_inputs(folder)
    chosen = [everything[i] for i in sorted(rng.permutation(len(everything))[:count])]
    failures = {}
    before = snapshot(folder)
    for wrong in chosen:
        reason = judge(*refusal(wrong, folder), before, after := snapshot(folder))
        if reason:
            failures[f"{wrong.kind} {[w[:60] for w in wrong.words]} {wrong.environment}"] = reason
            before = after
    passable = [w for w in chosen if all("\0" not in x and len(x) < 1e5 for x in w.words)]
    for i in rng.permutation(len(passable))[:apart]:
        wrong = passable[i]
        reason = judge(*refusal_apart(wrong, folder), before, after := snapshot(folder))
        if reason:
            failures[f"apart {[w[:60] for w in wrong.words]} {wrong.environment}"] = reason
            before = after
    kinds = sorted({wrong.kind for wrong in chosen})
    return {
        "what": "wrong inputs",
        "tried": len(chosen),
        "faults": len(failures),
        "detail": f"of {len(everything)} ({', '.join(kinds)}); {min(apart, len(passable))} once "
        "more in processes of their own; all refused with a message, exit code not 0, no file "
        "changed"
        if not failures
        else "; ".join(f"{k}: {v}" for k, v in failures.items()),
        "examples": failures,
    }


# ---------------------------------------------------------------------------------------------
# Disks that are full or cannot be written
# ---------------------------------------------------------------------------------------------


def try_disks(folder: Path) -> Row:
    """Write to a full and to a read-only disk, if this user can mount one."""
    failures, tried = {}, 0
    book = folder / "disks"
    book.mkdir()
    make_book(book)
    for name, options in (("crowded", "size=64k"), ("locked", "size=64k,ro")):
        disk = book / name
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: a disk that is {name} ({error})")
            continue
        try:
            if name == "crowded":
                _fill(disk)
            store = {**_SWEEP, "store": f'"{name}/x"', "executor": '"serial"'}
            text = "".join(f"{key} = {value}\n" for key, value in store.items())
            (book / f"{name}.toml").write_text(text)
            for words in (
                ("run", "one", "--output", f"{name}/x"),
                ("run", "one", "-p", "count", "1,2", "--output", f"{name}/x"),
                ("edition", "right.toml", "--output", f"{name}/x"),
                ("sweep", f"{name}.toml"),
            ):
                before = snapshot(book)
                reason = judge(*refusal_apart(Wrong(name, words), book), before, snapshot(book))
                tried += 1
                if reason:
                    failures[f"{name}: {' '.join(words)}"] = reason
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    return {
        "what": "disks full or read-only",
        "tried": tried,
        "faults": len(failures),
        "detail": "; ".join(f"{k}: {v}" for k, v in failures.items())
        or ("run, grid, edition and sweep" if tried else "skipped: nothing can be mounted here"),
        "examples": failures,
    }


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), open(disk / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
