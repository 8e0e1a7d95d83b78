"""Runs from the server of Weights & Biases, through its public interface, and the address that names them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from slotbench.comparison.records import ComparisonError, Curve, RunDetails, RunRecord, whole
from slotbench.comparison.settings import flat_settings, plain_value
from slotbench.comparison.wandb.rows import MetricRows, best_of, metrics_of
from slotbench.errors import FileError
from slotbench.records import valid_part
from slotbench.runs.wandb_compat import login_problem, login_server

__all__ = ["STATES", "WandbAddress", "parse_address", "read_wandb", "wandb_api"]

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


_RUNS_PER_PAGE = 100
_STEPS_PER_PAGE = 10_000
_TIMEOUT = 30


def read_wandb(address: str, api: Any = None) -> list[RunRecord]:
    """Runs of a project with their configuration and last values; curves are asked for when they are needed.

    Args:
        address: "entity/project", with filters as in `parse_address`.
        api: what stands for `wandb.Api()`; None logs in.

    Raises:
        ComparisonError: no key, no network, no such project, an address that is none.
    """
    where = parse_address(address)
    api = wandb_api() if api is None else api
    try:
        # newer versions leave configuration and summary out at first, and would then ask for each run's on its own
        whole = {"lazy": False} if "lazy" in inspect.signature(api.runs).parameters else {}
        found = api.runs(where.path, filters=dict(where.filters), per_page=_RUNS_PER_PAGE, **whole)
        records = [_record(run, where) for run in found]
    except Exception as error:
        raise _explained(error, where) from error
    return [record for record in records if _has(record, where.settings)]


def wandb_api() -> Any:
    """`wandb.Api()`, without its question on the terminal.

    Raises:
        ComparisonError: no key that it would take, no network.
    """
    try:
        import wandb
    except ImportError as error:
        raise ComparisonError(f"reading from W&B needs wandb: {error}; type `pip install wandb`") from error
    if (problem := login_problem()) is not None:
        raise ComparisonError(
            f"{problem}; type `wandb login` or set WANDB_API_KEY, or read what is on this machine: wandb-offline:DIR"
        )
    try:
        return wandb.Api(timeout=_TIMEOUT)
    except Exception as error:
        raise ComparisonError(f"cannot log in to W&B at {login_server()}: {_first_line(error)}") from error


def _record(run: Any, where: WandbAddress) -> RunRecord:
    summary = run.summary_metrics
    info = {
        "group": run.group,
        "project": where.project,
        "job_type": run.job_type,
        "tags": list(run.tags or ()),
        "created": run.created_at,
        "parameters": summary.get("parameters"),
        "step": whole(summary.get("trainer/global_step", summary.get("_step"))),
    }
    try:
        settings = flat_settings(run.config)
    except FileError as error:
        settings, info["problem"] = {}, f"has no settings: its configuration {error}"
    return RunRecord(
        id=run.id,
        name=run.name or run.id,
        source=run.url,
        state=STATES.get(run.state, "unknown"),
        settings=settings,
        summary=metrics_of(summary),
        best=best_of(summary),
        info=valid_part({key: value for key, value in info.items() if value not in (None, "", [])}, RunDetails),
        curves=partial(_curves, run, where),
    )


def _curves(run: Any, where: WandbAddress, limit: int) -> dict[str, Curve]:
    # Not sampled by the server: it samples rows, and validation's, which are few, would be lost among training's. By
    # many steps at a time: it pages by steps, and only every so many of them have a row.
    rows = MetricRows()
    try:
        for row in run.scan_history(page_size=_STEPS_PER_PAGE):
            rows.add(row)
    except Exception as error:
        raise _explained(error, where) from error
    return rows.curves(limit)


def _has(record: RunRecord, settings: Mapping[str, list[str]]) -> bool:
    return all(plain_value(record.settings.get(key)) in values for key, values in settings.items())


def _explained(error: Exception, where: WandbAddress) -> ComparisonError:
    """What a person can do about it; the library raises one class for nearly everything."""
    reason = _first_line(error)
    lower = reason.lower()
    if "could not find" in lower or "not found" in lower or "404" in lower:
        return ComparisonError(
            f"W&B has no project {where.path}, or does not show it to this key ({reason}); "
            f"its page would be https://wandb.ai/{where.path}"
        )
    if "permission" in lower or "401" in lower or "403" in lower or "api key" in lower:
        return ComparisonError(f"W&B does not let this key read {where.path}: {reason}; type `wandb login --relogin`")
    return ComparisonError(
        f"cannot read {where.path} from W&B: {reason}; is there a network? What is on this machine can be read with "
        "wandb-offline:DIR"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
