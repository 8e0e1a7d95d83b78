"""`slotbench plugins [KIND ...] [NAME ...]`: the table of components, and a page about each that is named."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from slotbench import __version__, registry
from slotbench.commands.arguments import Parser, split_and_load
from slotbench.components import cited, component_of
from slotbench.errors import did_you_mean
from slotbench.io import dump_json
from slotbench.models import shipped

__all__ = ["main"]

_SINGULAR = {singular: kind for kind, singular in registry.KINDS.items()} | {"model": "models"}


def main(command: str, arguments: list[str]) -> int:
    """Prints the table, or the pages."""
    parser = Parser(
        "slotbench plugins",
        "Lists the components that a configuration can name; of one that is named, its description and arguments.",
        epilog="--plugin FILE imports components from a Python file first.",
    )
    kinds = ", ".join([*registry.KINDS, "models"])
    parser.add_argument("words", nargs="*", metavar="KIND|NAME", help=f"a kind ({kinds}), or a component")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(split_and_load(arguments)[1])
    words = [_SINGULAR.get(word, word) for word in given.words]
    if words == ["models"]:
        print(shipped.listed())
        return 0
    named = [entry for word in words if word not in registry.KINDS for entry in _entries(word)]
    kinds_shown = [word for word in words if word in registry.KINDS] or ([] if named else list(registry.KINDS))
    listed = {kind: registry.entries(kind) for kind in kinds_shown}
    if given.json:
        records = [_record(entry) | _declared(entry) for entry in named]
        records += [_record(entry) for entries in listed.values() for entry in entries]
        print(dump_json({"slotbench": __version__, "components": records}, indent=1))
        return 0
    for entry in named:
        print("\n".join(_page(entry)), end="\n\n")
    if listed:
        print("\n".join(_table(listed)))
        print("\nslotbench plugins NAME shows a component's arguments, defaults and source.")
    return 0


def _entries(name: str) -> list[registry.Entry]:
    """The components of a name."""
    kinds = registry.kinds_of(name)
    if not kinds and did_you_mean(name, [*registry.KINDS, *_SINGULAR]):
        registry.entries(name)  # a misspelt kind: the registry says which is near
    kinds = kinds or [registry.kind_of(name)]
    return [entry for kind in kinds for entry in registry.entries(kind) if entry.name == name]


def _record(entry: registry.Entry) -> dict[str, Any]:
    """A component for programs."""
    component = component_of(entry)
    fields = ("kind", "name", "summary", "paper", "causality", "distribution")
    record = {field: getattr(component, field) for field in fields}
    return record | {"target": entry.target, "state": entry.state, "error": entry.error}


def _declared(entry: registry.Entry) -> dict[str, Any]:
    """The docstring of a component and the arguments of its constructor; imports it."""
    found = registry.load(entry.kind, entry.name)
    arguments = []
    for name, given in inspect.signature(found).parameters.items():
        hint = "" if given.annotation is given.empty else inspect.formatannotation(given.annotation).strip("'")
        default = getattr(given.default, "__name__", None) or repr(given.default)
        arguments.append({"name": name, "type": hint, "default": None if given.default is given.empty else default})
    return {"description": inspect.getdoc(found) or "", "arguments": arguments}


def _page(entry: registry.Entry) -> Iterator[str]:
    yield f"{entry.name}: {registry.KINDS[entry.kind]} of {entry.distribution}"
    yield f"  {entry.target}"
    declared = _declared(entry)
    yield from ("", declared["description"], "")
    for one in declared["arguments"]:
        default = "" if one["default"] is None else f" = {one['default']}"
        yield f"  {one['name']}{': ' if one['type'] else ''}{one['type']}{default}"


def _table(listed: dict[str, list[registry.Entry]]) -> Iterator[str]:
    """A heading per kind, and under it a line per component: name, causality, paper and what it is."""
    width = max(len(entry.name) for entries in listed.values() for entry in entries)
    for kind, entries in listed.items():
        yield from ("", kind)
        for entry in entries:
            row = component_of(entry)
            package = "" if row.distribution == "slotbench" else f"{row.distribution}: "
            facts = [row.name.ljust(width), row.causality.partition(":")[0], cited(row.paper), package + row.summary]
            yield "  " + "  ".join(fact for fact in facts if fact)
            if entry.error:
                yield f"    {entry.state}: {entry.error}"
