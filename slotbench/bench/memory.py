"""Peak memory of a call, and a limit to it."""

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
    """Highest use of memory since the last `reset`: resident memory on a CPU (on Linux), what torch allocates on CUDA.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._idle = 0.0

    def reset(self) -> None:
        """Makes the present use the idle one."""
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
        """Megabytes of the highest use since the reset, beyond the idle one."""
        highest = float(torch.cuda.max_memory_allocated()) if self._cuda else _status("VmHWM")
        return (highest - self._idle) / 1e6

    def limit(self, gibibytes: float) -> None:
        """Makes an allocation fail that takes this much beyond the present use."""
        if self._cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            allowed = torch.cuda.memory_reserved() + gibibytes * _GIB
            torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total))
            return
        # address space, since resident memory cannot be limited; the two differ little, as torch fills what it maps
        allowed = _status("VmSize") + gibibytes * _GIB
        resource.setrlimit(resource.RLIMIT_AS, (int(allowed), resource.getrlimit(resource.RLIMIT_AS)[1]))


def _status(field: str) -> float:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory on a CPU is measured on Linux only")
    return 1024.0 * int(found.group(1))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is of an allocation that failed."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return bool(re.search(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate", str(error)))
