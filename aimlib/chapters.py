"""Chapters that can be run with other parameters: their cards, and one safe way to run them.

A chapter is a notebook with exactly one cell of plain literals tagged ``parameters``, and a card in
``notebooks/parameters.toml`` that says what each parameter means and where it may go.  The cell
holds the defaults; the card holds nothing that the cell holds.  :func:`run_chapter` is the only way
in which this package executes a notebook.  It refuses whatever would run something else than was
asked for, before a kernel starts, and leaves either a complete result or nothing.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Chapter",
    "ChapterError",
    "Parameter",
    "build_edition",
    "find_root",
    "load_chapter",
    "load_chapters",
    "parse_value",
    "read_mapping",
    "run_chapter",
    "validate_values",
]

CELL_TIMEOUT = 3600
_TYPES: dict[str, tuple[type, bool]] = {
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


# ---------------------------------------------------------------------------------------------
# Cards
# ---------------------------------------------------------------------------------------------


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
    def allowed(self) -> str:
        """What the parameter accepts, in words."""
        _, many = _TYPES[self.type]
        kind = f"comma-separated {self.type}" if many else self.type
        if self.choices:
            return f"{kind}, one of {', '.join(map(str, self.choices))}"
        if self.low == -math.inf and self.high == math.inf:
            return kind
        return f"{kind} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Chapter:
    """A chapter that can be run."""

    name: str
    title: str
    summary: str
    seconds: float
    notebook: Path
    parameters: tuple[Parameter, ...]
    presets: Mapping[str, Mapping[str, Any]]

    def parameter(self, name: str) -> Parameter:
        """Return the parameter of this name, or say which names there are."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        names = [parameter.name for parameter in self.parameters]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        valid = "\n".join(f"  {p.name}: {p.allowed}" for p in self.parameters)
        raise ChapterError(
            f"chapter {self.name!r} has no parameter {name!r}.{hint} It has:\n{valid}"
        )


def find_root(start: Path | None = None) -> Path:
    """Return the folder of the book: ``$AIMLIB_BOOK``, else above here, else beside the package."""
    chosen = os.environ.get("AIMLIB_BOOK")
    here = (start or Path.cwd()).resolve()
    candidates = [Path(chosen)] if chosen else [here, *here.parents]
    if not chosen:
        candidates.append(Path(__file__).resolve().parent.parent)
    for folder in candidates:
        if (folder / "_toc.yml").is_file() and (folder / "notebooks/parameters.toml").is_file():
            return folder.resolve()
    raise ChapterError(
        f"no book found {'in ' + chosen if chosen else 'here or above'}: run inside a checkout of "
        "the book, or set AIMLIB_BOOK to its folder"
    )


def _cards(root: Path) -> dict[str, Any]:
    with open(root / "notebooks" / "parameters.toml", "rb") as file:
        return tomllib.load(file)


def load_chapters(root: Path | None = None) -> list[Chapter]:
    """Return all chapters that can be run, in the order of their cards."""
    folder = root or find_root()
    return [_chapter(folder, name, card) for name, card in _cards(folder).items()]


def load_chapter(name: str, root: Path | None = None) -> Chapter:
    """Return one chapter, or say which there are."""
    folder = root or find_root()
    cards = _cards(folder)
    if name not in cards:
        near = difflib.get_close_matches(name, cards, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ChapterError(f"no chapter {name!r}.{hint} Chapters: {', '.join(cards)}")
    return _chapter(folder, name, cards[name])


def _chapter(root: Path, name: str, card: Mapping[str, Any]) -> Chapter:
    notebook = root / "notebooks" / f"{name}.ipynb"
    defaults = tagged_defaults(notebook)
    described = card.get("parameters", {})
    if set(described) != set(defaults):
        raise ChapterError(
            f"the card of {name!r} describes {sorted(described)} but the parameters cell of "
            f"{notebook.name} sets {sorted(defaults)}"
        )
    parameters = tuple(
        Parameter(
            name=key,
            default=default,
            type=described[key]["type"],
            description=described[key]["description"],
            low=described[key].get("low", -math.inf),
            high=described[key].get("high", math.inf),
            choices=tuple(described[key].get("choices", ())),
            test_value=described[key].get("test_value"),
        )
        for key, default in defaults.items()
    )
    chapter = Chapter(
        name,
        card["title"],
        card["summary"],
        float(card["seconds"]),
        notebook,
        parameters,
        card.get("presets", {}),
    )
    for parameter in parameters:
        _check(parameter, parameter.default)
    return chapter


def tagged_defaults(notebook: Path) -> dict[str, Any]:
    """Return the literals of the one cell tagged ``parameters``.

    Raises
    ------
    ChapterError
        If there is no such cell or more than one, if it does anything but assign literals, or if a
        name in it is also imported, defined or derived from elsewhere in the notebook.
    """
    cells = _code_cells(notebook)
    tagged = [cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise ChapterError(
            f"{notebook.name} must have exactly one code cell tagged 'parameters', "
            f"it has {len(tagged)}"
        )
    defaults: dict[str, Any] = {}
    for statement in ast.parse(_source(tagged[0])).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    defaults[name] = ast.literal_eval(value)
                except ValueError:
                    raise ChapterError(
                        f"the parameters cell of {notebook.name} must assign plain literals; "
                        f"{name} is computed"
                    ) from None
            case _:
                raise ChapterError(
                    f"the parameters cell of {notebook.name} must hold assignments of literals only"
                )
    taken = {name for cell in cells if cell is not tagged[0] for name in _bound_names(cell)}
    clash = sorted(taken & set(defaults))
    if clash:
        raise ChapterError(f"{notebook.name} assigns its parameters again elsewhere: {clash}")
    return defaults


def _code_cells(notebook: Path) -> list[dict[str, Any]]:
    try:
        with open(notebook, encoding="utf-8") as file:
            content = json.load(file)
    except FileNotFoundError:
        raise ChapterError(f"there is no notebook {notebook.name}") from None
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def _source(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _bound_names(cell: Mapping[str, Any]) -> Iterator[str]:
    """Names that a cell imports, defines or assigns at its top level."""
    for node in ast.walk(ast.parse(_source(cell))):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in names)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name


# ---------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------


def parse_value(parameter: Parameter, text: str) -> Any:
    """Turn the text of a command line into a value of the declared type, or refuse it.

    Integers may be written 1000 or 1e3, but not 007 or 1.5; truth values are true and false; lists
    are separated by commas, with or without brackets.
    """
    kind, many = _TYPES[parameter.type]
    if not many:
        return _check(parameter, _parse_one(parameter, kind, text.strip()))
    inner = text.strip().removeprefix("[").removesuffix("]")
    return _check(
        parameter, [_parse_one(parameter, kind, part.strip()) for part in inner.split(",")]
    )


def _parse_one(parameter: Parameter, kind: type, text: str) -> Any:
    if kind is str:
        return text.strip("'\"")
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise _refusal(parameter, text)
        return text.lower() == "true"
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        raise _refusal(parameter, text)
    try:
        number = float(text)
    except ValueError:
        raise _refusal(parameter, text) from None
    if kind is int:
        if not number.is_integer():
            raise _refusal(parameter, text)
        return int(text) if digits.isdigit() else int(number)
    return number


def _refusal(parameter: Parameter, value: Any) -> ChapterError:
    return ChapterError(f"{parameter.name} must be {parameter.allowed}, got {value!r}")


def _check(parameter: Parameter, value: Any) -> Any:
    """Return the value with its declared type if it is allowed."""
    kind, many = _TYPES[parameter.type]
    if many:
        if not isinstance(value, list | tuple) or not value:
            raise _refusal(parameter, value)
        return [_check_one(parameter, kind, item) for item in value]
    return _check_one(parameter, kind, value)


def _check_one(parameter: Parameter, kind: type, value: Any) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (parameter.choices and value not in parameter.choices):
        raise _refusal(parameter, value)
    if isinstance(value, int | float) and kind is not bool:
        if not (math.isfinite(value) and parameter.low <= value <= parameter.high):
            raise _refusal(parameter, value)
    return value


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
        chosen = chapter.presets[preset].get("values", {})
        values = {**chosen, **values}
    for name, value in values.items():
        complete[name] = _check(chapter.parameter(name), value)
    return complete


# ---------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------


def run_chapter(
    chapter: Chapter,
    values: Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    output: Path | None = None,
    progress: bool = False,
) -> Path:
    """Run a chapter with other parameters; return the folder of the result.

    Parameters
    ----------
    chapter : Chapter
    values : mapping of str to object
        Parameters to change.
    preset : str, optional
        Named set of parameters from the card, applied before ``values``.
    output : Path, optional
        Folder of the result; by default ``runs/CHAPTER-HASH`` with a hash of the parameters.  An
        earlier result there is replaced, anything else is left alone and an error.
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    Path
        Holds ``notebook.ipynb``, ``notebook.html`` and ``parameters.json``.

    Raises
    ------
    ChapterError
        Before anything runs, if a name, a value, the kernel or the output folder is wrong;
        afterwards, if a cell failed or did not run.  Nothing is left behind in either case.
    """
    parameters = validate_values(chapter, values or {}, preset)
    root = chapter.notebook.parent.parent
    target = (output or root / "runs" / f"{chapter.name}-{_digest(parameters)}").resolve()
    _check_target(target, root)
    check_kernel()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(target.parent) as scratch:
        started = time.time()
        executed = scratch / "notebook.ipynb"
        execute_notebook(chapter.notebook, executed, parameters, progress=progress)
        (scratch / "notebook.html").write_text(_html(executed, target, root), encoding="utf-8")
        record = {
            "chapter": chapter.name,
            "parameters": parameters,
            "seconds": round(time.time() - started, 3),
            **provenance(root),
        }
        (scratch / "parameters.json").write_text(json.dumps(record, indent=2) + "\n")
        _replace(scratch, target)
    return target


def execute_notebook(
    source: Path, target: Path, parameters: Mapping[str, Any], *, progress: bool = False
) -> None:
    """Execute a notebook with papermill and make sure that every cell of it ran."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    try:
        with _inline_figures():
            papermill.execute_notebook(
                str(source),
                str(target),
                parameters=dict(parameters),
                kernel_name="python3",
                language="python",
                cwd=str(source.parent),
                progress_bar=progress,
                execution_timeout=CELL_TIMEOUT,
                log_output=False,
            )
    except papermill.PapermillExecutionError as error:
        raise ChapterError(
            f"cell {error.exec_count} of {source.name} failed with {error.ename}: {error.evalue}\n"
            + "\n".join(error.traceback[-3:])
        ) from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise ChapterError(f"{source.name} did not run to its end: {error}") from None
    _require_complete(target, source.name)


@contextlib.contextmanager
def _inline_figures() -> Iterator[None]:
    """Let kernels started here store figures, whatever backend the caller has set for scripts."""
    before = os.environ.get("MPLBACKEND")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    try:
        yield
    finally:
        if before is None:
            del os.environ["MPLBACKEND"]
        else:
            os.environ["MPLBACKEND"] = before


def _require_complete(executed: Path, name: str) -> None:
    """Papermill reports success for a half-run notebook whose kernel exited; this does not."""
    for position, cell in enumerate(_code_cells(executed), start=1):
        status = cell.get("metadata", {}).get("papermill", {}).get("status")
        if _source(cell).strip() and (cell["execution_count"] is None or status != "completed"):
            raise ChapterError(
                f"code cell {position} of {name} did not run: the kernel ended before it"
            )


def check_kernel() -> None:
    """Refuse to run unless the kernel ``python3`` is this very Python."""
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        raise ChapterError(
            "no kernel 'python3' is installed: install the extra 'book' of aimlib"
        ) from None
    generic = {"python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
    if command in generic:  # jupyter_client replaces these by sys.executable
        return
    if os.path.realpath(command) != os.path.realpath(sys.executable) or (
        Path(command).parent != Path(sys.executable).parent
    ):
        raise ChapterError(
            f"the kernel 'python3' runs {command}, not {sys.executable}: remove that kernel "
            "specification (jupyter kernelspec list) or run this from its environment"
        )


def provenance(root: Path) -> dict[str, Any]:
    """Return versions, git revision and time for the record of a result."""
    packages = ("aimlib", "numpy", "scipy", "numba", "matplotlib", "papermill")
    versions = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "versions": versions,
        "revision": _revision(root),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _revision(root: Path) -> str | None:
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _digest(parameters: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:10]


def _check_target(target: Path, root: Path) -> None:
    for part in ("book", "notebooks", "aimlib", "tests", "benchmarks", ".git"):
        if target == root / part or (root / part) in target.parents:
            raise ChapterError(f"output must not be among the sources, got {target}")
    if target == root or target in root.parents:
        raise ChapterError(f"output must not hold the sources, got {target}")
    if target.exists():
        ours = target.is_dir() and (target / "parameters.json").is_file()
        empty = target.is_dir() and not any(target.iterdir())
        if not (ours or empty):
            raise ChapterError(f"output must be new, empty or an earlier result, got {target}")


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A temporary folder on the same disk as the result, gone whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _replace(scratch: Path, target: Path) -> None:
    finished = scratch.with_name(scratch.name + "-done")
    scratch.rename(finished)
    finished.chmod(0o755)
    if target.exists():
        old = scratch.with_name(scratch.name + "-old")
        target.rename(old)
        finished.rename(target)
        shutil.rmtree(old)
    else:
        finished.rename(target)


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<script>
MathJax = {{
  tex: {{inlineMath: [["$", "$"]], macros: {macros}}},
  options: {{enableMenu: false}},
}};
</script>
<script src="{mathjax}" async></script>
<style>
body {{ font: 17px/1.6 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 1rem; }}
pre {{ overflow-x: auto; background: #f6f6f6; padding: .6rem; }} img {{ max-width: 100%; }}
.jp-InputPrompt, .jp-OutputPrompt, .anchor-link {{ display: none; }}
</style></head><body>
{body}
</body></html>
"""


def _html(executed: Path, target: Path, root: Path) -> str:
    """Render a result as one page that uses the MathJax and the macros of the book."""
    import nbconvert
    import yaml

    body, _ = nbconvert.HTMLExporter(template_name="basic").from_filename(str(executed))
    config = yaml.safe_load((root / "_config.yml").read_text())
    macros = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    mathjax = os.path.relpath(root / "book/_static/mathjax/tex-chtml.js", target)
    return _PAGE.format(
        title=target.name, mathjax=Path(mathjax).as_posix(), macros=json.dumps(macros), body=body
    )


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a mapping from a TOML file, or else from YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ChapterError(f"cannot read {path}: {error.strerror}") from None
    try:
        if path.suffix == ".toml":
            content: Any = tomllib.loads(text)
        else:
            import yaml

            content = yaml.safe_load(text)
    except Exception as error:
        raise ChapterError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise ChapterError(f"{path} must hold a mapping, got {type(content).__name__}")
    return content


# ---------------------------------------------------------------------------------------------
# Editions: the whole book with other parameters
# ---------------------------------------------------------------------------------------------


def build_edition(
    choices: Mapping[str, Mapping[str, Any]], output: Path, root: Path | None = None
) -> Path:
    """Build the book with some chapters run with other parameters.

    Parameters
    ----------
    choices : mapping of chapter to mapping of parameter to value
        A value ``preset`` names a preset of the chapter.
    output : Path
        Folder of the built pages; must be new, empty or an earlier edition.
    root : Path, optional
        Folder of the book.

    Returns
    -------
    Path
        The page to open.
    """
    folder = root or find_root()
    plans = []
    for name, values in choices.items():
        chapter = load_chapter(name, folder)
        chosen = dict(values)
        preset = chosen.pop("preset", None)
        plans.append((chapter, validate_values(chapter, chosen, preset)))
    target = output.resolve()
    _check_target(target, folder)
    check_kernel()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(target.parent) as scratch:
        stage = scratch / "stage"
        stage.mkdir()
        for part in ("book", "notebooks"):
            shutil.copytree(folder / part, stage / part)
        for part in ("_config.yml", "_toc.yml"):
            shutil.copy(folder / part, stage / part)
        for chapter, parameters in plans:
            executed = stage / "notebooks" / f".{chapter.name}.ipynb"
            execute_notebook(chapter.notebook, executed, parameters, progress=True)
            executed.rename(stage / "notebooks" / f"{chapter.name}.ipynb")
        command = [
            sys.executable,
            "-c",
            "from jupyter_book.cli.main import main; main()",
            "build",
            str(stage),
            "-q",
        ]
        built = subprocess.run(command, capture_output=True, text=True)
        pages = stage / "_build" / "html"
        if built.returncode or not (pages / "index.html").is_file():
            raise ChapterError(f"the build of the edition failed:\n{built.stderr[-3000:]}")
        record = {"edition": {c.name: values for c, values in plans}, **provenance(folder)}
        (pages / "parameters.json").write_text(json.dumps(record, indent=2) + "\n")
        moved = scratch.with_name(scratch.name + "-pages")
        pages.rename(moved)
        _replace(moved, target)
    return target / "index.html"
