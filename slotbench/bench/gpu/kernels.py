"""Every kernel of `slotbench.ops` against the others: values and gradients, time and memory, at a few sizes.

Each op has a process of its own in which the kernels take turns. Where a kernel takes the device down with it, or does
not come back, it is named, and a new process goes on without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import UNAVAILABLE, Items
from slotbench.bench.results import OUT_OF_TIME

__all__ = ["SHAPES", "WIDTHS", "key_of", "run"]

SHAPES = ((384, 6), (384, 24), (96, 300), (32, 2560))
"""Sequences (clips times slots) and steps of each."""
WIDTHS = (128, 384)
QUICK_SHAPES, QUICK_WIDTHS = ((4, 3), (2, 8)), (32,)
ROUNDS, QUICK_ROUNDS = 10, 2
_SLOW_OPS = ("ssd",)
"""Measured last: a kernel of these tunes itself for a minute or more at every new size, and time may run out there."""
_PATIENCE = 90.0
"""Seconds without a word after which a kernel is given up: they hold its compilation, and its slowest call."""


def run(settings: Settings, items: Items) -> str:
    """Measures what has no item yet; returns how many kernels of how many ops ran."""
    # names alone: whether a kernel runs here is found out in a process that it may take down
    from slotbench.ops.dispatch import KERNELS

    shapes, widths = (QUICK_SHAPES, QUICK_WIDTHS) if settings.quick else (SHAPES, WIDTHS)
    sizes = [{"sequences": n, "steps": steps, "width": width} for width in widths for n, steps in shapes]
    seconds = 0.6 * settings.seconds / (len(KERNELS) * len(sizes))
    for op, kernels in sorted(KERNELS.items(), key=lambda item: item[0] in _SLOW_OPS):
        request = {
            "op": op,
            "device": settings.device,
            "rounds": QUICK_ROUNDS if settings.quick else ROUNDS,
            "seconds": seconds,
            "cases": [{**size, "kernels": kernels} for size in sizes if key_of(op, size) not in items],
        }
        for size, found in measure(request):
            items[key_of(op, size)] = {"op": op, **size, "kernels": {name: found[name] for name in kernels}}
    return _summary(items)


def _summary(items: Items) -> str:
    """The kernels that ran somewhere, by op, and those that failed somewhere."""
    ran: dict[str, list[str]] = {}
    failed: list[str] = []
    for item in items.found.values():
        known = ran.setdefault(item["op"], [])
        for kernel, one in item["kernels"].items():
            if "problem" not in one:
                known += [kernel] * (kernel not in known)
            elif one["problem"] != UNAVAILABLE:
                failed.append(f"{item['op']}/{kernel}")
    line = "; ".join(f"{op}: {', '.join(kernels) or 'none'}" for op, kernels in ran.items())
    return line + (f"; failed somewhere: {', '.join(dict.fromkeys(failed))}" if failed else "")


def key_of(op: str, size: dict[str, int]) -> str:
    """The key of an item."""
    return f"{op} {size['sequences']} x {size['steps']} x {size['width']}"


def measure(
    request: dict[str, Any], command: list[str] | None = None, patience: int | float = _PATIENCE
) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Each case's size, and its kernels' numbers or problems, when the case has ended.

    Args:
        request: see `slotbench.bench.gpu.kernel_job`.
        command: of the process, for tests.
        patience: seconds without a word after which the kernel at hand is given up.
    """
    command = command or [sys.executable, "-P", "-m", "slotbench.bench.gpu.kernel_job"]
    cases = [{**case, "kernels": list(case["kernels"])} for case in request["cases"]]
    found: dict[str, Any] = {}  # of the first case that is left
    while cases:
        at_hand, ended, why = None, 0, OUT_OF_TIME
        for message in _messages(command, {**request, "cases": cases}, patience):
            if "code" in message:
                why = f"the process ended with code {message['code']}{message['said']}"
                break
            index = message.pop("begin", None)
            if index is None:
                index, kernel = message.pop("result"), message.pop("kernel")
                names = [kernel] if kernel else [k for k in cases[index]["kernels"] if k not in found]
                found |= dict.fromkeys(names, message)
                if set(cases[index]["kernels"]) <= found.keys():
                    yield _size(cases[index]), found
                    found, at_hand, ended = {}, None, index + 1
            else:
                at_hand = message["kernel"]
        cases = cases[ended:]
        if not cases:
            return
        if at_hand is None and ended:
            continue  # it had to end after a case that has all its results
        # the process is lost: the kernel at hand is the reason, and the rest is for another process
        cases, found = _without(cases, found, at_hand, why)
        if not cases[0]["kernels"]:
            yield _size(cases[0]), found
            cases, found = cases[1:], {}


def _without(
    cases: list[dict[str, Any]], found: dict[str, Any], kernel: str | None, why: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The cases without what has been found of the first one, and without the kernel that was lost there."""
    first = cases[0]
    known = dict(found)
    problem = OUT_OF_TIME if why == OUT_OF_TIME else "error"
    message = "no word for too long" if why == OUT_OF_TIME else why
    if kernel is not None and kernel in first["kernels"] and kernel not in known:
        known[kernel] = {"problem": problem, "message": message}
    elif kernel not in known:  # not a kernel's fault: nothing of this case can be measured
        known |= {name: {"problem": problem, "message": message} for name in first["kernels"] if name not in known}
    left = [name for name in first["kernels"] if name not in known]
    return [{**first, "kernels": left}, *cases[1:]], known


def _size(case: dict[str, Any]) -> dict[str, int]:
    return {name: case[name] for name in ("sequences", "steps", "width")}


def _messages(command: list[str], request: dict[str, Any], patience: int | float) -> Iterator[dict[str, Any]]:
    """What the process says, and {"code", "said"} when it has ended; nothing more if it says nothing for too long."""
    lines: Queue[str | None] = Queue()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
            while (line := lines.get(timeout=patience)) is not None:
                yield json.loads(line)
            yield {"code": process.wait(), "said": ""}
        except Empty:
            return
        finally:
            process.kill()
