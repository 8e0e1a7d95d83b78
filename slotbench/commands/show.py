"""`slotbench show FILE|RUN`: a configuration with all its defaults, as YAML or JSON."""

from __future__ import annotations

from pathlib import Path

from slotbench.config.command_line import resolve
from slotbench.errors import UserError, lines
from slotbench.files import dump_json
from slotbench.runs.folder import CONFIG, RunFolder
from slotbench.yaml_files import parse_yaml

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench show FILE|RUN [--json] [--model.PART.ARGUMENT VALUE ...] [--plugin FILE]
                           [--allow-import PREFIX]

Prints the complete configuration that `slotbench fit --config FILE` would use, or that of a run, defaults included, and
nothing else:
  slotbench show experiments/blinking_balls.yaml --model.core.num_slots 8 > mine.yaml
  slotbench fit --config mine.yaml
  slotbench show runs/blinking_balls/ID --json"""


def main(command: str, arguments: list[str]) -> int:
    """Prints the resolved configuration."""
    given = [argument for argument in arguments if argument != "--json"]
    if not given:
        raise UserError(lines("show needs a configuration", example="slotbench show experiments/blinking_balls.yaml"))
    if not given[0].startswith("-"):
        path = Path(given[0])
        given = ["--config", str(RunFolder.open(path).path / CONFIG if path.is_dir() else path), *given[1:]]
    text = resolve(given).yaml()
    if "--json" in arguments:
        text = dump_json(parse_yaml(text, "the configuration"), indent=1) + "\n"
    print(text, end="")
    return 0
