"""Ways to do the same work, timed in turns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

import pytest
import torch

from slotbench.bench import contests
from slotbench.bench.contests import Contest, Seconds, Way, run_contest, run_process, run_subject, tables
from slotbench.bench.report import markdown
from slotbench.bench.subjects import SUBJECTS, contests_of
from slotbench.cli import run

MB = 1 << 20


def fixed(**seconds: float) -> Mapping[str, Way]:
    return {name: lambda value=value: Seconds(value) for name, value in seconds.items()}


def ratios(measured: list[dict]) -> dict[str, float]:
    return {one["way"]: one["ratio"]["median"] for one in measured}


def test_a_ratio_is_to_the_base_within_its_round():
    turns = iter([9.0, 9.0, 1.0, 2.0, 10.0, 40.0, 3.0, 6.0])
    ways = {"slow": lambda: Seconds(next(turns)), "base": lambda: Seconds(next(turns))}
    slow, base = run_contest(Contest("x", lambda: ways, "base"), rounds=3)
    # the first turn of each does not count
    assert slow["turns"] == [1.0, 10.0, 3.0]
    assert slow["ratio"] == {"median": 0.5, "low": 0.25, "high": 0.5}
    assert base["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert slow["ms"] == {"median": 3000.0, "low": 1000.0, "high": 10000.0}


def test_parts_of_a_whole_have_shares_that_sum_to_one():
    measured = run_contest(Contest("x", lambda: fixed(a=1.0, b=3.0), None), rounds=2)
    assert ratios(measured) == {"a": 0.25, "b": 0.75}


def test_a_rare_way_runs_once_and_without_a_first_turn():
    calls = []
    ways = {"often": lambda: Seconds(1.0), "rare": lambda: calls.append(1) or Seconds(8.0)}
    measured = run_contest(Contest("x", lambda: ways, "often", rare=("rare",)), rounds=4)
    assert calls == [1]
    assert ratios(measured)["rare"] == 8.0


def test_a_base_that_is_none_of_the_ways_is_named():
    with pytest.raises(ValueError, match="the base c of x is none of its ways: a, b"):
        run_contest(Contest("x", lambda: fixed(a=1.0, b=1.0), "c"), rounds=1)


def test_the_clock_of_a_way_that_works_runs():
    work = {"short": lambda: sum(range(1_000)), "long": lambda: sum(range(1_000_000))}
    assert ratios(run_contest(Contest("x", lambda: work, "short"), rounds=3))["long"] > 1


def test_tables_show_cases_ratios_rates_and_growth():
    results = [
        (contest, run_contest(contest, 1))
        for size in (10.0, 20.0)
        for contest in [
            Contest(f"T={size:g}", lambda size=size: fixed(a=size, b=size**2), "a", unit="clips", amount=5.0, size=size)
        ]
    ]
    table, grown = tables("title", "length", results)
    assert table.headings == ["length", "way", "ms", "x a", "min to max", "clips/s"]
    assert table.rows[1] == ["", "b", "100,000", "10.0", "10.0 to 10.0", "0"]
    assert [row[-1] for row in grown.rows] == ["T^1.00", "T^2.00"]
    page = markdown([table], "name", ["    command"])
    assert "| T=20 | a | 20,000 | 1.00 |  | 0 |" in page


def test_operations_are_counted_of_the_ways_that_ask_for_it():
    left, right = torch.randn(4, 5), torch.randn(5, 6)
    contest = Contest("x", lambda: {"product": lambda: left @ right, "sum": left.sum}, "sum", flops=("product",))
    measured = run_contest(contest, 1)
    assert [one["flops"] for one in measured] == [2 * 4 * 5 * 6, None]
    (table,) = tables("title", "case", [(contest, measured)])
    assert table.headings[-1] == "GFLOP"
    assert [row[-1] for row in table.rows] == ["0.000000240", ""]


def test_a_process_is_timed_with_its_own_memory_and_its_failure_says_what_it_said(tmp_path):
    import sys

    small = run_process([sys.executable, "-S", "-c", "pass"], tmp_path)
    large = run_process([sys.executable, "-S", "-c", f"x = b'1' * {200 * MB}"], tmp_path)
    assert small.seconds > 0
    assert large.memory_mb - small.memory_mb == pytest.approx(200, abs=40)
    with pytest.raises(RuntimeError, match=r"(?s)exit code 3 of .*oh no"):
        run_process([sys.executable, "-c", "print('oh no'); raise SystemExit(3)"])


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_has_contests_of_its_own_labels(name):
    found = list(contests_of(name, True))
    labels = [(contest.group, contest.label) for contest in found]
    assert found
    assert len(set(labels)) == len(labels)
    assert all(set(contest.memory) == set() or contest.small is not None for contest in found)


@pytest.mark.parametrize("name", ["ray_decoders", "upsampled_conv"])
def test_the_ways_of_decoders_make_finite_numbers_at_their_small_size(name):
    for contest in contests_of(name, True):
        for way in contest.small().values():
            made = way()
            assert all(tensor.isfinite().all() for tensor in ([made] if isinstance(made, torch.Tensor) else made))


@pytest.mark.parametrize(
    "name", [pytest.param("ssd", marks=pytest.mark.slow), "temporal_attention", "recurrent_cores", "slot_attention"]
)
def test_a_subject_runs_and_leaves_its_numbers(name, tmp_path, capsys):
    assert run(["bench", name, "--quick", "--no-memory", "--rounds", "1", "--out", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / f"{name}.json").read_text())
    assert stored["command"].startswith(f"slotbench bench {name}")
    assert all(way["ms"]["median"] > 0 for contest in stored["contests"] for way in contest["ways"])
    assert SUBJECTS[name].what in (tmp_path / f"{name}.md").read_text()
    said = capsys.readouterr()
    assert "wrote" in said.out
    count = len(stored["contests"])
    assert [line.split("  ")[0] for line in said.err.splitlines() if " of " in line] == [
        f"{index} of {count}" for index in range(1, count + 1)
    ]


def test_memory_is_measured_in_a_process_of_its_own(tmp_path):
    _, tables = run_subject(
        "temporal_attention", tmp_path, lambda *_: None, command="x", rounds=1, quick=True, only="2, 80, 6"
    )
    written_out, ours = [float(row[-1]) for row in tables[0].rows]
    # the weights of all pairs are kept for the backward pass: 2 x 4 x 480 x 480 in float32, more than once
    assert written_out > 2 * 4 * 480 * 480 * 4 / 1e6 > ours


def test_a_case_that_is_not_there_and_a_subject_that_is_not_there(tmp_path, capsys, monkeypatch):
    one = [Contest("one", partial(fixed, a=1.0), "a")]
    monkeypatch.setattr(contests, "contests_of", lambda name, quick: one)
    assert run(["bench", "ssd", "--only", "two", "--out", str(tmp_path)]) == 2
    assert "no case of ssd has 'two' in its name" in capsys.readouterr().err
    assert run(["bench", "sdd"]) == 2
    assert "did you mean ssd" in capsys.readouterr().err
