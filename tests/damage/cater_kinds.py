"""Files of CATER: a video of Motion JPEG, a list, and a scene."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cater_files import write_cater
from kinds import Kind, fingerprint

from slotbench.data.cater.cater import CATER


def cater_file(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        return write_cater(folder / "set", videos=3) / name

    return make


def read_cater(folder: Path) -> str:
    dataset = CATER(str(folder / "set"), resolution=8, num_frames=4).dataset("test")
    return fingerprint([dataset.clips([0])])  # type: ignore[attr-defined]


KINDS: dict[str, Kind] = {
    "CATER: video": Kind(cater_file("videos/CATER_new_000002.avi"), read_cater),
    "CATER: list": Kind(cater_file("lists/localize/val.txt"), read_cater, named=False),
    "CATER: scene": Kind(cater_file("scenes/CATER_new_000002.json"), read_cater),
}
