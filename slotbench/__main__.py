"""The `slotbench` command: thin, since `--help`, `--version` and `plugins` must import neither torch nor lightning."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path


def main() -> None:
    """Entry point of the console script."""
    from slotbench.cli import run

    _show_another_sign()
    code = run(sys.argv[1:])
    try:
        # what is still held back would meet a reader that has gone only when Python ends, and be a traceback
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 141
    sys.exit(code)


def _show_another_sign() -> None:
    """Has a terminal or a file that cannot show a sign, such as an arrow in latin-1, be given a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not what a notebook, or nothing, has in its place
            stream.reconfigure(errors="replace" if stream.errors == "strict" else stream.errors)


def _leave_working_folder() -> None:
    """Takes the working folder off the import path, where `python -m` has put it.

    It may hold an unrelated torch.py or random.py. If it is where slotbench itself is, it stays. The same
    holds for the processes that this one starts.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and sys.path[:1] == [here] and Path(__file__).resolve().parent.parent != Path(here):
        del sys.path[0]
        os.environ["PYTHONSAFEPATH"] = "1"


if __name__ == "__main__":
    _leave_working_folder()
    main()
