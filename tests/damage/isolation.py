"""Reads of damaged files in a process of their own, with limits of memory and time."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from damages import Damage
from kinds import Kind

from slotbench.errors import FileError, UserError
from slotbench.registry import RegistryError

SECONDS = 20.0
MEMORY = 3 << 30
LONGEST = 8000

Outcome = tuple[str, str]
"""How a read ended ("same", "other", "refused", "failed", "hung", "died"), and words about it."""


def outcomes(
    good: Path,
    name: str,
    kind: Kind,
    expected: Any,
    damaged: Sequence[tuple[str, Damage, Any]],
    scratch: Path,
) -> list[Outcome]:
    """Damages copies of the folder `good` at the file `name`, and reads each.

    One forked process reads them one after the other; where it hangs or dies another continues with the next.
    """
    found: list[Outcome] = []
    while len(found) < len(damaged):
        found += _some(good, name, kind, expected, damaged[len(found) :], scratch, len(found))
    return found


def _some(good: Path, name: str, kind: Kind, expected: Any, damaged: Any, scratch: Path, first: int) -> list[Outcome]:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receive)
            _read_all(good, name, kind, expected, damaged, scratch, first, send)
        finally:
            os._exit(0)
    os.close(send)
    found: list[Outcome] = []
    pending = b""
    deadline = time.monotonic() + SECONDS
    try:
        while len(found) < len(damaged):
            ready, _, _ = select.select([receive], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                found.append(("hung", f"no end after {SECONDS:.0f} s"))
                break
            block = os.read(receive, 1 << 16)
            if not block:
                break
            pending += block
            while b"\n" in pending:
                line, _, pending = pending.partition(b"\n")
                found.append(tuple(json.loads(line)))
                deadline = time.monotonic() + SECONDS
    finally:
        os.close(receive)
        _, status = os.waitpid(child, 0)
    if len(found) < len(damaged) and not (found and found[-1][0] == "hung"):
        found.append(("died", f"wait status {status}"))
    return found


def _read_all(
    good: Path, name: str, kind: Kind, expected: Any, damaged: Any, scratch: Path, first: int, send: int
) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    for number, (_, damage, rng) in enumerate(damaged, start=first):
        place = scratch / str(number)
        shutil.copytree(good, place, symlinks=True)
        damage(place / name, rng)
        outcome = _outcome(kind, place, expected)
        os.write(send, json.dumps(outcome).encode() + b"\n")
        with contextlib.suppress(OSError):
            shutil.rmtree(place)


def read(kind: Kind, place: Path) -> Any:
    """What is read in a folder, wherever that is."""
    result = kind.read(place)
    return result.replace(str(place), "FOLDER") if isinstance(result, str) else result


def _outcome(kind: Kind, place: Path, expected: Any) -> Outcome:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            result = read(kind, place)
    except (FileError, UserError, RegistryError) as error:
        words = str(error)
        if not words.strip() or "Traceback" in words or len(words) > LONGEST:
            return "failed", f"its words are no sentence: {words[:500]!r}"
        if kind.named and str(place) not in words:
            return "failed", f"its words do not name the file: {words[:500]!r}"
        return "refused", words[:300]
    except BaseException as error:
        return "failed", "".join(traceback.format_exception(error))[
            -1200:
        ] + f"\n{type(error).__name__}: {str(error)[-300:]}"
    return ("same" if result == expected else "other"), repr(result)[:300]
