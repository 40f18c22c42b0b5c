"""The notebook of a chapter: its one cell of parameters, and a run of all its cells."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aimlib.chapters.parameters import ChapterError
from aimlib.files import FileError, read_text

__all__ = ["check_kernel", "execute_notebook", "glued_values", "tagged_defaults"]

CELL_TIMEOUT = 3600


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
    taken = {
        name
        for cell in cells
        # Papermill's own cell assigns them again on purpose, in an executed copy.
        if cell is not tagged[0] and "injected-parameters" not in cell["metadata"].get("tags", [])
        for name in _bound_names(cell)
    }
    clash = sorted(taken & set(defaults))
    if clash:
        raise ChapterError(f"{notebook.name} assigns its parameters again elsewhere: {clash}")
    return defaults


def _code_cells(notebook: Path) -> list[dict[str, Any]]:
    if not notebook.is_file():
        raise ChapterError(f"there is no notebook {notebook.name}")
    try:
        content = json.loads(read_text(notebook))
        return [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    except (FileError, ValueError, KeyError, TypeError) as error:
        raise ChapterError(f"{notebook.name} is not a notebook: {error}") from None


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


def execute_notebook(
    source: Path, target: Path, parameters: Mapping[str, Any], *, progress: bool = False
) -> None:
    """Execute a notebook with papermill and make sure that every cell of it ran.

    Raises
    ------
    ChapterError
        If a cell fails, takes more than an hour, or does not run because the kernel ended.
    """
    import nbformat
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    # Papermill is given the notebook, not its path: it would record the path in the result, where
    # a name that is not UTF-8 cannot be written and the folders of a machine have no place.
    notebook = nbformat.reads(read_text(source), as_version=4)
    try:
        with _inline_figures():
            executed = papermill.execute_notebook(
                notebook,
                None,
                parameters=dict(parameters),
                kernel_name="python3",
                language="python",
                cwd=str(source.parent),
                progress_bar=progress,
                execution_timeout=CELL_TIMEOUT,
                log_output=False,
                extra_arguments=["--log-level=CRITICAL"],  # remarks on its connection, each time
            )
    except papermill.PapermillExecutionError as error:
        raise ChapterError(
            f"cell {error.exec_count} of {source.name} failed with {error.ename}: {error.evalue}\n"
            + "\n".join(error.traceback[-3:])
        ) from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise ChapterError(f"{source.name} did not run to its end: {error}") from None
    for machine in ("input_path", "output_path"):
        executed.metadata.papermill.pop(machine, None)
    target.write_text(nbformat.writes(executed) + "\n", encoding="utf-8")
    _require_complete(target, source.name)


@contextlib.contextmanager
def _inline_figures() -> Iterator[None]:
    """Let kernels store figures, whatever backend the caller has set for scripts."""
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


def glued_values(executed: Path) -> dict[str, Any]:
    """Return the numbers and texts that an executed notebook has glued, by name."""
    found = {}
    for cell in _code_cells(executed):
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name")
            for kind, text in output.get("data", {}).items():
                if name and kind.endswith("text/plain"):
                    with contextlib.suppress(ValueError, SyntaxError):
                        value = ast.literal_eval(_joined(text))
                        if isinstance(value, bool | int | float | str):
                            found[name] = value
    return found


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def check_kernel() -> None:
    """Refuse to run unless the kernel ``python3`` is this very Python."""
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    try:
        import myst_nb  # noqa: F401  the notebooks import it
        import papermill  # noqa: F401
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ModuleNotFoundError as error:
        raise ChapterError(
            f"chapters need {error.name} to run, which comes with aimlib: install it again"
        ) from None
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        raise ChapterError(
            "no kernel 'python3' is installed: install ipykernel in this environment"
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
