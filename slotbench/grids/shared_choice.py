"""Points that share a choice of the protocol: those of a chain, and by `at` those along other axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.grid_file import Alternative, GridFile
from slotbench.grids.protocol_file import Protocol
from slotbench.grids.values import as_argument, canonical

__all__ = ["check_shared", "chooses", "shared_axes", "told_apart"]


def check_shared(file: GridFile) -> None:
    """Refuses a protocol whose `at` names values that the axis does not have.

    Raises:
        UserError: no such axis, no such value of it, or not the first one of a chain.
    """
    axes = {**file.product, **file.zip}
    for key, value in file.protocol.at.items() if file.protocol else ():
        given = f"{file.path}, protocol: at names {key}"
        if key not in axes:
            raise UserError(
                lines(
                    f"{given}, which is no axis of product or zip{did_you_mean(key, axes)}",
                    expected=listing(axes) or "an axis under product or zip",
                )
            )
        there = [known for known in axes[key] if not isinstance(known, Alternative)]
        if canonical(value) not in map(canonical, there):
            raise UserError(
                lines(f"{given} {as_argument(value)}, which it has not", expected=listing(map(as_argument, there)))
            )
        if file.chain and file.chain.axis == _axis_of(file, key) and canonical(value) != canonical(there[0]):
            first = f"{as_argument(there[0])}, with which its chains begin"
            raise UserError(lines(f"{given} {as_argument(value)}, amid a chain", expected=first))


def chooses(protocol: Protocol, settings: Mapping[str, Any]) -> bool:
    """Whether a point of these settings is one of those at which the protocol chooses."""
    return all(canonical(settings.get(axis)) == canonical(value) for axis, value in protocol.at.items())


def shared_axes(file: GridFile) -> set[str]:
    """The axes whose values share one choice, as points name them: that of the chain, and those of `at`."""
    chain = {file.chain.axis} if file.chain else set()
    return chain | {_axis_of(file, key) for key in (file.protocol.at if file.protocol else ())}


def told_apart(file: GridFile, alternatives: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """A point's alternatives without the axes whose values share one choice."""
    shared = shared_axes(file)
    return tuple(pair for pair in alternatives if pair[0] not in shared)


def _axis_of(file: GridFile, key: str) -> str:
    """The axis that a key of product or zip belongs to."""
    return "zip" if key in file.zip else key
