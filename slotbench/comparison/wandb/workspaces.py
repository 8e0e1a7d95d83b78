"""A comparison as a report, or as a saved workspace, of Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slotbench.comparison.formats.text_formats import to_markdown
from slotbench.comparison.records import Comparison, ComparisonError, RunRecord
from slotbench.comparison.wandb.online import WandbAddress, parse_address
from slotbench.runs.wandb_compat import login_problem

__all__ = ["build_report", "build_workspace", "config_key", "make_report", "make_workspace"]

_TITLE_LENGTH = 128
_COLUMNS, _PANEL_WIDTH, _PANEL_HEIGHT = 3, 8, 6


def make_report(comparison: Comparison, address: str) -> str:
    """Makes a W&B report and returns its address: the table, curves and bars of every metric, one line per row.

    The curves are drawn by W&B from its own runs, those of the comparison's group, or else exactly those compared; they
    are grouped as the rows are.

    Args:
        comparison: of runs that are in the project: read from there, or mirrored there and synced.
        address: "entity/project".

    Raises:
        ComparisonError: no key, no wandb-workspaces, no such project, or no run that W&B knows.
    """
    return _saved(lambda where: build_report(comparison, where), address)


def make_workspace(comparison: Comparison, address: str) -> str:
    """The comparison's curves and bars as a saved view of the project's workspace; returns its address.

    Args:
        comparison: as for `make_report`.
        address: "entity/project".

    Raises:
        ComparisonError: as for `make_report`.
    """
    return _saved(lambda where: build_workspace(comparison, where), address)


def build_report(comparison: Comparison, where: WandbAddress) -> Any:
    """The report, not saved: a `wandb_workspaces.reports.v2.Report`.

    Raises:
        ComparisonError: no run that W&B knows.
    """
    import wandb_workspaces.reports.v2 as reports

    runs = reports.Runset(
        entity=where.entity,
        project=where.project,
        name=comparison.title or "compared",
        filters=_filter(comparison.runs),
        groupby=[f"config.{config_key(key, comparison.runs)}" for key in comparison.keys],
    )
    grid = reports.PanelGrid(runsets=[runs], panels=_panels(comparison))
    return reports.Report(
        entity=where.entity,
        project=where.project,
        title=(comparison.title or "Comparison")[:_TITLE_LENGTH],
        description=comparison.command,
        width="fluid",
        blocks=[reports.MarkdownBlock(text=to_markdown(comparison)), grid],
    )


def build_workspace(comparison: Comparison, where: WandbAddress) -> Any:
    """The workspace, not saved: a `wandb_workspaces.workspaces.Workspace`.

    Raises:
        ComparisonError: no run that W&B knows.
    """
    import wandb_workspaces.workspaces as workspaces

    keys = [config_key(key, comparison.runs) for key in comparison.keys]
    return workspaces.Workspace(
        entity=where.entity,
        project=where.project,
        name=comparison.title or "Comparison",
        sections=[workspaces.Section(name="Compared", panels=_panels(comparison), is_open=True)],
        runset_settings=workspaces.RunsetSettings(
            filters=_filter(comparison.runs), groupby=[workspaces.Config(key) for key in keys]
        ),
    )


def config_key(key: str, runs: Sequence[RunRecord]) -> str:
    """Where a setting is in the configuration that W&B has: "model.core.dim" is "model.init_args.core.init_args.dim".

    Args:
        key: the setting, as typed on the command line.
        runs: runs that have it.
    """
    known = [run.settings for run in runs]
    parts, path = key.split("."), ""
    for index, part in enumerate(parts):
        path += f".{part}" if path else part
        here = ".".join(parts[: index + 1])
        if _is_component(here, known):
            path += ".class_path" if here == key else ".init_args"
    return path


def _is_component(key: str, known: Sequence[Mapping[str, Any]]) -> bool:
    values = [settings[key] for settings in known if isinstance(settings.get(key), str)]
    has_arguments = any(other.startswith(f"{key}.") for settings in known for other in settings)
    # a class without arguments is told by its capital letter
    return bool(values) and (has_arguments or all(value.rpartition(".")[2][:1].isupper() for value in values))


def _panels(comparison: Comparison) -> list[Any]:
    """A curve and a bar for every metric, side by side."""
    import wandb_workspaces.reports.v2 as reports

    # how the seeds of a row become one line; W&B shows ten lines unless told otherwise
    rows: dict[str, Any] = {
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
        "max_runs_to_show": max(10, len(comparison.rows)),
    }
    kinds: list[Any] = [
        *(reports.LinePlot(title=metric.label, x="Step", y=[metric.logged], **rows) for metric in comparison.metrics),
        *(reports.BarPlot(title=metric.label, metrics=[metric.logged], **rows) for metric in comparison.metrics),
    ]
    for index, panel in enumerate(kinds):
        row, column = divmod(index, _COLUMNS)
        panel.layout = reports.Layout(x=column * _PANEL_WIDTH, y=row * _PANEL_HEIGHT, w=_PANEL_WIDTH, h=_PANEL_HEIGHT)
    return kinds


def _filter(runs: Sequence[RunRecord]) -> Any:
    """What picks these runs out of the project: their group, if they are of one, else their ids."""
    from wandb_workspaces import expr

    ids = [wandb_id for run in runs if (wandb_id := _wandb_id(run))]
    if not ids:
        raise ComparisonError(
            "W&B knows none of these runs: none was mirrored there; `slotbench fit ... --wandb online` does it as they "
            "train, --wandb offline and `wandb sync` afterwards"
        )
    groups = {run.info.get("group") for run in runs}
    if len(groups) == 1 and (group := groups.pop()):
        return expr.And(expr.Metric("Group") == str(group))
    return expr.And(expr.Metric("ID").isin(ids))


def _wandb_id(run: RunRecord) -> str | None:
    """The id that W&B knows a run by: kept in its folder, or the record's own where W&B is what was read."""
    if wandb_id := run.info.get("wandb_id"):
        return str(wandb_id)
    return run.id if "project" in run.info else None


def _saved(build: Callable[[WandbAddress], Any], address: str) -> str:
    where = parse_address(address)
    try:
        import wandb_workspaces  # noqa: F401  is it there?
    except ImportError as error:
        raise ComparisonError(
            "a W&B report needs wandb-workspaces; type `pip install 'slotbench[wandb-report]'`"
        ) from error
    if (problem := login_problem()) is not None:
        raise ComparisonError(f"no W&B report: {problem}; type `wandb login` or set WANDB_API_KEY")
    try:
        return str(build(where).save().url)
    except ComparisonError:
        raise
    except Exception as error:
        # the libraries below raise whatever they like
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ComparisonError(f"W&B did not take the report for {where.path}: {reason}") from error
