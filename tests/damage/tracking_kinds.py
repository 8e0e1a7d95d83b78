"""Files of the public tracking sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinds import Kind, fingerprint
from tracking_files import write_tracking_files

from slotbench.data.tracking.multi_object_tracking import MultiObjectTracking


def tracking_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        write_tracking_files(folder)
        return folder / name

    return make


def read_tracking(folder: Path) -> str:
    dataset = MultiObjectTracking(str(folder), eval_frames=None).dataset("test")
    return fingerprint([dataset[i] for i in range(len(dataset))])


KINDS: dict[str, Kind] = {
    "tracking set: videos": Kind(tracking_file("vmds_test.npy"), read_tracking),
    "tracking set: annotations": Kind(tracking_file("vmds_test.json"), read_tracking),
}
