"""`slotbench show FILE`: a configuration with all its defaults, as YAML."""

from __future__ import annotations

from slotbench.config.command_line import resolve
from slotbench.errors import UserError, lines

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench show FILE [--model.PART.ARGUMENT VALUE ...] [--plugin FILE] [--allow-import PREFIX]

Prints the complete configuration that `slotbench fit --config FILE` would use, defaults included, and nothing else:
  slotbench show experiments/blinking_balls.yaml --model.core.num_slots 8 > mine.yaml
  slotbench fit --config mine.yaml"""


def main(command: str, arguments: list[str]) -> int:
    """Prints the resolved configuration."""
    if not arguments:
        raise UserError(lines("show needs a configuration", example="slotbench show experiments/blinking_balls.yaml"))
    if not arguments[0].startswith("-"):
        arguments = ["--config", *arguments]
    print(resolve(arguments).yaml(), end="")
    return 0
