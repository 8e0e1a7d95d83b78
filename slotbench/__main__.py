"""The `slotbench` command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the console script."""
    from slotbench.cli import run

    code = run(sys.argv[1:])
    try:
        # what is still held back would meet a reader that has gone only when Python ends, and be a traceback
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 141
    sys.exit(code)


if __name__ == "__main__":
    main()
