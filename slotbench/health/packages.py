"""Whether the installed packages are those that slotbench's metadata demands, and components can be imported."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import traceback
from collections.abc import Collection, Iterable, Iterator
from functools import cache

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from slotbench import registry
from slotbench.health.findings import Finding, broken, first_line, note, ok

__all__ = [
    "SLOTBENCH",
    "component_names",
    "components",
    "conflicts",
    "core_names",
    "extra_names",
    "extras",
    "plugin_names",
    "plugins",
    "requirements",
    "unmet",
    "versions",
]

SLOTBENCH = "slotbench"
_COMPROMISED = {("lightning", "2.6.2"), ("lightning", "2.6.3")}
# Not required, and known to break the import of lightning and torchmetrics when they do not fit torch.
_FRAGILE = ("torchvision", "torchaudio")


def core_names() -> list[str]:
    """python, slotbench, and what slotbench cannot do without."""
    return ["python", SLOTBENCH, *(needed.name for needed in requirements(SLOTBENCH))]


def extra_names() -> list[str]:
    """The extras, as pip wants them written."""
    provided = importlib.metadata.metadata(SLOTBENCH).get_all("Provides-Extra") or []
    return [f"{SLOTBENCH}[{extra}]" for extra in provided]


def component_names() -> list[str]:
    """Every component that can be named."""
    return [name for kind in registry.KINDS for name in registry.names(kind)]


def plugin_names() -> list[str]:
    """The distributions, other than slotbench, and the files that declare components."""
    return sorted(_by_origin())


def versions() -> Iterator[Finding]:
    """Python, slotbench, and the packages that are always needed."""
    wanted = SpecifierSet(importlib.metadata.metadata(SLOTBENCH)["Requires-Python"] or "")
    text = f"{platform.python_version()} on {platform.platform()}"
    if wanted.contains(platform.python_version(), prereleases=True):
        yield ok(text, "python")
    else:
        yield broken(text, f"slotbench needs Python {_range(wanted)}", "python", essential=True)
    yield ok(importlib.metadata.version(SLOTBENCH), SLOTBENCH)
    for needed in requirements(SLOTBENCH):
        if problem := unmet(needed):
            yield broken(problem, f"pip install '{_written(needed)}'", needed.name, essential=True)
        else:
            yield ok(f"{importlib.metadata.version(needed.name)} ({_range(needed.specifier)})", needed.name)


def conflicts() -> Iterator[Finding]:
    """Requirements of what slotbench needs, directly or not, that what is installed does not meet."""
    if found := [f"{name} {version}" for name, version in _COMPROMISED if _installed(name) == version]:
        text = f"{', '.join(found)} is a compromised release: treat what this machine could reach as known to others"
        yield broken(text, "pip install 'lightning>=2.6.4,<2.7'", essential=True)
        return
    wrong: dict[str, str] = {}
    for distribution, extra in _needed_distributions():
        for needed in requirements(distribution, extra):
            if distribution != SLOTBENCH and (problem := unmet(needed)):
                wrong[f"{distribution} {_installed(distribution)} does not fit: {problem}"] = _written(needed)
    for text, written in sorted(wrong.items()):
        fragile = next((name for name in _FRAGILE if text.startswith(f"{name} ")), None)
        # slotbench has no use for those: without them the problem is gone
        yield broken(text, f"pip uninstall {fragile}" if fragile else f"pip install '{written}'", essential=True)
    if not wrong:
        yield ok("what these packages need of one another is there")


def extras() -> Iterator[Finding]:
    """Which extras are complete."""
    for name in extra_names():
        extra = name.partition("[")[2].rstrip("]")
        wrong = sorted({problem for needed in _of_extra(SLOTBENCH, extra) if (problem := unmet(needed))})
        fix = "docs/install_cuda.md says how" if extra == "cuda" else f"pip install '{name}'"
        if not wrong:
            yield ok("complete", name)
        elif all(problem.endswith("is not installed") for problem in wrong):
            yield note("; ".join(wrong), fix, name)
        else:
            yield broken("; ".join(wrong), fix, name)


def components(named: Collection[str] = ()) -> Iterator[Finding]:
    """Imports slotbench's own components, and of other packages those that are named.

    To import is to run the package's code, which a report on everything is not to do.

    Args:
        named: names of components, or of packages.
    """
    wanted = {name.lower() for name in named}
    for kind, singular in registry.KINDS.items():
        # once: it reads the source of each
        entries = registry.entries(kind)
        for name in registry.names(kind):
            found = [entry for entry in entries if entry.name == name]
            text = f"{singular} of {', '.join(sorted({entry.distribution for entry in found}))}"
            if not any(_may_import(entry, wanted) for entry in found):
                fix = f"`slotbench doctor {name}` imports it, which runs code of its package"
                yield note(f"{text}, not imported", fix, name)
                continue
            try:
                registry.load(kind, name)
                yield ok(text, name, essential=True)
            except registry.RegistryError as error:
                yield _unusable(name, text, error)


def plugins() -> Iterator[Finding]:
    """What each distribution adds, and whether it has what it needs."""
    for origin, names in sorted(_by_origin().items()):
        adds = f"adds {', '.join(names)}"
        if (version := _installed(origin)) is None:  # a file, or a session's own classes
            yield ok(adds, origin)
        elif wrong := [problem for needed in requirements(origin) if (problem := unmet(needed))]:
            fix = f"pip install --upgrade {origin}, or what it needs"
            yield broken(f"{version} {adds}; {'; '.join(wrong)}", fix, origin)
        else:
            yield ok(f"{version} {adds}", origin)


@cache
def requirements(distribution: str, extra: str = "") -> list[Requirement]:
    """What a distribution needs on this system, without its extras or with one of them alone.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed.
    """
    found = []
    environment = {key: str(value) for key, value in default_environment().items()}
    for line in importlib.metadata.requires(distribution) or []:
        needed = Requirement(line)
        plain = needed.marker is None or needed.marker.evaluate(environment | {"extra": ""})
        with_extra = needed.marker is None or needed.marker.evaluate(environment | {"extra": extra})
        if (with_extra and not plain) if extra else plain:
            found.append(needed)
    return found


def unmet(needed: Requirement) -> str:
    """What is wrong with a requirement, in a few words; empty if it is met."""
    try:
        version = importlib.metadata.version(needed.name)
    except importlib.metadata.PackageNotFoundError:
        return f"{needed.name} is not installed"
    if needed.specifier.contains(version, prereleases=True):
        return ""
    return f"{needed.name} is {version}, and {_range(needed.specifier)} is needed"


def _needed_distributions() -> Iterable[tuple[str, str]]:
    """Installed distributions that slotbench needs, directly or not, each with the extra by which; the fragile ones."""
    queue = [(SLOTBENCH, ""), *((name, "") for name in _FRAGILE)]
    seen: dict[tuple[str, str], None] = {}
    while queue:
        name, extra = queue.pop()
        key = (re.sub(r"[-_.]+", "-", name).lower(), extra)
        if key in seen or _installed(name) is None:
            continue
        seen[key] = None
        for needed in requirements(name, extra):
            queue += [(needed.name, ""), *((needed.name, wanted) for wanted in needed.extras)]
    return seen


def _of_extra(distribution: str, extra: str) -> Iterator[Requirement]:
    """What an extra adds, and what the extras that it names add."""
    for needed in requirements(distribution, extra):
        if needed.name == distribution:
            for other in needed.extras:
                yield from _of_extra(distribution, other)
        else:
            yield needed


@cache
def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _range(specifier: SpecifierSet) -> str:
    return ",".join(sorted(map(str, specifier), reverse=True)) or "any"


def _written(needed: Requirement) -> str:
    return f"{needed.name}{needed.specifier}"


def _may_import(entry: registry.Entry, wanted: Collection[str]) -> bool:
    """Whether a component is slotbench's own, has been imported already, or is asked for."""
    own = entry.distribution == SLOTBENCH or entry.state == "loaded"
    return own or entry.name.lower() in wanted or entry.distribution.lower() in wanted


def _unusable(name: str, text: str, error: registry.RegistryError) -> Finding:
    cause = error.__cause__
    if cause is None:
        return broken(f"{text}: {error}", name=name, essential=True)
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        fix = f"pip install what has the module {cause.name.partition('.')[0]}"
    else:
        fix = "`slotbench doctor --verbose` shows the whole traceback; the error is the plugin's"
    detail = "".join(traceback.format_exception(cause)).rstrip()
    return broken(f"{text}: {first_line(cause)}", fix, name, detail, essential=True)


def _by_origin() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in registry.KINDS:
        for entry in registry.entries(kind):
            if entry.distribution != SLOTBENCH:
                found.setdefault(entry.distribution, []).append(entry.name)
    return found
