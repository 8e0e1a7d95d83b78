"""Progress is one line that says what one wants to know, on a terminal and in a log."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from tiny_run import TinyTask, loader, make_trainer

from slotbench.callbacks.throughput_bar import ThroughputBar

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")

LINE = re.compile(r"(\d+)/6( +[\d,]+ frames/s)?( +loss \S+)?( +score \d\.\d+)?")


def fit(bar: ThroughputBar, **settings: Any) -> None:
    defaults = {"max_steps": 6, "val_check_interval": 3}
    make_trainer([], [bar], **(defaults | settings)).fit(TinyTask(), loader(), loader(16))


def test_a_log_gets_plain_lines(capsys):
    fit(ThroughputBar(interval=0))
    lines = [match for line in capsys.readouterr().out.splitlines() if (match := LINE.fullmatch(line))]
    assert [int(line[1]) for line in lines] == [1, 2, 3, 4, 5, 6, 6]
    # the first step, in which kernels are compiled, does not count
    assert [bool(line[2]) for line in lines] == [False, *[True] * 6]
    assert [bool(line[3]) for line in lines] == [*[True] * 6, False]
    assert [bool(line[4]) for line in lines] == [False] * 3 + [True] * 4


def test_a_log_is_not_flooded_and_the_end_is_shown(capsys):
    fit(ThroughputBar(interval=1000))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "/6" in line]
    assert line.startswith("6/6")


def test_nothing_is_shown_if_it_is_disabled(capsys):
    bar = ThroughputBar(interval=0)
    bar.disable()
    fit(bar)
    assert "/6" not in capsys.readouterr().out


def test_a_terminal_gets_a_bar_over_the_whole_training(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(ThroughputBar, "_is_due", lambda bar: True)
    fit(ThroughputBar())
    out, err = capsys.readouterr()
    assert "6/6" in err
    assert "frames/s" in err
    assert "/6" not in out


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_evaluation_counts_batches(stage, capsys):
    getattr(make_trainer([], [ThroughputBar(interval=0)]), stage)(TinyTask(), loader(16))
    assert "2/2" in capsys.readouterr().out


def test_frames_of_a_second_are_those_of_all_views_of_a_frame(capsys):
    bar = ThroughputBar(interval=1000)
    fit(bar)
    # clips of eight steps, four of which make a frame: 16 frames a batch of 8
    assert bar._clock._intervals[-1][1] == 8 * 8 / 4
