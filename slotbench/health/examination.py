"""The checks of `slotbench doctor`, and which of them a name stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.health.findings import Check, Finding, run_check

__all__ = ["all_checks", "examine"]


def all_checks(runs: Path, named: Collection[str] = ()) -> list[Check]:
    """Every check, in the order of the report.

    Args:
        runs: the folder of all runs.
        named: names that are asked for; of other packages' components these alone are imported.
    """
    from slotbench.health import kernels, machine, packages, tools

    return [
        Check("versions", packages.core_names(), packages.versions),
        Check("versions", ["conflicts"], packages.conflicts),
        Check("extras", packages.extra_names(), packages.extras),
        Check("plugins", packages.plugin_names(), packages.plugins),
        Check("components", packages.component_names(), partial(packages.components, named)),
        Check("kernels", kernels.OPS, kernels.kernels),
        Check("kernels", ["numba cache"], kernels.numba_cache),
        Check("threads", ["cores"], machine.cores),
        Check("threads", ["torch threads"], machine.torch_threads),
        Check("memory", ["free memory"], machine.free_memory),
        Check("memory", ["shared memory"], machine.shared_memory),
        Check("disk", ["runs folder"], partial(machine.runs_folder, runs)),
        Check("disk", ["cache folder"], machine.cache_folder),
        Check("disk", ["temporary folder"], machine.temporary_folder),
        Check("devices", ["torch build"], machine.torch_build),
        Check("devices", ["bfloat16"], machine.bfloat16),
        Check("devices", ["cuda"], machine.cuda),
        Check("tools", ["wandb"], tools.wandb),
        Check("tools", ["slurm"], tools.slurm),
        Check("tools", ["submitit"], tools.submitit),
        Check("tools", ["ray"], tools.ray),
        Check("tools", ["video"], tools.video),
        Check("tools", ["ffmpeg"], tools.ffmpeg),
        Check("tools", ["sim3d"], tools.sim3d),
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
        The findings that are asked for, and those of them, or of what is required, that are not in order.

    Raises:
        UserError: no check knows a name.
    """
    wanted = [*asked, *required]
    for name in wanted:
        if not any(_may_give(check, name) for check in checks):
            groups = list(dict.fromkeys(check.group for check in checks))
            near = did_you_mean(name, [*groups, *(known for check in checks for known in check.names)])
            names = "those that `slotbench doctor --verbose` shows"
            raise UserError(lines(f"doctor knows nothing named {name}{near}", groups=listing(groups), names=names))
    if asked:
        checks = [check for check in checks if any(_may_give(check, name) for name in wanted)]
    found = [finding for check in checks for finding in run_check(check)]
    failing = [finding for name in wanted for finding in _failing(name, found)]
    if asked:
        found = [finding for finding in found if any(finding in _named(name, found) for name in wanted)]
    else:
        failing += [finding for finding in found if finding.essential and finding.state == "broken"]
    return found, list(dict.fromkeys(failing))


def _may_give(check: Check, name: str) -> bool:
    # a kernel is OP/KERNEL, a second card cuda:1, an extra slotbench[EXTRA]
    plain = name.partition("/")[0].partition(":")[0]
    known = {check.group, *check.names, *(extra.partition("[")[2].rstrip("]") for extra in check.names)}
    return bool({name.lower(), plain.lower()} & {word.lower() for word in known if word})


def _named(name: str, found: list[Finding]) -> list[Finding]:
    """The findings of a name: of that very name, of an extra, of an op, or of a group."""
    name = name.lower()
    for matches in (
        lambda finding: finding.name.lower() == name,
        lambda finding: finding.name.lower() == f"slotbench[{name}]",
        lambda finding: finding.name.lower().startswith(f"{name}/"),
        lambda finding: finding.group == name,
    ):
        if of_name := [finding for finding in found if matches(finding)]:
            return of_name
    return []


def _failing(name: str, found: list[Finding]) -> list[Finding]:
    """What is wrong with what was asked for: of several what is broken, of a name all that is not ok."""
    named = _named(name, found)
    if not named:
        return [Finding("asked", name, "broken", "there is none here")]
    alone = named[0].name.lower() in (name.lower(), f"slotbench[{name.lower()}]")
    return [finding for finding in named if finding.state == "broken" or (alone and finding.state != "ok")]
