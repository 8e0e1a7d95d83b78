"""What the callbacks read from a task: its headlines, and how fast it goes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lightning.pytorch import LightningModule

__all__ = ["StepClock", "headline_records", "short_names"]


def headline_records(module: LightningModule) -> list[dict[str, Any]]:
    """The task's headlines as plain data: metric, label, floors, oracles, higher_is_better, needs; none is []."""
    headlines = getattr(module, "headlines", None)
    return [asdict(headline) for headline in headlines()] if callable(headlines) else []


def short_names(headlines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Metrics' names without the stage, and without what follows the first word where that word tells them apart.

    Example:
        >>> short_names([{"metric": "val/fg_ari/video"}, {"metric": "val/mse/step_1"}, {"metric": "val/mse/step_5"}])
        ['fg ari', 'mse/step 1', 'mse/step 5']
    """
    names = [str(headline["metric"]).partition("/")[2].replace("_", " ") for headline in headlines]
    first = [name.partition("/")[0] for name in names]
    return [short if first.count(short) == 1 else name for short, name in zip(first, names, strict=True)]


class StepClock:
    """Seconds per training step over the last steps, data loading included, validation and saving left out.

    Args:
        window: number of steps that the mean is over.
    """

    def __init__(self, window: int = 50) -> None:
        self._intervals: deque[tuple[float, float]] = deque(maxlen=window)
        self._last: float | None = None

    def tick(self, amount: float = 1.0) -> None:
        """Marks the end of a step that processed `amount` of something, e.g. frames."""
        now = time.perf_counter()
        if self._last is not None:
            self._intervals.append((now - self._last, amount))
        self._last = now

    def pause(self) -> None:
        """Leaves out the time until `resume`."""
        self._last = None

    def resume(self) -> None:
        """Starts the clock for the next step."""
        self._last = time.perf_counter()

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the window; None before the first interval."""
        return sum(seconds for seconds, _ in self._intervals) / len(self._intervals) if self._intervals else None

    @property
    def rate(self) -> float | None:
        """Amount per second over the window; None before the first interval."""
        seconds = sum(seconds for seconds, _ in self._intervals)
        return sum(amount for _, amount in self._intervals) / seconds if seconds > 0 else None
