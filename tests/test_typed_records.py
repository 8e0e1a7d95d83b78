"""Records of known types: what is read, what a sentence names, what is left out, and that nothing else happens."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required, TypedDict

import pytest
from msgspec import Meta

from slotbench.errors import DataFilesError, FileError
from slotbench.records import Amount, Whole, as_record, numbers, read_record, valid_part


class Part(TypedDict, total=False):
    name: Required[str]
    size: Whole


class Entry(TypedDict, total=False):
    kind: Literal["a"]
    step: Whole
    seconds: Amount
    counts: dict[str, Whole]
    axes: Annotated[list[Whole], Meta(max_length=2)]
    names: dict[Annotated[str, Meta(pattern="^[a-z]+$")], Any]
    parts: list[Part]


@dataclass(frozen=True)
class Header:
    videos: Whole
    name: str = "unnamed"

    def __post_init__(self) -> None:
        if self.videos == 3:
            raise ValueError("it has three videos")


def test_entries_without_a_type_stay_as_they_are(tmp_path):
    written = {"step": 3, "more": {"a": [None]}, "parts": [{"name": "x", "more": 1}]}
    (tmp_path / "a.json").write_text(json.dumps(written))
    assert read_record(tmp_path / "a.json", Entry) == written
    assert as_record({"videos": 2, "more": 1}, Header, "it") == Header(2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"step": "x"}, "is damaged: its 'step' is 'x'; expected a whole number"),
        ({"step": True}, "is damaged: its 'step' is True; expected a whole number"),
        ({"step": -1}, "is damaged: its 'step' is -1; expected a whole number >= 0"),
        ({"step": 10**300}, f"is damaged: its 'step' is 1{59 * '0'}; expected a whole number <= "),
        ({"seconds": float("nan")}, "is damaged: its 'seconds' is nan"),
        ({"kind": "b"}, "is not of this version: its 'kind' is 'b', which it does not know"),
        ({"counts": {"a": 1, "b": "x"}}, "is damaged: its 'counts.b' is 'x'; expected a whole number"),
        ({"axes": [1, 2, 3]}, "is damaged: its 'axes' is of another length; expected a list of length <= 2"),
        ({"names": {"B": 1}}, "is damaged: a name in its 'names' is none that there can be"),
        ({"seconds": 10**400}, "is damaged: its 'seconds'"),
        ({"parts": [{"name": "x"}, {}]}, "is damaged: its 'parts[1]' has no 'name'"),
        ({"parts": [{"name": "x", "size": []}]}, "is damaged: its 'parts[0].size' is a list; expected a whole number"),
        ([1], "holds a list; expected a JSON object"),
        (7, "holds a whole number; expected a JSON object"),
    ],
)
def test_what_does_not_fit_is_named_in_one_sentence(tmp_path, content, said):
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(DataFilesError) as error:
        read_record(tmp_path / "a.json", Entry, advice="make it again", raising=DataFilesError)
    text = str(error.value)
    assert text.startswith(f"{tmp_path / 'a.json'} {said}")
    assert text.endswith("; make it again")
    assert "\n" not in text


def test_a_dataclass_says_what_is_wrong_with_it():
    with pytest.raises(FileError, match=r"^it is damaged: it has three videos$"):
        as_record({"videos": 3}, Header, "it")
    with pytest.raises(FileError, match=r"^it is damaged: it has no 'videos'$"):
        as_record({}, Header, "it")


def test_foreign_text_is_short_and_quoted():
    with pytest.raises(FileError) as error:
        as_record({"step": "\x1b[2J" * 10_000, "kind": "\x1b"}, Entry, "it")
    assert len(str(error.value)) < 300
    assert "\x1b" not in str(error.value)
    for content in ({"kind": "\x1b[2J" * 10_000}, {"counts": {"\x1b[2J" * 10_000: "x"}}):
        with pytest.raises(FileError) as error:
            as_record(content, Entry, "it")
        assert len(str(error.value)) < 300
        assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ({"step": "x", "seconds": 2, "more": [1]}, {"seconds": 2, "more": [1]}),
        ({"counts": {"a": 1, "b": "x", "c": -1}}, {"counts": {"a": 1}}),
        ({"counts": 3}, {}),
        ({"axes": [1, "x", 2]}, {"axes": [1, 2]}),
        ({"axes": [1, 2, 3], "names": {"B": 1}}, {}),
        ({"parts": [{"name": "x", "size": "big"}, {"size": 3}, 7]}, {"parts": [{"name": "x"}]}),
        ({}, {}),
    ],
)
def test_the_valid_part_lacks_only_what_does_not_fit(content: Any, kept: Any):
    assert valid_part(content, Entry) == kept


def test_without_what_it_needs_nothing_is_left():
    with pytest.raises(FileError, match="the record is damaged: it has no 'name'"):
        valid_part({"size": 3}, Part)
    with pytest.raises(FileError, match="holds a list; expected a JSON object"):
        valid_part([], Entry)
    assert valid_part({"videos": 2, "name": 7}, Header) == Header(2)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, '{"step": ' + "9" * 10_000 + "}"])
def test_deep_and_long_content_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(FileError, match=r"a\.json is no"):
        read_record(tmp_path / "a.json", Entry)


def test_files_are_bounded_and_no_pipe_is_waited_for(tmp_path):
    (tmp_path / "a.json").write_text('{"more": "' + "x" * 1000 + '"}')
    with pytest.raises(FileError, match="larger than the 100 bytes"):
        read_record(tmp_path / "a.json", Entry, limit=100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is a named pipe"):
        read_record(tmp_path / "pipe", Entry)


def test_numbers_are_read_from_their_words():
    given = {"a": 1, "b": 0.5, "c": "Infinity", "d": "x", "e": True, "f": None, "g": 10**400, "h": [1]}
    assert numbers(given) == {"a": 1.0, "b": 0.5, "c": float("inf")}
    assert numbers([1]) == {}
    assert len(numbers({str(n): n for n in range(30_000)})) == 20_000
