"""One parameter of a chapter: what it accepts, and values for it from a shell or a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ChapterError", "Parameter", "check_value", "parse_alternatives", "parse_value"]

TYPES: dict[str, tuple[type, bool]] = {
    "int": (int, False),
    "float": (float, False),
    "bool": (bool, False),
    "str": (str, False),
    "ints": (int, True),
    "floats": (float, True),
    "strs": (str, True),
}


class ChapterError(ValueError):
    """What was asked for cannot be run as asked; the message says what can."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a chapter: its default from the notebook, the rest from the card."""

    name: str
    default: Any
    type: str
    description: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[Any, ...] = ()
    test_value: Any = None

    @property
    def is_list(self) -> bool:
        """Whether one value of the parameter is a list."""
        return TYPES[self.type][1]

    @property
    def allowed(self) -> str:
        """What the parameter accepts, in words."""
        kind = f"comma-separated {self.type}" if self.is_list else self.type
        if self.choices:
            return f"{kind}, one of {', '.join(map(str, self.choices))}"
        if self.low == -math.inf and self.high == math.inf:
            return kind
        return f"{kind} from {self.low:.10g} to {self.high:.10g}"


def parse_value(parameter: Parameter, text: str) -> Any:
    """Turn the text of a command line into a value of the declared type, or refuse it.

    Integers may be written 1000 or 1e3, but not 007 or 1.5; truth values are true and false; lists
    are separated by commas, with or without brackets.

    Raises
    ------
    ChapterError
        Naming the parameter, the text and what is allowed.
    """
    kind, many = TYPES[parameter.type]
    if not many:
        return check_value(parameter, _parse_one(parameter, kind, text.strip()))
    parts = _without_brackets(text).split(",")
    return check_value(parameter, [_parse_one(parameter, kind, part.strip()) for part in parts])


def parse_alternatives(parameter: Parameter, text: str) -> list[Any]:
    """Turn the text of a command line into the values that a grid of runs takes.

    A single value is a grid of one.  Several are separated by commas; values that are lists
    themselves stand in brackets or are separated by semicolons.

    >>> parse_alternatives(Parameter("tokens", 2, "int", "tokens"), "2, 3")
    [2, 3]
    >>> parse_alternatives(Parameter("width_ratios", [1.0], "floats", "widths"), "[0.1, 1], [2]")
    [[0.1, 1.0], [2.0]]
    """
    if not parameter.is_list:
        parts = _without_brackets(text).split(",")
        return _distinct(parameter, [parse_value(parameter, part) for part in parts])
    inner = text.strip()
    if inner.startswith("[[") and inner.endswith("]]"):
        inner = inner[1:-1].strip()
    pieces = inner.replace("],", "];").split(";")
    return _distinct(parameter, [parse_value(parameter, piece) for piece in pieces])


def check_alternatives(parameter: Parameter, value: Any) -> list[Any]:
    """Return the values that a grid takes from a value in a file: one, or a list of them."""
    nested = isinstance(value, list) and any(isinstance(item, list) for item in value)
    if nested or (isinstance(value, list) and not parameter.is_list):
        if not value:
            raise refusal(parameter, value)
        return _distinct(parameter, [check_value(parameter, item) for item in value])
    return [check_value(parameter, value)]


def check_value(parameter: Parameter, value: Any) -> Any:
    """Return the value with its declared type if it is allowed, or raise :class:`ChapterError`."""
    kind, many = TYPES[parameter.type]
    if many:
        if not isinstance(value, list | tuple) or not value:
            raise refusal(parameter, value)
        return [_check_one(parameter, kind, item) for item in value]
    return _check_one(parameter, kind, value)


def refusal(parameter: Parameter, value: Any) -> ChapterError:
    """The error that says what the parameter accepts."""
    return ChapterError(f"{parameter.name} must be {parameter.allowed}, got {value!r}")


def _without_brackets(text: str) -> str:
    inner = text.strip()
    if inner.startswith("[") != inner.endswith("]"):
        return inner  # refused where it is parsed
    return inner.removeprefix("[").removesuffix("]")


def _distinct(parameter: Parameter, values: Sequence[Any]) -> list[Any]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ChapterError(f"{parameter.name} is given the value {value!r} twice")
    return list(values)


def _parse_one(parameter: Parameter, kind: type, text: str) -> Any:
    if kind is str:
        return text.strip("'\"")
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise refusal(parameter, text)
        return text.lower() == "true"
    digits = text.lstrip("+-")
    if (
        (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())
        or "_" in text
        or not text.isascii()
    ):
        raise refusal(parameter, text)
    try:
        number = float(text)
    except ValueError:
        raise refusal(parameter, text) from None
    if kind is int:
        if not number.is_integer():
            raise refusal(parameter, text)
        return int(text) if digits.isdigit() else int(number)
    return number


def _check_one(parameter: Parameter, kind: type, value: Any) -> Any:
    if kind is float and type(value) is int:
        value = _as_float(parameter, value)
    if type(value) is not kind or (parameter.choices and value not in parameter.choices):
        raise refusal(parameter, value)
    if isinstance(value, int | float) and kind is not bool:
        finite = kind is int or math.isfinite(value)
        if not (finite and parameter.low <= value <= parameter.high):
            raise refusal(parameter, value)
    return value


def _as_float(parameter: Parameter, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise refusal(parameter, value) from None
