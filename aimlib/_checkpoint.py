"""The state of a long computation in one file, replaced as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


class Checkpoint:
    """A file of named arrays that belongs to one computation.

    Parameters
    ----------
    path : path
    key : str
        What two runs share if one continues the other, as :func:`fingerprint` returns it.
    last : int
        Most steps that the computation is allowed.
    kind : str
        What the messages call the computation.
    """

    def __init__(self, path: Any, key: str, last: int, kind: str = "training") -> None:
        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"checkpoint must be a path, got {path!r}")
        self.path, self.key, self.last, self.kind = Path(path), key, last, kind
        try:
            known = self.path.stat()
        except FileNotFoundError:
            known = None
        except (OSError, ValueError) as error:
            raise ValueError(
                f"checkpoint must be a path of a file, got {path!r}: {error}"
            ) from None
        if known is None and not self.path.parent.is_dir():
            raise ValueError(f"checkpoint must be in a folder that exists, got {str(path)!r}")
        if known is not None and not stat.S_ISREG(known.st_mode):
            raise ValueError(
                f"checkpoint must be a file written by an earlier {kind} or a new one, "
                f"got {str(path)!r}, which is no regular file"
            )
        try:
            self._temporary().touch()
            self._temporary().unlink()
        except OSError as error:
            raise ValueError(
                f"checkpoint must be a file that can be written, got {str(path)!r}: {error}"
            ) from None

    def _temporary(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}.part")

    def save(self, step: int, **arrays: Any) -> None:
        """Replace the file; a process killed at any moment leaves the old one or the new one."""
        temporary = self._temporary()
        try:
            with temporary.open("wb") as handle:
                np.savez(handle, key=np.array(self.key), step=np.array(step), **arrays)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Return the step and the arrays of the file, None if there is none yet.

        Raises
        ------
        ValueError
            If the file is something else, belongs to another computation, or is ahead of it.
        """
        self._sweep_up()
        if not self.path.exists():
            return None
        try:
            with np.load(self.path) as stored:
                arrays = dict(stored)
            key, step = str(arrays.pop("key")), int(arrays.pop("step"))
        except (OSError, EOFError, TypeError, ValueError, KeyError, zipfile.BadZipFile):
            raise ValueError(
                f"checkpoint must be a file written by an earlier {self.kind} or a new one, "
                f"got {str(self.path)!r}"
            ) from None
        if key != self.key:
            raise ValueError(
                f"checkpoint must belong to the same data set, seed and options, got "
                f"{str(self.path)!r} of another {self.kind}; remove it or name another file"
            )
        if step > self.last:
            raise ValueError(
                f"iterations must be at least {step}, which the {self.kind} in "
                f"checkpoint {str(self.path)!r} has taken, got {self.last}"
            )
        return step, arrays

    def _sweep_up(self) -> None:
        """Remove what writers that were killed have left behind."""
        for part in self.path.parent.iterdir():
            name = part.name.removeprefix(f"{self.path.name}.")
            if name != part.name and name.endswith(".part") and name[:-5].isdigit():
                with contextlib.suppress(OSError):
                    part.unlink()


def fingerprint(*parts: Any) -> str:
    """Return a hash of arrays, by their bytes, and of other values, by what they print."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype)).encode())
            digest.update(np.ascontiguousarray(part).data.cast("B"))
        else:
            digest.update(_described(part).encode())
    return digest.hexdigest()


def _described(part: Any) -> str:
    """What an object prints, or its class and its plain values if it prints an address."""
    if isinstance(part, tuple | list):
        return f"({', '.join(map(_described, part))})"
    if "at 0x" not in repr(part):
        with np.printoptions(threshold=2**62, precision=17):
            return repr(part)
    plain = {k: v for k, v in sorted(vars(part).items()) if isinstance(v, int | float | str)}
    return f"{type(part).__module__}.{type(part).__qualname__}{plain}"
