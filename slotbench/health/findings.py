"""What a check finds: one line, its state, and what to type where it is not as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Check", "Finding", "State", "one_line", "run_check"]

State = Literal["ok", "note", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        group: the check that found it.
        name: by which it can be asked for.
        state: "ok"; "note" for what is absent or tight and stops nothing that was not asked for; "broken".
        text: what was found.
        mend: what to type, or to change, where the state is not "ok".
        detail: a traceback.
        essential: nothing works, or a component does not, while it is broken.
    """

    group: str
    name: str
    state: State
    text: str
    mend: str = ""
    detail: str = ""
    essential: bool = False


@dataclass(frozen=True)
class Check:
    """One group of the report.

    Attributes:
        group: its name.
        title: its heading.
        names: of the findings that it may give, without running it.
        run: gives them.
    """

    group: str
    title: str
    names: Callable[[], Iterable[str]]
    run: Callable[[], Iterator[Finding]]


def run_check(check: Check) -> list[Finding]:
    """The findings of a check; one that cannot even be run is a finding itself."""
    found: list[Finding] = []
    try:
        found.extend(check.run())
    except Exception as error:
        text = f"this check ended with {one_line(error)}"
        found.append(Finding(check.group, check.group, "broken", text, "please report it"))
    return found


def one_line(error: BaseException) -> str:
    """Type and first line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
