"""Runs of a project of Weights & Biases, through its public interface."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pandas as pd

from slotbench.comparison.runs import ComparisonError, Run
from slotbench.comparison.settings import flat_settings
from slotbench.io import numbers
from slotbench.runs.wandb_compat import login_problem, login_server

__all__ = ["parse_address", "read_wandb"]

# the server's words -> ours; "crashed" has not been heard of for minutes, "killed" was stopped by a person
_STATES = {"finished": "finished", "running": "running", "pending": "running", "preempting": "running"} | {
    "preempted": "interrupted",
    "killed": "interrupted",
    "failed": "failed",
    "crashed": "killed",
}
# a filter -> the server's name for it
_FILTERS = {"group": "group", "state": "state", "tag": "tags", "name": "display_name", "id": "name"} | {
    "job_type": "jobType",
    "user": "username",
    "sweep": "sweep",
}
_STEP = "trainer/global_step"
_PAGE, _TIMEOUT = 10_000, 30


def parse_address(address: str) -> tuple[str, dict[str, Any], dict[str, list[str]]]:
    """Takes "entity/project?filter=value&..." apart; the address of a project's page is taken too.

    Returns:
        "entity/project", filters for the server, and values that settings must have. A filter given twice takes either.

    Raises:
        ComparisonError: no project, or an unknown filter.
    """
    parts = urlsplit(address)
    names = [name for name in parts.path.split("/") if name][: 2 if parts.scheme else None]
    if len(names) != 2:
        raise ComparisonError(
            f"{address!r} is no project of W&B; expected wandb:ENTITY/PROJECT, or some of its runs: "
            "'wandb:ENTITY/PROJECT?group=GRID&state=finished'"
        )
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        given.setdefault(name, []).append(value)
    filters, settings = {}, {}
    for name, values in given.items():
        if name == "state":
            # "killed" means one thing here and another there: our word counts, as in the table
            theirs = [word for value in values for word, ours in _STATES.items() if ours == value]
            if not theirs:
                raise ComparisonError(f"no run is {values[0]!r}; expected {', '.join(dict.fromkeys(_STATES.values()))}")
            filters["state"] = {"$in": theirs}
        elif name in _FILTERS:
            filters[_FILTERS[name]] = {"$in": values}
        elif "." in name or name in ("data", "model", "seed_everything"):
            settings[name] = values
        else:
            known = ", ".join(_FILTERS)
            raise ComparisonError(
                f"no filter {name!r} for W&B runs; expected {known}, or a setting by its full key, such as model.core"
            )
    return "/".join(names), filters, settings


def read_wandb(address: str, api: Any = None) -> list[Run]:
    """Runs of a project with their configuration and last values; curves are asked for when they are needed.

    Args:
        address: "entity/project", with filters.
        api: what stands for `wandb.Api()`; None logs in.

    Raises:
        ComparisonError: no key, no network, no such project, an address that is none.
    """
    path, filters, settings = parse_address(address)
    api = _api() if api is None else api
    try:
        # not lazy: configuration and summary would be asked for run by run
        runs = [_run(run) for run in api.runs(path, filters=filters, per_page=100, lazy=False)]
    except Exception as error:  # the library raises one class for nearly everything
        raise ComparisonError(f"cannot read {path} from W&B: {_first_line(error)}; https://wandb.ai/{path}") from error
    return [run for run in runs if all(run.settings.get(key) in values for key, values in settings.items())]


def _api() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ComparisonError(f"reading from W&B needs wandb: {error}; type `pip install wandb`") from error
    if (problem := login_problem()) is not None:  # before the library asks on the terminal
        raise ComparisonError(f"{problem}; type `wandb login` or set WANDB_API_KEY")
    try:
        return wandb.Api(timeout=_TIMEOUT)
    except Exception as error:
        raise ComparisonError(f"cannot log in to W&B at {login_server()}: {_first_line(error)}") from error


def _run(run: Any) -> Run:
    summary = dict(run.summary_metrics)
    facts = {"name": run.name or run.id, "source": run.url, "state": _STATES.get(run.state, "unknown")}
    facts |= {"group": run.group, "created": run.created_at, "step": summary.get(_STEP, summary.get("_step"))}
    parameters = summary.get("parameters")
    facts["parameters"] = (
        parameters.get("total") if isinstance(parameters, Mapping) else summary.get("parameters.total")
    )
    return Run(run.id, facts, flat_settings(run.config), _metrics(summary), curves=partial(_curves, run))


def _metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that were logged as metrics, none of W&B's own; of one with a best value beside it the last."""
    last = {name: value.get("last") if isinstance(value, Mapping) else value for name, value in row.items()}
    no_metrics = ("_", "parameters", "epoch", "seconds", _STEP)
    return {name: value for name, value in numbers(last).items() if not name.startswith(no_metrics)}


def _curves(run: Any) -> pd.DataFrame:
    # not sampled by the server: validation's rows, which are few, would be lost among training's
    try:
        rows = list(run.scan_history(page_size=_PAGE))
    except Exception as error:
        raise ComparisonError(f"cannot read {run.url}: {_first_line(error)}") from error
    return pd.DataFrame([{"step": row.get(_STEP, row.get("_step")), **_metrics(row)} for row in rows])


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
