"""The `slotbench` command: thin, since `--help`, `--version` and `plugins` must import neither torch nor lightning."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Entry point of the console script."""
    from slotbench.cli import run

    sys.exit(run(sys.argv[1:]))


def _leave_working_folder() -> None:
    """Takes the working folder off the import path, where `python -m` has put it.

    It may hold a torch.py or a random.py of somebody else's. If it is where slotbench itself is, it stays. The same
    holds for the processes that this one starts.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and sys.path[:1] == [here] and Path(__file__).resolve().parent.parent != Path(here):
        del sys.path[0]
        os.environ["PYTHONSAFEPATH"] = "1"


if __name__ == "__main__":
    _leave_working_folder()
    main()
