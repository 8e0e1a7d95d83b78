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
from slotbench.health.findings import Finding, State, first_line

__all__ = [
    "SLOTBENCH",
    "component_names",
    "components",
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


def versions() -> Iterator[Finding]:
    """The packages that are always needed, and requirements of theirs, or of fragile neighbours, that are not met."""
    yield _python()
    yield Finding("versions", SLOTBENCH, "ok", importlib.metadata.version(SLOTBENCH))
    for needed in requirements(SLOTBENCH):
        yield _version(needed)
    yield from _conflicts()


def extras() -> Iterator[Finding]:
    """Which extras are complete."""
    for name in extra_names():
        extra = name.partition("[")[2].rstrip("]")
        wrong = sorted({problem for needed in _of_extra(SLOTBENCH, extra) if (problem := unmet(needed))})
        absent = [problem for problem in wrong if problem.endswith("is not installed")]
        fix = "docs/install_cuda.md says how" if extra == "cuda" else f"pip install '{name}'"
        if not wrong:
            yield Finding("extras", name, "ok", "complete")
        else:
            state: State = "note" if len(absent) == len(wrong) else "broken"
            yield Finding("extras", name, state, "; ".join(wrong), fix)


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


def _python() -> Finding:
    wanted = SpecifierSet(importlib.metadata.metadata(SLOTBENCH)["Requires-Python"] or "")
    text = f"{platform.python_version()} on {platform.platform()}"
    if wanted.contains(platform.python_version(), prereleases=True):
        return Finding("versions", "python", "ok", text)
    return Finding("versions", "python", "broken", text, f"slotbench needs Python {_range(wanted)}", essential=True)


def _version(needed: Requirement) -> Finding:
    if problem := unmet(needed):
        return Finding("versions", needed.name, "broken", problem, f"pip install '{_written(needed)}'", essential=True)
    version = importlib.metadata.version(needed.name)
    return Finding("versions", needed.name, "ok", f"{version} ({_range(needed.specifier)})")


def _conflicts() -> Iterator[Finding]:
    """Requirements of what slotbench needs, directly or not, that what is installed does not meet."""
    if found := [f"{name} {version}" for name, version in _COMPROMISED if _installed(name) == version]:
        text = f"{', '.join(found)} is a compromised release: treat what this machine could reach as known to others"
        yield Finding("versions", "conflicts", "broken", text, "pip install 'lightning>=2.6.4,<2.7'", essential=True)
        return
    wrong: dict[str, str] = {}
    for distribution, extra in _needed_distributions():
        for needed in requirements(distribution, extra):
            if distribution != SLOTBENCH and (problem := unmet(needed)):
                wrong[f"{distribution} {_installed(distribution)} does not fit: {problem}"] = _written(needed)
    for text, written in sorted(wrong.items()):
        fragile = next((name for name in _FRAGILE if text.startswith(f"{name} ")), None)
        # slotbench has no use for those: without them the problem is gone
        fix = f"pip uninstall {fragile}" if fragile else f"pip install '{written}'"
        yield Finding("versions", "conflicts", "broken", text, fix, essential=True)
    if not wrong:
        yield Finding("versions", "conflicts", "ok", "what these packages need of one another is there")


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


def component_names() -> list[str]:
    """Every component that can be named."""
    return [name for kind in registry.KINDS for name in registry.names(kind)]


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
                yield Finding("components", name, "note", f"{text}, not imported", fix)
                continue
            try:
                registry.load(kind, name)
                yield Finding("components", name, "ok", text, essential=True)
            except registry.RegistryError as error:
                yield _broken(name, text, error)


def _may_import(entry: registry.Entry, wanted: Collection[str]) -> bool:
    """Whether a component is slotbench's own, has been imported already, or is asked for."""
    own = entry.distribution == SLOTBENCH or entry.state == "loaded"
    return own or entry.name.lower() in wanted or entry.distribution.lower() in wanted


def _broken(name: str, text: str, error: registry.RegistryError) -> Finding:
    cause = error.__cause__
    if cause is None:
        return Finding("components", name, "broken", f"{text}: {error}", essential=True)
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        fix = f"pip install what has the module {cause.name.partition('.')[0]}"
    else:
        fix = "`slotbench doctor --verbose` shows the whole traceback; the error is the plugin's"
    detail = "".join(traceback.format_exception(cause)).rstrip()
    return Finding("components", name, "broken", f"{text}: {first_line(cause)}", fix, detail, essential=True)


def plugin_names() -> list[str]:
    """The distributions, other than slotbench, and the files that declare components."""
    return sorted(_by_origin())


def plugins() -> Iterator[Finding]:
    """What each distribution adds, and whether it has what it needs."""
    for origin, names in sorted(_by_origin().items()):
        try:
            version = importlib.metadata.version(origin)
            wrong = [problem for needed in requirements(origin) if (problem := unmet(needed))]
        except importlib.metadata.PackageNotFoundError:
            # a file, or a session's own classes
            yield Finding("plugins", origin, "ok", f"adds {', '.join(names)}")
            continue
        text = f"{version} adds {', '.join(names)}"
        if wrong:
            fix = f"pip install --upgrade {origin}, or what it needs"
            yield Finding("plugins", origin, "broken", f"{text}; {'; '.join(wrong)}", fix)
        else:
            yield Finding("plugins", origin, "ok", text)


def _by_origin() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in registry.KINDS:
        for entry in registry.entries(kind):
            if entry.distribution != SLOTBENCH:
                found.setdefault(entry.distribution, []).append(entry.name)
    return found
