"""The parts into which a nightly run splits the tests: `pytest --part 2/4`."""

from __future__ import annotations

import re
import zlib

import pytest

__all__ = ["keep_part", "part_of"]


def part_of(node_id: str, parts: int) -> int:
    """Which of so many parts, counted from 1, a test belongs to: by its name alone, so no test is in two or in none."""
    return zlib.crc32(node_id.encode()) % parts + 1


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves in `items` the tests of the part that `--part K/N` names, if one is."""
    given = config.getoption("--part")
    if not given:
        return
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", given)
    if not found or int(found[1]) > int(found[2]):
        raise pytest.UsageError(f"--part takes K/N with K from 1 to N, such as 2/4; got {given}")
    kept = [item for item in items if part_of(item.nodeid, int(found[2])) == int(found[1])]
    left_out = [item for item in items if part_of(item.nodeid, int(found[2])) != int(found[1])]
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
