"""`slotbench fit | validate | test | predict`: LightningCLI over the registry, recorded in a run folder."""

from __future__ import annotations

from slotbench.config.command_line import read_command_line
from slotbench.config.options import usage
from slotbench.errors import UserError, lines
from slotbench.help_text import print_help

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Runs one of the four commands."""
    if command in ("test", "validate") and any(word.partition("=")[0] == "--lengths" for word in arguments):
        from slotbench.commands import lengths

        if {"--help", "-h"} & {*arguments}:
            print_help(lengths.USAGE)
            return 0
        return lengths.main(command, arguments)
    if arguments in (["-h"], ["--help"]):
        print_help(usage(command))
        return 0
    if not arguments:
        raise UserError(lines(f"{command} needs an experiment", example=_example(command)))
    if "--help-all" in arguments:
        arguments = ["--help"]
    line = read_command_line(command, arguments)
    # everything above answers before torch is imported
    from slotbench.config.running import train

    return train(command, line.arguments, line.settings, line.options, line.run)


def _example(command: str) -> str:
    if command == "fit":
        return "slotbench fit --config experiments/blinking_balls.yaml"
    return f"slotbench {command} runs/NAME/ID"
