"""The command line: list, inspect and run chapters with other parameters, build an edition."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aimlib import __version__
from aimlib.chapters import (
    Chapter,
    ChapterError,
    build_edition,
    load_chapter,
    load_chapters,
    parse_value,
    read_mapping,
    run_chapter,
)
from aimlib.sweeps import SweepError, read_sweep_file, sweep

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (0 done, 1 failed, 2 not understood)."""
    options = _parser().parse_args(arguments)
    try:
        result: int = options.command(options)
    except (ChapterError, SweepError) as error:
        print(f"aimlib: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "aimlib: interrupted; nothing half-written was left, finished sweep cells are kept",
            file=sys.stderr,
        )
        return 130
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aimlib", description=__doc__)
    parser.add_argument("--version", action="version", version=f"aimlib {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("chapters", help="list the chapters that can be run")
    listing.set_defaults(command=_list)

    inspect = commands.add_parser("parameters", help="show the parameters of a chapter")
    inspect.add_argument("chapter")
    inspect.set_defaults(command=_parameters)

    run = commands.add_parser("run", help="run a chapter, with other parameters if you like")
    run.add_argument("chapter")
    run.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="change a parameter; may be repeated",
    )
    run.add_argument("--preset", help="a named set of parameters, see 'aimlib parameters CHAPTER'")
    run.add_argument("--output", type=Path, metavar="DIR", help="folder of the result")
    run.set_defaults(command=_run)

    grid = commands.add_parser("sweep", help="run a grid of experiments described by a file")
    grid.add_argument("file", type=Path, help="TOML or YAML: function, grid, seeds, store")
    grid.set_defaults(command=_sweep)

    edition = commands.add_parser("edition", help="build the book with other parameters")
    edition.add_argument("file", type=Path, help="TOML or YAML: chapter, then parameter = value")
    edition.add_argument("--output", type=Path, metavar="DIR", help="folder of the pages")
    edition.set_defaults(command=_edition)
    return parser


def _list(options: argparse.Namespace) -> int:
    for chapter in load_chapters():
        print(f"{chapter.name:16s} {chapter.title} (about {chapter.seconds:g} s)")
    return 0


def _parameters(options: argparse.Namespace) -> int:
    chapter = load_chapter(options.chapter)
    print(f"{chapter.title}: {chapter.summary}\n")
    for p in chapter.parameters:
        print(f"  {p.name} = {p.default!r}\n      {p.description}\n      {p.allowed}")
    for name, preset in chapter.presets.items():
        values = ", ".join(f"{key} = {value!r}" for key, value in preset["values"].items())
        print(f"\n  --preset {name} (about {preset['seconds']:g} s): {values}")
    return 0


def _values(chapter: Chapter, pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in pairs:
        parameter = chapter.parameter(name)
        if name in values:
            raise ChapterError(f"parameter {name!r} is given twice")
        values[name] = parse_value(parameter, text)
    return values


def _run(options: argparse.Namespace) -> int:
    chapter = load_chapter(options.chapter)
    values = _values(chapter, options.parameter)
    result = run_chapter(
        chapter, values, preset=options.preset, output=options.output, progress=True
    )
    print(result)
    return 0


def _edition(options: argparse.Namespace) -> int:
    page = build_edition(
        read_choices(options.file),
        options.output or Path("_build") / f"edition-{options.file.stem}",
    )
    print(page)
    return 0


def read_choices(path: Path) -> dict[str, dict[str, Any]]:
    """Read the choices of an edition from TOML or YAML."""
    content = read_mapping(path)
    if not all(isinstance(value, dict) for value in content.values()):
        raise ChapterError(f"{path} must map chapters to mappings of parameter to value")
    return content


def _sweep(options: argparse.Namespace) -> int:
    sys.path.insert(0, str(options.file.resolve().parent))  # functions may live beside the file
    result = sweep(**read_sweep_file(options.file))
    for failure in result.failed:
        print(f"failed: {failure}", file=sys.stderr)
    print(result.table)
    return 1 if result.failed else 0
