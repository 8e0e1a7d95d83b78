"""What `slotbench doctor` looks at, and which of it a name stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.health.findings import Check, Finding, run_check

__all__ = ["all_checks", "examine"]


def all_checks(runs: Path, named: Collection[str] = ()) -> list[Check]:
    """Every group of the report.

    Args:
        runs: the folder of all runs.
        named: what is asked for by name; of other packages' components these alone are imported.
    """
    from slotbench.health import kernels, machine, packages, tools

    return [
        Check("versions", "Versions", lambda: [*packages.core_names(), "conflicts"], packages.versions),
        Check("extras", "Extras", packages.extra_names, packages.extras),
        Check("plugins", "Plugins", packages.plugin_names, packages.plugins),
        Check("components", "Components", packages.component_names, partial(packages.components, named)),
        Check("kernels", "Kernels", kernels.kernel_names, kernels.kernels),
        Check("threads", "Threads", lambda: machine.THREAD_NAMES, machine.threads),
        Check("memory", "Memory", lambda: machine.MEMORY_NAMES, machine.memory),
        Check("disk", "Disk", lambda: machine.DISK_NAMES, partial(machine.disk, runs)),
        Check("devices", "Devices", lambda: machine.DEVICE_NAMES, machine.devices),
        Check("tools", "Tools", lambda: tools.TOOL_NAMES, tools.tools),
    ]


def examine(
    checks: Sequence[Check], asked: Sequence[str], required: Sequence[str]
) -> tuple[list[Finding], list[Finding]]:
    """Runs the checks that are needed.

    Args:
        checks: see `all_checks`.
        asked: names of what is to be found; everything if empty.
        required: names of what must be in order, and is looked at with what is asked for.

    Returns:
        What was found of what is asked for, and what of it, or of what is required, is not in order.

    Raises:
        UserError: no check knows a name.
    """
    wanted = [*asked, *required]
    _check_names(wanted, checks)
    if asked:
        checks = [check for check in checks if any(_may_give(check, name) for name in wanted)]
    found = [finding for check in checks for finding in run_check(check)]
    failing = [finding for name in wanted for finding in _failing(name, found)]
    if asked:
        found = [finding for finding in found if any(finding in _named(name, found) for name in wanted)]
    else:
        failing += [finding for finding in found if finding.essential and finding.state == "broken"]
    return found, list(dict.fromkeys(failing))


def _check_names(names: Sequence[str], checks: Sequence[Check]) -> None:
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
