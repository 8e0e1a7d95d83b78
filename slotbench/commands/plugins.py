"""`slotbench plugins [KIND ...] [NAME ...]`: the table of components, and a page about each that is named."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from slotbench import __version__, registry
from slotbench.commands.arguments import split_and_load
from slotbench.components import Component, cited, component_of, components
from slotbench.errors import UserError, did_you_mean
from slotbench.files import dump_json
from slotbench.sources import (
    Argument,
    arguments_from_source,
    docstring_from_source,
    meanings_from_source,
    section,
    spelled,
)
from slotbench.text import one_line, printable

__all__ = ["USAGE", "component_page", "main", "table_lines"]

USAGE = f"""Usage: slotbench plugins [KIND ...] [NAME ...] [--json] [--plugin FILE]

Lists the components that a configuration can name, without importing them; of one that is named, what it is, its
arguments with types and defaults, its module and its source. KIND: {", ".join(registry.KINDS)}.

  --json         the same for programs
  --plugin FILE  import components from a Python file"""
_MOST_COLUMNS = 160
_WIDE = 110
"""Columns from which a component and what it is stand on one line."""
_MOST_OF_A_PAPER = 38


def main(command: str, arguments: list[str]) -> int:
    """Prints the table, or the pages."""
    _, words = split_and_load(arguments)
    as_json = "--json" in words
    words = [word for word in words if word != "--json"]
    if unknown := [word for word in words if word.startswith("-")]:
        raise UserError(f"plugins has no argument {unknown[0]}; slotbench plugins --help lists the arguments")
    plural = {singular: kind for kind, singular in registry.KINDS.items()}
    kinds = [plural.get(word, word) for word in words if plural.get(word, word) in registry.KINDS]
    names = [word for word in words if plural.get(word, word) not in registry.KINDS]
    named: list[registry.Entry] = []
    for name in names:
        if not registry.kinds_of(name) and did_you_mean(name, [*registry.KINDS, *plural]):
            registry.entries(name)  # a misspelt kind: the registry says which is near
        for kind in registry.kinds_of(name) or [registry.kind_of(name)]:
            named += [entry for entry in registry.entries(kind) if entry.name == name]
    listed = {kind: registry.entries(kind) for kind in kinds or ([] if names else registry.KINDS)}
    if as_json:
        records = [_record(entry, described=True) for entry in named]
        records += [_record(entry) for entries in listed.values() for entry in entries]
        print(dump_json({"slotbench": __version__, "components": records}, indent=1))
        return 0
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    for entry in named:
        print("\n".join(component_page(entry, width)), end="\n\n")
    if not listed:
        return 0
    print("\n".join(table_lines({kind: components(kind) for kind in listed}, width)))
    console = Console()
    errors = dict.fromkeys(entry.error for entries in listed.values() for entry in entries if entry.error)
    for error in errors:
        console.print(printable(error), style="red", markup=False, highlight=False)
    if not errors:
        print("\nslotbench plugins NAME shows a component's arguments, defaults and source.")
    return 0


def _record(entry: registry.Entry, described: bool = False) -> dict[str, Any]:
    """A component for programs; with its arguments and its whole source where it is described."""
    component = component_of(entry)
    fields = ("kind", "name", "summary", "paper", "causality", "distribution")
    record: dict[str, Any] = {field: one_line(getattr(component, field)) for field in fields}
    record |= {"target": one_line(entry.target), "state": entry.state, "error": printable(entry.error)}
    if not described or entry.error:
        return record
    docstring, arguments, meanings = _declared(entry)
    return record | {
        "description": printable(docstring),
        "arguments": [
            {
                "name": one_line(name),
                "type": one_line(argument.hint),
                "default": None if argument.required else one_line(argument.default),
                "meaning": one_line(" ".join(meanings.get(name, "").split())),
            }
            for name, argument in arguments.items()
        ],
    }


def table_lines(found: Mapping[str, Sequence[Component]], width: int) -> Iterator[str]:
    """A heading per kind, and under it a line per component: name, causality, paper and what it is.

    On narrow terminals what it is has a line of its own where there is a causality or a paper. The package is named
    where it is not slotbench. What has no room is cut behind a word; no line is wrapped.

    Args:
        found: the components of each kind.
        width: columns.
    """
    names = max((cell_len(one_line(row.name)) for rows in found.values() for row in rows), default=0)
    for index, (kind, rows) in enumerate(found.items()):
        yield from [""] * (index > 0)
        yield kind
        if not rows:
            yield "  none"
        facts = [(row.causality.partition(":")[0], _cut(one_line(cited(row.paper)), _MOST_OF_A_PAPER)) for row in rows]
        causality, paper = (
            (max(map(cell_len, column), default=0) for column in zip(*facts, strict=True)) if rows else (0, 0)
        )
        for row, (causal, cites) in zip(rows, facts, strict=True):
            line = f"  {one_line(row.name).ljust(names)}"
            line += f"  {causal.ljust(causality)}" if causality else ""
            line += f"  {_padded(cites, paper)}" if paper else ""
            package = "" if row.distribution == "slotbench" else f"{one_line(row.distribution)}: "
            about = one_line(f"{package}{row.summary}")
            if width < _WIDE and (causal or cites):
                yield _cut(line, max(width, 2 + names))
                yield _cut(f"      {about}", width)
            else:
                line = line if width >= _WIDE else f"  {one_line(row.name).ljust(names)}"
                yield _cut(f"{line}  {about}", max(width, 2 + names))


def component_page(entry: registry.Entry, width: int) -> Iterator[str]:
    """A page about a component: description, arguments with types and defaults, module and paper.

    Read from the source; where that does not say, the component is imported.

    Args:
        entry: the component.
        width: columns.
    """
    yield f"{one_line(entry.name)}: {registry.KINDS[entry.kind]} of {one_line(entry.distribution)}"
    yield f"  {one_line(entry.target)}"
    if entry.error:
        yield f"  {entry.state}: {printable(entry.error)}"
        return
    docstring, arguments, meanings = _declared(entry)
    papers = " ".join(_paragraph(docstring, "Source: ").removeprefix("Source: ").split())
    about = docstring.partition("\nSource: ")[0].partition("\nArgs:\n")[0].partition("\nRaises:\n")[0].strip()
    for paragraph in about.split("\n\n") if about else ():
        yield ""
        yield from _filled(paragraph, width)
    if arguments:
        yield from ("", "Arguments")
    for name, argument in arguments.items():
        typed = f": {argument.hint}" if argument.hint else ""
        default = "" if argument.required else f" = {argument.default}"
        yield from _filled(f"{name}{typed}{default}", width, "  ", "      ")
        yield from _filled(meanings.get(name, ""), width, "      ")
        if argument.fields:
            yield from _filled(", ".join(spelled({name: argument})), width, "      ")
    if papers:
        yield from ("", "Source")
        yield from _filled(papers, width, "  ")


def _declared(entry: registry.Entry) -> tuple[str, dict[str, Argument], dict[str, str]]:
    """The docstring, the constructor's arguments and what they mean."""
    arguments = arguments_from_source(entry.target)
    if arguments is not None:
        return docstring_from_source(entry.target), arguments, meanings_from_source(entry.target, arguments)
    component = registry.load(entry.kind, entry.name)
    docstring = inspect.getdoc(component) or ""
    arguments = {
        name: Argument(
            "" if given.annotation is given.empty else inspect.formatannotation(given.annotation),
            repr(given.default),
            given.default is given.empty,
        )
        for name, given in inspect.signature(component).parameters.items()
    }
    return docstring, arguments, section(docstring, "Args")


def _paragraph(docstring: str, start: str) -> str:
    return next((text for text in docstring.split("\n\n") if text.startswith(start)), "")


def _filled(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    shown = printable(" ".join(text.split()))
    return textwrap.wrap(
        shown,
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _cut(line: str, width: int) -> str:
    """A line of at most so many columns, cut behind a word."""
    line = line.rstrip()
    if cell_len(line) <= width:
        return line
    short = set_cell_size(line, width - 1)
    at = len(short) if line[len(short) : len(short) + 1].isspace() else short.rstrip().rfind(" ")
    # a word that is alone on the line is cut
    return (short[:at] if short[:at].strip() else short).rstrip(" ,;:") + "…"
