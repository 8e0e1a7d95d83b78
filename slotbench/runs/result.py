"""The result of a run, `result.json`: written once the run has reached its end, or has diverged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from slotbench.io import dump_json, write_atomically
from slotbench.runs.checkpoints import PREVIOUS
from slotbench.runs.folder import RESULT, RunFolder

__all__ = ["write_result"]


def write_result(folder: RunFolder) -> dict[str, Any]:
    """Writes `result.json` from the run's record and metrics, in one step, and returns its content."""
    info = folder.info
    metrics: dict[str, Any] = {}
    for row in folder.history():
        metrics |= {name: value for name, value in row.items() if name not in ("step", "epoch", "seconds")}
    kept = ("id", "name", "group", "step", "seconds", "seconds_per_step", "parameters")
    diverged = info.get("state") == "diverged"
    result = {
        **{key: info.get(key) for key in kept},
        "state": "diverged" if diverged else "finished",
        **({"diverged_at": info.get("diverged_at"), "error": info.get("error")} if diverged else {}),
        "metrics": metrics,
        "best": info.get("best", {}),
        "headlines": info.get("headlines", []),
        "finished": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    if not diverged:  # there is nothing left to resume
        (folder.checkpoints / PREVIOUS).unlink(missing_ok=True)
    write_atomically(folder.path / RESULT, dump_json(result, indent=2))
    return result
