"""Files that people write, read so that nothing means something else than it says.

Parameter files, editions and sweeps are TOML, YAML or JSON.  All three are read as UTF-8, whatever
the locale, and a key that is given twice is refused.  YAML is read by rules narrower than YAML 1.1:
a plain text that old and new readers understand differently (``010``, ``1:30``, ``yes``, a date) is
refused, so that it can be neither 8 nor 90 nor true by accident; ``1e-6`` is the number.

Folders of results are tried out before anything runs, and files written whole.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FileError", "prepare_folder", "printable", "read_mapping", "read_text", "write_json",
           "write_whole"]  # fmt: skip


class FileError(ValueError):
    """A file or folder that cannot be used; the message names it and says why."""


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written in UTF-8, whatever bytes its name holds."""
    return os.fsencode(path).decode("utf-8", errors="replace")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark.

    Raises
    ------
    FileError
        If the file cannot be read, or is in another encoding: then with the first byte that is
        not UTF-8 and its line.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {_reason(error)}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(
            f"cannot read {path}: byte 0x{content[error.start]:02x} in line {line} is not UTF-8; "
            "save the file as UTF-8"
        ) from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a mapping from a file: TOML or JSON by its suffix, else YAML.

    Raises
    ------
    FileError
        If the file cannot be read, holds no mapping or an empty one, gives a key twice, or holds
        a YAML text that readers of YAML understand differently.
    """
    text = read_text(path)
    try:
        if path.suffix.lower() == ".toml":
            content: Any = tomllib.loads(text)
        elif path.suffix.lower() == ".json":
            content = json.loads(text, object_pairs_hook=_unrepeated)
        else:
            content = _read_yaml(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"cannot read {path}: {error}") from None
    if content is None or content == {}:
        raise FileError(f"{path} is empty: it must hold at least one entry")
    if not isinstance(content, dict):
        raise FileError(f"{path} must hold a mapping, got {type(content).__name__}")
    return content


def _unrepeated(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice in one object")
    return content


# ---------------------------------------------------------------------------------------------
# YAML
# ---------------------------------------------------------------------------------------------

# What YAML 1.1 reads as something else than YAML 1.2, or than a person does.
_AMBIGUOUS = {
    r"[-+]?0[0-9_]+(?:\.\S*)?": "an octal number in YAML 1.1: write it without leading zeros",
    r"[-+]?0[box][0-9a-fA-F_]+": "a number in another base: write it in base ten",
    r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?": "a number in base sixty in YAML 1.1",
    r"[-+]?[0-9.]+_[0-9_.]*": "a number with underscores: write it without",
    r"(?i:yes|no|on|off)": "a truth value in YAML 1.1 and a text in YAML 1.2: write true or false",
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*": "a date",
}
_AMBIGUOUS_PATTERN = re.compile(
    "|".join(f"(?P<a{i}>{p})" for i, p in enumerate(_AMBIGUOUS)), re.ASCII
)
_KNOWN_TAGS = set("! map seq str int float bool null timestamp merge value".split())
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.ASCII | re.I
)


def _read_yaml(text: str) -> Any:
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):  # a few lines of them can stand for gigabytes
                line = event.start_mark.line + 1
                raise ValueError(f"line {line}: aliases such as *{event.anchor} are not allowed")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _value(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _value(node: Any) -> Any:
    """Return what a node means, by its own text rather than by the tag that YAML 1.1 gave it."""
    import yaml

    line = node.start_mark.line + 1
    if node.tag.rpartition(":")[2] not in _KNOWN_TAGS:
        raise ValueError(f"line {line}: tags such as {node.tag} are not allowed")
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    if node.style is not None:  # quoted, or a block of text
        return node.value
    return _plain(node.value, line)


def _mapping(node: Any) -> dict[Hashable, Any]:
    content: dict[Hashable, Any] = {}
    lines: dict[Hashable, int] = {}
    for key_node, value_node in node.value:
        key, line = _value(key_node), key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise ValueError(f"line {line}: a key must be a text, got {key!r}")
        if key == "<<":
            raise ValueError(f"line {line}: merge keys are not allowed")
        if key in content:
            raise ValueError(f"key {key!r} is given twice, in lines {lines[key]} and {line}")
        content[key], lines[key] = _value(value_node), line
    return content


def _plain(text: str, line: int) -> Any:
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if match := _AMBIGUOUS_PATTERN.fullmatch(text):
        meaning = list(_AMBIGUOUS.values())[int(str(match.lastgroup)[1:])]
        raise ValueError(f"line {line}: {text} is {meaning}, or in quotes if a text is meant")
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


# ---------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there completely or as it was."""
    unfinished = path.with_name(f".unfinished-{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write a record that people can read too, completely or not at all."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


_PROBE = 1 << 16  # bytes, less than any result of a chapter


def prepare_folder(name: str, folder: Path) -> None:
    """Make a folder, with its parents, and make sure that files can be written into it.

    Raises
    ------
    FileError
        Naming the folder and the reason of the system; folders made on the way are removed.
    """
    made: list[Path] = []
    try:
        for part in _missing(folder):
            part.mkdir()
            made.append(part)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_PROBE))  # on a full disk, files can be made and not written
    except (OSError, ValueError) as error:
        for part in reversed(made):
            part.rmdir()
        raise FileError(f"{name} cannot be written in {folder}: {_reason(error)}") from None


def _missing(folder: Path) -> Iterator[Path]:
    """The folder and its parents, from the top, as far as they do not exist."""
    yield from (part for part in [*reversed(folder.parents), folder] if not part.exists())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
