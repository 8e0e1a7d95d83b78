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
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench import registry
from slotbench.errors import FileError, UserError
from slotbench.io import dump_json, parse_yaml, plain, read_json_object_or_none, read_text, write_atomically
from slotbench.models.card import write_card
from slotbench.pretrained.weights import find_checkpoint
from slotbench.runs.checkpoint_choice import DEFAULT, choose_checkpoint
from slotbench.runs.checkpoints import load_checkpoint
from slotbench.runs.folder import CONFIG, RunFolder, is_validation
from slotbench.tasks.saving.model_folder import TOKENIZER, WEIGHTS, read_model, write_model
from slotbench.tasks.saving.saved_arguments import find_class

__all__ = ["RECORD", "export_checkpoint", "export_run"]

RECORD = "record.json"

_KEPT = (
    *("id", "name", "created", "finished", "command", "git", "git_slotbench", "versions", "device", "accelerator"),
    *("precision", "seconds", "seconds_per_step", "total_steps", "parameters"),
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
        export_checkpoint(made, _task_of(config, folder.path / CONFIG), held, file, folder.info.get("begun_in"), half)
        digests = {
            path.relative_to(made).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(made.rglob(WEIGHTS))
        }
        record = _record(folder, config, file, held, half) | {"sha256": digests}
        write_atomically(made / CONFIG, text)
        write_atomically(made / RECORD, dump_json(record, indent=2) + "\n")
        write_card(made, record)
        if out.exists():
            out.rmdir()
        made.replace(out)
    return record


def export_checkpoint(
    folder: Path, task: type, held: Mapping[str, Any], file: Path, begun_in: Any = None, half: bool = False
) -> None:
    """Writes the model of one checkpoint, with that of its tokenizer, to an empty folder, and reads it back.

    `held` is what the checkpoint `file` holds, `begun_in` the folder that relative paths of the run start from.
    """
    arguments, weights = dict(held.get("hyper_parameters") or {}), held.get("state_dict")
    if not arguments or not isinstance(weights, Mapping):
        raise UserError(f"{file} holds no weights, or not what its task was built from")
    if arguments.get("tokenizer_run") is not None:
        checkpoint = find_checkpoint(_place(str(arguments["tokenizer_run"]), begun_in))
        (folder / TOKENIZER).mkdir()
        tokenization = registry.load("tasks", "FrameTokenization")
        export_checkpoint(folder / TOKENIZER, tokenization, load_checkpoint(checkpoint), checkpoint)
        arguments["tokenizer_run"] = TOKENIZER
    write_model(folder, task, arguments, weights, half)
    read = read_model(folder).state_dict()
    for name, tensor in weights.items():
        expected = tensor.half().to(tensor.dtype) if half and tensor.dtype == read[name].dtype else tensor
        if not expected.isclose(read[name], rtol=0.0, atol=0.0, equal_nan=True).all():
            raise UserError(f"{name} of {file} is not read back as it was written; nothing is exported")


def _place(path: str, begun_in: Any) -> Path:
    """A path of the run's configuration, which is relative to the folder where the run was begun."""
    here = Path(path).expanduser()
    there = Path(str(begun_in)) / here
    return there if isinstance(begun_in, str) and there.exists() else here


def _task_of(config: Any, where: Path) -> type:
    name = config.get("model", {}).get("class_path") if isinstance(config, dict) else None
    if not isinstance(name, str):
        raise FileError(f"{where} names no task: expected class_path under model")
    return find_class(name, "model") if "." in name else registry.load("tasks", name)


def _record(
    folder: RunFolder, config: Mapping[str, Any], file: Path, held: Mapping[str, Any], half: bool
) -> dict[str, Any]:
    info: Mapping[str, Any] = folder.info
    step = int(held.get("global_step", 0))
    weights = "float16" if half else "float32"
    evaluation = _test(folder, file, weights) or _test(folder, file, "float32") or _validation(folder, step)
    spec = held["hyper_parameters"].get("data_spec")
    model = config["model"].get("init_args", {})
    return plain(
        {
            "record": "slotbench model",
            "run": {name: info[name] for name in _KEPT if info.get(name) is not None},
            "checkpoint": file.name,
            "step": step,
            "task": config["model"]["class_path"],
            "parts": {
                name: part["class_path"]
                for name, part in model.items()
                if isinstance(part, Mapping) and isinstance(part.get("class_path"), str)
            },
            "data": config.get("data"),
            "input": spec.get("input") if isinstance(spec, Mapping) else None,
            "weights": weights,
            "evaluation": evaluation,
        }
    )


def _test(folder: RunFolder, file: Path, weights: str) -> dict[str, Any] | None:
    """The newest test of the checkpoint with such weights since the training ended; None if there is none."""
    ended = _date((folder.result or {}).get("finished"))
    found = []
    for path in sorted(folder.path.glob("test-*.json")):
        test = read_json_object_or_none(path) or {}
        these = (test.get("subcommand"), Path(str(test.get("checkpoint"))).name, test.get("weights", "float32"))
        made = _date(test.get("created"))
        if these == ("test", file.name, weights) and made is not None and ended is not None and made >= ended:
            found.append((made, path.stem, test))
    if not found:
        return None
    _, name, test = max(found, key=lambda one: one[:2])
    scores = {"headlines": test.get("headlines", []), "metrics": test.get("metrics", {})}
    return {"split": "test", "of": name, "weights": weights} | scores


def _validation(folder: RunFolder, step: int) -> dict[str, Any] | None:
    """The validation of the training at the checkpoint's step; None if there was none."""
    info: Mapping[str, Any] = folder.info
    metrics = info.get("metrics", {}) if info.get("metrics_step") == step else {}
    # the line of the first optimiser step has step 0
    for row in folder.history() if not metrics else ():
        if row["step"] == step - 1 and is_validation(row):
            metrics = {**metrics, **row}
    scores = {name: value for name, value in metrics.items() if name.startswith("val/")}
    headlines = info.get("headlines", [])
    found = {"split": "validation", "of": "val", "weights": "float32", "headlines": headlines, "metrics": scores}
    return found if scores else None


def _date(text: Any) -> datetime | None:
    try:
        date = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.astimezone()
