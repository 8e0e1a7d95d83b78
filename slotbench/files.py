"""Files that may be damaged, hostile, or half-written: bounded reads, whole writes, and where the cache is.

Whatever slotbench reads back (a run, a grid, a cache, a configuration) may come from somebody else or from a disk that
was full. Everything here opens regular files only, believes no length before it has checked it, and raises `FileError`,
one sentence with the path. Imports neither torch nor numpy.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import yaml

from slotbench.errors import FileError

__all__ = [
    "CONFIG_LIMIT",
    "RECORD_LIMIT",
    "cache_home",
    "check_regular",
    "fsync_folder",
    "is_inside",
    "open_regular",
    "parse_json",
    "parse_yaml",
    "read_bytes",
    "read_json",
    "read_json_object",
    "read_text",
    "read_yaml",
    "regular_files",
    "remove_partials",
    "write_atomically",
    "yaml_node",
]

RECORD_LIMIT = 64 << 20
"""Bytes that a JSON record (run.json, result.json, grid.json, cache.json) may have."""
CONFIG_LIMIT = 4 << 20
"""Bytes that a YAML file may have."""

_YAML_DEPTH, _YAML_NODES = 60, 200_000
_ABANDONED = 3600.0
_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# --- reading ---------------------------------------------------------------------------------------------------------


def open_regular(path: str | Path) -> IO[bytes]:
    """Opens a regular file to read; a FIFO, a device, a socket or a folder is refused without waiting for it.

    Links are followed: what they lead to must be a regular file. Where a link must not lead out of a folder, ask
    `is_inside` first.

    Raises:
        FileError: there is no such file, it is not a regular one, or it may not be read.
    """
    path = Path(path)
    try:
        # without O_NONBLOCK, opening a FIFO waits for its writer
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise FileError(_cannot_open(path, error)) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path} is {_kind(mode)}; expected a file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: str | Path) -> Path:
    """The path, if a regular file is there that may be read: for libraries that open files by name.

    Raises:
        FileError: see `open_regular`.
    """
    open_regular(path).close()
    return Path(path)


def read_bytes(path: str | Path, limit: int = RECORD_LIMIT) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        FileError: see `open_regular`; or it is larger, or the disk cannot read it.
    """
    with open_regular(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise FileError(f"{path} is larger than the {limit:,} bytes that such a file may have")
    return content


def read_text(path: str | Path, limit: int = RECORD_LIMIT) -> str:
    """The content of a UTF-8 file of at most `limit` bytes.

    Raises:
        FileError: see `read_bytes`; or it is not UTF-8.
    """
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8: {_byte_at(error)}") from error


def read_json(path: str | Path, limit: int = RECORD_LIMIT) -> Any:
    """What a JSON file holds.

    Raises:
        FileError: see `read_text`; or it is not JSON, is nested too deeply, or has an integer of thousands of digits.
    """
    return parse_json(read_text(path, limit), path)


def read_json_object(path: str | Path, limit: int = RECORD_LIMIT) -> dict[str, Any]:
    """What a JSON file holds, if that is an object ({...}).

    Raises:
        FileError: see `read_json`; or it holds anything else.
    """
    found = read_json(path, limit)
    if not isinstance(found, dict):
        raise FileError(f"{path} holds {_described(found)}; expected a JSON object")
    return found


def parse_json(text: str | bytes, where: str | Path) -> Any:
    """JSON as Python's values.

    Args:
        text: the JSON.
        where: what it was read from, for messages.

    Raises:
        FileError: it is not JSON, is nested too deeply, or has an integer of thousands of digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{where} is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{where} is not text in UTF-8: {_byte_at(error)}") from error
    except RecursionError as error:
        raise FileError(f"{where} is not a file of ours: its JSON is nested too deeply") from error
    except ValueError as error:
        raise FileError(f"{where} is not a file of ours: it holds a number of thousands of digits") from error


def read_yaml(path: str | Path, limit: int = CONFIG_LIMIT) -> Any:
    """What a YAML file holds, as plain values.

    Raises:
        FileError: see `read_text` and `parse_yaml`.
    """
    return parse_yaml(read_text(path, limit), path)


def parse_yaml(text: str, where: str | Path) -> Any:
    """YAML as plain values: nothing is constructed that could run code, and aliases cannot multiply it.

    Args:
        text: the YAML, one document.
        where: what it was read from, for messages.

    Raises:
        FileError: see `yaml_node`; or a value is not what its form promises (a date of month 13).
    """
    node = yaml_node(text, where)
    if node is None:
        return None
    try:
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise FileError(f"{where} is not valid YAML: {_one_line(error)}") from error


def yaml_node(text: str, where: str | Path) -> yaml.Node | None:
    """The nodes of a YAML document, with their lines; None for an empty one.

    Raises:
        FileError: it is not YAML, is nested more than 60 deep, or has more than 200,000 values once its aliases are
            written out (a few hundred bytes of aliases can stand for billions).
    """
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=_YamlLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _YAML_DEPTH:
                raise FileError(f"{where} is nested more than {_YAML_DEPTH} deep; a configuration is not")
            if count > _YAML_NODES:
                raise FileError(f"{where} has more than {_YAML_NODES:,} values; a configuration has fewer")
        node = yaml.compose(text, Loader=_YamlLoader)
    except yaml.YAMLError as error:
        raise FileError(_yaml_problem(text, where, error)) from error
    except (RecursionError, ValueError) as error:
        raise FileError(f"{where} is not valid YAML: {_one_line(error)}") from error
    if node is not None and _written_out(node, {}, where) > _YAML_NODES:
        raise FileError(f"{where} has more than {_YAML_NODES:,} values once its aliases are written out")
    return node


def _written_out(node: yaml.Node, known: dict[int, int], where: str | Path) -> int:
    """Nodes below `node`, those behind an alias counted each time."""
    key = id(node)
    if key in known:
        if known[key] < 0:
            raise FileError(f"{where} has an alias that holds itself")
        return known[key]
    known[key] = -1
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    else:
        children = []
    known[key] = 1 + sum(_written_out(child, known, where) for child in children)
    return known[key]


def _yaml_problem(text: str, where: str | Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"{where} is not valid YAML: {_one_line(error)}"
    source = text.splitlines()
    line = source[mark.line] if mark.line < len(source) else ""
    has_tab = "\t" in line[: mark.column + 1]
    problem = "a tab; YAML is indented with spaces" if has_tab else getattr(error, "problem", None) or "syntax error"
    context = getattr(error, "context", None)
    context = f" {context}" if context and not has_tab else ""
    start = max(0, mark.column - 80)
    return "\n".join(
        [
            f"{where} is not valid YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}{context}",
            f"  {mark.line + 1:>4} | {line[start : start + 120].replace(chr(9), ' ')}",
            f"  {'':>4} | {'':>{mark.column - start}}^",
        ]
    )


# --- folders ---------------------------------------------------------------------------------------------------------


def is_inside(folder: str | Path, path: str | Path) -> bool:
    """Whether the real place of `path`, links followed, lies in the real place of `folder`."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError):  # a loop of links, or a name that the system does not take
        return False


def regular_files(folder: str | Path, pattern: str = "*", limit: int = 100_000) -> list[Path]:
    """The regular files in `folder` that match, sorted; links that lead out of it, FIFOs and devices are left out.

    Raises:
        FileError: there are more than `limit` of them.
    """
    found: list[Path] = []
    for path in Path(folder).glob(pattern):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.stat(path).st_mode) and is_inside(folder, path):
                found.append(path)
        if len(found) > limit:
            raise FileError(f"{folder} has more than {limit:,} files {pattern}")
    return sorted(found)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replaces a file in one step: a reader, or a process killed half-way, finds the old content or the new.

    The file gets the permissions that the user's umask gives to any new file. What a killed writer of the same file has
    left beside it is removed.

    Raises:
        OSError: the disk is full, or the folder is not there or not writable; the old file is untouched.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)  # of a disk that is full it holds what little is left
        raise
    remove_partials(path.parent, path.name)


def remove_partials(folder: str | Path, name: str | None = None, older_than: float = _ABANDONED) -> None:
    """Removes what killed writers have left: hidden files that end in `.partial`.

    Args:
        folder: where to look; not below it.
        name: of the file that was written; None for any.
        older_than: seconds since the last change. 0 only where the caller holds the folder's lock.
    """
    now = time.time()
    for partial in Path(folder).glob(f".{'*' if name is None else glob.escape(name)}.*.partial"):
        with contextlib.suppress(OSError):
            if not partial.is_symlink() and partial.is_file() and now - partial.stat().st_mtime >= older_than:
                partial.unlink()


def fsync_folder(path: Path) -> None:
    """Makes the renames in a folder last through a crash of the machine."""
    with contextlib.suppress(OSError):  # some systems cannot, and need not
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cache_home() -> Path:
    """The user's folder for what can be made again: $SLOTBENCH_CACHE, else $XDG_CACHE_HOME/slotbench, else
    ~/.cache/slotbench."""
    if named := os.environ.get("SLOTBENCH_CACHE"):
        return Path(named).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general) if general else Path.home() / ".cache") / "slotbench"


# --- words -----------------------------------------------------------------------------------------------------------


def _cannot_open(path: Path, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}"
    if isinstance(error, PermissionError):
        return f"{path} may not be read: its permissions do not allow it"
    return f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}"


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _described(value: Any) -> str:
    names: Iterator[tuple[Any, str]] = iter(((list, "a list"), (str, "a text"), (bool, "true or false")))
    return next((name for kind, name in names if isinstance(value, kind)), "nothing" if value is None else "a number")


def _byte_at(error: UnicodeDecodeError) -> str:
    return f"byte {error.start:,} is 0x{cast(bytes, error.object)[error.start]:02x}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
