"""Measures one core at one length, in a process that may run out of memory or be stopped: `python -m` this module.

The request is a `Job`; the messages are {"begin": STAGE} before a stage, {"result": STAGE, ...} after it, {"failed":
STAGE, ...} in its place. The first stage is "setup". After a stage that fails, the next ones are not tried.
"""

from __future__ import annotations

import inspect
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from slotbench import registry
from slotbench.bench.cores import Job, Settings
from slotbench.bench.harness import MemoryMeter, Say, clocked, failure, serve
from slotbench.interfaces import State, TemporalCore, TokenSpec, map_state

__all__ = ["CoreBench", "build", "count_flops", "run"]

# GiB that compiling and loading may take.
_COMPILER = 2.0
# A call of fewer seconds is repeated and averaged.
_SHORT = 0.1
_MOST_CALLS = 20
# How much longer than another a call may take whose operations are counted.
_COUNTING = 5.0
# Streaming: steps seen before the early one, and how often early and late take turns in a repeat.
_EARLY = 8
_TURNS = 32


def build(job: Job) -> TemporalCore:
    """The core with the job's sizes where it takes them, and its defaults otherwise."""
    component, settings = registry.load("cores", job.core), job.settings
    side = math.isqrt(settings.tokens)
    spec = TokenSpec(settings.dim, settings.tokens, (side, side) if side * side == settings.tokens else None)
    taken = inspect.signature(component).parameters
    sizes = {name: value for name, value in (("num_slots", settings.slots), ("dim", settings.dim)) if name in taken}
    core: TemporalCore = component(spec, **sizes)
    return core.to(settings.device)


class CoreBench:
    """The stages of a job, over one core; making it compiles what there is to compile, and sets the memory limit."""

    def __init__(self, job: Job) -> None:
        self.job, self.settings = job, job.settings
        self.memory = MemoryMeter(self.settings.device)
        torch.manual_seed(0)
        self.memory.limit(self.settings.memory + _COMPILER)
        self._make_core()
        for length in (4, 1):  # imports, compiles and loads what a small clip needs: the stages do not pay for it
            tokens = self._clip(length)
            with torch.no_grad():
                self.core(tokens, self.core(tokens).state)
            self._train(tokens)
        self.noise()
        del self.core, self.optimizer
        self.memory.reset()
        self.memory.limit(self.settings.memory)
        self._make_core()
        self.parameters = sum(p.numel() for p in self.core.parameters() if p.requires_grad)

    def _make_core(self) -> None:
        self.core = build(self.job)
        self.optimizer = torch.optim.AdamW(self.core.parameters())

    def _clip(self, length: int) -> Tensor:
        settings = self.settings
        return torch.randn(settings.batch, length, settings.tokens, settings.dim, device=settings.device)

    def _train(self, tokens: Tensor) -> None:
        self.optimizer.zero_grad()
        self.core(tokens).slots.square().mean().backward()
        self.optimizer.step()

    def inference(self) -> dict[str, Any]:
        """A forward pass without gradient."""
        tokens = self._clip(self.job.length)

        @torch.no_grad()
        def forward() -> None:
            self.core(tokens)

        return self._timed(forward, self.core)

    def training(self) -> dict[str, Any]:
        """Forward, backward and a step of AdamW."""
        tokens = self._clip(self.job.length)
        return self._timed(lambda: self._train(tokens))

    def _timed(self, call: Callable[[], None], without_gradient: TemporalCore | None = None) -> dict[str, Any]:
        """Seconds of each repeat after one call that is not timed, the peak memory, and operations if time is left."""
        begin, device = time.perf_counter(), self.settings.device
        calls = max(1, min(_MOST_CALLS, math.ceil(_SHORT / max(clocked(call, device), 1e-6))))
        seconds: list[float] = []
        while len(seconds) < self.settings.repeats:
            seconds.append(clocked(call, device, calls) / calls)
            if time.perf_counter() - begin + calls * seconds[-1] > 0.9 * self.settings.seconds:
                break
        found = {"seconds": seconds, "calls": calls, "memory_mb": self.memory.peak()}
        # counting makes a call slower, of small operations most
        if time.perf_counter() - begin + _COUNTING * seconds[-1] < 0.9 * self.settings.seconds:
            flops = count_flops(call, without_gradient)
            found |= {} if flops is None else {"flops": flops}
        return found

    @torch.no_grad()
    def streaming(self) -> dict[str, Any]:
        """One step at a time with carried state, as far as the time allows; then early against late.

        The two are timed in turns, each from the state that was kept from then, so that both see the same machine.
        """
        tokens, settings, begin = self._clip(1), self.settings, time.perf_counter()
        state: State = None
        early_state: State = None

        def step() -> None:
            nonlocal state
            state = self.core(tokens, state).state

        early = min(_EARLY, self.job.length - 1)
        seconds: list[float] = []
        while len(seconds) < self.job.length and time.perf_counter() - begin < 0.6 * settings.seconds:
            if len(seconds) <= early:
                early_state = state
            seconds.append(clocked(step, settings.device))
        ways = [lambda: self.core(tokens, early_state), lambda: self.core(tokens, state)]
        medians: list[tuple[float, float]] = []
        while len(medians) < settings.repeats:
            turn = time.perf_counter()
            pairs = [[clocked(way, settings.device) for way in ways] for _ in range(_TURNS)]
            medians.append((statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)))
            now = time.perf_counter()
            if now + (now - turn) - begin > 0.9 * settings.seconds:
                break
        return {
            "steps": len(seconds),
            "early_steps": min(early, len(seconds) - 1),
            "early": [first for first, _ in medians],
            "late": [last for _, last in medians],
            "ratio": [last / first for first, last in medians],
            "curve": curve(seconds),
            "early_state_mb": megabytes(early_state),
            "late_state_mb": megabytes(state),
            "memory_mb": self.memory.peak(),
        }

    def noise(self) -> float:
        """Seconds of a fixed piece of work that has nothing to do with the core: they tell the load of the machine."""
        matrix = torch.ones(384, 384, device=self.settings.device)
        return statistics.median(clocked(lambda: matrix @ matrix, self.settings.device, 4) for _ in range(5))


def megabytes(state: State) -> float:
    """Size of all tensors of a state."""
    sizes: list[int] = []

    def add(leaf: Tensor) -> Tensor:
        sizes.append(leaf.numel() * leaf.element_size())
        return leaf

    map_state(add, state)
    return sum(sizes) / 1e6


def curve(seconds: list[float], points: int = 24) -> list[tuple[int, float]]:
    """(step, median seconds of a step around it), at steps spread evenly on a logarithmic scale."""
    edges = sorted({round(len(seconds) ** (index / points)) for index in range(points + 1)} | {0})
    return [
        (round(math.sqrt((low + 1) * high)), statistics.median(seconds[low:high]))
        for low, high in itertools.pairwise(edges)
    ]


# --- operations

Shape = Sequence[int]


def count_flops(call: Callable[[], object], module: nn.Module | None = None) -> int | None:
    """Operations of the matrix products, convolutions and fused attention of a call, a multiply-add being two.

    They are counted by `torch.utils.flop_counter` as they are executed: what a mask takes out of a product or of fused
    attention is counted, and so is what the backward pass computes anew. Everything element by element (softmax, norms,
    scans, gates) is not, nor is what runs outside of PyTorch's own operations, as the numba and CUDA kernels of scans:
    of a state space model it is the maps around the scan.

    Args:
        call: what to run, once.
        module: whose parameters are to need no gradient meanwhile, for a call without one.

    Returns:
        the number; None where the counter cannot follow the call.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_MORE)
    needed = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    try:
        # it follows gradients through what modules return, and stumbles over a parameter in a call without them
        for parameter in needed:
            parameter.requires_grad_(False)
        with counter:
            call()
    except AssertionError:
        return None
    finally:
        for parameter in needed:
            parameter.requires_grad_(True)
    return int(counter.get_total_flops())


def _product(out: Shape, left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """`out` plus a product of matrices, alone or in a batch, or of a matrix and a vector."""
    return 2 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


_ATEN = torch.ops.aten
_MORE: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.addmm_, _ATEN.baddbmm_, _ATEN.addmv, _ATEN.addmv_), _product),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""What PyTorch's counter does not look up: products in place, and its fused attention on a CPU."""


# --- the process


def run(job: Job, say: Say) -> None:
    """Runs the stages of a job one after the other, and says so."""
    stage = "setup"
    say({"begin": stage})
    try:
        torch.set_num_threads(job.settings.threads)
        for file in job.settings.plugins:
            registry.load_file(file)
        bench = CoreBench(job)
        stages = {"inference": bench.inference, "training": bench.training, "streaming": bench.streaming}
        for stage in job.stages:
            say({"begin": stage})
            before = bench.noise()
            result = stages[stage]()
            say({"result": stage, **result, "noise": [before, bench.noise()], "parameters": bench.parameters})
    except Exception as error:
        say({"failed": stage, **failure(error)})


if __name__ == "__main__":
    serve(lambda request, say: run(Job(**{**request, "settings": Settings(**request["settings"])}), say))
