"""The memory of this process or of its GPU: how much was used beyond the idle state, and a limit to it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import resource
from pathlib import Path

import torch

__all__ = ["MemoryMeter", "is_out_of_memory"]

_GIB = 2**30


class MemoryMeter:
    """Reads the highest use since the last `reset`.

    On the CPU that is resident memory as Linux counts it, on CUDA what torch has allocated.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._idle = 0.0

    def reset(self) -> None:
        """Makes the present state the idle one."""
        gc.collect()
        if self._cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._idle = float(torch.cuda.memory_allocated())
            return
        # what earlier work has freed would otherwise be used again, and not be seen
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
        self._idle = _status("VmRSS")

    def peak(self) -> float:
        """Megabytes of the highest use since the reset, beyond the idle state."""
        highest = float(torch.cuda.max_memory_allocated()) if self._cuda else _status("VmHWM")
        return (highest - self._idle) / 1e6

    def limit(self, gibibytes: float) -> None:
        """Makes what is allocated beyond the present use, and this much, fail before the machine runs out."""
        if self._cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            allowed = torch.cuda.memory_reserved() + gibibytes * _GIB
            torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total))
            return
        # Address space, since resident memory cannot be limited. The two differ little: torch maps what it fills.
        allowed = _status("VmSize") + gibibytes * _GIB
        resource.setrlimit(resource.RLIMIT_AS, (int(allowed), resource.getrlimit(resource.RLIMIT_AS)[1]))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is of an allocation that failed."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return bool(re.search(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate", str(error)))


def _status(field: str) -> float:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory on the CPU is measured on Linux only")
    return 1024.0 * int(found.group(1))
