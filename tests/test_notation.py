"""The notation table is true: every name in its code column exists, every symbol is in use."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest

import aimlib

BOOK = Path(__file__).resolve().parent.parent / "book"
NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\((\w+)\))?`")


def rows() -> list[list[str]]:
    lines = (BOOK / "notation.md").read_text().split("(sec:notation-twice)=")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 4 and "symbol" not in row and "---" not in row[0]]


def code_names() -> list[tuple[str, str]]:
    return [name for row in rows() for name in NAME.findall(row[3])]


def resolve(dotted: str) -> object:
    """Return the object, or None for a field of a dataclass that has no value on the class."""
    target: object = aimlib
    for part in dotted.split("."):
        if hasattr(target, part):
            target = getattr(target, part)
        elif inspect.ismodule(target):
            target = importlib.import_module(f"{target.__name__}.{part}")
        else:
            assert dataclasses.is_dataclass(target), f"{dotted}: no {part}"
            assert part in {field.name for field in dataclasses.fields(target)}, dotted
            return None
    return target


@pytest.mark.parametrize(("dotted", "argument"), code_names())
def test_every_name_in_the_code_column_exists(dotted, argument) -> None:
    target = resolve(dotted)
    if argument:
        assert argument in inspect.signature(target).parameters


def test_the_code_column_is_read() -> None:
    assert len(rows()) > 55
    assert len(code_names()) > 45
    # what is not a name in this column would escape the test
    assert not [row for row in rows() if NAME.sub("", row[3]).strip(" ,|")]


def test_every_symbol_is_used_in_some_chapter() -> None:
    text = "".join(p.read_text() for p in BOOK.glob("*.md") if p.stem != "notation")
    for row in rows():
        symbols = next(cell for cell in row if cell.startswith("$"))
        for symbol in re.findall(r"\$([^$]+)\$", symbols):
            for part in re.split(r",\s*(?![^{]*\})", symbol):
                stem = part.replace(r"(\cdot)", "").replace("(q)", "").replace("(z)", "")
                assert stem.strip() in text, part
