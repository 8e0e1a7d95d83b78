"""`slotbench doctor`: the state of this installation, and what to type where something is wrong."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence

from slotbench.commands.arguments import split_and_load
from slotbench.errors import UserError, did_you_mean, lines
from slotbench.health.examination import all_checks, examine
from slotbench.health.findings import Finding, print_report

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench doctor [CHECK ...] [--require NAME ...] [--json] [--verbose] [--runs_dir DIR]
                        [--plugin FILE]

Looks at versions, plugins, kernels (each is run), threads, memory, disk, graphics cards and tools; each line is ok, a
note, or broken, and says what to type then. Of other packages' components it imports those alone that CHECK or NAME is
(the component or its package), as importing runs their code.

  slotbench doctor                                     everything; 1 if a component or what all need is broken
  slotbench doctor --require cuda --require SlotSSM    1 as well if one of these is not ok: in scripts, before a job
  slotbench doctor kernels wandb                       these alone; 1 if a group has something broken, a name is not ok
  slotbench doctor --json                              the same for programs
  slotbench doctor --verbose                           every component on a line, tracebacks whole

CHECK and NAME: a group (versions, extras, plugins, components, kernels, threads, memory, disk, devices, tools), a
component, a package, an op, OP/KERNEL, an extra, or a name that the report shows."""

_FLAGS = ("--json", "--verbose")


def main(command: str, arguments: list[str]) -> int:
    """Prints the report; 1 if what is asked for is not in order."""
    options, rest = split_and_load(arguments)
    flags = {flag for flag in _FLAGS if flag in rest}
    asked, required = _asked([argument for argument in rest if argument not in flags])
    checks = all_checks(options.runs_dir, [*asked, *required])
    started = time.perf_counter()
    found, failing = examine(checks, asked, required)
    if "--json" in flags:
        print(json.dumps(_document(found, failing), indent=1))
    else:
        print_report(found, failing, "--verbose" in flags)
        print(f"({time.perf_counter() - started:.1f} s)")
    return 1 if failing else 0


def _asked(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names to show, and those that are only required."""
    asked: list[str] = []
    required: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option == "--require":
            name = value if equals else next(waiting, "")
            if not name or name.startswith("-"):
                raise UserError(lines("--require names nothing", expected="--require NAME, such as --require cuda"))
            required.append(name)
        elif argument.startswith("-"):
            near = did_you_mean(argument, ["--require", *_FLAGS])
            raise UserError(f"doctor has no option {argument}{near or ';'} slotbench doctor --help lists them")
        else:
            asked.append(argument)
    return asked, required


def _document(found: list[Finding], failing: list[Finding]) -> dict[str, object]:
    return {
        "exit_code": 1 if failing else 0,
        "failing": [finding.name for finding in failing],
        "findings": [dataclasses.asdict(finding) for finding in found],
    }
