"""One picture: turned, scaled and without hidden colours as frame; exactly its numbers as mask; no bomb at all."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from slotbench.data.folders.mask_files import read_mask_image
from slotbench.data.formats.picture_files import check_jpeg, layout_of
from slotbench.data.formats.pictures import read_frame
from slotbench.errors import DataFilesError

UPRIGHT = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40


def stored(orientation: int) -> np.ndarray:
    """How a camera stores `UPRIGHT` with this orientation: the inverse of what EXIF asks of a viewer."""
    turned = {
        1: UPRIGHT,
        2: np.fliplr(UPRIGHT),
        3: np.rot90(UPRIGHT, 2),
        4: np.flipud(UPRIGHT),
        5: UPRIGHT.T,
        6: np.rot90(UPRIGHT, 1),
        7: np.rot90(UPRIGHT, 2).T,
        8: np.rot90(UPRIGHT, -1),
    }
    return np.ascontiguousarray(turned[orientation])


@pytest.mark.parametrize("ending", ["png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_frames_and_masks_are_turned_as_viewers_show_them(orientation: int, ending: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    grey = stored(orientation)
    path = tmp_path / f"a.{ending}"
    image = Image.fromarray(np.stack([grey] * 3, -1)) if ending == "webp" else Image.fromarray(grey)
    image.save(path, exif=exif, **({"lossless": True} if ending == "webp" else {}))
    np.testing.assert_array_equal(read_frame(path)[..., 0], UPRIGHT)
    if ending != "webp":
        np.testing.assert_array_equal(read_mask_image(path), UPRIGHT)


def test_a_jpeg_is_turned_and_damaged_exif_is_none(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (100, 40)).save(tmp_path / "a.jpg", exif=exif)
    assert read_frame(tmp_path / "a.jpg").shape == (100, 40, 3)
    Image.new("RGB", (100, 40)).save(tmp_path / "b.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff" + b"\1" * 20)
    assert read_frame(tmp_path / "b.jpg").shape == (40, 100, 3)


@given(st.lists(st.integers(0, 65535), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_keep_their_upper_eight(
    ending: str, tmp_path_factory: pytest.TempPathFactory, values: list[int]
) -> None:
    path = tmp_path_factory.mktemp("grey") / f"a.{ending}"
    Image.fromarray(np.array(values, np.uint16).reshape(2, 2)).save(path)
    assert read_frame(path)[..., 1].ravel().tolist() == [value >> 8 for value in values]


def test_sixteen_bits_in_other_forms_too(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256], [30000, 65000, 65535]], np.uint16)
    rows = b"".join(b"\0" + np.stack([row] * 3, -1).astype(">u2").tobytes() for row in values)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    png = b"".join(struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks)
    (tmp_path / "colours.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)
    (tmp_path / "grey.ppm").write_bytes(b"P5 3 2 65535\n" + values.astype(">u2").tobytes())
    Image.fromarray(values.astype(">u2")).save(tmp_path / "big.tif")
    for name in ("colours.png", "grey.ppm", "big.tif"):
        np.testing.assert_array_equal(read_frame(tmp_path / name)[..., 0], values >> 8, err_msg=name)


def test_floating_point_is_black_to_white_from_0_to_1_or_refused(tmp_path: Path) -> None:
    ramp = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    Image.fromarray(ramp).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_frame(tmp_path / "a.tif")[..., 2], [[0, 51, 102], [153, 204, 255]])
    for values in (ramp * 255, ramp - 0.5, ramp * np.float32("nan")):
        Image.fromarray(values).save(tmp_path / "b.tif")
        with pytest.raises(DataFilesError, match=r"floating point from .*; expected 0 to 1"):
            read_frame(tmp_path / "b.tif")
    Image.fromarray((ramp * 1000).astype(np.int32)).save(tmp_path / "c.tif")
    with pytest.raises(DataFilesError, match="whole numbers of 32 bits"):
        read_frame(tmp_path / "c.tif")


@pytest.mark.parametrize("kind", ["RGBA", "LA", "palette", "grey", "sixteen", "webp"])
def test_what_is_transparent_shows_no_hidden_colour(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.webp" if kind == "webp" else "a.png")
    hidden = np.full((1, 2), 200, np.uint8)
    if kind in ("RGBA", "webp"):
        rgba = np.stack([hidden] * 3 + [np.array([[255, 0]], np.uint8)], -1)
        Image.fromarray(rgba).save(path, **({"lossless": True, "exact": True} if kind == "webp" else {}))
    elif kind == "LA":
        Image.fromarray(np.stack([hidden, np.array([[255, 0]], np.uint8)], -1), "LA").save(path)
    elif kind == "palette":
        image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
        image.putpalette([200] * 6)
        image.save(path, transparency=1)
    elif kind == "grey":
        Image.fromarray(np.array([[200, 201]], np.uint8)).save(path, transparency=201)
    else:
        Image.fromarray(np.array([[51200, 51201]], np.uint16)).save(path, transparency=51201)
    assert read_frame(path)[0, :, 0].tolist() == [200, 0]


def test_half_transparent_colours_are_laid_over_black(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (200, 100, 50, 128)).save(tmp_path / "a.png")
    assert read_frame(tmp_path / "a.png")[0, 0].tolist() == [100, 50, 25]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.jpg", {}),
        ("a.png", {"format": "JPEG"}),
        ("a.webp", {"quality": 80}),
        ("a.tif", {"compression": "jpeg"}),
    ],
)
def test_ids_that_were_compressed_with_losses_are_refused(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    Image.new("L", (32, 32), 3).save(tmp_path / name, **options)
    with pytest.raises(DataFilesError, match=r"whose compression changes numbers .*as PNG"):
        read_mask_image(tmp_path / name)
    assert read_frame(tmp_path / name).shape == (32, 32, 3)


@pytest.mark.parametrize("ending", ["png", "tif", "bmp", "npy"])
def test_ids_in_exact_files_are_read(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{ending}"
    np.save(path, UPRIGHT) if ending == "npy" else Image.fromarray(UPRIGHT).save(path)
    np.testing.assert_array_equal(read_mask_image(path), UPRIGHT)


def test_a_palette_gives_its_ids_whatever_is_transparent(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([0, 0, 0, 9, 9, 9, 200, 0, 0])
    image.save(tmp_path / "a.png", transparency=1)
    assert read_mask_image(tmp_path / "a.png").tolist() == [[0, 1, 2]]


def progressive(scans: int) -> bytes:
    """A progressive JPEG whose last scan is there again and again."""
    from io import BytesIO

    out = BytesIO()
    Image.effect_noise((64, 64), 50).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + b"\xff\xd9"


def test_a_jpeg_of_thousands_of_scans_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(progressive(3000))
    with pytest.raises(DataFilesError, match="a JPEG of more than 64 scans"):
        read_frame(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_bytes(progressive(20))
    assert read_frame(tmp_path / "b.jpg").shape == (64, 64, 3)
    # a film that a phone has put behind its picture is no part of it
    check_jpeg(progressive(1) + b"\xff\xda\0\2" * 5000)


def tiff(directories: int, loop: bool = False, tag: int = 256) -> bytes:
    """Directories of one tag, each of which names the next."""
    entry = struct.pack("<HHHII", 1, tag, 3, 1 if tag == 256 else 1 << 20, 1)
    size = len(entry) + 4
    after = [8 + size * (number + 1) for number in range(directories)]
    after[-1] = 8 if loop else 0
    return struct.pack("<2sHI", b"II", 42, 8) + b"".join(entry + struct.pack("<I", place) for place in after)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (tiff(20_000), "a TIFF of more than 10,000 pictures"),
        (tiff(1, tag=273), "more than 262,144 strips"),
        (b"GIF89a\1\0\1\0\0\0\0" + b",\0\0\0\0\1\0\1\0\0\2\2L\1\0" * 10_001 + b";", "a GIF of more than 10,000"),
        (
            b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x08acTL" + struct.pack(">III", 1 << 30, 0, 0) + b"\0\0\0\0IDAT",
            "1,073,741,824 pictures; expected at most 10,000",
        ),
        (b"P5\n" + b"#" * 5000, "its head has more than 4,096 bytes"),
    ],
)
def test_files_without_end_are_refused_before_they_are_decoded(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(ValueError, match=complaint):
        layout_of(file)
    with pytest.raises(DataFilesError, match=complaint):
        read_frame(path)


def test_directories_that_lead_back_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(3, loop=True))
    with path.open("rb") as file:
        assert layout_of(file).pictures == (0, 1, 2)
