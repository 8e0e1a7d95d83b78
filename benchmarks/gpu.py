"""What waits for a GPU: attention and scans by kernel, the scan's spans of time, training steps at the papers' sizes.

    python benchmarks/gpu.py attention        # Triton is kept where it is 1.3 times as fast as streamed
    python benchmarks/gpu.py scans            # selective and linear scan
    python benchmarks/gpu.py spans            # few sequences of many steps, cut into 1 to 48 spans
    python benchmarks/gpu.py training         # steps per second of `slotbench fit`, in fp32 and bf16

Each takes a few minutes. What fails is a line with its error, and the next goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer

from slotbench.bench.ops import Call, call_of, error_of
from slotbench.ops import available_kernels

ROOT = Path(__file__).resolve().parents[1]
SCANS = [(384, 6, 128), (384, 24, 128), (96, 300, 128), (32, 2560, 128), (384, 24, 384), (32, 2560, 384)]
ATTENTION = [(144, 1024, 192), (144, 4096, 192), (24, 16384, 192)]
SPANS = (0, 1, 3, 6, 12, 24, 48)
# experiments whose data is simulated here; MOVi's are stood in for by moving sprites of the same size
TRAININGS = {
    "SlotSSM": ["paper/blinking_balls_earliest_t6_p4.yaml"],
    "OC-SlotSSM": ["paper/movi_a_ocslotssm.yaml", "MovingSprites"],
    "PSB": ["paper/movi_a_psb.yaml", "MovingSprites"],
    "SAVi": ["paper/movi_a_savi.yaml", "MovingSprites"],
    "RIM": ["paper/bouncing_balls.yaml"],
}


def timed(call: Callable[[], Any], device: str, seconds: float) -> tuple[float, float]:
    """Median milliseconds, and megabytes of a call on CUDA."""
    call()  # compiles
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    call()
    peak = (torch.cuda.max_memory_allocated() - before) / 1e6 if device == "cuda" else 0.0
    found = Timer("call()", globals={"call": call}, num_threads=1).blocked_autorange(min_run_time=seconds)
    return 1e3 * found.median, peak


def kernels(op: str, sizes: list[tuple[int, int, int]], device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every kernel at every size."""
    for size in sizes:
        call = call_of(op, *size).on(device)
        for kernel, refusal in available_kernels(op, device).items():
            if refusal is None and (kernel != "reference" or size[1] <= 300):
                name = f"{op} {' x '.join(map(str, size))} {kernel}, error {error_of(op, kernel, device):.0e}"
                yield name, partial(call.both, kernel)


def spans(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The selective scan in Triton, forward and backward, cut into spans."""
    from slotbench.ops._cuda.triton_selective_scan import selective_scan_triton

    for size in ((32, 2560, 128), (8, 10_000, 128)):
        for number in SPANS:

            def scan(inputs: list[torch.Tensor], kernel: str, number: int = number) -> tuple[torch.Tensor, ...]:
                u, delta, A, B, C = inputs
                return selective_scan_triton(u, delta, A, B, C, None, None, None, spans=number)

            call = Call(call_of("selective_scan", *size).inputs, scan).on(device)
            yield (
                f"selective scan {' x '.join(map(str, size))}, spans: {number or 'chosen'}",
                partial(call.both, "triton"),
            )


def training(device: str, quick: bool) -> None:
    """Trains each experiment for some steps, and prints steps per second and memory of its record."""
    for name, (file, *stand_in) in TRAININGS.items():
        for precision in ("32-true", "bf16-mixed"):
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                command = [sys.executable, "-m", "slotbench", "fit", "--config", str(ROOT / "experiments" / file)]
                command += ["--run_dir", str(run), "--trainer.max_steps", "2" if quick else "200"]
                command += ["--trainer.limit_val_batches", "0", "--no_final_validation"]
                command += [
                    "--trainer.precision",
                    precision,
                    "--trainer.accelerator",
                    "gpu" if device == "cuda" else "cpu",
                ]
                if stand_in:
                    command += ["--data", stand_in[0], "--data.resolution", "128", "--data.num_frames", "6"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
                if done.returncode:
                    print(f"{name}, {precision}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
                    continue
                record = json.loads((run / "run.json").read_text(encoding="utf-8"))
                memory = (record.get("peak_device_memory") or 0) / 1e6
                print(f"{name}, {precision}: {1 / record['seconds_per_step']:.2f} steps/s, {memory:.0f} MB", flush=True)


def main() -> None:
    """Prints a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["attention", "scans", "spans", "training"], nargs="?", default="scans")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a case is timed for (default: 2)")
    parser.add_argument("--quick", action="store_true", help="tiny, on the CPU: to see that it runs")
    given = parser.parse_args()
    device, seconds = ("cpu", 0.05) if given.quick else (given.device, given.seconds)
    if given.what == "training":
        training(device, given.quick)
        return
    scans, attention = ([(2, 8, 32)], [(2, 16, 32)]) if given.quick else (SCANS, ATTENTION)
    cases = {
        "attention": lambda: kernels("inverted_attention", attention, device),
        "scans": lambda: (case for op in ("selective_scan", "linear_scan") for case in kernels(op, scans, device)),
        "spans": lambda: spans(device),
    }[given.what]()
    for name, call in cases:
        try:
            milliseconds, megabytes = timed(call, device, seconds)
            print(f"{name:<75}{milliseconds:10.3f} ms{megabytes:10.1f} MB", flush=True)
        except Exception as error:
            print(f"{name:<75}{type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
