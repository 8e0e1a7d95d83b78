"""The records of runs in the repository: nothing in them is of the machine that made them."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

RECORDS = sorted((Path(__file__).parents[2] / "experiments" / "grids" / "records").glob("*.zip"))
WHOLE_PATH = re.compile(r"""(?<![^\s"'=])/(?:[\w.-]+/)+[\w.,=-]+""")


@pytest.mark.parametrize("archive", RECORDS, ids=lambda path: path.stem)
def test_records_hold_no_whole_paths(archive):
    with zipfile.ZipFile(archive) as packed:
        texts = {name: packed.read(name).decode() for name in packed.namelist() if not name.endswith(".jsonl")}
    assert texts
    assert not {name: found[0] for name, text in texts.items() if (found := WHOLE_PATH.findall(text))}


def test_what_a_whole_path_is():
    assert WHOLE_PATH.findall('"config": "/home/me/a.yaml" --x=/tmp/b') == ["/home/me/a.yaml", "/tmp/b"]
    assert not WHOLE_PATH.findall("runs/a/b.json data/train 1/2 val/fg_ari/video/decoder")
