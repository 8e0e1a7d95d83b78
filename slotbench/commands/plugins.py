"""`slotbench plugins [KIND ...] [NAME ...]`: the table of components, and a page about each that is named."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from slotbench import registry
from slotbench.commands.arguments import split_and_load
from slotbench.errors import UserError, did_you_mean
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

USAGE = f"""Usage: slotbench plugins [KIND ...] [NAME ...] [--plugin FILE]

Lists the components that a configuration can name, without importing them; of one that is named, what it is, its
arguments with types and defaults, its module and its source. KIND: {", ".join(registry.KINDS)}."""
_MOST_COLUMNS = 120


def main(command: str, arguments: list[str]) -> int:
    """Prints the table, or the pages."""
    _, words = split_and_load(arguments)
    if unknown := [word for word in words if word.startswith("-")]:
        raise UserError(f"plugins has no argument {unknown[0]}\n{USAGE}")
    plural = {singular: kind for kind, singular in registry.KINDS.items()}
    kinds = [plural.get(word, word) for word in words if plural.get(word, word) in registry.KINDS]
    names = [word for word in words if plural.get(word, word) not in registry.KINDS]
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    for name in names:
        if not registry.kinds_of(name) and did_you_mean(name, [*registry.KINDS, *plural]):
            registry.entries(name)  # a misspelt kind: the registry says which is near
        for kind in registry.kinds_of(name) or [registry.kind_of(name)]:
            for entry in (entry for entry in registry.entries(kind) if entry.name == name):
                print("\n".join(component_page(entry, width)), end="\n\n")
    if names and not kinds:
        return 0
    found = {kind: registry.entries(kind) for kind in kinds or registry.KINDS}
    print("\n".join(table_lines(found, width)))
    console = Console()
    errors = dict.fromkeys(entry.error for entries in found.values() for entry in entries if entry.error)
    for error in errors:
        console.print(printable(error), style="red", markup=False, highlight=False)
    if not errors:
        print("\nslotbench plugins NAME shows a component's arguments, defaults and source.")
    return 0


def table_lines(found: dict[str, list[registry.Entry]], width: int) -> Iterator[str]:
    """One line per component, cut to the width, under a heading per kind; no line is wrapped.

    Args:
        found: the components of each kind.
        width: columns.
    """
    rows = [entry for entries in found.values() for entry in entries]
    names = max((cell_len(one_line(entry.name)) for entry in rows), default=0)
    origins = min(max((cell_len(one_line(entry.distribution)) for entry in rows), default=0), 24)
    for index, (kind, entries) in enumerate(found.items()):
        yield from [""] * (index > 0)
        yield kind
        if not entries:
            yield "  none"
        for entry in entries:
            name = one_line(entry.name).ljust(names)
            origin = set_cell_size(one_line(entry.distribution), origins)
            about = entry.summary if entry.state in ("available", "loaded") else f"{entry.state}: {entry.error}"
            yield _cut(f"  {name}  {origin}  {one_line(about)}", max(width, 2 + names))


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


def _cut(line: str, width: int) -> str:
    line = line.rstrip()
    return line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"
