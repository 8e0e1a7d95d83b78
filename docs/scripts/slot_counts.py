"""Scores trained models with other numbers of slots and of objects than in training, and draws what becomes of them.

    python docs/scripts/slot_counts.py run RUN... --slots 5 7 9 11 13 15 --clips 200 --out FOLDER \
        --data.num_objects '[3, 10]'
    python docs/scripts/slot_counts.py report FOLDER --out docs/assets

`run` writes one file per run: its last checkpoint on clips of its own test split (a permutation with a fixed seed, the
same for all runs), with each number of slots and always with that of the training. Arguments --data.NAME describe a
second set, "full", that differs from the run's own in these arguments; MOViLike makes its videos when they are first
asked for. With `--objects-slots` slots, scores go by the number of objects too, on the full set where there is one: the
objects of the scene (`objects["num_objects"]`) if the data says it, else those that are to be seen in the clip.

`--iterations N` tests with N corrections per frame, the core's `num_iterations`, in the place of the training's: CLEVR
is tested with 5 where training has 3. The validation split, by which runs are called spatial, is scored as the run was
trained.

Scores are those of `slotbench test`, per frame, of the decoder's masks; slots are drawn from a generator that starts
anew with every batch. `report` groups runs by aggregation, and by objects and slots of the training where these differ.
A run is "spatial" if its FG-ARI on its own validation split with the slots of its training is below half of that of the
best run with as many objects and slots in training; tables are made of all runs, and of those that are not spatial. A
run finds objects if it is above every baseline there; these runs are marked. The table after these is what a run gains
or loses with other slots than in training, on which seeds agree more than on the scores. Figures are written beside the
tables, where trainings differ slot_counts_trainings.png, with a panel for each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from report_slot_counts import SCORES, report

from slotbench.config.settings import command_line_settings
from slotbench.errors import UserError

BASELINE = "test/baseline/fg_ari/frame/"


def run(args: argparse.Namespace, settings: list[str]) -> int:
    """Scores every run that is named, each into a file of its own; the exit code."""
    import torch

    from slotbench import registry

    for setting in command_line_settings(settings):
        if setting.key[:1] != ("data",):
            raise UserError(f"no argument {setting.text}; what describes the full set begins with --data.")
    if min(*args.slots, args.objects_slots, args.clips, 1 if args.iterations is None else args.iterations) < 1:
        raise UserError("--slots, --objects-slots, --clips and --iterations take numbers from 1 on")
    torch.set_num_threads(args.threads)
    for file in args.plugin:
        registry.load_file(file)
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.runs:
        print(evaluate(path, args, settings), flush=True)
    return 0


def evaluate(path: Path, args: argparse.Namespace, settings: list[str]) -> str:
    """Writes the file of one run, unless it is there."""
    from slotbench.config.options import RunOptions
    from slotbench.config.run_loading import load_with_settings
    from slotbench.files import dump_json, write_atomically
    from slotbench.tasks.slot_autoencoding import SlotAutoencoding

    options = RunOptions(allow_import=args.allow_import)
    loaded = load_with_settings(path, "last", [], options, "probe")
    task, info = loaded.task, loaded.folder.info
    if not isinstance(task, SlotAutoencoding):
        raise UserError(f"{path} trained {type(task).__name__}, and slots are counted in runs of SlotAutoencoding")
    if not getattr(task.core, "draws_slots", False):
        raise UserError(
            f"the slots of {path} are not drawn, so their number cannot change: "
            "train it with --model.core.slot_init gaussian"
        )
    trained_iterations = iterations_of(task.core, args.iterations, path)
    asked = what_is_asked(loaded.checkpoint, args, settings)
    out = args.out / f"{info['name']}-{info['id']}.json"
    if out.is_file() and json.loads(out.read_text())["asked"] == asked:
        return f"{out}: done before"
    config = yaml.safe_load((loaded.folder.path / "config.yaml").read_text())
    core = config["model"]["init_args"]["core"]["init_args"]
    trained = core.pop("num_slots")
    aggregation = core.pop("aggregation")["class_path"].rpartition(".")[2]
    sets = {"own": loaded.data}
    if settings:
        sets["full"] = load_with_settings(path, "last", settings, options, "probe").data
    # the first evaluation of a task scores the baselines too
    validation = measure(task, Clips(loaded.data, "val", args.clips), trained)
    record = {
        "run": info["name"],
        "id": info["id"],
        "step": loaded.step,
        "aggregation": aggregation,
        "seed": config["seed_everything"],
        "trained_slots": trained,
        "trained_iterations": trained_iterations,
        "iterations": args.iterations or trained_iterations,
        "asked": asked,
        "config": {part: config[part] for part in ("model", "data")},
        "validation": chosen(validation),
        "baselines": {
            name.removeprefix(BASELINE): value for name, value in validation.items() if name.startswith(BASELINE)
        },
        "by_slots": {},
    }
    if args.iterations is not None:
        task.core.num_iterations = args.iterations
    for name, data in sets.items():
        clips = Clips(data, "test", args.clips)
        counts = sorted({*args.slots, trained})
        record["by_slots"][name] = {count: score(task, clips, count) for count in counts}
    groups, record["objects_are"] = clips.by_objects()
    record["by_objects"] = {count: score(task, group, args.objects_slots) for count, group in groups.items()}
    write_atomically(out, dump_json(record, indent=1))
    return f"wrote {out}"


def what_is_asked(checkpoint: Path, args: argparse.Namespace, settings: list[str]) -> dict[str, object]:
    """What decides the file of a run; what is done by it is not done again."""
    return {
        "checkpoint": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "slots": args.slots,
        "objects_slots": args.objects_slots,
        "clips": args.clips,
        "full": settings,
        # files of before have none
        **({} if args.iterations is None else {"iterations": args.iterations}),
    }


def iterations_of(core, asked: int | None, path: Path) -> int | None:
    """The iterations of a trained core, None if it has none; refused if others are asked for."""
    trained = getattr(core, "num_iterations", None)
    if asked is not None and not isinstance(trained, int):
        name = type(core).__name__
        raise UserError(f"{name} of {path} has no num_iterations, so there are none to set: leave out --iterations")
    return trained


class Clips:
    """Some clips of a split, as batches.

    Args:
        data: the data set.
        split: which split.
        most: clips at most.
        chosen: their indices; by default a random subset, the same each time.
    """

    def __init__(self, data, split: str, most: int, chosen: list[int] | None = None) -> None:
        self.data, self.split, self.dataset = data, split, data.dataset(split)
        order = np.random.default_rng(0).permutation(len(self.dataset))
        self.chosen = sorted(order[:most].tolist()) if chosen is None else chosen

    def loader(self):
        from torch.utils.data import DataLoader, Subset

        from slotbench.data.base import collate, to_unit_range

        return DataLoader(
            Subset(self.dataset, self.chosen),
            batch_size=self.data.loader.val_batch_size,
            # without their numbers in the split, by which baselines are of the first clips: these are any
            collate_fn=lambda parts: replace(to_unit_range(collate(parts)), index=None),
        )

    def by_objects(self) -> tuple[dict[int, Clips], str]:
        """The clips of each number of objects, and what is counted."""
        counts, counted = [], ""
        for batch in self.loader():
            if "num_objects" in batch.objects:
                counts += batch.objects["num_objects"].tolist()
                counted = "in the scene"
            else:
                counts += [len(clip[clip > 0].unique()) for clip in batch.require("masks")]
                counted = "visible in the clip"
        pairs = list(zip(counts, self.chosen, strict=True))
        groups = {count: [index for c, index in pairs if c == count] for count in sorted(set(counts))}
        return {count: Clips(self.data, self.split, 0, chosen) for count, chosen in groups.items()}, counted


def score(task, clips: Clips, num_slots: int) -> dict[str, float]:
    """The scores of `SCORES` with `num_slots` slots, and how many clips they are of."""
    return {"clips": len(clips.chosen)} | chosen(measure(task, clips, num_slots))


def measure(task, clips: Clips, num_slots: int) -> dict[str, float]:
    """All that the task's test logs."""
    import lightning

    task.core.num_slots = num_slots
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    (found,) = lightning.Trainer(**dict.fromkeys(quiet, False)).test(task, clips.loader(), verbose=False)
    if SCORES["ari"][0] not in found:
        raise UserError(f"{type(clips.data).__name__} has no masks of the objects, or the decoder none of the slots")
    return found


def chosen(found: dict[str, float]) -> dict[str, float]:
    """Those of `SCORES` among all that a test has logged, by their short names."""
    return {name: found[key] for name, (key, _, _) in SCORES.items()}


def parser() -> argparse.ArgumentParser:
    """The arguments of `run` and `report`."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = top.add_subparsers(required=True)
    running = commands.add_parser("run", allow_abbrev=False)
    running.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    running.add_argument("--slots", nargs="+", type=int, default=[5, 7, 9, 11, 13, 15])
    running.add_argument("--objects-slots", type=int, default=11, help="slots for the scores by number of objects")
    running.add_argument("--iterations", type=int, help="corrections per frame in the test (those of the training)")
    running.add_argument("--clips", type=int, default=1280, help="clips of each set, at most")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--threads", type=int, default=1)
    running.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers components")
    running.add_argument("--allow-import", action="append", default=[], metavar="PREFIX")
    running.set_defaults(function=run)
    writing = commands.add_parser("report", allow_abbrev=False)
    writing.add_argument("folder", type=Path)
    writing.add_argument("--out", type=Path, default=Path("."))
    writing.set_defaults(function=report)
    return top


def main(arguments: list[str]) -> int:
    """Runs one of the two; the exit code, 2 for what cannot be done."""
    given, settings = parser().parse_known_args(arguments)
    try:
        return given.function(given, settings)
    except (UserError, ValueError) as error:
        print(f"slot_counts: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
