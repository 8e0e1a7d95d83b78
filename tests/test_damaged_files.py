"""A damaged file ends in one error, or is read as what it still is: never in another exception."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slotbench.errors import FileError
from slotbench.io import map_npy, read_json, read_npz, read_yaml
from slotbench.pretrained.weights import read_tensors
from slotbench.runs.checkpoints import load_checkpoint


def _bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


KINDS: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "last.ckpt": (_bytes(lambda file: torch.save({"state_dict": {"a": torch.ones(64)}}, file)), load_checkpoint),
    "weights.pt": (_bytes(lambda file: torch.save({"a": torch.ones(64)}, file)), read_tensors),
    "config.yaml": (b"model:\n  class_path: A\n  init_args: {dim: 4, name: [1, 2]}\n" * 3, read_yaml),
    "run.json": (json.dumps({"step": 3, "metrics": {"a": 0.5}}).encode(), read_json),
    "found.npz": (_bytes(lambda file: np.savez_compressed(file, masks=np.ones((4, 8, 8), np.uint8))), read_npz),
    "video.npy": (_bytes(lambda file: np.save(file, np.ones((4, 8, 8), np.uint8))), map_npy),
}


def damages(content: bytes, seed: int) -> list[bytes]:
    """The content cut off, with a byte changed, with bytes put in, and something else."""
    draw = np.random.default_rng(seed)
    place = int(draw.integers(0, len(content)))
    flipped = bytearray(content)
    flipped[place] ^= int(draw.integers(1, 256))
    return [content[:place], bytes(flipped), content[:place] + draw.bytes(9) + content[place:], draw.bytes(40), b""]


def check(name: str, tmp_path: Path, seeds: range) -> None:
    content, read = KINDS[name]
    file = tmp_path / name
    file.write_bytes(content)
    read(file)
    for seed in seeds:
        for damaged in damages(content, seed):
            file.write_bytes(damaged)
            with contextlib.suppress(FileError):  # any other exception fails the test
                read(file)


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_one_error_with_its_path(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, range(5))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_so_are_many(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, range(100, 500))
