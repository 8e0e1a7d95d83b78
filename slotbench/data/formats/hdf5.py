"""HDF5 files: opened by each process for itself, what is damaged in one sentence."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from slotbench.errors import DataFilesError

__all__ = ["HDF5File"]


class HDF5File:
    """A file whose data sets are read by name and index.

    A file that was opened before a fork must not be read after it, so that each process opens it for itself.
    """

    def __init__(self, path: Path, layout: str) -> None:
        if not path.is_file():
            raise DataFilesError(f"there is no file {path}; {layout}")
        self.path, self.layout = path, layout
        self._opened: tuple[int, h5py.File] | None = None
        with self._refused():
            self._file()

    def arrays(self, axes: Mapping[str, int], within: str = "") -> dict[str, h5py.Dataset]:
        """The data sets of these names that are there, with a number of axes each."""
        found = {}
        with self._refused():
            for name, count in axes.items():
                array = self._file().get(within + name)
                if array is not None:
                    if not isinstance(array, h5py.Dataset) or array.ndim != count or array.dtype.kind not in "biuf":
                        raise DataFilesError(f"{self.path} has {within}{name} in another form; {self.layout}")
                    found[name] = array
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a data set; () where there is none."""
        return tuple(getattr(self._file().get(name), "shape", ()))

    def attributes(self) -> dict[str, Any]:
        """The file's attributes."""
        with self._refused():
            return dict(self._file().attrs)

    def read(self, name: str, index: Any) -> np.ndarray:
        """The part `index` of a data set."""
        with self._refused():
            return np.asarray(self._file()[name][index])

    def _file(self) -> h5py.File:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), h5py.File(self.path, "r"))
        return self._opened[1]

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except DataFilesError:
            raise
        except (OSError, RuntimeError, ValueError, TypeError, LookupError) as error:
            reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
            raise DataFilesError(f"{self.path} is no HDF5 file, or damaged ({reason}); {self.layout}") from error

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}
