"""A trained task by the name of a model that comes with slotbench, by a folder, or by an address on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.models.hub import SCHEME, pull
from slotbench.models.shipped import shipped
from slotbench.runs.folder import RECORD
from slotbench.tasks.saving.model_folder import is_model_folder, read_model

if TYPE_CHECKING:
    from slotbench.tasks.task import Task

__all__ = ["from_pretrained"]


def from_pretrained(source: str | Path, features: str | Path | None = None) -> Task:
    """The task of an exported model, with its weights, on the CPU and in evaluation mode; see `read_model`.

    Args:
        source: the name of a model that comes with slotbench, a folder that `slotbench export` wrote, or
            "hf://USER/REPO", with "@REVISION" if it is not the newest.
        features: where the weights lie of the frozen network whose features the model reads, if it names one.
    """
    if isinstance(source, str) and source.startswith(SCHEME):
        return read_model(pull(source), features)
    known, path = shipped(), Path(source).expanduser()
    if str(source) in known:
        return read_model(known[str(source)], features)
    if not path.is_dir():
        headline = f"no model named {source}, and no such folder{did_you_mean(str(source), known)}"
        expected = f"one of them, a folder that slotbench export wrote, or {SCHEME}USER/REPO"
        raise UserError(lines(headline, models=listing(known), expected=expected))
    if (path / RECORD).is_file() and not is_model_folder(path):
        expected = f"slotbench.load_run({str(path)!r}), or first slotbench export {path} --out FOLDER"
        raise UserError(lines(f"{path} is a run folder, and no exported model", expected=expected))
    return read_model(path, features)
