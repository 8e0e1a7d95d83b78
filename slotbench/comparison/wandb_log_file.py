"""The log that wandb writes on this machine, `run-<id>.wandb`, read without a server.

`wandb leet inspect --json` is the way that wandb supports. Versions of wandb that do not have it get the file read
directly: records of wandb's protocol in blocks of 32 KiB, as LevelDB frames its log. Both stop at a torn end.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from slotbench.comparison.records import ComparisonError
from slotbench.files import open_regular, read_bytes

__all__ = ["Record", "UnreadableLogError", "has_inspector", "read_directly", "read_log", "read_with_wandb"]

Record = tuple[str, dict[str, Any]]
"""The kind, "run", "config", "summary", "history" or "exit", and what the record says."""

_KINDS = ("run", "config", "summary", "history", "exit")
_MAGIC = b":W&B"
_HEADER, _BLOCK = 7, 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LARGEST = 1 << 30


class UnreadableLogError(ComparisonError):
    """A file is no log of wandb's, or its beginning is broken."""


def read_log(path: Path) -> Iterator[Record]:
    """Every record that a comparison can use, in the order in which they were written.

    Raises:
        UnreadableLogError: the file is no log.
        ComparisonError: wandb is not installed.
    """
    with open_regular(path) as file:
        begins = file.read(len(_MAGIC))
    if not _MAGIC.startswith(begins):
        raise UnreadableLogError(f"{path} is no log of wandb's: it does not begin with {_MAGIC.decode()}")
    if len(begins) < len(_MAGIC):
        return iter(())  # nothing has been written yet
    return read_with_wandb(path) if has_inspector() else read_directly(path)


def read_with_wandb(path: Path) -> Iterator[Record]:
    """`read_log` by wandb's own command."""
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "wandb", "leet", "inspect", "--json", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env=_quiet(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            # other kinds are many and long: the machine's load, the terminal's text
            if not any(f'"type":"{kind}"' in line[:40] for kind in _KINDS):
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            yield record["type"], _content(record["type"], record.get(record["type"]) or {})
        said = process.stderr.read().strip()
    if process.returncode != 0:
        raise UnreadableLogError(
            f"wandb cannot read {path}: {said.splitlines()[-1] if said else 'it does not say why'}"
        )


def read_directly(path: Path) -> Iterator[Record]:
    """`read_log` without wandb's command: its protocol only."""
    try:
        protocol: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    except ImportError as error:
        raise ComparisonError(f"reading {path} needs wandb: {error}; type `pip install wandb`") from error
    from google.protobuf.message import DecodeError

    for chunk in _chunks(path):
        try:
            record = protocol.Record.FromString(chunk)
        except DecodeError:
            return
        kind = record.WhichOneof("record_type")
        if kind not in _KINDS:
            continue
        part = getattr(record, kind)
        if kind in ("history", "summary"):
            items = part.item if kind == "history" else part.update
            yield kind, {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
        elif kind == "exit":
            yield kind, {"exit_code": part.exit_code}
        elif kind == "config":
            yield kind, _config(part)
        else:
            yield kind, _run(part)


@cache
def has_inspector() -> bool:
    """Whether the installed wandb can print its logs; asked once, takes a second or two."""
    command = [sys.executable, "-P", "-m", "wandb", "leet", "inspect", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=_quiet())
    return done.returncode == 0 and "--json" in done.stdout


def _quiet() -> dict[str, str]:
    # wandb's tools report errors and use to their maker unless they are told that there is no network
    return {**os.environ, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}


def _content(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a printed record says, without its shell."""
    if kind == "history":
        return dict(given.get("item") or {})
    if kind in ("summary", "config"):
        return dict(given.get("update") or {})
    if kind == "exit":
        return {"exit_code": given.get("exit_code", 0)}
    config = (given.get("config") or {}).get("update") or {}
    return {**given, "config": config}


def _run(part: Any) -> dict[str, Any]:
    names = ("run_id", "display_name", "run_group", "job_type", "project", "entity")
    return {
        **{name: getattr(part, name) for name in names if getattr(part, name)},
        "tags": list(part.tags),
        "start_time": part.start_time.ToJsonString(),
        "config": _config(part.config),
    }


def _config(part: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in part.update}


def _chunks(path: Path) -> Iterator[bytes]:
    """The records' bytes; what does not fit in a block comes in pieces."""
    data = read_bytes(path, _LARGEST)
    position, pieces = _HEADER, b""
    while position + _HEADER <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            # too little for a header: padding
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += _HEADER
        piece = data[position : position + length]
        position += length
        if len(piece) < length or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            return
        pieces = piece if kind in (_WHOLE, _FIRST) else pieces + piece
        if kind in (_WHOLE, _LAST):
            yield pieces
