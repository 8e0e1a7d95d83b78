"""Whatever a file has become, reading it ends in bounded time and memory, with a valid result or one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import record_kinds
import score_kinds
from damages import damages
from isolation import outcomes, read
from kinds import Kind

TABLES = (record_kinds, score_kinds)
KINDS: dict[str, Kind] = {name: kind for table in TABLES for name, kind in table.KINDS.items()}


def check(name: str, count: int, tmp_path: Path) -> None:
    kind = KINDS[name]
    good = tmp_path / "good"
    good.mkdir()
    file = kind.make(good).relative_to(good)
    # twice from copies, as the damaged ones are read: reading must not depend on where the files are
    for number in (1, 2):
        shutil.copytree(good, tmp_path / f"copy{number}", symlinks=True)
    expected = read(kind, tmp_path / "copy1")
    assert read(kind, tmp_path / "copy2") == expected
    damaged = damages(count, name)
    (tmp_path / "scratch").mkdir()
    ended = outcomes(good, str(file), kind, expected, damaged, tmp_path / "scratch")
    allowed = {"same"}
    if not kind.tolerant:
        allowed.add("refused")
    if not kind.exact:
        allowed.add("other")
    wrong = [
        f"{label}: {how}: {words}"
        for (label, _, _), (how, words) in zip(damaged, ended, strict=True)
        if how not in allowed
    ]
    if wrong:
        pytest.fail(f"{len(wrong)} of {count}\n" + "\n\n".join(wrong), pytrace=False)
    assert kind.tolerant or any(how == "refused" for how, _ in ended)


@pytest.mark.parametrize("name", KINDS)
def test_damage_ends_with_a_sentence_or_a_valid_result(name: str, tmp_path: Path) -> None:
    check(name, 12, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_much_damage_ends_with_a_sentence_or_a_valid_result(name: str, tmp_path: Path) -> None:
    check(name, 200, tmp_path)
