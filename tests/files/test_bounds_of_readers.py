"""Files that are small on the disk and large in memory, or long to read, are refused before they are."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from slotbench.cli import run
from slotbench.data.cater.scene import read_scene
from slotbench.errors import DataFilesError, FileError
from slotbench.files import read_json
from slotbench.interfaces import VideoSpec
from slotbench.pretrained.weights import WeightError
from slotbench.tasks.codes.trained_tokenizer import trained_tokenizer


@pytest.mark.parametrize("piece", ["[],", "{},", '{"":0},', "0,"])
def test_json_that_would_fill_the_memory_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    path = tmp_path / "annotations.json"
    path.write_text("[" + piece * 12_000_000 + "0]")
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("parsed"))
    with pytest.raises(FileError, match="would take more than 1,024 MiB of memory"):
        read_json(path, 1 << 27)


def test_a_scene_of_very_many_moves_is_refused(tmp_path: Path) -> None:
    snitch = {"instance": "s", "shape": "spl", "sized": 0.3, "locations": {"0": [0, 0, 0]}}
    scene: dict[str, Any] = {"objects": [snitch], "movements": {"s": [["_contain", "s", 0, 0]] * 10_000}}
    (tmp_path / "scene.json").write_text(json.dumps(scene))
    read_scene(tmp_path / "scene.json")
    scene["movements"]["s"].append(["_contain", "s", 0, 0])
    (tmp_path / "scene.json").write_text(json.dumps(scene))
    with pytest.raises(DataFilesError, match="more than 10,000 moves"):
        read_scene(tmp_path / "scene.json")


def test_a_tokenizer_of_gigabytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "last.ckpt", "wb") as file:
        file.truncate(4 << 30)
    monkeypatch.setattr("slotbench.tasks.codes.trained_tokenizer.read_tensors", lambda path: pytest.fail("read"))
    with pytest.raises(WeightError, match="more than the 1,073,741,824 that a tokenizer may have"):
        trained_tokenizer(str(tmp_path / "last.ckpt"), VideoSpec(3, 16, 16))


@pytest.mark.parametrize("what", [["plugin", "fading-slots"], ["core", "my_core.py"]], ids=lambda what: what[0])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "on a file system that can only be read"),
        (MemoryError(), "not enough memory"),
    ],
    ids=["full", "read-only", "memory"],
)
def test_new_says_what_keeps_it_from_writing_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: list[str],
    error: BaseException,
    words: str,
) -> None:
    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, content: str) -> None:
            raise error

    def opened(path: Path, mode: str, **more: Any) -> Full:
        path.touch()
        return Full()

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("slotbench.commands.new.open", opened, raising=False)
        assert run(["new", *what]) == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split())
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
