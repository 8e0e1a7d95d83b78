"""Progress is one line that says what one wants to know, on a terminal and in a log."""

from __future__ import annotations

import io
import re
import time
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console
from tiny_run import TinyTask, loader, make_trainer

from slotbench.callbacks.reporting import StepClock
from slotbench.callbacks.throughput_bar import ThroughputBar, _clock_time

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")

LINE = re.compile(r"(\d+)/6( +\d+:\d\d left)?( +[\d,]+ frames/s)?( +loss \S+)?( +score \d\.\d{3})?")


def fit(bar: ThroughputBar, **settings: Any) -> None:
    defaults = {"max_steps": 6, "val_check_interval": 3}
    make_trainer([], [bar], **(defaults | settings)).fit(TinyTask(), loader(), loader(16))


def test_a_log_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    fit(ThroughputBar(interval=0))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    lines = [match for line in out.splitlines() if (match := LINE.fullmatch(line))]
    assert [int(line[1]) for line in lines] == [1, 2, 3, 4, 5, 6, 6]
    assert all(line[2] and line[4] for line in lines)
    assert all(line[3] for line in lines[1:])
    assert [bool(line[5]) for line in lines] == [False, False, False, True, True, True, True]


def test_a_log_is_not_flooded(capsys: pytest.CaptureFixture[str]) -> None:
    fit(ThroughputBar(interval=1000))
    lines = [line for line in capsys.readouterr().out.splitlines() if "/6" in line]
    assert len(lines) == 1
    assert lines[0].startswith("6/6")


def terminal(width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)


def test_a_task_can_print_and_its_words_are_left_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    class Talking(TinyTask):
        def on_validation_end(self) -> None:
            self.print("the first [red] slot of", 3)

    make_trainer([], [ThroughputBar(interval=1000)], max_steps=3, val_check_interval=3).fit(
        Talking(), loader(), loader(16)
    )
    assert "the first [red] slot of 3" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [50, 120])
def test_a_terminal_gets_one_line_that_stays_within_its_width(width: int) -> None:
    console = terminal(width)
    bar = ThroughputBar(console=console)
    fit(bar)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert "6/6" in lines[-1]
    assert max(len(line) for line in lines) <= width
    if width == 120:
        assert lines[-1].startswith("training ")
        assert "frames/s" in lines[-1]
        assert "score 0." in lines[-1]
    # the cursor, hidden while the bar is live, is back
    assert console.file.getvalue().rindex("\x1b[?25h") > console.file.getvalue().rindex("\x1b[?25l")


def test_an_exception_gives_the_terminal_back() -> None:
    console = terminal()
    trainer = make_trainer([], [ThroughputBar(console=console)], max_steps=6)
    with pytest.raises(RuntimeError, match="do not fit"):
        trainer.fit(TinyTask(fail_at=2), loader(), loader(16))
    assert console.file.getvalue().endswith("\x1b[?25h")


@pytest.mark.parametrize("subcommand", ["validate", "test", "predict"])
def test_evaluation_counts_its_batches(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer([], [ThroughputBar()])
    getattr(trainer, subcommand)(TinyTask(), loader(40))
    assert "5/5 batches" in capsys.readouterr().out


def test_frames_are_clips_times_steps_over_the_steps_of_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = []
    monkeypatch.setattr(StepClock, "tick", lambda self, amount=1.0: ticked.append(amount))
    fit(ThroughputBar())
    # 8 clips of 8 steps, and 2 x 2 patches make a frame
    assert ticked == [8 * 8 / 4] * 6


def test_a_limit_in_time_bounds_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    fit(ThroughputBar(interval=0), max_steps=10**6, max_time=timedelta(seconds=1), val_check_interval=10**6)
    assert re.search(r"\d+/1000000  0:0[01] left", capsys.readouterr().out)


def test_disabled_it_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ThroughputBar(interval=0)
    bar.disable()
    fit(bar)
    assert "/6" not in capsys.readouterr().out
    bar.enable()
    fit(bar)
    assert "6/6" in capsys.readouterr().out


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0:00"), (59.6, "1:00"), (3600, "1:00:00"), (-3.0, "0:00")])
def test_time_left_reads_like_a_clock(seconds: float, text: str) -> None:
    assert _clock_time(float(seconds)) == text


def test_the_clock_leaves_out_what_is_not_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = StepClock(window=2)
    assert (clock.seconds_per_step, clock.rate) == (None, None)
    clock.resume()
    for seconds, amount in ((50.0, 1.0), (1.0, 10.0)):
        now[0] += seconds
        clock.tick(amount)
    clock.pause()
    now[0] += 100
    clock.resume()
    now[0] += 3
    clock.tick(10.0)
    assert clock.seconds_per_step == pytest.approx(2.0)
    assert clock.rate == pytest.approx(5.0)
