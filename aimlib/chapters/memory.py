"""Whether a run fits into memory, told before it starts.

The card of a chapter has a formula for the megabytes (10^6 bytes) that its kernel takes at its
peak, in the names of the parameters, fitted to measured runs; `tests/test_memory.py` measures again
and allows a factor of two.  A run is refused when the estimate is above what is free, with the
largest value of each parameter that would fit.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from aimlib import _memory
from aimlib.chapters.cards import Chapter
from aimlib.chapters.parameters import ChapterError, Parameter

__all__ = ["available_memory", "estimated_memory", "require_memory"]

MEGABYTE = 10**6
_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"max": max, "min": min, "sum": sum, "len": len}


def estimated_memory(chapter: Chapter, values: Mapping[str, Any]) -> float:
    """Return the bytes that a run of a chapter takes at its peak, right within a factor of two.

    Parameters
    ----------
    chapter : Chapter
    values : mapping
        All parameters, as :func:`aimlib.chapters.validate_values` returns them.
    """
    try:
        tree = ast.parse(chapter.memory, mode="eval")
        return float(_evaluate(tree.body, values)) * MEGABYTE
    except (SyntaxError, KeyError, TypeError, ArithmeticError) as error:
        raise ChapterError(
            f"memory of [{chapter.name}] in parameters.toml must be a formula in its parameters, "
            f"got {chapter.memory!r}: {error}"
        ) from None


def _evaluate(node: ast.AST, values: Mapping[str, Any]) -> Any:
    """Evaluate arithmetic on numbers, parameters, and max, min, sum and len: nothing else."""
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return _evaluate(left, values) == _evaluate(right, values)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(arg, values) for arg in args))
    raise TypeError(f"{ast.unparse(node)} is not allowed")


def available_memory() -> int:
    """Return the bytes that a new process may take; see ``aimlib._memory``."""
    try:
        return _memory.available_memory()
    except ValueError as error:
        raise ChapterError(str(error)) from None


def require_memory(chapter: Chapter, values: Mapping[str, Any]) -> None:
    """Refuse a run that would not fit, with the largest values that would.

    Raises
    ------
    ChapterError
        Naming the estimate, the free memory and, for each parameter that the memory depends on,
        the largest value with which the run would fit, the others unchanged.
    """
    needed, free = estimated_memory(chapter, values), available_memory()
    if needed <= free:
        return
    ways = [_largest_fitting(chapter, values, p, free) for p in chapter.parameters]
    found = [way for way in ways if way]
    advice = (
        f"It would fit with {', or with '.join(found)}"
        if found
        else "No single parameter makes it fit"
    )
    raise ChapterError(
        f"this run of {chapter.name!r} needs about {_size(needed)} of memory and {_size(free)} are "
        f"free. {advice}. (AIMLIB_MEMORY=GIGABYTES sets the limit by hand.)"
    )


def _largest_fitting(
    chapter: Chapter, values: Mapping[str, Any], parameter: Parameter, free: float
) -> str | None:
    """The largest value of a numeric parameter that fits, by bisection, as "NAME up to VALUE"."""
    value = values[parameter.name]
    if parameter.type not in ("int", "float") or not math.isfinite(parameter.low):
        return None

    def needs(candidate: float) -> float:
        return estimated_memory(chapter, {**values, parameter.name: candidate})

    low, high = float(parameter.low), float(value)
    if needs(low) > free or needs(low) >= needs(high):
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if needs(middle) <= free else (low, middle)
    if parameter.type == "int":
        return f"{parameter.name} up to {math.floor(low)}"
    digits = 10.0 ** (math.floor(math.log10(low)) - 2)
    return f"{parameter.name} up to {math.floor(low / digits) * digits:.3g}"


def _size(count: float) -> str:
    return f"{count / 10**9:.3g} GB"
