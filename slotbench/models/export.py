"""Exporting a run: its weights, what they are built into, its record, its evaluation, and a model card.

FOLDER/README.md            the model card
FOLDER/config.json          what `slotbench.from_pretrained` builds
FOLDER/model.safetensors    the weights
FOLDER/config.yaml          the configuration that the run was trained with, for `slotbench fit --config`
FOLDER/record.json          data, steps, scores beside baselines, command, commit, versions
FOLDER/tokenizer/           of a task of codes, its tokenizer: config.json and model.safetensors
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from slotbench import registry
from slotbench.errors import UserError
from slotbench.io import dump_json, parse_yaml, plain, read_json_object, read_text, write_atomically
from slotbench.models.card import card
from slotbench.pretrained.weights import find_checkpoint
from slotbench.runs.checkpoint_choice import DEFAULT, choose_checkpoint
from slotbench.runs.checkpoints import load_checkpoint
from slotbench.runs.evaluation_place import stage_of_test
from slotbench.runs.folder import CONFIG, RunFolder, is_validation
from slotbench.tasks.saving.model_folder import TOKENIZER, WEIGHTS, read_model, weights_argument, write_model
from slotbench.tasks.saving.saved_arguments import find_class

__all__ = ["RECORD", "export_checkpoint", "export_run"]

RECORD = "record.json"

_KEPT = (
    *("id", "name", "created", "finished", "command", "git", "git_slotbench", "versions", "device", "accelerator"),
    *("precision", "seconds", "seconds_per_step", "total_steps", "parameters", "features"),
)
"""Entries of the run's record that are exported; what names the machine and its folders is not."""


def export_run(run: str | Path, out: str | Path, checkpoint: str = DEFAULT, half: bool = False) -> dict[str, Any]:
    """Writes the trained model of a run to a folder that `slotbench.from_pretrained` reads.

    Neither the data nor code of the run's is needed. The folder appears whole: what is written is read back first, and
    has to have the weights of the checkpoint.

    Args:
        run: the run folder.
        out: a folder that is not there yet, or is empty.
        checkpoint: "last", "best" or a file.
        half: whether 32-bit weights are rounded to 16 bits.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} is there already, and not empty; expected a folder that is not there yet")
    folder = RunFolder.open(run)
    text = read_text(folder.path / CONFIG)
    file = choose_checkpoint(folder, checkpoint)
    config = parse_yaml(text, folder.path / CONFIG)
    held = load_checkpoint(file)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name}.") as place:
        made = Path(place) / "model"
        made.mkdir()
        name = config["model"]["class_path"]
        task = find_class(name, "model") if "." in name else registry.load("tasks", name)
        export_checkpoint(made, task, held, file, folder.info.get("begun_in"), half)
        digests = {
            path.relative_to(made).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(made.rglob(WEIGHTS))
        }
        record = _record(folder, config, file, held, half) | {"sha256": digests}
        write_atomically(made / CONFIG, text)
        write_atomically(made / RECORD, dump_json(record, indent=2) + "\n")
        write_atomically(made / "README.md", card(record))
        made.replace(out)  # which may be there, empty
    return record


def export_checkpoint(
    folder: Path, task: type, held: Mapping[str, Any], file: Path, begun_in: str | None = None, half: bool = False
) -> None:
    """Writes the model of one checkpoint, with that of its tokenizer, to an empty folder, and reads it back.

    `held` is what the checkpoint `file` holds, `begun_in` the folder that relative paths of the run start from.
    """
    arguments, weights = dict(held.get("hyper_parameters") or {}), held.get("state_dict")
    if not arguments or not isinstance(weights, Mapping):
        raise UserError(f"{file} holds no weights, or not what its task was built from")
    if arguments.get("tokenizer_run") is not None:
        run = Path(arguments["tokenizer_run"]).expanduser()
        there = Path(begun_in or ".") / run  # a path of the configuration starts where the run was begun
        checkpoint = find_checkpoint(there if there.exists() else run)
        (folder / TOKENIZER).mkdir()
        tokenization = registry.load("tasks", "FrameTokenization")
        export_checkpoint(folder / TOKENIZER, tokenization, load_checkpoint(checkpoint), checkpoint)
        arguments["tokenizer_run"] = TOKENIZER
    used = None
    network = arguments.get("features")
    if network is not None and (place := weights_argument(network["init_args"])) is not None:
        used = str(network["init_args"][place])
        there = Path(begun_in or ".") / Path(used).expanduser()
        used = str(there) if there.exists() else used
        arguments["features"] = network | {"init_args": network["init_args"] | {place: used}}
    write_model(folder, task, arguments, weights, half)
    read = read_model(folder, used).state_dict()
    for name, tensor in weights.items():
        expected = tensor.half().float() if half and tensor.dtype == torch.float32 else tensor
        if not expected.isclose(read[name], rtol=0.0, atol=0.0, equal_nan=True).all():
            raise UserError(f"{name} of {file} is not read back as it was written; nothing is exported")


def _record(
    folder: RunFolder, config: Mapping[str, Any], file: Path, held: Mapping[str, Any], half: bool
) -> dict[str, Any]:
    info, model = folder.info, config["model"]
    step, weights = int(held["global_step"]), "float16" if half else "float32"
    return plain(
        {
            "record": "slotbench model",
            "run": {name: info[name] for name in _KEPT if info.get(name) is not None},
            "checkpoint": file.name,
            "step": step,
            "task": model["class_path"],
            "parts": {
                name: part["class_path"]
                for name, part in model["init_args"].items()
                if isinstance(part, Mapping) and "class_path" in part
            },
            "data": config["data"],
            "input": held["hyper_parameters"]["data_spec"]["input"],
            "weights": weights,
            "evaluation": _test(folder, file, {weights, "float32"}) or _validation(folder, step),
        }
    )


def _test(folder: RunFolder, file: Path, weights: Collection[str]) -> dict[str, Any] | None:
    """The newest test of the checkpoint since the training ended, of the rounded weights if there is one."""
    ended = datetime.fromisoformat((folder.result or {}).get("finished", "9999-12-31T00:00:00+00:00"))
    found = []
    for path in folder.path.glob("test-*.json"):
        test = read_json_object(path)
        made, of = datetime.fromisoformat(test["created"]), test.get("weights", "float32")
        same = Path(str(test["checkpoint"])).name == file.name and stage_of_test(test.get("settings", {})) == "test"
        if same and of in weights and made >= ended:
            scores = {"headlines": test["headlines"], "metrics": test["metrics"]}
            found.append((of == "float16", made, path.stem, {"split": "test", "of": path.stem, "weights": of} | scores))
    return max(found, key=lambda one: one[:3])[3] if found else None


def _validation(folder: RunFolder, step: int) -> dict[str, Any] | None:
    """The validation of the training at the checkpoint's step; None if there was none."""
    info = folder.info
    metrics = info["metrics"] if info.get("metrics_step") == step else {}
    # the line of the first optimiser step has step 0
    for row in folder.history() if not metrics else ():
        if row["step"] == step - 1 and is_validation(row):
            metrics = {**metrics, **row}
    scores = {name: value for name, value in metrics.items() if name.startswith("val/")}
    of = {"split": "validation", "of": "val", "weights": "float32", "headlines": info.get("headlines", [])}
    return of | {"metrics": scores} if scores else None
