"""Finds components by name: what is installed, where it comes from, and what went wrong.

A component is declared by an entry point in one of eleven groups, `slotbench.encoders`, `.cores`, `.decoders`,
`.aggregations`, `.tokenizers`, `.tasks`, `.datasets`, `.metrics`, `.objectives`, `.optimizers` and `.schedules`; the
entry's name is the class's name. The built-in components, and the optimisers and schedules of torch, are declared in
the same way, in slotbench's own `pyproject.toml`. Names are read from package metadata, and nothing is imported before
it is asked for, so that a broken plugin can be listed and does no harm to the others.

    >>> from slotbench import registry
    >>> "SlotSSM" in registry.names("cores")
    True
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from slotbench.errors import did_you_mean, first_line
from slotbench.sources import docstring_from_source, first_sentence

KINDS = {
    "encoders": "encoder",
    "cores": "core",
    "decoders": "decoder",
    "aggregations": "aggregation",
    "tokenizers": "tokenizer",
    "tasks": "task",
    "datasets": "dataset",
    "metrics": "metric",
    "objectives": "objective",
    "optimizers": "optimizer",
    "schedules": "schedule",
}
"""Every kind of component (the last part of its entry-point group) and what one of it is called."""

INTERFACES = {
    "encoders": "slotbench.interfaces:Encoder",
    "cores": "slotbench.interfaces:TemporalCore",
    "decoders": "slotbench.interfaces:Decoder",
    "aggregations": "slotbench.interfaces:Aggregation",
    "tokenizers": "slotbench.interfaces:Tokenizer",
    "tasks": "slotbench.tasks.task:Task",
    "datasets": "slotbench.data.base:SlotDataModule",
    "metrics": "slotbench.metrics.registered:RegisteredMetric",
    "objectives": "slotbench.interfaces:Objective",
    "optimizers": "torch.optim:Optimizer",
    "schedules": "torch.optim.lr_scheduler:LRScheduler",
}
"""Kind -> the class that each component of it is a subclass of, as text: importing it imports torch."""

Component = TypeVar("Component", bound=type)


class RegistryError(LookupError):
    """A component could not be found, imported or accepted."""


@dataclass(frozen=True)
class Entry:
    """One line of the table of components.

    `distribution` is the installed package, or the file, that it comes from, `target` "module:class", `state`
    "available" (not imported yet), "loaded", "broken" or "duplicate" with an `error` of one line, and `summary` the
    first sentence of the docstring, read from the source.
    """

    name: str
    kind: str
    distribution: str
    target: str
    state: str = "available"
    error: str = ""
    summary: str = ""


# What this process has registered by hand, imported, or failed to import. Keys are (kind, name) and (kind, target).
_registered: dict[tuple[str, str], tuple[Entry, type]] = {}
_loaded: dict[tuple[str, str], type] = {}
_failures: dict[tuple[str, str], BaseException] = {}


def names(kind: str) -> list[str]:
    """The names of all components of a kind, in alphabetical order, without importing any of them."""
    return sorted({entry.name for entry in _table(kind)}, key=str.lower)


def kinds_of(name: str) -> list[str]:
    """The kinds under which `name` is declared; empty if it is unknown."""
    return [kind for kind in KINDS if any(entry.name == name for entry in _table(kind))]


def kind_of(name: str) -> str:
    """The one kind under which `name` is declared.

    A `RegistryError` if there is none, or components of several kinds have the name.
    """
    kinds = kinds_of(name)
    if not kinds:
        near = did_you_mean(name, [known for kind in KINDS for known in names(kind)])
        raise RegistryError(f"no component named {name}{near or ';'} slotbench plugins lists all of them")
    if len(kinds) > 1:
        which = " and ".join(_with_article(KINDS[kind]) for kind in kinds)
        raise RegistryError(f"{name} is the name of {which}: say which by kind=, one of {', '.join(kinds)}")
    return kinds[0]


def interface_of(kind: str) -> type:
    """The class that each component of a kind is a subclass of; imports it."""
    interface = _import_target(INTERFACES[kind])
    assert isinstance(interface, type)
    return interface


def entries(kind: str) -> list[Entry]:
    """Every component of a kind with its origin, state and one-line description, without importing any of them."""
    table = sorted(_table(kind), key=lambda entry: (entry.name.lower(), entry.distribution))
    return [_with_state(entry, table) for entry in table]


def load(kind: str, name: str) -> type:
    """Imports the component and checks that it is what it is declared as.

    Raises:
        RegistryError: no such kind or name; two distributions declare the name; its module cannot be imported; the
            target is not a subclass of the kind's interface.
    """
    found = [entry for entry in _table(kind) if entry.name == name]
    if not found:
        raise unknown(kind, name)
    if len(found) > 1:
        raise RegistryError(_duplicate_message(found))
    entry = found[0]
    if (kind, name) in _registered:
        return _registered[kind, name][1]
    key = (kind, entry.target)
    if key not in _loaded:
        if key not in _failures:
            try:
                _loaded[key] = _check(kind, name, _import_target(entry.target), entry.distribution)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a script ends the process by SystemExit
                _failures[key] = error
        if key in _failures:
            held = _failures[key]
            if isinstance(held, RegistryError):
                raise held
            raise RegistryError(
                f"the {KINDS[kind]} {name} of {entry.distribution} cannot be imported from {entry.target}:\n"
                f"  {first_line(held)}"
            ) from held
    return _loaded[key]


def targets() -> set[str]:
    """Where the components of all kinds are declared to be, as "module:class"."""
    return {entry.target for kind in KINDS for entry in _table(kind)}


def loaded() -> list[type]:
    """The components that this process has imported or registered."""
    return [*_loaded.values(), *(component for _, component in _registered.values())]


def register(kind: str) -> Callable[[Component], Component]:
    """Class decorator that adds a component to the table of this process: for notebooks and single-file plugins.

    Running the same definition again, as a notebook does, replaces the earlier one.

    Raises:
        RegistryError: no such kind; not a subclass of the kind's interface; another distribution has the name.
    """
    check_kind(kind)

    def add(component: Component) -> Component:
        name, target = component.__name__, f"{component.__module__}:{component.__qualname__}"
        origin = _origin(component.__module__)
        _check(kind, name, component, origin)
        entry = Entry(name, kind, origin, target, "loaded", "", first_sentence(component.__doc__ or ""))
        others = [other for other in _table(kind) if other.name == name and other.target != target]
        if others:
            raise RegistryError(_duplicate_message([*others, entry]))
        _registered[kind, name] = (entry, component)
        return component

    return add


def load_file(path: str | Path) -> list[Entry]:
    """Imports a Python file of `@register`ed components and returns the entries that it made.

    A `RegistryError` where it is not there or not to be imported, has the name of another module, or registers nothing.
    """
    file = Path(path).resolve()
    if not file.is_file():
        near = did_you_mean(file.name, [other.name for other in file.parent.glob("*.py")])
        raise RegistryError(f"no plugin file {path}{near}")
    module_name = file.stem
    if file.suffix != ".py" or not module_name.isidentifier():
        raise RegistryError(f"the plugin file {path} cannot be imported: name it like a Python module, e.g. my_core.py")
    module = sys.modules.get(module_name)
    spec = importlib.util.find_spec(module_name) if module is None else module.__spec__
    if (module or spec) and Path((spec and spec.origin) or getattr(module, "__file__", None) or "").resolve() != file:
        raise RegistryError(f"the plugin file {path} has the name of another module, {module_name}: rename it")
    if module is None:
        # At the end of the path, so that the file's neighbours can be imported but hide nothing; worker processes
        # that are not forked inherit the path and find the file by it.
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        try:
            importlib.import_module(module_name)
        except (RegistryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise RegistryError(f"the plugin file {path} cannot be imported:\n  {first_line(error)}") from error
    made = registered_in(file)
    if not made:
        raise RegistryError(
            f"the plugin file {path} registers no component: put @slotbench.registry.register(KIND) above its class,\n"
            f"  KIND one of: {', '.join(KINDS)}"
        )
    return made


def registered_in(path: str | Path) -> list[Entry]:
    """The entries that importing a Python file has made."""
    module = Path(path).stem
    return [entry for entry, component in _registered.values() if component.__module__ == module]


@functools.lru_cache(maxsize=4)
def _declared(paths: tuple[str, ...]) -> dict[str, list[Entry]]:
    """What package metadata on `paths` (`sys.path`, of which it is a function) declares of each kind."""
    found = {kind: importlib.metadata.entry_points(group=f"slotbench.{kind}") for kind in KINDS}
    of = {
        kind: [Entry(point.name, kind, point.dist.name if point.dist else "unknown", point.value) for point in points]
        for kind, points in found.items()
    }
    return {kind: [*dict.fromkeys(entries)] for kind, entries in of.items()}


def _table(kind: str) -> list[Entry]:
    check_kind(kind)
    by_hand = [entry for entry, _ in _registered.values() if entry.kind == kind]
    targets = {entry.target for entry in by_hand}
    return [*(entry for entry in _declared(tuple(sys.path))[kind] if entry.target not in targets), *by_hand]


def _with_state(entry: Entry, table: list[Entry]) -> Entry:
    same_name = [other for other in table if other.name == entry.name]
    if len(same_name) > 1:
        return replace(entry, state="duplicate", error=_duplicate_message(same_name))
    if (entry.kind, entry.name) in _registered:
        return entry
    try:
        entry = replace(entry, summary=first_sentence(docstring_from_source(entry.target)))
    except (OSError, ValueError, SyntaxError, ImportError) as error:
        return replace(entry, state="broken", error=first_line(error))
    if (held := _failures.get((entry.kind, entry.target))) is not None:
        return replace(entry, state="broken", error=first_line(held))
    return replace(entry, state="loaded") if (entry.kind, entry.target) in _loaded else entry


def check_kind(kind: str, *more: str) -> None:
    """Refuses what is neither a kind of component nor one of `more`."""
    if kind not in (known := [*KINDS, *more]):
        what = f"no kind of component named {kind}{did_you_mean(kind, known, cutoff=0.5) or ';'}" if kind else "which?"
        raise RegistryError(f"{what} kinds: {', '.join(known)}")


def _check(kind: str, name: str, component: object, distribution: str) -> type:
    what = f"the {KINDS[kind]} {name} of {distribution}"
    if not isinstance(component, type) or not issubclass(component, interface_of(kind)):
        raise RegistryError(f"{what} is not a subclass of {INTERFACES[kind].replace(':', '.')}")
    if component.__name__ != name:
        raise RegistryError(f"{what} is the class {component.__name__}: the entry's name must be the class's name")
    return component


def _import_target(target: str) -> object:
    module_name, _, attribute = target.partition(":")
    value: object = importlib.import_module(module_name)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def unknown(kind: str, name: str) -> RegistryError:
    """The error for a name that no component of the kind has; says which is near."""
    known, singular = names(kind), KINDS[kind]
    message = f"no {singular} named {name}{did_you_mean(name, known) or ';'}"
    if elsewhere := kinds_of(name):
        message += f" {name} is the name of {' and '.join(_with_article(KINDS[k]) for k in elsewhere)};"
    return RegistryError(f"{message} available: {', '.join(known) or 'none'}")


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _duplicate_message(found: list[Entry]) -> str:
    origins = " and ".join(sorted(f"{entry.distribution} ({entry.target})" for entry in found))
    return (
        f"{len(found)} {found[0].kind} are named {found[0].name}: {origins}.\n"
        f"  Uninstall one of them, or write the full class path of the one that you mean."
    )


def _origin(module_name: str) -> str:
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return Path(file).name if file else "this session"
