"""`slotbench plugins [KIND]`: the table of components."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench import registry
from slotbench.commands.options import split_options
from slotbench.errors import UserError
from slotbench.text import one_line, printable

__all__ = ["main", "table_of"]

_USAGE = f"""Usage: slotbench plugins [KIND ...] [--plugin FILE]

Lists the components that a configuration can name, without importing them. KIND: {", ".join(registry.KINDS)}."""
_COLOURS = {"available": "", "loaded": "green", "broken": "red", "duplicate": "red"}


def main(command: str, arguments: list[str]) -> int:
    """Prints the table."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    options, kinds = split_options(arguments)
    if unknown := [kind for kind in kinds if kind.startswith("-")]:
        raise UserError(f"plugins has no argument {unknown[0]}\n{_USAGE}")
    plural = {singular: kind for kind, singular in registry.KINDS.items()}
    for file in options.plugin:
        registry.load_file(file)
    found = [entry for kind in kinds or registry.KINDS for entry in registry.entries(plural.get(kind, kind))]
    console = Console()
    console.print(table_of(found))
    for error in dict.fromkeys(entry.error for entry in found if entry.error):
        console.print(printable(error), style="red", markup=False, highlight=False)
    return 0


def table_of(found: list[registry.Entry]) -> Table:
    """The table of `slotbench plugins`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "kind", "what it is", "distribution", "state"):
        table.add_column(heading, no_wrap=heading in ("name", "kind", "state"))
    for entry in found:
        colour = _COLOURS[entry.state]
        words = (entry.name, registry.KINDS[entry.kind], entry.summary, entry.distribution)
        table.add_row(*(Text(one_line(word)) for word in words), Text(entry.state, style=colour))
    return table
