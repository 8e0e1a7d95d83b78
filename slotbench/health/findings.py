"""Findings of `slotbench doctor`: a line each with its state and what to type, and their report on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from rich.console import Console
from rich.text import Text

from slotbench.text import one_line, printable

__all__ = ["Check", "Finding", "State", "broken", "first_line", "note", "ok", "print_report", "run_check"]

State = Literal["ok", "note", "broken"]

_COLOURS = {"ok": "green", "note": "yellow", "broken": "bold red"}
_SHORT = 3  # lines of a traceback
_INDENT = " " * 9


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        group: the heading under which it stands.
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


def ok(text: str, name: str = "", essential: bool = False) -> Finding:
    """A finding in order; `run_check` fills in its group, and the name of a check that has one."""
    return Finding("", name, "ok", text, essential=essential)


def note(text: str, fix: str = "", name: str = "") -> Finding:
    """A finding that stops nothing."""
    return Finding("", name, "note", text, fix)


def broken(text: str, fix: str = "", name: str = "", detail: str = "", essential: bool = False) -> Finding:
    """A finding that has to be mended."""
    return Finding("", name, "broken", text, fix, detail, essential)


@dataclass(frozen=True)
class Check:
    """A function of the report.

    Attributes:
        group: the heading of its findings.
        names: of the findings that it may give, without running it.
        run: gives its finding, or several with names of their own.
    """

    group: str
    names: Iterable[str]
    run: Callable[[], Finding | Iterable[Finding]]


def run_check(check: Check) -> list[Finding]:
    """The findings of a check; an exception in it is a finding itself."""
    found: list[Finding] = []
    try:
        given = check.run()
        found.extend([given] if isinstance(given, Finding) else given)
    except Exception as error:
        found.append(broken(f"this check ended with {first_line(error)}", "please report it", check.group))
    return [replace(finding, group=check.group, name=finding.name or next(iter(check.names))) for finding in found]


def first_line(error: BaseException) -> str:
    """Type and first line of an exception."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def print_report(found: list[Finding], failing: list[Finding], verbose: bool) -> None:
    """Prints the findings under their groups, and how many there are of each state.

    Args:
        found: in the order in which they are printed.
        failing: those because of which the exit code is 1.
        verbose: gives each component and each kernel a line, and shows whole tracebacks.
    """
    console = Console(highlight=False, soft_wrap=True)
    for group in dict.fromkeys(finding.group for finding in found):
        console.print(Text(group.capitalize(), style="bold"))
        of_group = [finding for finding in found if finding.group == group]
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
    return [*(ok(f"{what}: {', '.join(all_)}", name) for (name, what), all_ in together.items()), *others]
