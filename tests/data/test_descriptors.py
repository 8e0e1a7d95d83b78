"""Data sets of more files than a process may have open, and workers under a low limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from tfrecord_files import framed

MANY_FILES = """
import resource, sys
from pathlib import Path
from slotbench.data.formats.tfrecord import TFRecords

files = sorted(Path(sys.argv[1]).glob("*.tfrecord-*"))
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
records = TFRecords(files, verify=True)
kept = records[0]
for turn in range(2):
    assert [bytes(records[i]) for i in range(len(records))] == [str(i).encode() for i in range(len(records))]
assert bytes(kept) == b"0"
print(len(records), len(list(Path("/proc/self/fd").iterdir())))
"""

LOADER = """
import resource, sys
from slotbench.cli import run

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from slotbench.data.balls.bouncing_balls import BouncingBalls

from slotbench.data.base import LoaderOptions

data = BouncingBalls(num_frames=4, loader=LoaderOptions(num_workers=2, batch_size=2, train_size=20))
from slotbench.errors import DataFilesError

if __name__ == "__main__":
    try:
        print(sum(len(batch) for batch in data.train_dataloader()))
    except DataFilesError as error:
        print(error)
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_more_files_than_descriptors_are_read(tmp_path: Path) -> None:
    for number in range(1100):
        file = tmp_path / f"movi_e-train.tfrecord-{number:05d}-of-01100"
        file.write_bytes(framed([str(number).encode()], checksums=True))
    records, opened = map(int, python(MANY_FILES, str(tmp_path)).split())
    assert records == 1100
    assert opened < 128


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        ("64", "64", "2 workers that read data need about 160 open files, and this machine allows 64"),
        ("64", "4096", "20\n"),
    ],
)
def test_workers_under_a_low_limit_end_with_a_sentence_or_raise_it(soft: str, hard: str, expected: str) -> None:
    assert python(LOADER, soft, hard).startswith(expected)
