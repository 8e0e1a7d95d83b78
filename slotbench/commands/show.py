"""`slotbench show FILE|RUN`: a configuration with all its defaults, as YAML or JSON."""

from __future__ import annotations

from pathlib import Path

from slotbench.commands.arguments import Parser
from slotbench.config.command_line import resolve
from slotbench.io import dump_json, parse_yaml
from slotbench.runs.folder import CONFIG, RunFolder

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Prints the resolved configuration."""
    parser = Parser(
        "slotbench show",
        "Prints the complete configuration that `slotbench fit` would use, or that of a run, defaults included.",
        epilog="Settings and options are those of fit: slotbench show FILE --model.core.num_slots 8 > mine.yaml",
    )
    parser.add_argument("path", nargs="?", metavar="FILE|RUN", help="an experiment, or a run folder")
    parser.add_argument("--json", action="store_true", help="JSON in place of YAML")
    given = parser.parse_args([word for word in arguments if word in ("--json", "-h", "--help")])
    rest = [word for word in arguments if word != "--json"]
    if not rest:
        parser.error("FILE or RUN is missing, such as experiments/blinking_balls.yaml")
    run = None
    if not rest[0].startswith("-"):
        path = Path(rest[0])
        run = RunFolder.open(path).path if path.is_dir() else None
        rest[:1] = ["--config", str(path if run is None else run / CONFIG)]
    text = resolve(rest, run).yaml()
    print(dump_json(parse_yaml(text, "the configuration"), indent=1) if given.json else text.rstrip("\n"))
    return 0
