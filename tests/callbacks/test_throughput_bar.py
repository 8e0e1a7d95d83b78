"""Progress is one line that says what one wants to know, on a terminal and in a log."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
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
    assert all(line[4] for line in lines)
    # the first step counts in neither
    assert [bool(line[2]) for line in lines] == [bool(line[3]) for line in lines] == [False, *[True] * 6]
    assert [bool(line[5]) for line in lines] == [False, False, False, True, True, True, True]


def test_a_log_is_not_flooded(capsys: pytest.CaptureFixture[str]) -> None:
    fit(ThroughputBar(interval=1000))
    lines = [line for line in capsys.readouterr().out.splitlines() if "/6" in line]
    assert len(lines) == 2
    assert lines[0] == "0/6  first step"
    assert lines[1].startswith("6/6")


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


class Compiling(TinyTask):
    """A task whose first step takes 20 s by the clock, and every other one 0.5 s."""

    def __init__(self, now: list[float]) -> None:
        super().__init__()
        self.now = now
        self.encoder.kernel = "auto"

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.now[0] += 20.0 if self.now[0] == 0.0 else 0.5
        return super().training_step(batch, batch_idx)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"slotbench.callbacks.throughput_bar.time.{name}", lambda: now[0])
    return now


def test_the_first_step_compiles_and_counts_neither_in_the_time_left_nor_in_the_rate(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make_trainer([], [ThroughputBar(interval=0)], max_steps=40, limit_val_batches=0)
    trainer.fit(Compiling(now), loader(64), loader(16))
    lines = [line for line in capsys.readouterr().out.splitlines() if "/40" in line]
    assert lines[0] == "0/40  compiling kernels"
    assert re.fullmatch(r"1/40  loss \S+", lines[1])
    # 8 clips of 8 steps of a quarter of a frame, in half a second
    assert re.fullmatch(r"2/40  0:19 left  32 frames/s  loss \S+", lines[2])
    assert re.fullmatch(r"30/40  0:05 left  32 frames/s  loss \S+", lines[30])


@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable.*")
def test_after_resuming_the_first_step_does_not_count_either(
    now: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make_trainer([], [ThroughputBar(interval=0)], max_steps=4, limit_val_batches=0)
    first.fit(Compiling(now), loader(64), loader(16))
    first.save_checkpoint(tmp_path / "at_4.ckpt")
    capsys.readouterr()
    now[0] = 0.0
    trainer = make_trainer([], [ThroughputBar(interval=0)], max_steps=8, limit_val_batches=0)
    trainer.fit(Compiling(now), loader(64), loader(16), ckpt_path=tmp_path / "at_4.ckpt")
    lines = [line for line in capsys.readouterr().out.splitlines() if "/8" in line]
    assert lines[0] == "4/8  compiling kernels"
    assert lines[1].startswith("5/8  loss")
    assert lines[2].startswith("6/8  0:01 left  32 frames/s")


def test_where_batches_are_validated_first_the_bar_is_there_by_then(capsys: pytest.CaptureFixture[str]) -> None:
    said = []

    class Checked(TinyTask):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            said.append(capsys.readouterr().out)
            super().validation_step(batch, batch_idx)

    trainer = make_trainer([], [ThroughputBar(interval=1000)], max_steps=2, num_sanity_val_steps=1)
    trainer.fit(Checked(), loader(), loader(16))
    assert "0/2  first step" in said[0]
    assert "first step" not in "".join([*said[1:], capsys.readouterr().out])


def shown(console: Console) -> list[str]:
    """What a terminal shows in turn."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]


class LongNamed(Compiling):
    def headlines(self) -> list[Any]:
        return [replace(headline, metric=metric) for headline in super().headlines() for metric in LONG]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.log_dict(dict.fromkeys(LONG, 0.5), batch_size=len(batch))


LONG = ("val/ball_pixel_iou", "val/colour_accuracy_on_coloured_balls", "val/reconstruction_error/step_10")


@pytest.mark.parametrize(
    ("width", "kept"),
    [
        (30, r"6/6"),
        (54, r"6/6  0:00 left  32 frames/s"),
        (80, r"6/6  0:00 left  32 frames/s  loss \S+"),
        (110, r"6/6  0:00 left  32 frames/s  loss \S+  ball pixel iou 0.500"),
        (140, r"6/6  0:00 left  32 frames/s  loss \S+  ball pixel iou 0.500  colour accuracy on coloured balls 0.500"),
    ],
)
def test_the_bar_keeps_its_width_and_metrics_go_first(width: int, kept: str, now: list[float]) -> None:
    console = terminal(width)
    make_trainer([], [ThroughputBar(console=console)], max_steps=6, val_check_interval=3).fit(
        LongNamed(now), loader(), loader(16)
    )
    lines = shown(console)
    assert max(len(line) for line in lines) <= width
    bars = {len(found[0]) for line in lines if (found := re.search(r"[━╸╺]+", line))}
    assert bars == {max(8, width // 5)}
    assert ("0/6  compiling kernels" if width > 40 else "0/6") in "".join(lines[:2])
    assert re.fullmatch(f"training [━╸]+ {kept}", lines[-1])


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
