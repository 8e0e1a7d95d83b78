"""Findings of `slotbench doctor`: a line each with its state and what to type, and their report on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text

from slotbench.text import one_line, printable

__all__ = ["Check", "Finding", "State", "first_line", "print_report", "run_check"]

State = Literal["ok", "note", "broken"]

_COLOURS = {"ok": "green", "note": "yellow", "broken": "bold red"}
_SHORT = 3  # lines of a traceback
_INDENT = " " * 9


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        group: the check that found it.
        name: by which it can be asked for.
        state: "ok"; "note" for what is absent or tight and stops nothing that was not asked for; "broken".
        text: what was found.
        fix: what to type, or to change, where the state is not "ok".
        detail: a traceback.
        essential: nothing works, or a component does not, while it is broken.
    """

    group: str
    name: str
    state: State
    text: str
    fix: str = ""
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
        text = f"this check ended with {first_line(error)}"
        found.append(Finding(check.group, check.group, "broken", text, "please report it"))
    return found


def first_line(error: BaseException) -> str:
    """Type and first line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def print_report(found: list[Finding], failing: list[Finding], titles: dict[str, str], verbose: bool) -> None:
    """Prints the findings under the titles of their groups, and how many there are of each state.

    Args:
        found: in the order in which they are printed.
        failing: those because of which the exit code is 1.
        titles: of the groups.
        verbose: gives each component and each kernel a line, and shows whole tracebacks.
    """
    console = Console(highlight=False, soft_wrap=True)
    for group, title in titles.items():
        of_group = [finding for finding in found if finding.group == group]
        if not of_group:
            continue
        console.print(Text(title, style="bold"))
        for finding in of_group if verbose else _folded(of_group):
            _print_finding(console, finding, verbose)
    counts = {state: sum(finding.state == state for finding in found) for state in _COLOURS}
    console.print(", ".join(f"{count} {state}" for state, count in counts.items() if count))
    if failing:
        names = ", ".join(dict.fromkeys(finding.name for finding in failing))
        console.print(Text(one_line(f"not in order: {names}"), "bold red"))


def _print_finding(console: Console, finding: Finding, verbose: bool) -> None:
    line = Text("  ")
    line.append(f"{finding.state:<7}", _COLOURS[finding.state])
    line.append(one_line(f"{finding.name:<18} {finding.text}"))
    console.print(line)
    if finding.fix and finding.state != "ok":
        console.print(Text(f"{_INDENT}-> {printable(finding.fix)}", "cyan"))
    traceback = finding.detail.splitlines()
    for part in traceback if verbose else traceback[-_SHORT:]:
        console.print(Text(f"{_INDENT}   {one_line(part)}", "dim"))


def _folded(found: list[Finding]) -> list[Finding]:
    """Components of one kind and origin, and kernels of one op, that are in order, on one line."""
    together: dict[tuple[str, str], list[str]] = {}
    others = []
    for finding in found:
        if finding.state == "ok" and finding.group == "components":
            kind, _, origin = finding.text.partition(" of ")
            together.setdefault((f"{kind}s", origin), []).append(finding.name)
        elif finding.state == "ok" and "/" in finding.name and not finding.name.endswith("/auto"):
            op, _, kernel = finding.name.partition("/")
            together.setdefault((op, "largest relative error"), []).append(f"{kernel} {finding.text}")
        else:
            others.append(finding)
    lines = [Finding("", name, "ok", f"{what}: {', '.join(all_)}") for (name, what), all_ in together.items()]
    return [*lines, *others]
