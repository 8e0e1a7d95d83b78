"""Pictures are measured by their headers before a page takes them in."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from slotbench.comparison.picture_size import MOST_PIXELS, unfit

FORMATS = {".png": "PNG", ".gif": "GIF", ".jpg": "JPEG", ".webp": "WEBP"}


def picture(suffix, size=(40, 30), frames=1):
    noise = np.random.default_rng(0).integers(0, 256, (frames, size[1], size[0], 3), dtype=np.uint8)
    images = [Image.fromarray(frame) for frame in noise]
    out = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    images[0].save(out, FORMATS[suffix], **more)
    return out.getvalue()


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_ordinary_picture_fits(suffix):
    assert unfit(picture(suffix), suffix) == ""


@pytest.mark.parametrize("suffix", [".png", ".gif", ".webp"])
def test_an_ordinary_animation_fits(suffix):
    assert unfit(picture(suffix, frames=5), suffix) == ""


def test_a_small_file_that_unpacks_into_gigabytes_does_not():
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    assert unfit(b"\x89PNG\r\n\x1a\n" + chunk, ".png") == "is too large for a page: 30000 x 30000 pixels"


def test_an_animation_of_many_large_frames_does_not():
    head = b"GIF89a" + struct.pack("<HHBBB", 20_000, 2_000, 0, 0, 0)
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 20_000, 2_000, 0) + b"\x08\x01\x00\x00"
    assert MOST_PIXELS > 20_000 * 2_000
    assert unfit(head + frame * 3 + b"\x3b", ".gif") == ""
    assert unfit(head + frame * 8 + b"\x3b", ".gif") == "is too large for a page: 20000 x 2000 pixels, 8 frames"


def test_the_first_bytes_say_what_a_picture_is_and_not_its_name():
    assert unfit(picture(".png"), ".gif") == "is no GIF picture, or is damaged"
    assert unfit(b"<svg>", ".png") == "is no PNG picture, or is damaged"
    assert unfit(b"", ".jpg") == "is no JPG picture, or is damaged"


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_damage_is_met_with_a_word_and_no_error(suffix, data):
    content = bytearray(picture(suffix, frames=1 if suffix == ".jpg" else 2))
    for place in data.draw(st.lists(st.integers(0, min(len(content), 200) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(content)))
    assert isinstance(unfit(bytes(content[:length]), suffix), str)
