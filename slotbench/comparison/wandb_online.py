"""Runs from the server of Weights & Biases, through its public interface."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from slotbench.comparison.checked_record import checked_record
from slotbench.comparison.flat_settings import flat_settings
from slotbench.comparison.keys import plain_value
from slotbench.comparison.records import ComparisonError, Curve, RunRecord
from slotbench.comparison.wandb_address import STATES, WandbAddress, parse_address
from slotbench.comparison.wandb_rows import MetricRows, metrics_of
from slotbench.errors import FileError
from slotbench.runs.wandb_login import wandb_login_state

__all__ = ["read_wandb", "wandb_api"]

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
    if not (state := wandb_login_state()).ready:
        raise ComparisonError(
            f"{state.problem}; type `wandb login` or set WANDB_API_KEY, or read what is on this machine: "
            "wandb-offline:DIR"
        )
    try:
        import wandb
    except ImportError as error:
        raise ComparisonError(f"reading from W&B needs wandb: {error}; type `pip install wandb`") from error
    try:
        return wandb.Api(timeout=_TIMEOUT)
    except Exception as error:
        raise ComparisonError(f"cannot log in to W&B at {state.server}: {_first_line(error)}") from error


def _record(run: Any, where: WandbAddress) -> RunRecord:
    summary = run.summary_metrics
    info = {
        "group": run.group,
        "project": where.project,
        "job_type": run.job_type,
        "tags": list(run.tags or ()),
        "created": run.created_at,
        "step": summary.get("trainer/global_step", summary.get("_step")),
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
        info=checked_record({key: value for key, value in info.items() if value not in (None, "", [])}),
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
    said = _first_line(error)
    lower = said.lower()
    if "could not find" in lower or "not found" in lower or "404" in lower:
        return ComparisonError(
            f"W&B has no project {where.path}, or does not show it to this key ({said}); "
            f"its page would be https://wandb.ai/{where.path}"
        )
    if "permission" in lower or "401" in lower or "403" in lower or "api key" in lower:
        return ComparisonError(f"W&B does not let this key read {where.path}: {said}; type `wandb login --relogin`")
    return ComparisonError(
        f"cannot read {where.path} from W&B: {said}; is there a network? What is on this machine can be read with "
        "wandb-offline:DIR"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
