"""Measures one core in a process that may run out of memory or of time: `python -m` this module.

It reads {"core", "settings", "jobs"} from standard input and writes a line of JSON for each job that ends: its stage
and length, with numbers or with a "problem". A job that takes too long ends the process by SIGALRM.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slotbench import registry
from slotbench.bench.flops import count_flops
from slotbench.bench.memory import MemoryMeter, is_out_of_memory
from slotbench.interfaces import State, TemporalCore, TokenSpec, map_state

__all__ = ["CoreBench", "build", "megabytes", "serve"]

_START = 300.0  # seconds for imports and compilation
_COMPILER = 2.0  # GiB that compiling and loading may take
_SHORT, _MOST_CALLS = 0.1, 20  # a call of fewer seconds is repeated and averaged
_COUNTING = 5.0  # how much longer a call may take whose operations are counted
_EARLY, _TURNS = 8, 32  # streaming: steps before the early one, and how often early and late take turns

Say = Callable[[dict[str, Any]], None]


def build(core: str, settings: dict[str, Any]) -> TemporalCore:
    """The core with the bench's sizes where it takes them, and its defaults otherwise."""
    component = registry.load("cores", core)
    side = math.isqrt(settings["tokens"])
    grid = (side, side) if side * side == settings["tokens"] else None
    taken = inspect.signature(component).parameters
    sizes = {name: settings[key] for name, key in (("num_slots", "slots"), ("dim", "dim")) if name in taken}
    made: TemporalCore = component(TokenSpec(settings["dim"], settings["tokens"], grid), **sizes)
    return made.to(settings["device"])


class CoreBench:
    """The stages over one core; making it compiles what there is to compile."""

    def __init__(self, core: str, settings: dict[str, Any]) -> None:
        self.settings, self.device = settings, settings["device"]
        self.memory = MemoryMeter(self.device)
        torch.manual_seed(0)
        self.memory.limit(settings["memory"] + _COMPILER)
        self.core = build(core, settings)
        self.optimizer = torch.optim.AdamW(self.core.parameters())
        for length in (4, 1):
            tokens = self._clip(length)
            with torch.no_grad():
                self.core(tokens, self.core(tokens).state)
            self._train(tokens)
        self.optimizer = torch.optim.AdamW(self.core.parameters())
        self.core.zero_grad(set_to_none=True)
        self.parameters = sum(p.numel() for p in self.core.parameters() if p.requires_grad)

    def _clip(self, length: int) -> Tensor:
        sizes = self.settings
        return torch.randn(sizes["batch"], length, sizes["tokens"], sizes["dim"], device=self.device)

    def _train(self, tokens: Tensor) -> None:
        self.optimizer.zero_grad()
        self.core(tokens).slots.square().mean().backward()
        self.optimizer.step()

    def clocked(self, call: Callable[[], Any], calls: int = 1) -> float:
        """Seconds of a call, averaged over some in a row."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / calls

    def inference(self, length: int) -> dict[str, Any]:
        """A forward pass without gradient."""
        tokens = self._clip(length)

        @torch.no_grad()
        def forward() -> None:
            self.core(tokens)

        return self._timed(forward, self.core)

    def training(self, length: int) -> dict[str, Any]:
        """Forward, backward and a step of AdamW."""
        tokens = self._clip(length)
        return self._timed(lambda: self._train(tokens))

    def _timed(self, call: Callable[[], None], without_gradient: TemporalCore | None = None) -> dict[str, Any]:
        """Seconds of each repeat after one call that is not timed, peak memory, and operations if time is left."""
        began, most = time.perf_counter(), 0.9 * self.settings["seconds"]
        calls = max(1, min(_MOST_CALLS, math.ceil(_SHORT / max(self.clocked(call), 1e-6))))
        seconds: list[float] = []
        while len(seconds) < self.settings["repeats"]:
            seconds.append(self.clocked(call, calls))
            if time.perf_counter() - began + calls * seconds[-1] > most:
                break
        found = {"seconds": seconds, "memory_mb": self.memory.peak()}
        if time.perf_counter() - began + _COUNTING * seconds[-1] < most:
            found["flops"] = count_flops(call, without_gradient)
        return found

    @torch.no_grad()
    def streaming(self, length: int) -> dict[str, Any]:
        """One step at a time with carried state, as far as the time allows; then early against late, in turns."""
        tokens, began = self._clip(1), time.perf_counter()
        state: State = None
        early: State = None
        steps = 0
        while steps < length and time.perf_counter() - began < 0.6 * self.settings["seconds"]:
            if steps <= min(_EARLY, length - 1):
                early = state
            state, steps = self.core(tokens, state).state, steps + 1
        ways = [lambda: self.core(tokens, early), lambda: self.core(tokens, state)]
        pairs: list[list[float]] = []
        while len(pairs) < self.settings["repeats"]:
            turns = [[self.clocked(way) for way in ways] for _ in range(_TURNS)]
            pairs.append([statistics.median(way) for way in zip(*turns, strict=True)])
            if time.perf_counter() - began > 0.8 * self.settings["seconds"]:
                break
        return {
            "steps": steps,
            "early": [first for first, _ in pairs],
            "late": [last for _, last in pairs],
            "early_state_mb": megabytes(early),
            "late_state_mb": megabytes(state),
        }


def megabytes(state: State) -> float:
    """Size of all tensors of a state."""
    sizes: list[int] = []

    def add(leaf: Tensor) -> Tensor:
        sizes.append(leaf.numel() * leaf.element_size())
        return leaf

    map_state(add, state)
    return sum(sizes) / 1e6


def serve(request: dict[str, Any], say: Say) -> None:
    """Runs the jobs of a request one after the other; after a failure the longer jobs of that stage are left out."""
    settings, jobs = request["settings"], request["jobs"]
    torch.set_num_threads(settings["threads"])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, inside a kernel too
    signal.setitimer(signal.ITIMER_REAL, _START)
    failed: set[str] = set()
    bench = None
    for stage, length in jobs:
        if stage in failed:
            continue
        try:
            if bench is None:
                for file in settings["plugins"]:
                    registry.load_file(file)
                bench = CoreBench(request["core"], settings)
            signal.setitimer(signal.ITIMER_REAL, settings["seconds"])
            bench.memory.reset()
            bench.memory.limit(settings["memory"])
            found = {**getattr(bench, stage)(length), "parameters": bench.parameters}
        except Exception as error:
            failed.add(stage)
            problem = "memory" if is_out_of_memory(error) else "error"
            found = {"problem": problem, "message": f"{type(error).__name__}: {error}".splitlines()[0]}
            if bench is not None:
                bench.core.zero_grad(set_to_none=True)
        say({"stage": stage, "length": length, **found})


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)  # what libraries print does not get between the lines
        serve(asked, lambda found: print(json.dumps(found), file=channel, flush=True))
