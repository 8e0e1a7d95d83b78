"""What every bench measures with: a clock, the memory of a process or a GPU, and processes that may be lost.

A process that may be lost reads a request from its standard input and writes a line of JSON for each message.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import json
import math
import os
import queue
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = [
    "OUT_OF_MEMORY",
    "OUT_OF_TIME",
    "SKIPPED",
    "MemoryMeter",
    "Say",
    "clocked",
    "failure",
    "is_out_of_memory",
    "messages",
    "python",
    "serve",
    "thread_variables",
]

OUT_OF_MEMORY, OUT_OF_TIME, SKIPPED = "out of memory", "out of time", "skipped"
"""Problems that a result can have, beside "error"."""

_GIB = 2**30

Say = Callable[[dict[str, Any]], None]
"""Takes a message of a process."""


def clocked(call: Callable[[], Any], device: str, calls: int = 1) -> float:
    """Seconds of some calls in a row, by the device's own clock where it has one."""
    if device != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - began
    import torch

    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    torch.cuda.synchronize()
    return float(1e-3 * start.elapsed_time(stop))


class MemoryMeter:
    """Reads the highest use of memory since the last `reset`.

    On the CPU that is resident memory as Linux counts it, on CUDA what torch has allocated.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._idle = 0.0

    def reset(self) -> None:
        """Makes the present state the idle one."""
        import torch

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
        import torch

        highest = float(torch.cuda.max_memory_allocated()) if self._cuda else _status("VmHWM")
        return (highest - self._idle) / 1e6

    def limit(self, gibibytes: float) -> None:
        """Makes what is allocated beyond the present use, and this much, fail before the machine runs out."""
        import torch

        if self._cuda:
            total = torch.cuda.get_device_properties(0).total_memory
            allowed = torch.cuda.memory_reserved() + gibibytes * _GIB
            torch.cuda.set_per_process_memory_fraction(min(1.0, allowed / total))
            return
        # Address space, since resident memory cannot be limited. The two differ little: torch maps what it fills.
        allowed = _status("VmSize") + gibibytes * _GIB
        resource.setrlimit(resource.RLIMIT_AS, (int(allowed), resource.getrlimit(resource.RLIMIT_AS)[1]))


def _status(field: str) -> float:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory on the CPU is measured on Linux only")
    return 1024.0 * int(found.group(1))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is of an allocation that failed."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return bool(re.search(r"can't allocate memory|out of memory|bad_alloc|Cannot allocate", str(error)))


def failure(error: BaseException) -> dict[str, Any]:
    """The problem that an exception is, with its type and the first line of its message."""
    text = str(error).strip().splitlines()
    problem = OUT_OF_MEMORY if is_out_of_memory(error) else "error"
    return {"problem": problem, "message": f"{type(error).__name__}: {text[0] if text else ''}".strip(": ")}


def python(module: str, *arguments: str) -> list[str]:
    """The command of a module in this Python, which imports nothing from the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def thread_variables(threads: int) -> dict[str, str]:
    """The environment of a process whose libraries take that many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}


def messages(
    command: Sequence[str],
    request: dict[str, Any],
    patience: float,
    *,
    start: float = 0.0,
    deadline: float = math.inf,
    errors: IO[str] | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """The messages of a process, and at last {"ended": its exit code}, or {"ended": None} if it says nothing more.

    Args:
        command: of the process, which is killed if it says nothing for too long.
        request: for its standard input.
        patience: seconds that it may take for a message.
        start: more seconds for the first two messages: imports and compilation.
        deadline: of all, by the monotonic clock.
        errors: its standard error goes there; by default to that of this process.
        env: its environment.
    """
    lines: queue.Queue[str | None] = queue.Queue()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stream = process.stdout

        def read() -> None:
            for line in stream:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            for count in itertools.count():
                seconds = min(patience + (start if count < 2 else 0), deadline - time.monotonic())
                line = lines.get(timeout=None if seconds == math.inf else max(seconds, 0.0))
                if line is None:
                    yield {"ended": process.wait()}
                    return
                yield json.loads(line)
        except queue.Empty:
            yield {"ended": None}
        finally:
            process.kill()


def serve(run: Callable[[dict[str, Any], Say], None]) -> None:
    """Runs a process of `messages`: what `run` and its libraries print does not get between them."""
    request = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        run(request, lambda message: print(json.dumps(message), file=channel, flush=True))
