"""Whether a run that says it trains does: by its lock, by its process, or by how long nothing has been written."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotbench.locks import is_locked
from slotbench.text import one_line

__all__ = ["Standing", "standing"]

_SILENCE = 3600.0
"""Seconds without a word after which a run that cannot be asked counts as stopped. A training writes its record every
10 s; a validation, or a first epoch, takes longer."""
_WRITTEN = ("run.json", "metrics.jsonl", "checkpoints/last.ckpt")


@dataclass(frozen=True)
class Standing:
    """The state of a run.

    Attributes:
        state: as its record has it, or "killed" if that says that it trains and it does not.
        words: why it counts as stopped where that is not certain; else "".
    """

    state: str
    words: str = ""


def standing(path: Path, info: Mapping[str, Any], lock: str) -> Standing:
    """The state of a run as far as this machine can tell.

    A process on this machine is asked for by its lock, or, where there is none, by its number. A run that another
    machine has begun, and a copy without its lock, count as stopped after an hour in which nothing was written.

    Args:
        path: of the run's folder.
        info: its record.
        lock: the name of the lock in the folder.
    """
    state = str(info.get("state", "unknown"))
    if state not in ("starting", "running") or is_locked(path / lock):
        return Standing(state)
    has_lock = os.path.lexists(path / lock) and sys.platform != "win32"
    if info.get("host") == socket.gethostname() and (has_lock or not _alive(info.get("pid"))):
        return Standing("killed")
    silent = _silence(path)
    if abs(silent) <= _SILENCE:
        return Standing(state)
    host = one_line(info.get("host") or "an unknown host", 60)
    return Standing("killed", f"{state}, last row {_ago(silent)} on host {host}: presumably stopped")


def _silence(path: Path) -> float:
    """Seconds since anything of the training was written."""
    times = []
    for name in _WRITTEN:
        try:
            times.append(os.stat(path / name).st_mtime)
        except OSError:
            continue
    return time.time() - max(times, default=0.0)


def _ago(seconds: float) -> str:
    if seconds < 0:
        return "in the future"
    hours = seconds / 3600
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:,.0f} days ago"


def _alive(pid: Any) -> bool:
    if not isinstance(pid, int) or sys.platform == "win32":
        return True  # cannot tell: believe the record
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
