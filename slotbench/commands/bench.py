"""`slotbench bench SUBJECT`: measures speed and memory on this machine."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench import registry
from slotbench.bench.gpu.plan import MINUTES, SLICES, Items, next_slice, slices_named
from slotbench.bench.gpu.plan import Settings as SliceSettings
from slotbench.bench.subjects import SUBJECTS
from slotbench.commands.arguments import Parser
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.help_text import print_help
from slotbench.text import one_line

if TYPE_CHECKING:
    from slotbench.bench.report import Table

__all__ = ["main"]

_USAGE = """Usage: slotbench bench cores [NAME ...] [options]
       slotbench bench SUBJECT [options]
       slotbench bench gpu [options]

slotbench bench cores measures every core, or those named, against sequence length: a training step, inference, peak
memory, floating-point operations, and a step when streaming. Writes OUT/cores.json as it goes, OUT/cores.md and
OUT/cores.png at the end. What the JSON holds already is not measured again. Running out of memory or time is a result;
what is longer is then skipped.

  --lengths T ...     time steps of a clip (default: 80 160 320 640 1280 2560)
  --batch N           clips (default: 6)
  --slots N           slots, where a core takes num_slots (default: 6)
  --dim N             width of tokens, and of slots where a core takes dim (default: 64)
  --tokens N          tokens per time step (default: 16)
  --repeats N         times that each point is measured (default: 3)
  --timeout S         seconds for one measure of one core at one length (default: 120)
  --memory GIB        memory that it may take beyond the idle process (default: 6)
  --threads N         threads (default: 1)
  --device cpu|cuda   (default: cpu)
  --out DIR           (default: bench, or bench/quick with --quick)
  --restart           drop what the JSON holds
  --plugin FILE       import components from a Python file; may be repeated
  --quick             a batch of 2, three short lengths, two repeats: to see that it runs

Every measurement is a process of its own; what runs, which it is of how many, and the time since the start go to
stderr. Memory on the CPU is measured on Linux only.

slotbench bench SUBJECT times ways to do the same work in turns, and shows ratios within one run. Writes
OUT/SUBJECT.json and OUT/SUBJECT.md.

@SUBJECTS@

  --rounds N          turns of each way (default: the subject's own)
  --threads N         threads (default: 1)
  --only TEXT         the cases whose name holds it
  --no-memory         leave memory out
  --out DIR           (default: bench, or bench/quick with --quick)
  --quick             small sizes, two rounds: to see that it runs
  --config FILE       training_step: the experiment (default: experiments/blinking_balls.yaml)
  --tflops N          simulators: what the GPU keeps up, 10^12 operations per second (default: 27, 40 % of an H100's
                      in float32). Its steps per second are an upper bound: no step is shorter than its operations at
                      this rate, nor than 2 microseconds for each of them. The ratio should be 2 or more.

slotbench bench gpu measures, in a checkout of slotbench, the next slice of what wants a GPU, in eight minutes at most.
What a slice has by then is kept, a failure too; the same command continues one that was cut off. Writes OUT/SLICE.json
after every piece of work, and OUT/SLICE.md.

  --list              what is measured already, and what comes next
  --slice A,B         these, by name
  --minutes N         for each (default: 8)
  --restart           drop the results of these slices
  --device cuda|cpu   (default: cuda); cpu only with --quick
  --out DIR           (default: bench/gpu, or bench/quick/gpu with --quick)
  --quick             tiny sizes: to see that it runs"""


def main(command: str, arguments: list[str]) -> int:
    """Runs the bench that is named first."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        width = max(map(len, SUBJECTS))
        subjects = "\n".join(f"  {name:<{width}}  {subject.what}" for name, subject in SUBJECTS.items())
        print_help(_USAGE.replace("@SUBJECTS@", subjects))
        return 0
    subject, *rest = arguments
    if subject == "gpu":
        return _bench_gpu(rest)
    if subject in SUBJECTS:
        return _bench_subject(subject, rest)
    if subject != "cores":
        known = ["cores", *SUBJECTS, "gpu"]
        raise UserError(lines(f"no subject named {subject}{did_you_mean(subject, known)}", expected=", ".join(known)))
    given = _parse(rest)
    for file in given.plugin:
        registry.load_file(file)
    known = registry.names("cores")
    for name in given.names:
        if name not in known:
            raise UserError(lines(f"no core named {name}{did_you_mean(name, known)}", available=listing(known)))
    # everything above answers before torch is imported
    return _bench_cores(given, known)


def _parse(arguments: list[str]) -> argparse.Namespace:
    quick = "--quick" in arguments
    parser = Parser("slotbench bench cores")
    parser.add_argument("names", nargs="*")
    lengths = [20, 40, 80] if quick else [80, 160, 320, 640, 1280, 2560]
    parser.add_argument("--lengths", type=_at_least(int, 1), nargs="+", default=lengths)
    for name, default in (("batch", 2 if quick else 6), ("slots", 6), ("dim", 64), ("tokens", 16), ("threads", 1)):
        parser.add_argument(f"--{name}", type=_at_least(int, 1), default=default)
    parser.add_argument("--repeats", type=_at_least(int, 1), default=2 if quick else 3)
    parser.add_argument("--timeout", type=_at_least(float, 0.1), default=120.0)
    parser.add_argument("--memory", type=_at_least(float, 0.01), default=6.0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path, default=Path("bench/quick" if quick else "bench"))
    parser.add_argument("--plugin", type=Path, action="append", default=[])
    for switch in ("--restart", "--quick"):
        parser.add_argument(switch, action="store_true")
    return parser.parse_intermixed_args(arguments)


def _bench_subject(name: str, arguments: list[str]) -> int:
    quick = "--quick" in arguments
    parser = Parser(f"slotbench bench {name}")
    parser.add_argument("--rounds", type=_at_least(int, 1))
    parser.add_argument("--threads", type=_at_least(int, 1), default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("bench/quick" if quick else "bench"))
    for switch in ("--quick", "--no-memory"):
        parser.add_argument(switch, action="store_true")
    if name == "training_step":
        parser.add_argument("--config")
    if name == "simulators":
        parser.add_argument("--tflops", type=_at_least(float, 0.01))
    given = parser.parse_args(arguments)

    from slotbench.bench.contests import run_subject

    with _Progress() as progress:
        lines, tables = run_subject(
            name,
            given.out,
            lambda case, index, total: progress.begin(f"{name}: {case}", index, total),
            command=shlex.join(["slotbench", "bench", name, *arguments]),
            rounds=given.rounds,
            threads=given.threads,
            quick=given.quick,
            memory=not given.no_memory and sys.platform == "linux",
            only=given.only,
            options={key: str(value) for key in ("config", "tflops") if (value := getattr(given, key, None))},
        )
    if not tables:
        raise UserError(f"no case of {name} has {given.only!r} in its name")
    _show(tables, [*lines, f"wrote {given.out / name}.json, {given.out / name}.md"])
    return 0


class _Progress:
    """What is measured, which it is of how many, and the time since the start, on stderr: a line that vanishes on a
    terminal, a line each elsewhere. It is written between measurements, so that it takes no part in any."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._vanishes = sys.stderr.isatty()
        self._line = ""

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def begin(self, what: str, index: int, total: int) -> None:
        """Shows what is about to be measured."""
        elapsed = timedelta(seconds=int(time.monotonic() - self._began))
        self._line = one_line(f"{index} of {total}  {elapsed}  {what}")
        self.clear()
        if self._vanishes:
            self._draw()
        else:
            print(self._line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Prints a line on standard output, above this one."""
        self.clear()
        print(line, flush=True)
        if self._vanishes:
            self._draw()

    def _draw(self) -> None:
        print(self._line[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Takes the line away."""
        if self._vanishes:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _show(tables: list[Table], lines: list[str]) -> None:
    from rich.console import Console

    from slotbench.bench.report import rich_table

    console = Console()
    for table in tables:
        console.print()
        console.print(rich_table(table))
    console.print()
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _bench_gpu(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    parser = Parser("slotbench bench gpu")
    parser.add_argument("--minutes", type=_at_least(float, 1), default=MINUTES)
    parser.add_argument("--slice", default="")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out", type=Path, default=Path("bench/quick/gpu" if quick else "bench/gpu"))
    for switch in ("--list", "--restart", "--quick"):
        parser.add_argument(switch, action="store_true")
    given = parser.parse_args(arguments)
    coming = next_slice(given.out)
    if given.list:
        states = [
            one.measured or Items(given.out, one.name).result["state"] or "still to be measured" for one in SLICES
        ]
        width = max(map(len, states)) + 2
        for one, state in zip(SLICES, states, strict=True):
            print(f"{one.name:<4}{state:<{width}}{one.what}")
        print(f"\nnext: {coming.name}" if coming else "\nall slices are measured")
        return 0
    slices = slices_named(given.slice) or ([coming] if coming else [])
    if not slices:
        print("all slices are measured; --slice NAME --restart measures one once more")
        return 0
    if given.device == "cpu" and not quick:
        raise UserError("--device cpu would train the papers' sizes on the CPU: add --quick for tiny ones")
    command = shlex.join(["slotbench", "bench", "gpu", *arguments])
    settings = SliceSettings(given.out.absolute(), given.device, quick, given.minutes, command)

    from slotbench.bench.gpu.day import run_slices

    try:
        left = run_slices(settings, slices, lambda text: print(text, end="", flush=True), restart=given.restart)
    except KeyboardInterrupt:
        print(f"\nstopped; {given.out} holds what there is, and the same command continues")
        raise
    pages = ", ".join(str(given.out / f"{one.name}.md") for one in slices)
    print(f"wrote {pages}" + (f"; not done: {', '.join(left)}" if left else ""))
    return 1 if left else 0


def _at_least(kind: type, smallest: int | float) -> Any:
    def convert(text: str) -> Any:
        value = kind(text)
        if not value >= smallest:
            raise argparse.ArgumentTypeError(f"{text} is too small; expected {smallest:g} or more")
        return value

    convert.__name__ = kind.__name__
    return convert


def _bench_cores(given: argparse.Namespace, known: list[str]) -> int:
    import torch

    from slotbench.bench.cores import Results, Settings, sweep
    from slotbench.bench.plot import draw
    from slotbench.bench.report import legend, summary, write_report

    if given.device == "cuda" and not torch.cuda.is_available():
        raise UserError(lines("there is no CUDA device here", given="--device cuda", expected="--device cpu"))
    settings = Settings(
        cores=tuple(dict.fromkeys(given.names or known)),
        lengths=tuple(sorted(set(given.lengths))),
        batch=given.batch,
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
    results = Results.open(given.out / "cores.json", settings, restart=given.restart)
    if results.points:
        print(f"{results.path} holds {len(results.points)} points already")

    def tell(point: dict[str, Any]) -> None:
        progress.say(f"{point['core']:<18}{point['measure']:<10} T={point['length']:<5} {summary(point)}")

    try:
        with _Progress() as progress:
            sweep(results, tell, progress.begin)
    except KeyboardInterrupt:
        print(f"interrupted; {results.path} holds {len(results.points)} points, and the same command resumes from them")
        raise
    draw(results, given.out / "cores.png")
    tables = write_report(results, given.out / "cores.md", "cores.png")
    files = [str(given.out / f"cores.{kind}") for kind in ("json", "md", "png")]
    _show(tables, [*legend(results), "", f"wrote {', '.join(files)}"])
    return 0
