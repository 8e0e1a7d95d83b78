"""Bounded reads and whole writes, on files that are damaged or hostile."""

from __future__ import annotations

import os
import stat

import pytest

from slotbench.errors import FileError
from slotbench.files import (
    is_inside,
    open_regular,
    parse_json,
    read_json,
    read_json_object,
    read_text,
    regular_files,
    remove_partials,
    write_atomically,
)
from slotbench.yaml_files import parse_yaml, read_yaml, yaml_node


def aliases(levels: int) -> str:
    """A document that stands for 9 ** levels values."""
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1', "not valid JSON: line 1"),
        (b"\xff\xfe{}", "not text in UTF-8: byte 0 is 0xff"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "thousands of digits"),
        (b"", "not valid JSON"),
    ],
)
def test_damaged_json_is_one_sentence_with_the_path(tmp_path, content, words):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=words) as error:
        read_json(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "word"), [("[1]", "a list"), ('"x"', "a text"), ("null", "nothing"), ("1", "a nu")]
)
def test_json_of_another_form_is_named(tmp_path, content, word):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(FileError, match=f"holds {word}"):
        read_json_object(tmp_path / "x.json")


def test_a_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"a" * 101)
    assert len(read_text(tmp_path / "x", limit=101)) == 101
    with pytest.raises(FileError, match="larger than the 100 bytes"):
        read_text(tmp_path / "x", limit=100)


def test_a_device_behind_a_link_is_refused_and_a_fifo_does_not_wait(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    for name, word in (("zero", "a device"), ("fifo", "a named pipe"), (".", "a folder")):
        with pytest.raises(FileError, match=word):
            open_regular(tmp_path / name)
    with pytest.raises(FileError, match="there is no file"):
        open_regular(tmp_path / "none")


def test_yaml_aliases_cannot_multiply():
    assert parse_yaml(aliases(3), "x")["a2"][0][0] == [1] * 9
    with pytest.raises(FileError, match="aliases are written out"):
        parse_yaml(aliases(9), "x.yaml")
    with pytest.raises(FileError, match="holds itself"):
        parse_yaml("a: &a [*a]", "x.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 5000, "nested more than 60 deep"),
        ("a: 1\nb: [", "line [23]"),
        ("a: 2026-13-41", "not valid YAML"),
        ("a: " + "1" * 5000, "not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("\tb: 1", "a tab"),
        ("? {a: 1}\n: 2", "not valid YAML"),
        ("x: " + "y" * 300 + ": 1", "line 1, column"),
        ("a: \x07", "not valid YAML"),
    ],
)
def test_damaged_yaml_is_a_sentence_with_the_path(tmp_path, text, words):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=words) as error:
        read_yaml(path)
    assert str(path) in str(error.value)
    assert max(len(line) for line in str(error.value).splitlines()) < 400


def test_yaml_nodes_know_their_lines():
    node = yaml_node("a: 1\nb: {c: 2}\n", "x")
    assert [name.start_mark.line for name, _ in node.value] == [0, 1]
    assert yaml_node("", "x") is None
    assert parse_yaml("", "x") is None


def test_json_from_text_says_where_it_came_from():
    with pytest.raises(FileError, match="line 7 of the log"):
        parse_json("{", "line 7 of the log")


def test_a_link_out_of_the_folder_is_not_inside(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "outside.png").touch()
    (inner / "own.png").touch()
    (inner / "link.png").symlink_to(tmp_path / "outside.png")
    (inner / "loop.png").symlink_to(inner / "loop.png")
    os.mkfifo(inner / "fifo.png")
    assert is_inside(inner, inner / "own.png")
    assert not is_inside(inner, inner / "link.png")
    assert not is_inside(inner, inner / ".." / "outside.png")
    assert regular_files(inner, "*.png") == [inner / "own.png"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_written_file_follows_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "x.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.json").stat().st_mode) == 0o666 & ~mask


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_atomically(tmp_path / "x", "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "old"


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path):
    old, fresh, other = (tmp_path / f".{name}.partial" for name in ("x[1].9-ab", "x[1].8-cd", "y.9-ab"))
    for path in (old, fresh, other):
        path.touch()
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    write_atomically(tmp_path / "x[1]", "new")
    assert (old.exists(), fresh.exists(), other.exists()) == (False, True, True)
    remove_partials(tmp_path, older_than=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["x[1]"]
