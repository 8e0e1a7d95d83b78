"""The key `protocol` of a grid file: a setting that is chosen for each variant before the seeds that are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotbench.errors import UserError, did_you_mean
from slotbench.grids.values import as_argument, canonical
from slotbench.metric_info import direction_by_words

__all__ = ["Protocol", "read_protocol"]

RATE, RATES, SELECTION_SEED = "model.optimizer.lr", (3e-4, 7e-4, 2e-3), 1000
_KEYS = ("choose", "values", "seed", "by", "higher_is_better", "at")
_EXAMPLE = "protocol: {values: [3.0e-4, 7.0e-4, 2.0e-3], by: val/loss}"


@dataclass(frozen=True)
class Protocol:
    """The protocol of a grid: a setting is chosen for each variant by runs of every value.

    Attributes:
        key: the setting that is chosen, as on the command line.
        values: the candidates.
        seeds: of the runs that choose, one for each value and seed; no reported ones.
        metric: by which the best candidate is found, the mean over the seeds.
        higher_is_better: which way.
        at: one value of some axes, at which it is chosen for all of their values; for each by itself where they are
            not named.
    """

    key: str
    values: tuple[Any, ...]
    seeds: tuple[int, ...]
    metric: str
    higher_is_better: bool
    at: Mapping[str, Any] = field(default_factory=dict)


def read_protocol(
    given: Any,
    seeds: Sequence[int],
    metrics: Sequence[str],
    check_key: Callable[[str], str],
    fail: Callable[..., UserError],
) -> Protocol | None:
    """The value of `protocol`; None if the file has none.

    Args:
        given: the value; `true` for all that is usual.
        seeds: that are reported.
        metrics: of the grid; the first one chooses if the protocol does not say.
        check_key: returns a key as it is typed, or raises.
        fail: makes the error of a sentence and of what was expected.

    Raises:
        UserError: it says something that cannot be.
    """
    if given is None or given is False:
        return None
    content: Mapping[str, Any] = {} if given is True else given
    if not isinstance(content, Mapping):
        raise fail(f"protocol holds {as_argument(given)}", _EXAMPLE)
    for key in content:
        if key not in _KEYS:
            raise fail(f"protocol has no key {key}{did_you_mean(key, _KEYS, 0.5)}", ", ".join(_KEYS))
    key = content.get("choose", RATE)
    if not isinstance(key, str):
        raise fail(f"protocol: choose is {as_argument(key)}", f"one setting, such as {RATE}")
    values = content.get("values", list(RATES))
    if not isinstance(values, list) or len(values) < 2 or len({canonical(value) for value in values}) < len(values):
        raise fail(f"protocol: values is {as_argument(values)}", "a list of two or more different values")
    choosing = _seeds(content.get("seed", SELECTION_SEED), seeds, fail)
    metric = content.get("by", metrics[0] if metrics else None)
    if not isinstance(metric, str) or not metric:
        raise fail("protocol does not say by which score to choose", "by: val/loss, or metrics: [val/loss]")
    known = direction_by_words(metric)
    higher = content.get("higher_is_better", known)
    if not isinstance(higher, bool):
        raise fail(f"protocol: nothing says whether more of {metric} is better", "higher_is_better: true, or false")
    at = content.get("at", {})
    if not isinstance(at, Mapping) or not all(isinstance(axis, str) for axis in at):
        raise fail(f"protocol: at holds {as_argument(at)}", "axes and one value of each, such as {data.num_frames: 6}")
    shared = {check_key(axis): value for axis, value in at.items()}
    return Protocol(check_key(key), tuple(values), choosing, metric, higher, shared)


def _seeds(given: Any, reported: Sequence[int], fail: Callable[..., UserError]) -> tuple[int, ...]:
    """The seeds of the runs that choose: one, or a list."""
    found = given if isinstance(given, list) else [given]
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in found)
    if not found or not whole or len(set(found)) < len(found):
        raise fail(
            f"protocol: seed is {as_argument(given)}",
            "a whole number from 0 to 4294967295, or several different ones, such as [1000, 1001]",
        )
    if both := [seed for seed in found if seed in reported]:
        raise fail(
            f"protocol: the seed {both[0]} is a reported one",
            "another one, so that no choice favours the reported scores",
        )
    return tuple(found)
