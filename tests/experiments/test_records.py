"""The records of runs in the repository: small, and nothing in them is of the machine that made them."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

RECORDS = sorted((Path(__file__).parents[2] / "experiments" / "grids" / "records").glob("*.zip"))
WHOLE_PATH = re.compile(r"""(?<![^\s"'=])/(?:[\w.-]+/)+[\w.,=-]+""")
STUDY_LIMIT, LIMIT = 300_000, 6_000_000


@pytest.mark.parametrize("archive", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_small_and_holds_no_whole_paths(archive):
    assert archive.stat().st_size <= STUDY_LIMIT
    with zipfile.ZipFile(archive) as packed:
        texts = {name: packed.read(name).decode().replace("\\n", "\n") for name in packed.namelist()}
    assert texts
    assert not {name: found[0] for name, text in texts.items() if (found := WHOLE_PATH.findall(text))}


def test_all_records_together_are_small():
    assert sum(archive.stat().st_size for archive in RECORDS) <= LIMIT


def test_what_a_whole_path_is():
    assert WHOLE_PATH.findall('"config": "/home/me/a.yaml" --x=/tmp/b') == ["/home/me/a.yaml", "/tmp/b"]
    assert not WHOLE_PATH.findall("runs/a/b.json data/train 1/2 val/fg_ari/video/decoder")
