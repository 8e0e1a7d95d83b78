"""Whether every component can be imported, and which distributions they come from."""

from __future__ import annotations

import importlib.metadata
import traceback
from collections.abc import Iterator

from slotbench import registry
from slotbench.health.findings import Finding, one_line
from slotbench.health.versions import SLOTBENCH, requirements, unmet

__all__ = ["component_names", "components", "plugin_names", "plugins"]


def component_names() -> list[str]:
    """Every component that can be named."""
    return [name for kind in registry.KINDS for name in registry.names(kind)]


def components() -> Iterator[Finding]:
    """Imports every component."""
    for kind, singular in registry.KINDS.items():
        # once: it reads the source of each
        entries = registry.entries(kind)
        for name in registry.names(kind):
            origins = sorted({entry.distribution for entry in entries if entry.name == name})
            text = f"{singular} of {', '.join(origins)}"
            try:
                registry.load(kind, name)
                yield Finding("components", name, "ok", text, essential=True)
            except registry.RegistryError as error:
                yield _broken(name, text, error)


def _broken(name: str, text: str, error: registry.RegistryError) -> Finding:
    cause = error.__cause__
    if cause is None:
        return Finding("components", name, "broken", f"{text}: {error}", essential=True)
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        mend = f"pip install what has the module {cause.name.partition('.')[0]}"
    else:
        mend = "`slotbench doctor --verbose` shows the whole traceback; the error is the plugin's"
    detail = "".join(traceback.format_exception(cause)).rstrip()
    return Finding("components", name, "broken", f"{text}: {one_line(cause)}", mend, detail, essential=True)


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
            mend = f"pip install --upgrade {origin}, or what it needs"
            yield Finding("plugins", origin, "broken", f"{text}; {'; '.join(wrong)}", mend)
        else:
            yield Finding("plugins", origin, "ok", text)


def _by_origin() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in registry.KINDS:
        for entry in registry.entries(kind):
            if entry.distribution != SLOTBENCH:
                found.setdefault(entry.distribution, []).append(entry.name)
    return found
