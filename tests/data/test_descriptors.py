"""Data sets of more files than a process may have open, and workers under a low limit."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
from forked import Forked

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.data.formats.tfrecord import TFRecords
from slotbench.errors import DataFilesError

sys.path.insert(0, str(Path(__file__).parent))
from tfrecord_files import framed


def read_every_file_twice(folder: Path) -> None:
    """Prints the records that were read, and the descriptors that are open beyond those that were before."""
    files = sorted(folder.glob("*.tfrecord-*"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    before = descriptors()
    records = TFRecords(files, verify=True)
    kept = records[0]
    for _ in range(2):
        assert [bytes(records[i]) for i in range(len(records))] == [str(i).encode() for i in range(len(records))]
    assert bytes(kept) == b"0"
    print(len(records), descriptors() - before)


def read_in_workers(soft: int, hard: int) -> None:
    """Prints how many clips two workers have read under the limits, or why they cannot."""
    # what the parent has open counts too: a worker of pytest-xdist has few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    data = BouncingBalls(num_frames=4, loader=LoaderOptions(num_workers=2, batch_size=2, train_size=20))
    try:
        print(sum(len(batch) for batch in data.train_dataloader()))
    except DataFilesError as error:
        print(error)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_more_files_than_descriptors_are_read(tmp_path: Path) -> None:
    for number in range(1100):
        file = tmp_path / f"movi_e-train.tfrecord-{number:05d}-of-01100"
        file.write_bytes(framed([str(number).encode()], checksums=True))
    records, opened = map(int, Forked(read_every_file_twice, tmp_path).output().split())
    assert records == 1100
    assert opened < 128


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (64, 64, "2 workers that read data need about 160 open files, and this machine allows 64"),
        (64, 4096, "20\n"),
    ],
)
def test_workers_under_a_low_limit_end_with_a_sentence_or_raise_it(soft: int, hard: int, expected: str) -> None:
    assert Forked(read_in_workers, soft, hard).output().startswith(expected)
