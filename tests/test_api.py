"""The public interface: complete docstrings, and a reference page that leaves nothing out."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import aimlib

ROOT = Path(__file__).resolve().parent.parent


def _extension():
    spec = importlib.util.spec_from_file_location(
        "api_reference", ROOT / "book" / "_ext" / "api_reference.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


API = _extension()
NAMES = sorted(
    {
        (API.public_path(module, name), module, name)
        for module in API.MODULES
        for name in importlib.import_module(module).__all__
    }
)


def value_of(entry):
    _, module, name = entry
    return getattr(importlib.import_module(module), name)


def public_methods(kind):
    """Methods and properties that a class of this package defines, by name."""
    found = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("aimlib"):
            found |= {n: v for n, v in vars(base).items() if not n.startswith("_")}
    return {
        name: value
        for name, value in found.items()
        if inspect.isfunction(getattr(value, "__func__", value)) or isinstance(value, property)
    }


def test_the_page_shows_every_module_and_every_flat_name() -> None:
    text = (ROOT / "book" / "api.md").read_text()
    assert re.findall(r"^```\{api\} (\S+)$", text, re.MULTILINE) == [
        module for module in re.findall(r"^```\{api\} (\S+)$", text, re.MULTILINE)
        if module in API.MODULES
    ]  # fmt: skip
    assert set(re.findall(r"^```\{api\} (\S+)$", text, re.MULTILINE)) == set(API.MODULES)
    shown = {path for path, _, _ in NAMES}
    flat = {name for name in aimlib.__all__ if not inspect.ismodule(getattr(aimlib, name))}
    assert {f"aimlib.{name}" for name in flat} <= shown


def test_the_built_page_has_an_entry_for_every_name(site) -> None:
    page = (site / "book" / "api.html").read_text(encoding="utf-8")
    missing = [path for path, _, _ in NAMES if f'id="{path}"' not in page]
    assert not missing
    assert "Helper for @overload" not in page


def test_boxes_of_the_chapters_lead_to_the_reference(site) -> None:
    page = (site / "book" / "replica.html").read_text(encoding="utf-8")
    assert 'href="api.html#aimlib.bayes_optimal"' in page


@pytest.mark.parametrize("entry", NAMES, ids=lambda entry: entry[0])
def test_docstrings_are_complete(entry) -> None:
    """Every parameter is described; functions say what they return; all but protocols show it."""
    value = value_of(entry)
    if not callable(value):
        return
    text = inspect.getdoc(value) or ""
    assert text, "no docstring"
    if getattr(value, "_is_protocol", False):
        for name, method in public_methods(value).items():
            assert inspect.getdoc(method), f"{name} of a protocol has no docstring"
        return
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        check_parameters(value, text)
    if inspect.isclass(value):
        for name, method in public_methods(value).items():
            described = inspect.getdoc(method) or ""
            assert described, f"{name} has no docstring"
            assert not re.match(r"[^\n]*\w: ", described.partition("\n")[0]) or not isinstance(
                method, property
            ), f"{name}: a property must not begin with 'type: text', which is read as its type"
        return
    assert re.search(r"^(Returns|Return)\b|Return", text, re.MULTILINE), "does not say what returns"
    if "path : Path" not in text:  # what reads a file is shown in the README
        assert ">>>" in text, "no example"


def check_parameters(value, text) -> None:
    names = [
        name
        for name, parameter in inspect.signature(value).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and not name.startswith("_")
    ]
    if "are those of :func:" in text or "As in :func:" in text:
        return  # shared with another function, which is checked
    if inspect.isabstract(value):
        return  # says what a subclass gives
    described = "Attributes" if inspect.isclass(value) and "Parameters\n" not in text else None
    heading = described or "Parameters"
    section = re.search(rf"^{heading}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section or not names, f"no section {heading}"
    if section:
        listed = set(re.findall(r"\w+", " ".join(
            line for line in section[1].splitlines() if line and not line.startswith(" ")
        )))  # fmt: skip
        missing = [name for name in names if name not in listed]
        assert not missing, f"not described: {missing}"
