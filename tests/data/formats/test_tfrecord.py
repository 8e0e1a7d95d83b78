"""Records come back as they were written, whatever the file's state is it is noticed, and the index is made once."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfrecord_files import block, crc32c, example, framed, masked, png, varint

from slotbench.data.formats.images import decode_png
from slotbench.data.formats.tfrecord import Example, TFRecords, masked_crc32c, stream_gzip
from slotbench.errors import DataFilesError, FileError

CONTENTS = [b"first", b"", bytes(range(256)) * 3, b"last"]


def written(path: Path, contents: list[bytes] = CONTENTS) -> Path:
    path.write_bytes(framed(contents, checksums=True))
    return path


def test_the_checksum_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the value that RFC 3720's tables and every catalogue have
    for data in (b"", b"1", b"123456789", bytes(range(256)) * 5):
        assert masked_crc32c(data) == int.from_bytes(masked(data), "little")


def test_records_are_read_by_index_over_several_files(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.tfrecord-0"), written(tmp_path / "a.tfrecord-1", [b"more"])]
    records = TFRecords(files)
    assert len(records) == 5
    assert [bytes(records[i]) for i in (4, 2, 0, 1, 3)] == [b"more", CONTENTS[2], b"first", b"", b"last"]
    assert str(files[1]) in records.where(4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (framed(CONTENTS)[:-3], "ends within record 3"),
        (framed(CONTENTS)[:-12], "record 3 at byte 821"),
        (b"<html>no such object, said the server</html>", "is no TFRecord file"),
        (gzip.compress(framed(CONTENTS)), "compressed by gzip"),
    ],
)
def test_a_file_that_is_not_whole_or_no_tfrecord_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(DataFilesError, match=message):
        TFRecords([tmp_path / "a.tfrecord"])
    with pytest.raises(FileError, match="there is no file"):
        TFRecords([tmp_path / "b.tfrecord"])


def test_a_compressed_file_is_streamed_from_any_record_on(tmp_path: Path) -> None:
    file = tmp_path / "a.tfrecords"
    file.write_bytes(gzip.compress(framed(CONTENTS, checksums=True)))
    assert [bytes(record) for record in stream_gzip(file)] == CONTENTS
    read: list[int] = []
    assert [bytes(record) for record in stream_gzip(file, first=2, report=read.append)] == CONTENTS[2:]
    assert read[-1] == file.stat().st_size


def test_a_compressed_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.tfrecords"
    whole = gzip.compress(framed([np.random.default_rng(0).bytes(9999)] * 2))
    for content, message in [
        (whole[:-2000], "cannot be read beyond record"),
        (gzip.compress(framed(CONTENTS)[:-3]), "record 3 .it ends within one"),
        (gzip.compress(b"words, words, words, and no records"), "is no TFRecord file"),
    ]:
        file.write_bytes(content)
        with pytest.raises(DataFilesError, match=message):
            list(stream_gzip(file))


@given(
    st.lists(st.binary(max_size=300), max_size=5),
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=9),
    st.lists(st.floats(width=32, allow_nan=False), max_size=9),
)
def test_an_example_is_parsed_to_what_was_written(strings: list[bytes], ints: list[int], floats: list[float]) -> None:
    values = {"a/b": strings, "ints": np.array(ints, np.int64), "floats": np.array(floats, np.float32)}
    parsed = Example(memoryview(example(values)), "here", "")  # type: ignore[arg-type]
    assert all(name in parsed for name in values)
    assert [bytes(string) for string in parsed.byte_strings("a/b")] == strings
    assert bytes(parsed.bytes_of("a/b", None)) == b"".join(strings)
    assert parsed.ints("ints", None).tolist() == ints
    assert np.array_equal(parsed.floats("floats", None), values["floats"])
    for name, read in (("a/b", parsed.ints), ("ints", parsed.floats), ("floats", parsed.bytes_of)):
        if len(values[name]):
            with pytest.raises(DataFilesError, match=f"here is damaged at {name} .a list of another kind"):
                read(name, None)


def test_numbers_that_are_not_packed_are_read_too() -> None:
    ints = block(3, b"".join(varint(1 << 3) + varint(value) for value in (5, 300, -1)))
    floats = block(2, b"".join(varint(1 << 3 | 5) + np.float32(value).tobytes() for value in (1.5, -2)))
    named = [block(1, name) + block(2, feature) for name, feature in ((b"i", ints), (b"f", floats))]
    found = Example(memoryview(block(1, b"".join(block(1, entry) for entry in named))), "here", "")
    assert found.ints("i", (3,)).tolist() == [5, 300, -1]
    assert found.floats("f", (2,)).tolist() == [1.5, -2]


def test_what_is_no_example_is_refused() -> None:
    whole = example({"name": [b"value"]})
    for content in (b"\xff" * 30, whole[:-1], b"\x0b" + whole, b"\x08"):
        with pytest.raises(DataFilesError, match=r"here is no tf.train.Example"):
            Example(memoryview(content), "here", "")


def test_other_kinds_of_png_are_left_to_pillow() -> None:
    depth = np.random.default_rng(0).integers(0, 65536, (4, 6), dtype=np.uint16)
    assert np.array_equal(decode_png(png(depth)), depth[None])
    assert decode_png(png(depth)).dtype == np.uint16
    colours = np.random.default_rng(0).integers(0, 256, (4, 6, 4), dtype=np.uint8)
    assert np.array_equal(decode_png(png(colours)), colours.transpose(2, 0, 1))
