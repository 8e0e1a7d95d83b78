"""`slotbench doctor`: the state of this installation, and what to type where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from slotbench.commands.arguments import Parser, expect
from slotbench.doctor import GROUPS, findings

__all__ = ["main"]

_COLOURS = {"ok": "green", "note": "yellow", "broken": "bold red"}


def main(command: str, arguments: list[str]) -> int:
    """Prints the report; 1 if something is broken, or what is required is not in order."""
    description = "Checks versions, components, kernels, devices, memory, disk and tools; 1 if something is broken."
    parser = Parser("slotbench doctor", description)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"these alone: {', '.join(GROUPS)}")
    need = "1 too if this line of the report is not ok, such as cuda"
    parser.add_argument("--require", action="append", default=[], metavar="NAME", help=need)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"), help="folder of runs (default: runs)")
    given = parser.parse_args(arguments)
    expect("group", given.groups, GROUPS)
    found = list(findings(given.runs_dir, given.groups))
    states = {finding.name: finding.state for _, finding in found}
    loaded = [one.text for group, one in found if group == "components" and one.state == "ok"]
    states |= {name: "ok" for names in loaded for name in names.split(", ")}
    failing = [name for name, state in states.items() if state == "broken"]
    failing += [name for name in given.require if states.get(name, "absent") in ("note", "absent")]
    if given.json:
        print(json.dumps({"failing": failing, "findings": [{"group": g, **f._asdict()} for g, f in found]}, indent=1))
        return 1 if failing else 0
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for group in dict.fromkeys(group for group, _ in found):
        console.print(Text(group.capitalize(), style="bold"))
        for finding in (finding for of, finding in found if of == group):
            console.print(Text("  ").append(f"{finding.state:<7}", _COLOURS[finding.state]), end="")
            console.print(Text(f"{finding.name:<26} {finding.text}"))
    if failing:
        console.print(Text(f"not in order: {', '.join(failing)}", "bold red"))
    return 1 if failing else 0
