"""`slotbench show FILE|RUN`: a configuration with all its defaults, as YAML or JSON."""

from __future__ import annotations

import shlex
from pathlib import Path

from slotbench.config.command_line import resolve
from slotbench.config.options import split_options
from slotbench.config.policy import check_run_plugins
from slotbench.config.settings import read_settings
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
        run = RunFolder.open(path).path if path.is_dir() else None
        given = ["--config", str(path if run is None else run / CONFIG), *given[1:]]
        if run is not None:
            # before a name that only the plugin has is refused as unknown
            options, rest = split_options(given)
            check_run_plugins(run, options.plugin, read_settings(rest), f"slotbench show {shlex.quote(str(path))}")
    text = resolve(given).yaml()
    if "--json" in arguments:
        text = dump_json(parse_yaml(text, "the configuration"), indent=1) + "\n"
    print(text, end="")
    return 0
