"""`slotbench export RUN --out FOLDER`: a run's trained model as a folder to hand on, and onto the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from slotbench import registry
from slotbench.commands.arguments import Parser
from slotbench.runs.checkpoint_choice import DEFAULT

__all__ = ["main"]

_DESCRIPTION = """Writes the trained model of a run: weights (model.safetensors), what they are built into
(config.json), configuration and record of the training, and a model card with the scores of the newest `slotbench
test` of these weights, or else of the validation, beside baselines. slotbench.from_pretrained("FOLDER") reads it.
Look through config.yaml, record.json and README.md before you publish them: they have the command of the training."""


def main(command: str, arguments: list[str]) -> int:
    """Exports a run, or uploads a folder that was exported before."""
    parser = Parser("slotbench export", _DESCRIPTION)
    parser.add_argument("run", type=Path, help="a run, or with --push a folder that was exported before")
    parser.add_argument("--out", type=Path, help="a folder that is not there yet")
    parser.add_argument("--checkpoint", default=DEFAULT, help="last (default), best, or a file")
    parser.add_argument("--half", action="store_true", help="round 32-bit weights to 16 bits")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="file with components")
    parser.add_argument("--push", metavar="hf://USER/REPO", help="upload; needs slotbench[hub] and `hf auth login`")
    parser.add_argument("--private", action="store_true", help="if --push makes the repository, only you can read it")
    given = parser.parse_args(arguments)
    if given.out is None and given.push is None:
        parser.error("--out FOLDER is missing")
    for file in given.plugin:
        registry.load_file(file)
    folder = given.run
    if given.out is not None:
        from slotbench.models.export import export_run

        record = export_run(given.run, given.out, given.checkpoint, given.half)
        folder, evaluation = given.out, record["evaluation"]
        size = (folder / "model.safetensors").stat().st_size
        print(f"{folder}: {record['task']} at step {record['step']:,}, {size / 1e6:.1f} MB in {record['weights']}")
        missing = f"none: slotbench test {given.run} measures them, then export again"
        print(f"scores: {missing if evaluation is None else evaluation['split'] + ' split'}")
    source = str(folder)
    if given.push is not None:
        from slotbench.models.hub import push

        print(f"{folder} is at {push(folder, given.push, given.private)}")
        source = given.push
    print(f"to use it: slotbench.from_pretrained({source!r})")
    return 0
