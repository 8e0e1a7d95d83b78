"""The records of a grid as one file: configuration, curves, scores and intervals of its points, without weights.

An archive is a zip file with one member, `records.jsonl`, a line for each file of each point that has ended: compressed
as one text, since the records of a study are much alike. (Archives of version 0.1 before have a member `POINT/FILE` for
each file, and are read too.) It is what a repository keeps of a study: `slotbench grid unpack` writes it into a folder
of runs, where the points are done and can be compared. An archive may come from a third party: nothing in it is run,
names other than those of records are refused, and no file is read beyond the size that a record may have.
"""

from __future__ import annotations

import itertools
import json
import lzma
import operator
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
from slotbench.grids.thinning import thin_evaluation, thin_metrics
from slotbench.runs.folder import METRICS
from slotbench.text import one_line

__all__ = ["check_archive_name", "pack", "unpack"]

_ALL = "records.jsonl"
_RECORDS = ("point.json", "run.json", METRICS, "result.json", "config.yaml")
_NEEDED = {"point.json", "run.json", "result.json"}
_EVALUATION = re.compile(r"(val|test|lengths|probe)[\w-]{0,80}\.json")
_OF_THE_MACHINE = ("host", "pid", "attempt", "wandb_id", "wandb_entity", "begun_in")
"""Entries of a run's record that mean something on the machine that ran it alone."""
_FOLDERS = re.compile(r"(?<![^\s='\"])/(?:[^\s'\"/]+/)+")
"""The folders of a whole path: in a command, or an evaluation's checkpoint, of a run that was made somewhere else."""
_MOST_BYTES = 1 << 30
_MOST_FILES = 100_000
_EPOCH = (1980, 1, 1, 0, 0, 0)
_BAD = (
    zipfile.BadZipFile,
    EOFError,
    RuntimeError,
    lzma.LZMAError,
    LookupError,
    ValueError,
    OSError,
    struct.error,
    zlib.error,
)


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
    member = zipfile.ZipInfo(_ALL, _EPOCH)
    member.compress_type = zipfile.ZIP_LZMA
    with open_atomically(archive) as file, zipfile.ZipFile(file, "w") as out, out.open(member, "w") as lines:
        for point_id in ended:
            for name, text in _records(folder.path / point_id, roots):
                lines.write(f"{json.dumps([point_id, name, text])}\n".encode())
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
        elif _EVALUATION.fullmatch(name):
            text = _FOLDERS.sub("", _cut(dump_json(thin_evaluation(read_json_object(path)), indent=1), roots))
        else:
            text = thin_metrics(read_text(path)) if name == METRICS else read_text(path)
        yield name, _cut(text, roots)


def _cut(text: str, roots: Sequence[Path]) -> str:
    for root in roots:
        text = text.replace(f"{root}{os.sep}", "")
    return text


def unpack(folder: GridFolder, points: Iterable[Point], archive: Path) -> tuple[list[str], list[str], list[str]]:
    """Lays the records of an archive into the folder of a grid, as points that are done.

    Args:
        folder: of the grid; held by the caller.
        points: the grid's, all that there may be. What is no record of one of them is left out.
        archive: a file written by `pack`.

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
                for point_id, texts in _points(packed, archive):
                    point = known.get(point_id)
                    if point is None:
                        strange.append(point_id)
                    elif folder.point(point_id).record() or folder.point(point_id).is_running():
                        there.append(point_id)
                    else:
                        _write(folder, point, texts)
                        taken.append(point_id)
        except FileError:
            raise
        except _BAD as error:
            raise FileError(f"{archive} is no archive of a grid, or is damaged: {one_line(error, 120)}") from error
    return taken, there, strange


def _points(packed: zipfile.ZipFile, archive: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The texts of each point by name, read one point at a time; all names are checked before the first point."""
    members = packed.infolist()
    if len(members) > _MOST_FILES or sum(member.file_size for member in members) > _MOST_BYTES:
        raise FileError(f"{archive} is larger than an archive of records may be")
    if [member.filename for member in members] == [_ALL]:
        for _ in _lines(packed, archive):
            pass
        for point_id, lines in itertools.groupby(_lines(packed, archive), key=operator.itemgetter(0)):
            yield point_id, {name: text for _, name, text in lines}
        return
    found: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for member in members:
        point_id, _, name = member.filename.partition("/")
        _check_member(point_id, name, archive)
        found.setdefault(point_id, {})[name] = member
    for point_id, own in found.items():
        yield point_id, {name: _text(packed, member, archive) for name, member in own.items()}


def _lines(packed: zipfile.ZipFile, archive: Path) -> Iterator[tuple[str, str, str]]:
    """Point, name and text of every file; at most as many bytes as the archive promises are read."""
    with packed.open(_ALL) as file:
        # JSON writes a byte of text as six at most
        while line := file.readline(6 * RECORD_LIMIT + 6):
            _check_size(len(line) // 6, _ALL, archive)
            found = parse_json(line.decode("utf-8"), archive)
            if not (isinstance(found, list) and len(found) == 3 and all(isinstance(part, str) for part in found)):
                raise FileError(f"{archive} is no archive of a grid: a line of it is no record")
            point_id, name, text = found
            _check_member(point_id, name, archive)
            _check_size(len(text.encode()), f"{point_id}/{name}", archive)
            yield point_id, name, text


def _check_member(point_id: str, name: str, archive: Path) -> None:
    known = name in _RECORDS or _EVALUATION.fullmatch(name)
    if not point_id or point_id.startswith(".") or "/" in point_id or not known:
        raise FileError(
            f"{archive} is no archive of a grid: it holds {one_line(f'{point_id}/{name}', 80)}; "
            "expected what slotbench grid pack has written"
        )


def _check_size(size: int, name: str, archive: Path) -> None:
    if size > RECORD_LIMIT:
        where = f"{archive}: {one_line(name, 120)}"
        raise FileError(f"{where} is larger than the {RECORD_LIMIT:,} bytes that such a file may have")


def _text(packed: zipfile.ZipFile, member: zipfile.ZipInfo, archive: Path) -> str:
    with packed.open(member) as file:
        content = file.read(RECORD_LIMIT + 1)
    _check_size(len(content), member.filename, archive)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{archive}: {one_line(member.filename, 120)} is not text in UTF-8") from error


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
