"""`slotbench doctor`: what is installed, what does not work here, why, and what to type."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from slotbench import registry
from slotbench.commands.doctor_report import print_report
from slotbench.commands.options import split_options
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.health.findings import Check, Finding, run_check

__all__ = ["main"]

_USAGE = """Usage: slotbench doctor [CHECK ...] [--require NAME ...] [--json] [--verbose] [--runs_dir DIR]
                        [--plugin FILE]

Looks at versions, plugins, kernels (each is run), threads, memory, disk, graphics cards and tools; each line is ok, a
note, or broken, and says what to type then.

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
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    options, rest = split_options(arguments)
    flags = {flag for flag in _FLAGS if flag in rest}
    asked, required = _asked([argument for argument in rest if argument not in flags])
    for file in options.plugin:
        registry.load_file(file)
    checks = _checks(options.runs_dir)
    wanted = [*asked, *required]
    _check_names(wanted, checks)
    if asked:
        checks = [check for check in checks if any(_may_give(check, name) for name in wanted)]
    started = time.perf_counter()
    found = [finding for check in checks for finding in run_check(check)]
    failing = [finding for name in wanted for finding in _failing(name, found)]
    if asked:
        found = [finding for finding in found if any(finding in _named(name, found) for name in wanted)]
    else:
        failing += [finding for finding in found if finding.essential and finding.state == "broken"]
    failing = list(dict.fromkeys(failing))
    if "--json" in flags:
        print(json.dumps(_document(found, failing), indent=1))
    else:
        print_report(found, failing, {check.group: check.title for check in checks}, "--verbose" in flags)
        print(f"({time.perf_counter() - started:.1f} s)")
    return 1 if failing else 0


def _checks(runs: Path) -> list[Check]:
    from slotbench.health import components, devices, kernels, machine, tools, versions

    return [
        Check("versions", "Versions", lambda: [*versions.core_names(), "conflicts"], versions.versions),
        Check("extras", "Extras", versions.extra_names, versions.extras),
        Check("plugins", "Plugins", components.plugin_names, components.plugins),
        Check("components", "Components", components.component_names, components.components),
        Check("kernels", "Kernels", kernels.kernel_names, kernels.kernels),
        Check("threads", "Threads", lambda: machine.THREAD_NAMES, machine.threads),
        Check("memory", "Memory", lambda: machine.MEMORY_NAMES, machine.memory),
        Check("disk", "Disk", lambda: machine.DISK_NAMES, partial(machine.disk, runs)),
        Check("devices", "Devices", lambda: devices.DEVICE_NAMES, devices.devices),
        Check("tools", "Tools", lambda: tools.TOOL_NAMES, tools.tools),
    ]


def _asked(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is to be shown, and what is only required."""
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
            raise UserError(f"doctor has no option {argument}{near}\n{_USAGE}")
        else:
            asked.append(argument)
    return asked, required


def _check_names(names: Sequence[str], checks: list[Check]) -> None:
    for name in names:
        if not any(_may_give(check, name) for check in checks):
            groups = [check.group for check in checks]
            near = did_you_mean(name, [*groups, *(known for check in checks for known in check.names())])
            raise UserError(
                lines(
                    f"doctor knows nothing named {name}{near}",
                    groups=listing(groups),
                    names="those that `slotbench doctor --verbose` shows",
                )
            )


def _may_give(check: Check, name: str) -> bool:
    known = [check.group, *check.names()]
    known += [extra.partition("[")[2].rstrip("]") for extra in known]
    # a kernel is OP/KERNEL, a second card cuda:1
    plain = name.partition("/")[0].partition(":")[0]
    return any(plain.lower() == candidate.lower() or name.lower() == candidate.lower() for candidate in known)


def _named(name: str, found: list[Finding]) -> list[Finding]:
    """The findings of a name: of that very name, of an extra, of an op, or of a group."""
    name = name.lower()
    for of_name in (
        [finding for finding in found if finding.name.lower() == name],
        [finding for finding in found if finding.name.lower() == f"slotbench[{name}]"],
        [finding for finding in found if finding.name.lower().startswith(f"{name}/")],
        [finding for finding in found if finding.group == name],
    ):
        if of_name:
            return of_name
    return []


def _failing(name: str, found: list[Finding]) -> list[Finding]:
    """What is wrong with what was asked for: of several what is broken, of a name all that is not ok."""
    named = _named(name, found)
    if not named:
        return [Finding("asked", name, "broken", "there is none here")]
    alone = named[0].name.lower() in (name.lower(), f"slotbench[{name.lower()}]")
    return [finding for finding in named if finding.state == "broken" or (alone and finding.state != "ok")]


def _document(found: list[Finding], failing: list[Finding]) -> dict[str, object]:
    return {
        "exit_code": 1 if failing else 0,
        "failing": [finding.name for finding in failing],
        "findings": [dataclasses.asdict(finding) for finding in found],
    }
