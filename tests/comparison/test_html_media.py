"""The images of a comparison's page: which of a run's files, in which order, how many and how large ones fit."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from slotbench.comparison.page.media import MOST_PIXELS, embed, newest, unfit
from slotbench.comparison.records import Comparison, Row, RunRecord

FORMATS = {".png": "PNG", ".gif": "GIF", ".jpg": "JPEG", ".webp": "WEBP"}


def _run(number: int = 0, **fields: Any) -> RunRecord:
    return RunRecord(f"id-{number}", f"run {number}", f"runs/{number}", "finished", {}, {}, **fields)


def _comparison(*runs: RunRecord) -> Comparison:
    return Comparison("of runs", [], [], [Row(run.name, {}, [run], {}) for run in runs])


def test_the_newest_file_of_every_name():
    names = [
        "a_step0000100.png",
        "a_step0002000.png",
        "b_latest.gif",
        "b_step0009000.gif",
        "loss.png",
        "log.txt",
        "c.PNG",
    ]
    found = {medium.name: medium.path.name for medium in newest([Path(name) for name in names])}
    assert found == {"a.png": "a_step0002000.png", "b.gif": "b_latest.gif", "loss.png": "loss.png", "c.png": "c.PNG"}


def _file(path: Path, size: int, fill: int) -> Path:
    """A file that begins as a picture of one pixel does."""
    begin = io.BytesIO()
    Image.new("RGB", (1, 1)).save(begin, FORMATS[path.suffix])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((begin.getvalue() + bytes([fill]) * size)[:size])
    return path


def test_the_first_run_of_every_row_and_what_most_rows_have_goes_in_first(tmp_path):
    def run(number: int, *names: str) -> RunRecord:
        return _run(number, media=[_file(tmp_path / str(number) / name, 300, number + len(name)) for name in names])

    rows = [
        Row("one", {}, [run(0, "clip.png", "loss.png"), run(1, "clip.png")], {}),
        Row("two", {}, [run(2, "clip.png", "alone.png")], {}),
    ]
    entries, _ = embed(Comparison("", [], [], rows), 10_000)
    assert [(entry["name"], entry["run"]) for entry in entries] == [
        ("clip.png", 0),
        ("clip.png", 2),
        ("alone.png", 2),
        ("clip.png", 1),
        ("loss.png", 0),
    ]


def test_the_budget_is_kept_and_what_is_left_out_is_named(tmp_path):
    runs = [_run(number, media=[_file(tmp_path / f"{number}.png", 3000, number)]) for number in range(5)]
    runs.append(_run(5, media=[_file(tmp_path / "small.png", 80, 9)]))
    entries, contents = embed(_comparison(*runs), 9000)
    assert sum(map(len, contents)) <= 9000
    assert len(contents) == 3
    out = [entry for entry in entries if entry["content"] is None]
    assert len(out) == 3
    assert all(Path(entry["path"]).exists() and entry["bytes"] == 3000 for entry in out)
    assert next(entry for entry in entries if entry["name"] == "small.png")["content"] is not None


def test_a_picture_that_two_runs_share_is_held_once(tmp_path):
    runs = [_run(number, media=[_file(tmp_path / str(number) / "a.png", 300, 7)]) for number in range(3)]
    entries, contents = embed(_comparison(*runs), 10_000)
    assert [entry["content"] for entry in entries] == [0, 0, 0]
    assert base64.b64decode(contents[0].removeprefix("data:image/png;base64,")).endswith(bytes([7]) * 200)


def test_a_picture_that_is_gone_is_said_to_be(tmp_path):
    ((entry,), contents) = embed(_comparison(_run(media=[tmp_path / "gone.png"])), 10_000)
    assert contents == []
    assert entry["content"] is None
    assert "there is no file" in entry["problem"]


def image(suffix, size=(40, 30), frames=1):
    noise = np.random.default_rng(0).integers(0, 256, (frames, size[1], size[0], 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]
    out = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    images[0].save(out, FORMATS[suffix], **more)
    return out.getvalue()


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_ordinary_image_fits(suffix):
    assert unfit(image(suffix), suffix) == ""


@pytest.mark.parametrize("suffix", [".png", ".gif", ".webp"])
def test_an_ordinary_animation_fits(suffix):
    assert unfit(image(suffix, frames=5), suffix) == ""


def test_a_small_file_that_unpacks_into_gigabytes_does_not():
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    chunk += struct.pack(">I", 10) + b"IDAT"
    assert unfit(b"\x89PNG\r\n\x1a\n" + chunk, ".png") == "is too large for a page"


def test_an_animation_of_many_large_frames_does_not():
    head = b"GIF89a" + struct.pack("<HHBBB", 20_000, 2_000, 0, 0, 0)
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 20_000, 2_000, 0) + b"\x08\x01\x00\x00"
    assert MOST_PIXELS > 20_000 * 2_000
    assert unfit(head + frame * 3 + b"\x3b", ".gif") == ""
    assert unfit(head + frame * 4 + b"\x3b", ".gif") == "is too large for a page: 20000 x 2000 pixels, 4 frames"


def test_the_first_bytes_say_what_an_image_is_and_not_its_name():
    assert unfit(image(".png"), ".gif") == "is no GIF image, or is damaged"
    assert unfit(b"<svg>", ".png") == "is no PNG image, or is damaged"
    assert unfit(b"", ".jpg") == "is no JPG image, or is damaged"


@settings(deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_damage_is_met_with_a_word_and_no_error(suffix, data):
    content = bytearray(image(suffix, frames=1 if suffix == ".jpg" else 2))
    for place in data.draw(st.lists(st.integers(0, min(len(content), 200) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(content)))
    assert isinstance(unfit(bytes(content[:length]), suffix), str)
