"""The `slotbench` command: thin, since `--help`, `--version` and `plugins` must import neither torch nor lightning."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    from slotbench.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
