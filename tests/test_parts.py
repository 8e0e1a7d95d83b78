"""The parts into which a nightly run of the tests is split."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from parts import keep_part, part_of

ROOT = Path(__file__).parents[1]


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


class Config:
    def __init__(self, part: str | None) -> None:
        self.part, self.hook, self.left_out = part, self, []

    def getoption(self, name: str) -> str | None:
        return self.part

    def pytest_deselected(self, items: list) -> None:
        self.left_out += items


def chosen(part: str | None, items: list[Item]) -> list[str]:
    kept, config = list(items), Config(part)
    keep_part(config, kept)
    assert len(kept) + len(config.left_out) == len(items)
    return [item.nodeid for item in kept]


def test_the_parts_together_are_all_tests_and_none_is_in_two():
    items = [Item(f"tests/test_x.py::test[{n}]") for n in range(200)]
    names = [item.nodeid for item in items]
    parts = [chosen(f"{k}/4", items) for k in (1, 2, 3, 4)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert min(map(len, parts)) > 30
    assert chosen(None, items) == names


def test_a_part_that_is_not_there_is_refused():
    for part in ("0/4", "5/4", "x", "1/0"):
        with pytest.raises(pytest.UsageError, match="--part takes K/N"):
            chosen(part, [Item("a")])


def test_the_nightly_workflow_runs_every_part():
    jobs = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))["jobs"]
    parts = jobs["slow-tests"]["strategy"]["matrix"]["part"]
    (line,) = [step["run"] for step in jobs["slow-tests"]["steps"] if "-s slow" in step.get("run", "")]
    assert re.search(r"--part \$\{\{ matrix\.part \}\}/(\d+)", line)[1] == str(len(parts))
    assert parts == list(range(1, len(parts) + 1))
    assert Counter(part_of(f"t{n}", len(parts)) for n in range(100)).keys() == set(parts)
