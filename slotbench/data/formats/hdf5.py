"""HDF5 files from untrusted sources: links and external storage are refused, and sizes are checked before reading.

A data set of HDF5 may lie in other files (external storage), be put together of other files (virtual), or be a link to
one: such a file can show the content of any file of the reader's. None of these are followed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from slotbench.data.descriptors import too_many_open
from slotbench.errors import DataFilesError, FileError
from slotbench.files import check_regular, open_regular

__all__ = ["HDF5OfProcess", "one_line", "opened_hdf5", "plain_dataset", "plain_datasets"]

_DAMAGED = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError)
_MOST_BYTES = 1 << 30  # of what is unpacked as a whole
_PACKED = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_LZF)


@contextlib.contextmanager
def opened_hdf5(path: Path, expected: str = "") -> Iterator[h5py.File]:
    """An open file; damage that is met while it is open is raised as one sentence.

    Args:
        path: the file.
        expected: in words, what is to be there, for the message if there is no file.

    Raises:
        DataFilesError: it is missing, no HDF5 file, or damaged.
    """
    if expected and not path.exists():
        raise DataFilesError(f"there is no file {path}; {expected}")
    open_regular(path).close()
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FileError:
        raise
    except _DAMAGED as error:
        reason = too_many_open(error) or f"{path} is no HDF5 file, or not a complete one ({one_line(error)})"
        raise DataFilesError(reason) from error


class HDF5OfProcess:
    """A file that each process opens for itself: one that was opened before a fork must not be read after it.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, h5py.File] | None = None

    def opened(self) -> h5py.File:
        """The file, open for reading in this process.

        Raises:
            DataFilesError: it cannot be opened.
        """
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                self._opened = (os.getpid(), h5py.File(check_regular(self.path), "r"))
            except OSError as error:
                raise DataFilesError(too_many_open(error) or f"{self.path} cannot be opened: {error}") from error
        return self._opened[1]

    def read(self, name: str, index: Any, what: str) -> np.ndarray:
        """The part `index` of the data set `name`.

        Args:
            name: of the data set.
            index: as numpy takes it.
            what: the part in words, for messages.

        Raises:
            DataFilesError: it cannot be read.
        """
        try:
            return np.asarray(self.opened()[name][index])
        except FileError:
            raise
        except _DAMAGED as error:
            raise DataFilesError(
                f"{self.path} is damaged: {name} of {what} cannot be read ({one_line(error)})"
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}


def plain_datasets(file: h5py.File, names: Iterable[str], within: str = "") -> dict[str, h5py.Dataset]:
    """The data sets of these names that are there, in the group `within`; see `plain_dataset`."""
    found = {name: plain_dataset(file, within + name) for name in names}
    return {name: dataset for name, dataset in found.items() if dataset is not None}


def plain_dataset(file: h5py.File, name: str) -> h5py.Dataset | None:
    """The data set of this name if its values lie in the file; None if there is none of the name.

    Raises:
        DataFilesError: it leads out of the file, claims more values than the file has, or is packed in a foreign way.
    """
    # a soft or external link that leads nowhere is not listed
    if name not in file and file.get(name, getlink=True, default=None) is None:
        return None
    where = f"{name} of {file.filename}"
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise DataFilesError(f"{where} is a link; expected its values in the file itself")
    if file.get(name, getclass=True) is not h5py.Dataset:
        raise DataFilesError(f"{where} is no array")
    dataset = file[name]
    if dataset.external or dataset.is_virtual:
        raise DataFilesError(f"{where} lies in other files; expected its values in the file itself")
    if dataset.shape is None or dataset.dtype.hasobject or dataset.dtype.kind not in "biuf":
        raise DataFilesError(f"{where} holds {dataset.dtype}; expected numbers")
    size = int(np.prod([int(length) for length in dataset.shape], dtype=object)) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    properties = dataset.id.get_create_plist()
    if dataset.chunks is None:
        # not packed: every value has its place
        if stored != size or stored > os.path.getsize(file.filename):
            raise DataFilesError(f"{where} says {size:,} bytes and has {stored:,}: it is damaged or incomplete")
        return dataset
    chunk = int(np.prod([int(length) for length in dataset.chunks], dtype=object)) * dataset.dtype.itemsize
    if chunk > _MOST_BYTES:
        raise DataFilesError(f"{where} is packed in pieces of {chunk:,} bytes; expected at most {_MOST_BYTES:,}")
    if any(properties.get_filter(i)[0] not in _PACKED for i in range(properties.get_nfilters())):
        raise DataFilesError(f"{where} is packed in a way that is not read here; expected gzip, lzf or nothing")
    pieces = int(
        np.prod([-(-int(n) // int(c)) for n, c in zip(dataset.shape, dataset.chunks, strict=True)], dtype=object)
    )
    if dataset.id.get_num_chunks() != pieces:
        raise DataFilesError(f"{where} has {dataset.id.get_num_chunks():,} of its {pieces:,} pieces: it is incomplete")
    return dataset


def one_line(error: BaseException) -> str:
    """An error's words on one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:160]
