"""The command line: list, inspect and run chapters with other parameters, build an edition."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import json
import math
import sys
import warnings
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aimlib import __version__
from aimlib.chapters import (
    Chapter,
    ChapterError,
    build_edition,
    check_alternatives,
    load_chapter,
    load_chapters,
    parse_alternatives,
    read_choices,
    run_chapter,
    run_grid,
)
from aimlib.files import FileError, read_mapping
from aimlib.sweeps import SweepError, describe_failures, read_sweep_file, sweep

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code (0 done, 1 failed, 2 not understood)."""
    _print_whatever_the_locale()
    options = _parser().parse_args(arguments)
    try:
        result: int = options.command(options)
    except (ChapterError, FileError, SweepError, OSError) as error:
        if getattr(options, "json", False):
            print(json.dumps({"error": str(error)}))
        print(f"aimlib: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "aimlib: interrupted; nothing half-written was left, finished cells of a sweep and "
            "runs of a grid are kept",
            file=sys.stderr,
        )
        return 130
    return result


def _print_whatever_the_locale() -> None:
    """Let no character stop the output: names of files keep their bytes, others are escaped."""

    def escape(error: UnicodeError) -> tuple[str | bytes, int]:
        try:
            return codecs.lookup_error("surrogateescape")(error)
        except UnicodeError:
            return codecs.lookup_error("backslashreplace")(error)

    codecs.register_error("aimlib-escape", escape)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="aimlib-escape")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aimlib", description=__doc__)
    parser.add_argument("--version", action="version", version=f"aimlib {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("chapters", help="list the chapters that can be run")
    listing.set_defaults(command=_list)

    inspect = commands.add_parser("parameters", help="show the parameters of a chapter")
    inspect.add_argument("chapter")
    inspect.set_defaults(command=_parameters)

    _add_run(commands)

    grid = commands.add_parser("sweep", help="run a grid of experiments described by a file")
    grid.add_argument("file", type=Path, help="TOML, YAML or JSON: function, grid, seeds, store")
    grid.set_defaults(command=_sweep)

    edition = commands.add_parser("edition", help="build the book with other parameters")
    edition.add_argument("file", type=Path, help="TOML, YAML or JSON: chapter, parameter = value")
    edition.add_argument("--output", type=Path, metavar="DIR", help="folder of the pages")
    edition.set_defaults(command=_edition)
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a chapter, with other parameters if you like",
        description="Run a chapter. Several values of a parameter, separated by commas (lists of a "
        "parameter that is a list by semicolons), make a grid of runs with an index page.",
    )
    run.add_argument("chapter")
    run.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="change a parameter; may be repeated; goes before the preset and the file",
    )
    run.add_argument("--preset", help="a named set of parameters, see 'aimlib parameters CHAPTER'")
    run.add_argument(
        "--param-file",
        type=Path,
        metavar="FILE",
        help="TOML, YAML or JSON: parameter = value, or the parameters.json of a run; goes before "
        "the preset",
    )
    run.add_argument("--output", type=Path, metavar="DIR", help="folder of the result")
    run.add_argument("--json", action="store_true", help="print what was found as JSON")
    run.add_argument("--open", action="store_true", help="open the result in a browser")
    run.set_defaults(command=_run)


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
        values = ", ".join(f"{key} = {value!r}" for key, value in preset.values.items())
        print(f"\n  --preset {name} (about {preset.seconds:g} s): {values}")
    return 0


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    chapter = load_chapter(options.chapter)
    alternatives = {} if options.param_file is None else _from_file(chapter, options.param_file)
    alternatives |= _from_shell(chapter, options.parameter)
    runs = math.prod(len(values) for values in alternatives.values())
    common: dict[str, Any] = {"preset": options.preset, "output": options.output}
    common["progress"] = sys.stderr.isatty()  # in a log it would be a heap of half-lines
    if runs == 1:
        values = {name: value for name, (value,) in alternatives.items()}
        folder = run_chapter(chapter, values, **common)
        page = folder / "notebook.html"
    else:
        print(f"a grid of {runs} runs", file=sys.stderr)
        folder = run_grid(chapter, alternatives, **common)
        page = folder / "index.html"
    record = json.loads((folder / "parameters.json").read_text(encoding="utf-8"))
    failed = [run for run in record.get("runs", ()) if "error" in run]
    for run in failed:
        print(f"aimlib: a run failed: {run['error']}", file=sys.stderr)
    if options.open and not webbrowser.open(page.as_uri()):
        print(f"aimlib: no browser could be started; open {page}", file=sys.stderr)
    found = {"folder": str(folder), "page": str(page), **record}
    print(json.dumps(found) if options.json else folder)
    return 1 if failed else 0


def _from_shell(chapter: Chapter, pairs: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for name, text in pairs:
        parameter = chapter.parameter(name)
        if name in values:
            raise ChapterError(f"parameter {name!r} is given twice")
        values[name] = parse_alternatives(parameter, text)
    return values


def _from_file(chapter: Chapter, path: Path) -> dict[str, list[Any]]:
    content: Mapping[str, Any] = read_mapping(path)
    if isinstance(content.get("parameters"), dict) and "chapter" in content:  # the record of a run
        if content["chapter"] != chapter.name:
            raise ChapterError(f"{path} is the record of a run of {content['chapter']!r}")
        content = content["parameters"]
    return {
        name: check_alternatives(chapter.parameter(name), value) for name, value in content.items()
    }


def _edition(options: argparse.Namespace) -> int:
    choices = read_choices(options.file)
    output = options.output or Path("_build") / f"edition-{options.file.stem}"
    print(build_edition(choices, output, progress=sys.stderr.isatty()))
    return 0


def _sweep(options: argparse.Namespace) -> int:
    with contextlib.suppress(ValueError, RuntimeError):  # reading such a file says why
        sys.path.insert(0, str(options.file.resolve().parent))  # functions may live beside it
    arguments = read_sweep_file(options.file)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = sweep(**arguments)
    for warning in caught:
        print(f"aimlib: {warning.message}", file=sys.stderr)
    if result.failed:
        print(describe_failures(result.failed), file=sys.stderr)
    print(result.table)
    return 1 if result.failed else 0
