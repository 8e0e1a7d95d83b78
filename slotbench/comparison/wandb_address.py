"""What is typed to name runs of Weights & Biases: a project, and which of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from slotbench.comparison.records import ComparisonError

__all__ = ["STATES", "WandbAddress", "parse_address"]

# the server's words -> ours
STATES = {
    "finished": "finished",
    "running": "running",
    "pending": "running",
    "preempting": "running",
    "preempted": "interrupted",
    "killed": "interrupted",  # stopped by a person, on the page
    "failed": "failed",
    "crashed": "killed",  # it has not been heard of for minutes
}

# a filter -> the server's name for it
_FILTERS = {
    "group": "group",
    "state": "state",
    "tag": "tags",
    "name": "display_name",
    "id": "name",
    "job_type": "jobType",
    "user": "username",
    "sweep": "sweep",
}
_EXAMPLE = "wandb:ENTITY/PROJECT, or some of its runs: 'wandb:ENTITY/PROJECT?group=GRID&state=finished'"


@dataclass(frozen=True)
class WandbAddress:
    """A project and filters.

    Attributes:
        entity: user or team.
        project: its project.
        filters: for the server, in the words of its query language.
        settings: values, as typed, of settings that a run must have; each a list of alternatives.
    """

    entity: str
    project: str
    filters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """As the server wants it."""
        return f"{self.entity}/{self.project}"


def parse_address(address: str) -> WandbAddress:
    """Takes "entity/project?filter=value&..." apart; the address of a project's page is taken too.

    Filters are group, state, tag, name, id, job_type, user, sweep, and any setting by its full key, such as
    model.core=SlotSSM. A filter given twice takes either value.

    Raises:
        ComparisonError: no project, or an unknown filter.
    """
    parts = urlsplit(address)
    names = [name for name in parts.path.split("/") if name]
    if parts.scheme in ("http", "https"):
        names = names[:2]
    if len(names) != 2:
        raise ComparisonError(f"{address!r} is no project of W&B; expected {_EXAMPLE}")
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    filters, settings = {}, {}
    for name, values in given.items():
        if name == "state":
            filters["state"] = {"$in": _server_states(values)}
        elif name in _FILTERS:
            filters[_FILTERS[name]] = {"$in": values}
        elif "." in name or name in ("data", "model", "seed_everything"):
            settings[name] = values
        else:
            known = ", ".join(_FILTERS)
            raise ComparisonError(
                f"no filter {name!r} for W&B runs; expected {known}, or a setting by its full key, such as model.core"
            )
    return WandbAddress(names[0], names[1], filters, settings)


def _server_states(values: list[str]) -> list[str]:
    """The server's words for states of ours or of its own."""
    found: list[str] = []
    for value in values:
        # "killed" means one thing here and another there: our word counts, as in the table that comes of it
        words = [theirs for theirs, ours in STATES.items() if ours == value] or [value] * (value in STATES)
        if not words:
            raise ComparisonError(f"no run is {value!r}; expected {', '.join(dict.fromkeys(STATES.values()))}")
        found += words
    return list(dict.fromkeys(found))
