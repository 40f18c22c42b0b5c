"""Run notebooks with their defaults and store them executed, with nothing that varies by machine.

Usage: python tests/store_notebooks.py [CHAPTER ...]   (all by default)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
KEPT = {"tags", "mystnb"}


def store(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT}
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main() -> None:
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    os.environ.pop("MPLBACKEND", None)  # the kernel's own, which stores figures
    names = sys.argv[1:]
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            print(f"{path.name} ...", flush=True)
            store(path)


if __name__ == "__main__":
    main()
