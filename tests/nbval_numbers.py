"""A pytest plugin that makes nbval compare printed numbers as numbers.

nbval compares outputs as text, so that a difference in the last digit between two machines fails.
Here text must agree exactly and integers too; a number with a decimal point or an exponent may
differ by a relative 1e-6 or by one unit in its last printed digit, where rounding may fall on
either side.  Use with ``pytest --nbval -p nbval_numbers``.
"""

from __future__ import annotations

import re
from typing import Any

from nbval.plugin import IPyNbCell

NUMBER = re.compile(r"(?<![\w.])[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w])")
RELATIVE = 1e-6


def last_digit(text: str) -> float:
    """One unit in the last printed digit; 0 for integers, which must agree."""
    mantissa, _, exponent = text.lower().partition("e")
    if "." not in mantissa and not exponent:
        return 0.0
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals)


def numbers_agree(reference: str, test: str) -> bool:
    a, b = float(reference), float(test)
    unit = min(last_digit(reference), last_digit(test))
    if unit == 0.0:
        return a == b
    return abs(a - b) <= max(RELATIVE * max(abs(a), abs(b)), 1.001 * unit)


def texts_agree(reference: str, test: str) -> bool:
    """Whether two outputs agree up to white space, with numbers compared as numbers."""
    if re.split(r"\s+", NUMBER.sub("#", reference)) != re.split(r"\s+", NUMBER.sub("#", test)):
        return False
    pairs = zip(NUMBER.findall(reference), NUMBER.findall(test), strict=True)
    return all(numbers_agree(a, b) for a, b in pairs)


class NumberText(str):
    """Text whose comparison compares numbers as numbers."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and texts_agree(str(self), str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other


_sanitize = IPyNbCell.sanitize


def _sanitize_to_numbers(self: IPyNbCell, value: Any) -> Any:
    sanitized = _sanitize(self, value)
    return NumberText(sanitized) if isinstance(sanitized, str) else sanitized


IPyNbCell.sanitize = _sanitize_to_numbers
