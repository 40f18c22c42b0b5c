"""Chapters that can be run, from their cards in ``notebooks/parameters.toml``."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimlib.chapters.notebooks import tagged_defaults
from aimlib.chapters.parameters import TYPES, ChapterError, Parameter, check_value
from aimlib.chapters.places import find_root
from aimlib.files import FileError, read_text

__all__ = ["Chapter", "Preset", "load_chapter", "load_chapters", "validate_values"]


@dataclass(frozen=True)
class Preset:
    """A named set of parameters and the time that a run with it takes."""

    seconds: float
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Chapter:
    """A chapter that can be run.

    ``memory`` is the formula of the megabytes that a run needs, in the names of the parameters
    (:mod:`aimlib.chapters.memory`); a card without it promises nothing.
    """

    name: str
    title: str
    summary: str
    seconds: float
    memory: str
    notebook: Path
    parameters: tuple[Parameter, ...]
    presets: Mapping[str, Preset]

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name, or say which names there are."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        hint = _hint(name, [parameter.name for parameter in self.parameters])
        valid = "\n".join(f"  {p.name}: {p.allowed}" for p in self.parameters)
        raise ChapterError(
            f"chapter {self.name!r} has no parameter {name!r}.{hint} It has:\n{valid}"
        )


def load_chapters(root: Path | None = None) -> list[Chapter]:
    """Return all chapters that can be run, in the order of their cards."""
    folder = root or find_root()
    return [_chapter(folder, name, card) for name, card in _cards(folder).items()]


def load_chapter(name: str, root: Path | None = None) -> Chapter:
    """Return one chapter, or say which there are."""
    folder = root or find_root()
    cards = _cards(folder)
    if name not in cards:
        raise ChapterError(f"no chapter {name!r}.{_hint(name, cards)} Chapters: {', '.join(cards)}")
    return _chapter(folder, name, cards[name])


def validate_values(
    chapter: Chapter, values: Mapping[str, Any], preset: str | None = None
) -> dict[str, Any]:
    """Return a complete set of parameters: defaults, then the preset, then ``values``.

    Raises
    ------
    ChapterError
        If a name is unknown, or a value has the wrong type or is out of range.
    """
    complete = {parameter.name: parameter.default for parameter in chapter.parameters}
    if preset is not None:
        if preset not in chapter.presets:
            known = ", ".join(chapter.presets) or "none"
            raise ChapterError(
                f"chapter {chapter.name!r} has no preset {preset!r}; it has: {known}"
            )
        values = {**chapter.presets[preset].values, **values}
    for name, value in values.items():
        complete[name] = check_value(chapter.parameter(name), value)
    return complete


def _hint(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


# ---------------------------------------------------------------------------------------------
# The file of cards
# ---------------------------------------------------------------------------------------------

_NUMBER = (int, float)
_CHAPTER = {"title": str, "summary": str, "seconds": _NUMBER, "parameters": dict}
_CHAPTER_OPTIONAL = {"memory": str, "presets": dict}
_PARAMETER = {"type": str, "description": str}
_PARAMETER_OPTIONAL = {"low": _NUMBER, "high": _NUMBER, "choices": list, "test_value": object}
_PRESET = {"seconds": _NUMBER, "values": dict}


def _cards(root: Path) -> dict[str, Any]:
    path = root / "notebooks" / "parameters.toml"
    try:
        return tomllib.loads(read_text(path))
    except FileError as error:
        raise ChapterError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise ChapterError(f"cannot read {path}: {error}") from None


def _has_form(
    where: str, table: Any, required: Mapping[str, Any], optional: Mapping[str, Any]
) -> None:
    """Refuse a table with missing or unknown keys or values of the wrong type."""
    if not isinstance(table, dict):
        raise ChapterError(f"{where} in parameters.toml must be a table, got {table!r}")
    missing, unknown = set(required) - set(table), set(table) - set(required) - set(optional)
    if missing or unknown:
        raise ChapterError(
            f"{where} in parameters.toml must have {', '.join(required)}"
            + (f" and may have {', '.join(optional)}" if optional else "")
            + f"; missing: {sorted(missing)}, unknown: {sorted(unknown)}"
        )
    for key, value in table.items():
        kind = {**required, **optional}[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not object):
            raise ChapterError(f"{key} of {where} in parameters.toml has the wrong type: {value!r}")


def _chapter(root: Path, name: str, card: Any) -> Chapter:
    _has_form(f"[{name}]", card, _CHAPTER, _CHAPTER_OPTIONAL)
    notebook = root / "notebooks" / f"{name}.ipynb"
    defaults = tagged_defaults(notebook)
    described = card["parameters"]
    if set(described) != set(defaults):
        raise ChapterError(
            f"the card of {name!r} describes {sorted(described)} but the parameters cell of "
            f"{notebook.name} sets {sorted(defaults)}"
        )
    for key, preset in card.get("presets", {}).items():
        _has_form(f"[{name}.presets.{key}]", preset, _PRESET, {})
    chapter = Chapter(
        name,
        card["title"],
        card["summary"],
        float(card["seconds"]),
        card.get("memory", "0"),
        notebook,
        tuple(_parameter(name, key, described[key], value) for key, value in defaults.items()),
        {
            key: Preset(float(preset["seconds"]), preset["values"])
            for key, preset in card.get("presets", {}).items()
        },
    )
    for key in chapter.presets:
        validate_values(chapter, {}, key)
    return chapter


def _parameter(chapter: str, name: str, card: Any, default: Any) -> Parameter:
    where = f"[{chapter}.parameters.{name}]"
    _has_form(where, card, _PARAMETER, _PARAMETER_OPTIONAL)
    if card["type"] not in TYPES:
        raise ChapterError(
            f"type of {where} in parameters.toml must be one of {', '.join(TYPES)}, "
            f"got {card['type']!r}"
        )
    parameter = Parameter(
        name,
        default,
        card["type"],
        card["description"],
        card.get("low", -math.inf),
        card.get("high", math.inf),
        tuple(card.get("choices", ())),
        card.get("test_value"),
    )
    check_value(parameter, default)
    return parameter
