"""Times the recurrences of SlotRNN and RIM against torch.nn.GRU over the same slots, forward plus backward, on the CPU.

    python benchmarks/recurrent_cores.py [--quick] [--out results.json]

torch.nn.GRU sees every slot of every clip as a sequence of its own, batch x slots of them, of the width of a slot. What
the cores have beside a recurrence is taken out as far as the row says; where a core has an encoder, it is taken out
(tokens are as many and as wide as slots, and pass through), because it is attention and parallel over time. SlotRNN has
one layer. Times are processor times of one thread, which other load on the machine disturbs less than the clock on the
wall; all take turns within every round. Read the ratios, which are of one round each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from slotbench_plugins.cores.rim import RIM
from slotbench_plugins.cores.slot_rnn import SlotRNN
from torch import Tensor, nn

from slotbench.interfaces import TokenSpec
from slotbench.runs.provenance import processor

FULL = (8, 100, 6, 64)
QUICK = (2, 20, 6, 16)
Shape = tuple[int, int, int, int]


class PassThrough(nn.Module):
    """Stands for a slot encoder: the tokens are the slots."""

    def __init__(self, queries: Tensor):
        super().__init__()
        self.queries = queries

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, tokens.new_zeros(tokens.shape[0], tokens.shape[1], tokens.shape[1])


class SlotsThroughGRU(nn.Module):
    """What the others are measured against."""

    def __init__(self, dim: int):
        super().__init__()
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gru(tokens.transpose(1, 2).flatten(0, 1))[0]


def slot_rnn(spec: TokenSpec, mixer: str) -> SlotRNN:
    core = SlotRNN(spec, spec.num_tokens, spec.dim, num_layers=1, mixer=mixer)
    core.encoder = PassThrough(core.encoder.queries.detach())
    return core


def rim(spec: TokenSpec, **arguments: str | int) -> RIM:
    return RIM(spec, spec.num_tokens, spec.dim, num_inputs=None, **arguments)


def candidates(spec: TokenSpec) -> dict[str, Callable[[Tensor], Tensor]]:
    def slots_of(core: SlotRNN | RIM) -> Callable[[Tensor], Tensor]:
        return lambda tokens: core(tokens).slots

    dense, sparse = spec.num_tokens, max(1, 2 * spec.num_tokens // 3)
    return {
        "torch.nn.GRU": SlotsThroughGRU(spec.dim),
        "SlotRNN, no mixer": slots_of(slot_rnn(spec, "none")),
        "SlotRNN, attention": slots_of(slot_rnn(spec, "attention")),
        "RIM, GRUs alone": slots_of(GroupsAlone(spec)),
        "RIM, all active, input attention": slots_of(rim(spec, top_k=dense, communication="off")),
        "RIM, top-k, input attention": slots_of(rim(spec, top_k=sparse, communication="off")),
        "RIM, top-k, both attentions": slots_of(rim(spec, top_k=sparse)),
    }


class GroupsAlone(RIM):
    """RIM without either attention: each module reads the input of its own index."""

    def __init__(self, spec: TokenSpec):
        sizes = (spec.num_tokens, spec.dim, spec.num_tokens)
        super().__init__(spec, *sizes, num_inputs=None, input_value_dim=spec.dim, communication="off")

    def per_step(self, tokens: Tensor) -> Tensor:
        return tokens

    def cell(self, inputs: Tensor, state: tuple) -> tuple:
        after = self._update(inputs, state)
        return after.hidden, None, after


def run_once(model: Callable[[Tensor], Tensor], tokens: Tensor) -> float:
    """Milliseconds of processor time of one forward and backward, to the parameters and the tokens."""
    tokens.grad = None
    begin = time.process_time()
    model(tokens).sum().backward()
    return 1e3 * (time.process_time() - begin)


def measure(shape: Shape, rounds: int) -> dict[str, dict[str, float]]:
    batch, steps, slots, dim = shape
    torch.manual_seed(0)
    models = candidates(TokenSpec(dim, slots))
    tokens = torch.randn(batch, steps, slots, dim, requires_grad=True)
    for model in models.values():
        run_once(model, tokens)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            times[name].append(run_once(model, tokens))
    base = times["torch.nn.GRU"]
    results = {}
    for name, values in times.items():
        ratios = sorted(value / of for value, of in zip(values, base, strict=True))
        results[name] = {
            "median_ms": statistics.median(values),
            "min_ms": min(values),
            "max_ms": max(values),
            "ratio": statistics.median(ratios),
            "ratio_low": ratios[len(ratios) // 4],
            "ratio_high": ratios[-1 - len(ratios) // 4],
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small shape, a few seconds")
    parser.add_argument("--rounds", type=int, default=21, help="timed rounds")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = QUICK if options.quick else FULL
    machine = f"{processor()}, 1 thread, torch {torch.__version__}"
    results = measure(shape, options.rounds)
    batch, steps, slots, dim = shape
    table = Table(title=f"batch {batch}, {steps} steps, {slots} slots of {dim}, forward + backward, float32\n{machine}")
    for heading in ("recurrence", "median ms", "min to max", "x torch.nn.GRU", "quartiles"):
        table.add_column(heading, justify="left" if heading == "recurrence" else "right")
    for name, row in results.items():
        spread = f"{row['min_ms']:.1f} to {row['max_ms']:.1f}"
        quartiles = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        table.add_row(name, f"{row['median_ms']:.1f}", spread, f"{row['ratio']:.2f}", quartiles)
    Console().print(table)
    if options.out:
        record = {"machine": machine, "shape": shape, "rounds": options.rounds, "results": results}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
