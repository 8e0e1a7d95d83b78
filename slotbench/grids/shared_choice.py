"""What `at` under `protocol` in a grid file means: a choice at one value of an axis that holds for its other values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.grid_file import Alternative, GridFile
from slotbench.grids.protocol_file import Protocol
from slotbench.grids.values import as_argument, canonical

__all__ = ["axis_of", "check_shared", "chooses"]


def check_shared(file: GridFile) -> None:
    """Refuses a protocol that chooses at values that there are not.

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
        if file.chain and file.chain.axis == axis_of(file, key) and canonical(value) != canonical(there[0]):
            first = f"{as_argument(there[0])}, with which its chains begin"
            raise UserError(lines(f"{given} {as_argument(value)}, amid a chain", expected=first))


def axis_of(file: GridFile, key: str) -> str:
    """The axis that a key of product or zip belongs to, as points name it in `Point.alternatives`."""
    return "zip" if key in file.zip else key


def chooses(protocol: Protocol, settings: Mapping[str, Any]) -> bool:
    """Whether a point of these settings is one of those at which the protocol chooses."""
    return all(canonical(settings.get(axis)) == canonical(value) for axis, value in protocol.at.items())
