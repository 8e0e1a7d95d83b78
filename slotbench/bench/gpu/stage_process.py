"""Runs one stage: `python -m` this module with its name, the settings on its input.

What the stage came to is the "message" of its file of items; the exit code is 0 where it is done, 75 where work is
left for another run, 1 where it has failed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib import import_module

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items, OutOfTimeError
from slotbench.text import one_line

__all__ = ["WORK_LEFT", "run_stage"]

WORK_LEFT = 75
"""Exit code of a stage that has ended in time, with work left."""


def run_stage(run: Callable[[Settings, Items], str], settings: Settings, items: Items) -> int:
    """Runs it and returns the exit code; an error is a message, and its traceback is for the log.

    Args:
        run: the stage's function.
        settings: of the command.
        items: of the stage.
    """
    try:
        items.message, code = run(settings, items), 0
    except OutOfTimeError as error:
        items.message, code = str(error), WORK_LEFT
    except Exception as error:
        traceback.print_exc()
        said = str(error).strip().splitlines()
        items.message, code = f"{type(error).__name__}: {one_line(said[0]) if said else ''}".strip(": "), 1
    items.write()
    return code


if __name__ == "__main__":
    name = sys.argv[1]
    settings = Settings.from_json(sys.stdin.read())
    sys.exit(run_stage(import_module(f"slotbench.bench.gpu.{name}").run, settings, Items(settings.out, name)))
