"""The records of a grid as one file: what its points are and what they came to, without weights and images.

An archive is a zip file of `POINT/FILE`, a folder for each point that has ended. It is what a repository can keep of a
study: `slotbench grid unpack` lays it into a folder of runs, where the points are done, for whoever compares them again
or runs the rest. An archive may come from a third party: nothing in it is run, names other than those of records are
refused, and no file is read beyond the size that a record may have.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from slotbench.errors import FileError, UserError
from slotbench.files import (
    RECORD_LIMIT,
    dump_json,
    open_atomically,
    open_regular,
    own_file,
    parse_json,
    read_json_object,
    read_text,
    regular_files,
)
from slotbench.grids.expansion import Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import PointFolder
from slotbench.text import one_line

__all__ = ["check_archive_name", "pack", "unpack"]

_RECORDS = ("point.json", "run.json", "metrics.jsonl", "result.json", "config.yaml")
_NEEDED = {"point.json", "run.json", "result.json"}
_EVALUATION = re.compile(r"(val|test|lengths)[\w-]{0,80}\.json")
_OF_THE_MACHINE = ("host", "pid", "attempt", "wandb_id")
"""What a run's record says of the place where it ran, and nobody else can use."""
_FOLDERS = re.compile(r"(?<![^\s='\"])/(?:[^\s'\"/]+/)+")
"""The folders of a whole path: in a command, or an evaluation's checkpoint, of a run that was made somewhere else."""
_MOST_BYTES = 1 << 30
_MOST_FILES = 100_000
_EPOCH = (1980, 1, 1, 0, 0, 0)
_BAD = (zipfile.BadZipFile, EOFError, RuntimeError, LookupError, ValueError, OSError, struct.error, zlib.error)


def pack(folder: GridFolder, points: Iterable[Point], archive: Path, roots: Sequence[Path]) -> list[str]:
    """Writes the records of all points that have ended into an archive; the same records give the same bytes.

    Args:
        folder: of the grid.
        points: those that may be taken.
        archive: the file to write; one that is there is replaced in one step.
        roots: folders whose names are cut off paths in the records.

    Returns:
        Ids of the points in the archive, sorted.

    Raises:
        FileError: a record cannot be read.
    """
    ended = sorted({point.id for point in points if folder.point(point.id).ended() is not None})
    with open_atomically(archive) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for point_id in ended:
            for name, text in _records(folder.path / point_id, roots):
                member = zipfile.ZipInfo(f"{point_id}/{name}", _EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                out.writestr(member, text)
    return ended


def _records(folder: Path, roots: Sequence[Path]) -> Iterator[tuple[str, str]]:
    names = [name for name in _RECORDS if os.path.lexists(folder / name)]
    names += [path.name for path in regular_files(folder, "*.json") if _EVALUATION.fullmatch(path.name)]
    for name in names:
        path = own_file(folder, name)
        if name == "run.json":
            record = {key: value for key, value in read_json_object(path).items() if key not in _OF_THE_MACHINE}
            if isinstance(record.get("command"), str):
                record["command"] = _FOLDERS.sub("", _cut(record["command"], roots))
            text = dump_json(record, indent=2)
        elif name == "point.json":
            record = read_json_object(path)
            text = dump_json({key: value for key, value in record.items() if key != "command"}, indent=2)
        else:
            text = read_text(path)
        text = _cut(text, roots)
        yield name, _FOLDERS.sub("", text) if _EVALUATION.fullmatch(name) else text


def _cut(text: str, roots: Sequence[Path]) -> str:
    for root in roots:
        text = text.replace(f"{root}{os.sep}", "")
    return text


def unpack(folder: GridFolder, points: Iterable[Point], archive: Path) -> tuple[list[str], list[str], list[str]]:
    """Lays the records of an archive into the folder of a grid, as points that are done.

    Args:
        folder: of the grid; held by the caller.
        points: the grid's, all that there may be. What is no record of one of them is left out.
        archive: what `pack` has written.

    Returns:
        Ids of the points that were taken, of those that are in the folder already, and of those that are none of the
        grid's points: of another grid, or of an earlier version of an experiment.

    Raises:
        FileError: it is no such archive, or it is damaged; nothing of the point in question has been written.
    """
    known = {point.id: point for point in points}
    taken, there, strange = [], [], []
    with open_regular(archive) as file:
        try:
            with zipfile.ZipFile(file) as packed:
                for point_id, members in _members(packed, archive).items():
                    point = known.get(point_id)
                    if point is None:
                        strange.append(point_id)
                    elif folder.point(point_id).record() or folder.point(point_id).is_running():
                        there.append(point_id)
                    else:
                        _write(folder, point, {name: _text(packed, info, archive) for name, info in members.items()})
                        taken.append(point_id)
        except FileError:
            raise
        except _BAD as error:
            raise FileError(f"{archive} is no archive of a grid, or is damaged: {one_line(error, 120)}") from error
    return taken, there, strange


def _members(packed: zipfile.ZipFile, archive: Path) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """The files of the archive by point and name, none of them read yet."""
    found: dict[str, dict[str, zipfile.ZipInfo]] = {}
    members = packed.infolist()
    if len(members) > _MOST_FILES or sum(member.file_size for member in members) > _MOST_BYTES:
        raise FileError(f"{archive} is larger than an archive of records may be")
    for member in members:
        point_id, _, name = member.filename.partition("/")
        if not point_id or point_id.startswith(".") or not (name in _RECORDS or _EVALUATION.fullmatch(name)):
            raise FileError(
                f"{archive} is no archive of a grid: it holds {one_line(member.filename, 80)}; "
                "expected what slotbench grid pack has written"
            )
        found.setdefault(point_id, {})[name] = member
    return found


def _text(packed: zipfile.ZipFile, member: zipfile.ZipInfo, archive: Path) -> str:
    where = f"{archive}: {one_line(member.filename, 120)}"
    with packed.open(member) as file:
        content = file.read(RECORD_LIMIT + 1)
    if len(content) > RECORD_LIMIT:
        raise FileError(f"{where} is larger than the {RECORD_LIMIT:,} bytes that such a file may have")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is not text in UTF-8") from error


def _write(folder: GridFolder, point: Point, texts: dict[str, str]) -> None:
    """Makes the folder of a point, which appears whole or not at all."""
    _check(point, texts)
    with folder.replacing(point.id) as partial:
        partial.mkdir()
        for name, text in texts.items():
            (partial / name).write_text(text, encoding="utf-8")
        copied = PointFolder(partial)
        copied.end(copied.begin("unpacked", "from an archive"), 0)


def _check(point: Point, texts: dict[str, str]) -> None:
    """Raises FileError unless these are the whole records of the point."""
    if missing := sorted(_NEEDED - texts.keys()):
        raise FileError(f"the record of {point.id} is not whole: it has no {missing[0]}")
    for name in texts:
        if name.endswith(".json"):
            record: Any = parse_json(texts[name], name)
            if not isinstance(record, dict):
                raise FileError(f"the record of {point.id} is damaged: {name} holds no JSON object")
            if name == "point.json" and (record.get("id"), record.get("fingerprint")) != (point.id, point.fingerprint):
                raise FileError(f"the record of {point.id} is damaged: its point.json is of another point")


def check_archive_name(name: str) -> Path:
    """The path, if it is one of an archive.

    Raises:
        UserError: it does not end in .zip.
    """
    if not name.endswith(".zip"):
        raise UserError(f"an archive is a zip file, given {one_line(name, 80)}; type a name that ends in .zip")
    return Path(name)
