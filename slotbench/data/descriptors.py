"""File descriptors: how many a process may have open, and the message when they are too few."""

from __future__ import annotations

import contextlib
import errno

try:
    import resource
except ImportError:  # a system without such limits
    resource = None  # type: ignore[assignment]

from slotbench.errors import DataFilesError

__all__ = ["enough_descriptors", "share_of_descriptors", "too_many_open"]

_FEWEST = 8
_SHARE = 8
_WANTED = 4096
_OWN = 64  # of a process that trains: libraries, logs, sockets
_PER_WORKER = 48  # pipes, and the tensors of the batches that are on their way, each of which is a descriptor


def share_of_descriptors() -> int:
    """How many descriptors one reader may keep for itself: a part of what the process may have open."""
    return max(_FEWEST, _limits()[0] // _SHARE)


def enough_descriptors(workers: int) -> None:
    """Raises this process's limit as far as it may go, for workers that send tensors as descriptors.

    Without this, a worker that cannot send a batch loses it without a word, and training waits for it for ever.

    Raises:
        DataFilesError: the limit that only an administrator can raise is too low for so many workers.
    """
    needed = _OWN + _PER_WORKER * workers
    soft, hard = _limits()
    if resource is not None and soft < min(_WANTED, hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(_WANTED, soft), hard), hard))
        soft, hard = _limits()
    if workers and soft < needed:
        raise DataFilesError(
            f"{workers} workers that read data need about {needed} open files, and this machine allows {soft}: raise "
            f"the limit (ulimit -n {max(1024, needed)}), or set data.loader.num_workers to 0"
        )


def too_many_open(error: BaseException) -> str | None:
    """The message if an error means that no further file can be opened; None for any other error."""
    text = str(error)
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE) or any(sign in text for sign in _SIGNS):
        return (
            f"too many open files: this process may have {_limits()[0]}; raise the limit (ulimit -n 4096), or set "
            "data.loader.num_workers lower"
        )
    return None


_SIGNS = ("Too many open files", "items of ancdata")


def _limits() -> tuple[int, int]:
    if resource is None:
        return _WANTED, _WANTED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # infinity is a negative number
    return (soft if soft >= 0 else _WANTED), (hard if hard >= 0 else _WANTED)
