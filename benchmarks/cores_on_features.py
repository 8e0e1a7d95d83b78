"""Processor time of a training step and of a forward pass of every slot core on features, all cores in turns.

`slotbench bench cores --tokens 256` measures the time that passes, one core after the other: beside other work on the
machine its ratios are of the load as well.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from slotbench import registry
from slotbench.interfaces import TemporalCore, TokenSpec

CORES = [
    "SAVi",
    "SlotAttention",
    "PSB",
    "OCSlotSSM",
    "SlotSSM",
    "SplitSSM",
    "SingleStateSSM",
    "SlotRNN",
    "SlotTransformer",
    "RIM",
    "SCOFF",
    "OCRIM",
]
VIDEOSAUR = {"first_iterations": 3, "corrector_mlp": "none", "slot_init": "gaussian", "form": "videosaur"}


def main() -> None:
    """Prints rows of a table of docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    tokens = torch.randn(1, 24, 256, 384)
    savi = registry.load("cores", "SAVi")
    made: dict[str, Callable[..., TemporalCore]] = {name: registry.load("cores", name) for name in CORES}
    made["SAVi, form: videosaur"] = partial(savi, init="videosaur", **VIDEOSAUR)
    seconds: dict[str, list[list[float]]] = {name: [] for name in made}
    cores = {name: _with_sizes(make) for name, make in made.items()}
    steps = {name: torch.optim.AdamW(core.parameters()) for name, core in cores.items()}
    for _ in range(rounds + 1):  # the first compiles
        for name, core in cores.items():
            began = time.process_time()
            steps[name].zero_grad()
            core(tokens).slots.square().mean().backward()
            steps[name].step()
            between = time.process_time()
            with torch.no_grad():
                core(tokens)
            seconds[name].append([time.process_time() - between, between - began])
    for name, found in seconds.items():
        inference, training = ([1e3 * value for value in values[1:]] for values in zip(*found, strict=True))
        ratios = [one[1] / base[1] for one, base in zip(found[1:], seconds["SAVi"][1:], strict=True)]
        print(f"| {name} | {_told(inference, 0)} | {_told(training, 0)} | {_told(ratios, 2)} |")


def _with_sizes(make: Callable[..., TemporalCore]) -> TemporalCore:
    torch.manual_seed(0)
    try:
        return make(TokenSpec(384, 256, (16, 16)), num_slots=7, dim=384)
    except TypeError:  # SingleStateSSM
        return make(TokenSpec(384, 256, (16, 16)), dim=384)


def _told(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


if __name__ == "__main__":
    main()
