"""Writers of TFRecord files in the layouts of the public data sets, for tests: a second opinion on the format."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

Values = list[bytes] | np.ndarray


def crc32c(data: bytes) -> int:
    """Bit by bit, as the definition says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(records: Iterable[bytes], checksums: bool = False) -> bytes:
    """A TFRecord file's bytes. Without `checksums` those of the contents, slow bit by bit and read by nobody, are 0."""
    out = io.BytesIO()
    for record in records:
        length = struct.pack("<Q", len(record))
        out.write(length + masked(length) + record + (masked(record) if checksums else bytes(4)))
    return out.getvalue()


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def block(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Values) -> bytes:
    """A list of bytes, of floats, or of integers, packed as TensorFlow packs them; an empty one has no content.

    An array of bytes is a list of strings of one byte each.
    """
    if isinstance(values, list):
        return block(1, b"".join(block(1, value) for value in values))
    if values.dtype == np.uint8:
        # tag, length 1, the byte; a million of these per scene
        triples = np.stack([np.full_like(values, 0x0A), np.ones_like(values), values], axis=-1)
        return block(1, triples.tobytes())
    if values.dtype.kind == "f":
        content, number = values.astype("<f4").tobytes(), 2
    else:
        content, number = b"".join(varint(int(value)) for value in values.ravel()), 3
    return block(number, block(1, content) if content else b"")


def example(features: dict[str, Values]) -> bytes:
    entries = (block(1, block(1, name.encode()) + block(2, feature(values))) for name, values in features.items())
    return block(1, b"".join(entries))


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def movi_video(seed: int, side: int = 16, num_frames: int = 24, num_objects: int = 3, variant: str = "a") -> dict:
    """What a MOVi record is about, as arrays: a random one."""
    generator = np.random.default_rng(seed)
    visibility = generator.integers(0, 300, (num_objects, num_frames)) * generator.integers(
        0, 2, (num_objects, num_frames)
    )
    normal = {
        name: generator.normal(size=(num_objects, num_frames, *shape)).astype(np.float32)
        for name, shape in {
            "positions": (3,),
            "quaternions": (4,),
            "velocities": (3,),
            "angular_velocities": (3,),
            "bboxes_3d": (8, 3),
            "image_positions": (2,),
        }.items()
    }
    constants = {name: generator.random(num_objects).astype(np.float32) for name in ("mass", "friction", "restitution")}
    labels: dict[str, np.ndarray] = {}
    if variant in "ab":
        labels |= {
            "shape_label": generator.integers(0, 3, num_objects),
            "material_label": generator.integers(0, 2, num_objects),
        }
        constants["color"] = generator.random((num_objects, 3)).astype(np.float32)
    if variant == "a":
        labels |= {
            "size_label": generator.integers(0, 2, num_objects),
            "color_label": generator.integers(0, 8, num_objects),
        }
    if variant in "cde":
        labels["category"] = generator.integers(0, 17, num_objects)
        constants["scale"] = generator.random(num_objects).astype(np.float32)
    if variant in "de":
        labels["is_dynamic"] = generator.integers(0, 2, num_objects)
    return {
        "video": generator.integers(0, 256, (num_frames, side, side, 3), dtype=np.uint8),
        "segmentations": generator.integers(0, num_objects + 1, (num_frames, side, side), dtype=np.uint8),
        "depth": generator.integers(0, 65536, (num_frames, side, side), dtype=np.uint16),
        "depth_range": np.array([2.5, 30.0], np.float32),
        "visibility": visibility,
        "bboxes": generator.random((num_objects, num_frames, 4)).astype(np.float32),
        "camera": {
            "positions": generator.normal(size=(num_frames, 3)).astype(np.float32),
            "quaternions": generator.normal(size=(num_frames, 4)).astype(np.float32),
            "focal_length": np.array([35.0], np.float32),
            "sensor_width": np.array([32.0], np.float32),
            "field_of_view": np.array([0.8575], np.float32),
        },
        "instances": normal | constants,
        "labels": labels,
        "background_color": generator.random(3).astype(np.float32) if variant == "b" else None,
        "variant": variant,
    }


def movi_record(video: dict, changed: dict[str, Values] | None = None) -> bytes:
    """The record that TensorFlow Datasets writes for it: fields flat, boxes of the frames where the object is seen.

    What is `changed` takes the place of what would be written.
    """
    num_frames, side = video["video"].shape[:2]
    count = len(video["visibility"])
    seen = video["visibility"] > 0
    rows = seen.sum(1)
    features: dict[str, Values] = {
        "metadata/video_name": [b"1234"],
        "metadata/width": np.array([side]),
        "metadata/height": np.array([side]),
        "metadata/num_frames": np.array([num_frames]),
        "metadata/num_instances": np.array([count]),
        "metadata/depth_range": video["depth_range"],
        "metadata/forward_flow_range": np.array([-4.0, 4.0], np.float32),
        "metadata/backward_flow_range": np.array([-4.0, 4.0], np.float32),
        "video": [png(frame) for frame in video["video"]],
        "segmentations": [png(ids) for ids in video["segmentations"]],
        "depth": [png(distance) for distance in video["depth"]],
        "forward_flow": [bytes(side * side * 4)] * num_frames,
        "instances/visibility": video["visibility"],
        "instances/bboxes/ragged_flat_values": video["bboxes"][seen],
        "instances/bboxes/ragged_row_lengths_0": rows,
        "instances/bbox_frames/ragged_flat_values": np.nonzero(seen)[1],
        "instances/bbox_frames/ragged_row_lengths_0": rows,
        "events/collisions/frame": np.array([], np.int64),
        "events/collisions/force": np.array([], np.float32),
    }
    features |= {f"instances/{name}": values for name, values in (video["instances"] | video["labels"]).items()}
    features |= {f"camera/{name}": values for name, values in video["camera"].items()}
    if video["variant"] in "cde":
        features |= {"instances/asset_id": [b"asset"] * count, "background": [b"sky"]}
    if video["background_color"] is not None:
        features["background_color"] = video["background_color"]
    return example(features | (changed or {}))


def write_movi(folder: Path, videos: dict[str, list[dict]], name: str = "movi_a", shards: int = 2) -> Path:
    """A folder as TensorFlow Datasets has it: the videos of each split, dealt out to shards in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, of_split in videos.items():
        per_shard = -(-len(of_split) // shards)
        for shard in range(shards):
            records = [movi_record(video) for video in of_split[shard * per_shard : (shard + 1) * per_shard]]
            (folder / f"{name}-{split}.tfrecord-{shard:05d}-of-{shards:05d}").write_bytes(framed(records))
    return folder


def clevr_scene(seed: int, num_objects: int = 4, rows: int = 240, columns: int = 320) -> dict[str, np.ndarray]:
    """One scene of CLEVR with masks: entity 0 is the background, those beyond the objects are empty."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, num_objects + 1, (rows // 8, columns // 8)).repeat(8, 0).repeat(8, 1)
    visibility = np.zeros(11, np.float32)
    visibility[: num_objects + 1] = [np.count_nonzero(ids == entity) for entity in range(num_objects + 1)]
    scene = {
        "image": generator.integers(0, 256, (rows, columns, 3), dtype=np.uint8),
        "mask": (ids == np.arange(11)[:, None, None]).astype(np.uint8)[..., None] * 255,
        "visibility": visibility,
        "ids": ids,
    }
    scene |= {name: generator.normal(size=11).astype(np.float32) for name in ("x", "y", "z", "rotation")}
    scene["pixel_coords"] = generator.normal(size=(11, 3)).astype(np.float32)
    scene |= {name: generator.integers(1, 4, 11).astype(np.uint8) for name in ("size", "material", "shape", "color")}
    return scene


def clevr_record(scene: dict[str, np.ndarray]) -> bytes:
    """The record of the multi-object data sets, in which every byte of an image is a string of its own."""
    features: dict[str, Values] = {}
    for name, values in scene.items():
        if values.dtype == np.uint8:
            features[name] = values.ravel()
        elif name != "ids":
            features[name] = values
    return example(features)


def write_clevr(path: Path, scenes: list[dict[str, np.ndarray]]) -> Path:
    path.write_bytes(gzip.compress(framed(clevr_record(scene) for scene in scenes), 1))
    return path
