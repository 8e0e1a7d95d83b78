"""`slotbench fit | validate | test | predict`: LightningCLI over the registry, recorded in a run folder."""

from __future__ import annotations

from slotbench.config.command_line import read_command_line
from slotbench.config.options import options_parser
from slotbench.errors import UserError, lines

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Runs one of the four commands."""
    if command in ("test", "validate") and any(word.partition("=")[0] == "--lengths" for word in arguments):
        from slotbench.commands import lengths

        return lengths.main(command, arguments)
    if arguments in (["-h"], ["--help"]):
        options_parser(command).print_help()
        return 0
    if not arguments:
        what = "--config experiments/blinking_balls.yaml" if command == "fit" else "runs/NAME/ID"
        raise UserError(lines(f"{command} needs an experiment", example=f"slotbench {command} {what}"))
    if "--help-all" in arguments:
        arguments = ["--help"]
    read = read_command_line(command, arguments)
    # everything above answers before torch is imported, unless a part is exchanged
    from slotbench.config.running import train

    return train(command, *read)
