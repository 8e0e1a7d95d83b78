"""One image: turned, scaled and without hidden colours as a frame; exactly its numbers as a mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slotbench.data.folders.frame_maps import read_map
from slotbench.data.formats.images import read_frame
from slotbench.errors import DataFilesError

UPRIGHT = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_frames_and_masks_are_turned_as_viewers_show_them(ending: str, tmp_path: Path) -> None:
    for orientation, stored in {3: np.rot90(UPRIGHT, 2), 5: UPRIGHT.T, 6: np.rot90(UPRIGHT, 1)}.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        for values in (stored, stored.astype(np.uint16) * 256):
            Image.fromarray(np.ascontiguousarray(values)).save(tmp_path / f"a.{ending}", exif=exif)
            np.testing.assert_array_equal(read_frame(tmp_path / f"a.{ending}")[..., 0], UPRIGHT)
        np.testing.assert_array_equal(read_map(tmp_path / f"a.{ending}"), UPRIGHT.astype(int) * 256)


def test_floating_point_is_black_to_white_from_0_to_1_or_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    Image.fromarray(ramp).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_frame(tmp_path / "a.tif")[..., 2], [[0, 51, 102], [153, 204, 255]])
    for values, words in ((ramp * 255, "expected 0 to 1"), ((ramp * 1000).astype(np.int32), "32 bits")):
        Image.fromarray(values).save(tmp_path / "b.tif")
        with pytest.raises(DataFilesError, match=words):
            read_frame(tmp_path / "b.tif")


@pytest.mark.parametrize("kind", ["RGBA", "palette", "grey", "sixteen"])
def test_what_is_transparent_shows_no_hidden_colour(kind: str, tmp_path: Path) -> None:
    path, hidden = tmp_path / "a.png", np.full((1, 2), 200, np.uint8)
    if kind == "RGBA":
        Image.fromarray(np.stack([hidden] * 3 + [np.array([[255, 0]], np.uint8)], -1)).save(path)
    elif kind == "palette":
        image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
        image.putpalette([200] * 6)
        image.save(path, transparency=1)
    elif kind == "grey":
        Image.fromarray(np.array([[200, 201]], np.uint8)).save(path, transparency=201)
    else:
        Image.fromarray(np.array([[51200, 51201]], np.uint16)).save(path, transparency=51201)
    assert read_frame(path)[0, :, 0].tolist() == [200, 0]


def test_ids_come_as_they_were_stored_or_are_refused(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([0, 0, 0, 9, 9, 9, 200, 0, 0])
    image.save(tmp_path / "palette.png", transparency=1)
    assert read_map(tmp_path / "palette.png").tolist() == [[0, 1, 2]]
    for name, options in {"a.jpg": {}, "a.webp": {"quality": 80}, "a.tif": {"compression": "jpeg"}}.items():
        Image.new("L", (32, 32), 3).save(tmp_path / name, **options)
        with pytest.raises(DataFilesError, match=r"whose compression changes numbers .*as PNG"):
            read_map(tmp_path / name)
        assert read_frame(tmp_path / name).shape == (32, 32, 3)
    (tmp_path / "b.png").write_bytes((tmp_path / "palette.png").read_bytes()[:60])
    with pytest.raises(DataFilesError, match=r"b.png cannot be read as an image"):
        read_map(tmp_path / "b.png")
