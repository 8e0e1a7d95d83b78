"""`slotbench bench cores` and `slotbench bench ops`: speed and memory on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from slotbench import registry
from slotbench.commands.arguments import Parser, expect, positive

__all__ = ["main"]

_CORES = """Measures every core, or those named, against the length of clips: inference, a training step, peak memory,
operations, and a step when streaming. Writes OUT/cores.json as it goes, OUT/cores.md and OUT/cores.png at the end;
points that the JSON holds are not measured again. Each core has a process of its own: to run out of memory or of time
is a result, and longer clips are then left out."""


def main(command: str, arguments: list[str]) -> int:
    """Runs the bench that is named first."""
    parser = Parser("slotbench bench", "Measures speed and memory on this machine.")
    benches = parser.add_subparsers(dest="bench", required=True, metavar="cores|ops")
    cores = benches.add_parser("cores", help="cores against the length of clips", description=_CORES)
    _add_core_options(cores)
    ops = benches.add_parser("ops", help="the kernels of slotbench.ops, in turns")
    ops.add_argument("names", nargs="*", metavar="OP", help="default: all")
    ops.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    ops.add_argument("--seconds", type=float, default=2.0, help="that each kernel is timed for (default: 2)")
    given = parser.parse_args(arguments)
    return _bench_cores(given) if given.bench == "cores" else _bench_ops(given)


def _add_core_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="CORE", help="default: every core")
    parser.add_argument("--lengths", type=positive, nargs="+", help="default: 80 160 320 640 1280 2560")
    sizes = (("batch", 6, "clips"), ("slots", 6, "slots"), ("dim", 64, "width"), ("tokens", 16, "tokens of a step"))
    for name, default, what in (*sizes, ("threads", 1, "threads"), ("repeats", 3, "times that a point is measured")):
        parser.add_argument(f"--{name}", type=positive, default=default, help=f"{what} (default: {default})")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a stage at a length (default: 120)")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB that it may take (default: 6)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path, help="folder (default: bench, or bench/quick with --quick)")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="file with components")
    parser.add_argument("--restart", action="store_true", help="drop what the JSON holds")
    parser.add_argument("--quick", action="store_true", help="2 clips, 20 to 80 steps: to see that it runs")


def _bench_cores(given: argparse.Namespace) -> int:
    for file in given.plugin:
        registry.load_file(file)
    expect("core", given.names, known := registry.names("cores"))
    from slotbench.bench.cores import Results, Settings, number, page, show, sweep, tables
    from slotbench.bench.plot import draw
    from slotbench.io import write_atomically

    settings = Settings(
        cores=tuple(given.names or known),
        lengths=tuple(sorted(given.lengths or ([20, 40, 80] if given.quick else [80, 160, 320, 640, 1280, 2560]))),
        batch=2 if given.quick else given.batch,
        slots=given.slots,
        dim=given.dim,
        tokens=given.tokens,
        repeats=given.repeats,
        seconds=given.timeout,
        memory=given.memory,
        threads=given.threads,
        device=given.device,
        plugins=tuple(str(file.resolve()) for file in given.plugin),
    )
    out = given.out or Path("bench/quick" if given.quick else "bench")
    results = Results.open(out / "cores.json", settings, restart=given.restart)

    def report(point: dict[str, object]) -> None:
        times = point.get("seconds") or point.get("late")
        told = f"{number(1e3 * min(times))} ms" if isinstance(times, list) else point.get("message", "")
        print(f"{point['core']:<20}{point['stage']:<11}T={point['length']:<6}{told}", flush=True)

    sweep(results, report)
    draw(results, out / "cores.png")
    write_atomically(out / "cores.md", page(results))
    show(tables(results))
    print(f"wrote {out}/cores.json, {out}/cores.md, {out}/cores.png")
    return 0


def _bench_ops(given: argparse.Namespace) -> int:
    from slotbench.ops.dispatch import KERNELS

    expect("op", given.names, KERNELS)
    from slotbench.bench.cores import number, show
    from slotbench.bench.ops import measure

    rows = [["op", "size", "kernel", "ms", "error against float64"]]
    for found in measure(given.names or list(KERNELS), given.device, given.seconds):
        size = " x ".join(map(str, found["size"]))
        rows.append([found["op"], size, found["kernel"], number(found["ms"]), f"{found['error']:.0e}"])
    show({f"Forward and backward, float32, {given.device}, one thread": rows})
    return 0
