"""Npy files that grow: entries are appended along the first axis, and the header counts them in the end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

__all__ = ["GrowingNpy"]


class GrowingNpy:
    """An npy file that is written entry by entry; leaving its `with` block completes the header.

    numpy leaves room in a header for the first axis to grow, so that it is written over in its place.

    Args:
        path: the file.
        count: entries that an earlier writer has finished; what lies behind them is dropped.
    """

    def __init__(self, path: Path, count: int = 0) -> None:
        self.count = count
        self._layout: dict[str, Any] | None = None
        if count and not path.is_file():
            raise ValueError(f"there is no {path.name} of what has been written before")
        self._file: IO[bytes] = open(path, "r+b" if count else "wb")  # noqa: SIM115
        if not count:
            return
        np.lib.format.read_magic(self._file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(self._file)
        self._layout = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape[1:]}
        stop = self._file.tell() + count * dtype.itemsize * int(np.prod(shape[1:]))
        if self._file.seek(0, 2) < stop:
            raise ValueError(f"{path} is shorter than {count} entries")
        self._file.truncate(stop)
        self._file.seek(stop)

    def append(self, entries: np.ndarray) -> None:
        """Writes entries, "entries ...", all of one shape and type."""
        descr = np.lib.format.dtype_to_descr(entries.dtype)
        layout = {"descr": descr, "fortran_order": False, "shape": entries.shape[1:]}
        if self._layout is None:
            self._layout = layout
            self._write_header(0)
        if layout != self._layout:
            raise ValueError(f"{entries.dtype} of shape {entries.shape[1:]} differs from {self._layout}")
        self._file.write(np.ascontiguousarray(entries).data)
        self.count += len(entries)

    def flush(self) -> None:
        """Hands everything to the operating system, so that it outlives this process."""
        self._file.flush()

    def __enter__(self) -> GrowingNpy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._file:
            if self._layout is not None:
                self._write_header(self.count)

    def _write_header(self, count: int) -> None:
        self._file.seek(0)
        assert self._layout is not None
        header = self._layout | {"shape": (count, *self._layout["shape"])}
        np.lib.format.write_array_header_1_0(self._file, header)
