"""Components from Python: a table of those of a kind, their names as names of a module, and their arguments checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slotbench import registry
from slotbench.errors import did_you_mean
from slotbench.sources import docstring_from_source, first_sentence, takes_argument

__all__ = ["Component", "Components", "check_arguments", "cited", "component_of", "components", "names_of"]

_CITED = re.compile(r'([^"]*), "[^"]+"(?: \([^)]*\))?,? \(?([^()]+)\)?')
_NAME = r"(?:(?:van|den|der|de) )*[A-Z][\w-]*"
_AUTHORS = re.compile(rf"{_NAME}(?:(?:,| and|) {_NAME})*(?: et al\.)?$")


@dataclass(frozen=True)
class Component:
    """A component that is installed.

    `summary` is the first sentence of its docstring, `paper` what it is from, up to the year, and `causality` of a core
    "causal", or "causal, or not: causal=False" where an argument says.
    """

    name: str
    kind: str
    summary: str
    paper: str
    causality: str
    distribution: str


class Components(list[Component]):
    """A list of components that prints as a table: of cores their papers, of other kinds what they are."""

    def __repr__(self) -> str:
        shown = [[row.name, row.causality, (row.causality and row.paper) or row.summary] for row in self]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True) if width).rstrip()
            for row in shown
        )


def components(kind: str) -> Components:
    """Every component of a kind ("cores", or "core"), in alphabetical order; none is imported."""
    plural = {singular: kinds for kinds, singular in registry.KINDS.items()}
    kind = plural.get(kind, kind)
    registry.check_kind(kind, "models")  # which `slotbench.list` takes, too
    return Components(component_of(entry) for entry in registry.entries(kind))


def component_of(entry: registry.Entry) -> Component:
    """A component, as its source describes it."""
    broken = entry.state not in ("available", "loaded")
    docstring = "" if broken else docstring_from_source(entry.target)
    causality = ""
    if entry.kind == "cores" and not broken:
        causality = "causal"
        if takes_argument(entry.target, "causal"):
            causality += ", or not: causal=False"
    summary = f"{entry.state}: {entry.error}" if broken else entry.summary
    return Component(entry.name, entry.kind, summary, _paper(docstring), causality, entry.distribution)


def _paper(docstring: str) -> str:
    """The first paper of the paragraph "Source: ...", up to its year."""
    source = next((text for text in docstring.split("\n\n") if text.startswith("Source: ")), "")
    text = " ".join(source.removeprefix("Source: ").split())
    dated = re.match(r".*?\b(19|20)\d\d\b\)?", text)
    return dated[0] if dated else first_sentence(text)


def cited(paper: str) -> str:
    """A paper in a few words: its authors, and where it appeared.

    Example:
        >>> cited('Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024')
        'Jiang et al., NeurIPS 2024'
        >>> cited("SlotSSM, section 7.1; ball count and sizes are those of the R-NEM data.")
        'SlotSSM, section 7.1'
    """
    paper = paper.partition("; ")[0].rstrip(".")
    found = _CITED.fullmatch(paper)
    if found is None or (authors := _AUTHORS.search(found[1])) is None:
        return paper
    names = re.split(r", | and ", authors[0].removesuffix(" et al."))
    several = len(names) > 2 or authors[0].endswith(" et al.")
    return f"{f'{names[0]} et al.' if several else ' and '.join(names)}, {found[2]}"


def names_of(kind: str, *, refuse: bool = True) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module whose names are the components of a kind.

    With `refuse`, a name that looks like a component's and is none is answered by what is near, and not by an
    `AttributeError`; not for modules that are asked whether they have a name.
    """

    def get(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in registry.names(kind) or (refuse and name[:1].isupper()):
            return registry.load(kind, name)
        raise AttributeError(f"no {registry.KINDS[kind]} named {name}; slotbench.list({kind!r}) names all of them")

    return get, lambda: registry.names(kind)


def check_arguments(component: type, arguments: Mapping[str, Any]) -> None:
    """Refuses arguments that a component does not take, by a `TypeError`."""
    known = inspect.signature(component).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    if not takes_all and (unknown := [given for given in arguments if given not in known]):
        near = did_you_mean(unknown[0], known)
        raise TypeError(f"{component.__name__} has no argument {unknown[0]}{near or ';'} arguments: {', '.join(known)}")
