"""`slotbench score` on arrays: one clip on each side, or what already lies in the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.cli import run

__all__ = ["means", "scored"]


def scored(folder: Path, capsys: Any, *arguments: str, **sides: np.ndarray) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what was printed with runs of blanks as one, and the record of FOLDER/masks beside FOLDER/truth.

    Args:
        folder: where the clips are, and where `sides` go.
        capsys: the fixture.
        *arguments: of the command, beside both folders.
        **sides: arrays "masks" and "truth" of a clip.
    """
    for side, values in sides.items():
        (folder / side).mkdir(parents=True, exist_ok=True)
        np.save(folder / side / "a.npy", values)
    out = folder / "out.json"
    command = ["score", str(folder / "masks"), "--truth", str(folder / "truth"), "--no-baselines", "--out", str(out)]
    code = run([*command, *arguments])
    printed = " ".join("".join(capsys.readouterr()).split())
    return code, printed, json.loads(out.read_text()) if code == 0 else {}


def means(record: dict[str, Any], part: str = "scores") -> dict[str, float]:
    """The mean of each score of a record."""
    return {name: one["mean"] for name, one in record[part].items()}
