"""Links and named pipes in the place of what a run or a grid has written, as in a folder that may not be trusted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["put_in_place_of"]


def put_in_place_of(path: Path, what: Path | None) -> None:
    """Replaces a file or a folder by a link to `what`, or by a named pipe."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if what is None:
        os.mkfifo(path)
    else:
        path.symlink_to(what)
