"""Files that people write: what is read, and what is refused in one sentence."""

from __future__ import annotations

import math

import pytest

from aimlib.files import FileError, prepare_folder, read_mapping


def written(folder, name: str, content: str | bytes):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("-3", -3),
        ("0", 0),
        ("1e-6", 1e-6),
        ("1E3", 1e3),
        (".5", 0.5),
        ("-2.5e+3", -2500.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("softmax", "softmax"),
        ("y", "y"),
        ("'010'", "010"),
        ('"yes"', "yes"),
        ("[1, 2.5, x]", [1, 2.5, "x"]),
        ("{b: 1}", {"b": 1}),
        ("-.inf", -math.inf),
    ],
)
def test_yaml_means_what_a_person_reads(tmp_path, text, value) -> None:
    found = read_mapping(written(tmp_path, "a.yml", f"x: {text}\n"))["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("010", "-07", "0o10", "0x1F", "0b11", "1_000", "01.5"),
        *("1:30", "1:30:00", "20:30.5"),
        *("yes", "No", "on", "OFF"),
        *("2026-12-03", "2026-1-3", "2026-12-03T10:00:00Z"),
    ],
)
@pytest.mark.parametrize("form", ["x: {}", "x: [1, {}]", "a: 1\nx: {{b: {}}}", "{}: 1", "- x: {}"])
def test_yaml_that_readers_understand_differently_is_refused(tmp_path, text, form) -> None:
    path = written(tmp_path, "a.yml", form.format(text) + "\n")
    with pytest.raises(FileError, match=r"line \d: .* in quotes if a text is meant"):
        read_mapping(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yml", "tokens: 3\nseed: 1\ntokens: 4\n", "'tokens' is given twice, in lines 1 and 3"),
        ("a.yml", "a:\n  b: 1\n  b: 1\n", "'b' is given twice, in lines 2 and 3"),
        ("a.toml", "tokens = 3\ntokens = 4\n", "line 2"),
        ("a.json", '{"tokens": 3, "tokens": 4}', "'tokens' is given twice"),
        ("a.json", '{"a": {"b": 1, "b": 2}}', "'b' is given twice"),
    ],
)
def test_a_repeated_key_is_refused(tmp_path, name, text, message) -> None:
    with pytest.raises(FileError, match=message):
        read_mapping(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.toml",
            "tokens = 3\nx = 1 # café".encode("latin-1"),
            "byte 0xe9 in line 2 is not UTF-8",
        ),
        ("a.yml", "tokens: 3 # café".encode("latin-1"), "byte 0xe9 in line 1 is not UTF-8"),
        ("a.json", '{"é": 1}'.encode("utf-16"), "byte 0xff in line 1 is not UTF-8"),
        ("a.yml", b"", "is empty"),
        ("a.yml", b"# nothing\n", "is empty"),
        ("a.yml", b"{}", "is empty"),
        ("a.toml", b"", "is empty"),
        ("a.json", b"{}", "is empty"),
        ("a.json", b"", "cannot read"),
        ("a.yml", b"[1, 2]", "must hold a mapping, got list"),
        ("a.yml", b"just words", "must hold a mapping, got str"),
        ("a.yml", b"a: [1", "cannot read"),
        ("a.yml", b"a: !!python/name:os.system x", "tags such as"),
        ("a.yml", b"a: &x [*x]", "cannot read"),
        ("a.yml", b"1: 2", "a key must be a text, got 1"),
        ("a.yml", b"a: {<<: {c: 1}}", "merge keys"),
        ("a.yml", b"b: &b {c: 1}\na: *b", "line 2: aliases such as \\*b"),
        ("a.yml", b"a: \x00", "cannot read"),
        ("a.toml", b"a = ", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence(tmp_path, name, content, message) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(FileError, match=message) as caught:
        read_mapping(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path) -> None:
    for name, text in (
        ("a.toml", "tokens = 3"),
        ("a.yml", "tokens: 3"),
        ("a.json", '{"tokens": 3}'),
    ):
        assert read_mapping(written(tmp_path, name, b"\xef\xbb\xbf" + text.encode())) == {
            "tokens": 3
        }


def test_a_missing_file_or_a_folder_is_named(tmp_path) -> None:
    for path in (tmp_path / "none.yml", tmp_path, tmp_path / "a\0b.yml"):
        with pytest.raises(FileError, match="cannot read"):
            read_mapping(path)


def test_a_folder_is_made_or_the_reason_told_and_nothing_left(tmp_path) -> None:
    prepare_folder("output", tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    file = written(tmp_path, "thesis.tex", "years of work")
    for folder in (file, file / "x", tmp_path / "c" / ("n" * 300), tmp_path / "d" / "e\0f"):
        with pytest.raises(FileError, match="output cannot be written in"):
            prepare_folder("output", folder)
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "d").exists()
    assert file.read_text() == "years of work"
