"""Peak memory of one way of one contest, in a process of its own: `python -m` this module, a request on its input.

What is counted is the highest resident size during one turn, after the same way has run on small inputs (which compiles
and loads everything), less what was resident with the inputs in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

__all__ = ["peak_memory"]


def peak_memory(subject: str, label: str, way: str, quick: bool, threads: int, options: dict[str, str]) -> float:
    """Megabytes beyond the inputs.

    Raises:
        RuntimeError: the process failed; with the last line that it wrote.
    """
    request = {"subject": subject, "label": label, "way": way, "quick": quick, "options": options}
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, **limits},
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"memory of {way} on {label}: {said[-1]}")
    return float(done.stdout.split()[-1])


def _measure(request: dict) -> float:
    from slotbench.bench.memory import MemoryMeter
    from slotbench.bench.subjects import load_subject

    contests = load_subject(request["subject"]).contests(request["quick"], **request["options"])
    contest = next(contest for contest in contests if contest.label == request["label"])
    if contest.small is not None:
        contest.small()[request["way"]]()
    way = contest.ways()[request["way"]]
    meter = MemoryMeter("cpu")
    meter.reset()
    result = way()
    peak = meter.peak()
    del result
    return peak


if __name__ == "__main__":
    print(_measure(json.load(sys.stdin)))
