"""The key `chain` of a grid file: each point of one axis starts from the weights of the previous one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from slotbench.errors import UserError, did_you_mean
from slotbench.grids.values import as_argument

__all__ = ["Chain", "read_chain"]

WEIGHTS = "model.init_from"
Start = Literal["previous", "first"]
_KEYS = ("along", "start", "into")
_EXAMPLE = "chain: {along: data.patches_per_side}, an axis of product, zip or list"


@dataclass(frozen=True)
class Chain:
    """Points that differ along one axis alone, in the order of its values; each starts from another one's weights.

    Attributes:
        axis: the axis, as points name it: a key of `product`, or "zip" or "list" as a whole.
        key: the setting that names it.
        start: whether each starts from the "previous" one, or all of them from the "first".
        into: the setting that gets the run folder of the point before.
    """

    axis: str
    key: str
    start: Start = "previous"
    into: str = WEIGHTS

    def before(self, index: int) -> int:
        """The index on the axis of the point that the one at `index`, which is not 0, starts from."""
        return 0 if self.start == "first" else index - 1


def read_chain(
    given: Any,
    product: Collection[str],
    zipped: Collection[str],
    listed: Collection[str],
    protocol: bool,
    check_key: Callable[[str], str],
    fail: Callable[..., UserError],
) -> Chain | None:
    """The value of `chain`; None if the file has none.

    Args:
        given: the value.
        product: keys of that name.
        zipped: keys under `zip`.
        listed: keys of the entries of `list`, and "label".
        protocol: whether a value is chosen for each variant, which a chain has one of.
        check_key: returns a key as it is typed, or raises.
        fail: makes the error of a sentence and of what was expected.

    Raises:
        UserError: it says something that cannot be.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not isinstance(given.get("along"), str):
        raise fail(f"chain holds {as_argument(given)}", _EXAMPLE)
    for key in given:
        if key not in _KEYS:
            raise fail(f"chain has no key {key}{did_you_mean(key, _KEYS, 0.5)}", ", ".join(_KEYS))
    along = given["along"] if given["along"] == "label" else check_key(given["along"])
    axes = {**dict.fromkeys(listed, "list"), **dict.fromkeys(zipped, "zip"), **{key: key for key in product}}
    if along not in axes:
        raise fail(f"chain: {along} is no axis{did_you_mean(along, axes)}", ", ".join(axes) or _EXAMPLE)
    start = given.get("start", "previous")
    if start not in get_args(Start):
        raise fail(
            f"chain: start is {as_argument(start)}", "previous, for the point before, or first, for the first one"
        )
    if start == "first" and protocol:
        raise fail(
            "chain: with start: first every point is a variant, and a protocol chooses by the last of a chain",
            "start: previous, or no protocol",
        )
    into = given.get("into", WEIGHTS)
    if not isinstance(into, str):
        raise fail(f"chain: into is {as_argument(into)}", f"one setting, such as {WEIGHTS}")
    return Chain(axes[along], along, start, check_key(into))
