"""The model card of an exported run: README.md in the form of the Hugging Face Hub, made from its record alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from slotbench.errors import one_line
from slotbench.io import real, write_atomically
from slotbench.metric_info import score_text
from slotbench.runs.oracles import ORACLE, split_references

__all__ = ["card", "write_card"]

_MORE_FILES = """## Files

`config.json` and `model.safetensors` are what is loaded; no code is. `config.yaml` is the configuration of the training
(`slotbench fit --config config.yaml` repeats it), `record.json` its record.
"""


def write_card(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the README.md of a model's folder."""
    write_atomically(folder / "README.md", card(record))


def card(record: Mapping[str, Any]) -> str:
    """The text of the card; `record` is what `record.json` holds."""
    run, scores = record["run"], list(_scores(record["evaluation"]))
    parts = [f"{name} {value}" for name, value in record["parts"].items() if name in ("encoder", "core", "decoder")]
    about = f"{record['task']} on {_data(record)}" + (f" ({', '.join(parts)})" if parts else "")
    sections = [
        f"---\n{yaml.safe_dump(_metadata(record, scores), sort_keys=False, allow_unicode=True)}---\n",
        f"# {run.get('name', 'model')}\n",
        f"{about}, trained by slotbench.\n",
        f"## Use\n\n```python\n{_use(record)}```\n",
        f"## Training\n\n{_table(['', ''], _training(record))}",
        f"## Scores\n\n{_score_table(record, scores)}",
        _MORE_FILES,
    ]
    return "\n".join(sections)


def _metadata(record: Mapping[str, Any], scores: list[_Score]) -> dict[str, Any]:
    """The card's data in the form of the Hub."""
    core, name = record["parts"].get("core"), _data(record)
    tags = ["slotbench", "object-centric-learning", "slot-attention", "video", *([core] if core else [])]
    result = {
        "task": {"type": "other", "name": record["task"]},
        "dataset": {"name": name, "type": name, "split": record["evaluation"]["split"] if scores else None},
        "metrics": [{"type": one.metric, "name": one.label, "value": round(one.value, 6)} for one in scores],
    }
    index = [{"name": record["run"].get("name", "model"), "results": [result]}]
    return {"library_name": "slotbench", "tags": tags, **({"model-index": index} if scores else {})}


def _use(record: Mapping[str, Any]) -> str:
    sizes = " x ".join(str((record["input"] or {}).get(axis)) for axis in ("height", "width", "channels"))
    return (
        "import slotbench\n"
        "from slotbench.interfaces import VideoBatch\n\n"
        'task = slotbench.from_pretrained("FOLDER")  # this folder, or "hf://USER/REPO"\n'
        f"batch = VideoBatch.from_numpy(video)  # bytes, or floats in [0, 1]: time x {sizes}\n"
        "shown = task.predict(batch)\n"
    )


def _training(record: Mapping[str, Any]) -> list[list[str]]:
    run = record["run"]
    seconds, parameters = real(run.get("seconds")), run.get("parameters") or {}
    counts = [f"{count:,} {name}" for name, count in parameters.items() if isinstance(count, int) and name != "total"]
    total = parameters.get("total")
    commits = [_commit(run.get(name), name) for name in ("git", "git_slotbench")]
    versions = [f"{name} {version}" for name, version in (run.get("versions") or {}).items() if version]
    rows = {
        "data": _data(record),
        "settings of the data": _settings(record["data"]),
        "steps": f"{record['step']:,} ({record['checkpoint']})",
        "parameters": f"{total:,} ({', '.join(counts)})" if isinstance(total, int) else None,
        "weights": record["weights"],
        "sha256": ", ".join(f"{digest} ({name})" for name, digest in record.get("sha256", {}).items()),
        "time": f"{seconds / 60:.1f} min on {run.get('device', 'an unknown device')}" if seconds else None,
        "precision": run.get("precision"),
        "date": run.get("created"),
        "command": run.get("command"),
        "commit": ", ".join(filter(None, commits)) or None,
        "versions": ", ".join(versions) or None,
    }
    return [[name, _cell(text)] for name, text in rows.items() if text]


def _commit(state: Any, name: str) -> str | None:
    if not isinstance(state, Mapping) or not state.get("commit"):
        return None
    changed = {True: ", with changes that are not committed", None: ", changes unknown"}.get(state.get("dirty"), "")
    return f"{state['commit']}{' of slotbench' if name == 'git_slotbench' else ''}{changed}"


def _settings(data: Mapping[str, Any] | None) -> str:
    given = (data or {}).get("init_args") or {}
    plain = {name: value for name, value in given.items() if name != "loader" and not isinstance(value, dict)}
    return ", ".join(f"{name}={value}" for name, value in plain.items() if value is not None)


def _data(record: Mapping[str, Any]) -> str:
    return str((record["data"] or {}).get("class_path", "unknown data"))


class _Score:
    """One headline with its value."""

    def __init__(self, headline: Mapping[str, Any], value: float) -> None:
        self.metric, self.value = headline["metric"], value
        self.label = headline.get("label") or self.metric
        self.higher = headline.get("higher_is_better", True)
        self.baselines, self.oracles = split_references(headline)


def _scores(evaluation: Any) -> Iterator[_Score]:
    for headline in evaluation["headlines"] if evaluation else ():
        value = real(evaluation["metrics"].get(headline["metric"]))
        if value is not None and math.isfinite(value):
            yield _Score(headline, value)


def _score_table(record: Mapping[str, Any], scores: list[_Score]) -> str:
    if not scores:
        return "None: the run has no evaluation of these weights.\n"
    rows = []
    for score in scores:
        best_first = sorted(score.baselines.items(), key=lambda one: one[1], reverse=score.higher)
        beside = [f"{score_text(value)} {_cell(name)}" for name, value in best_first]
        beside += [f"{score_text(value)} {_cell(name)} ({ORACLE})" for name, value in score.oracles.items()]
        rows.append([_cell(score.label), f"**{score_text(score.value)}**", ", ".join(beside) or "-"])
    evaluation = record["evaluation"]
    how = {"test": "`slotbench test`", "validation": "the validation of the training"}[evaluation["split"]]
    rounded = ""
    if record["weights"] == "float16":
        these = evaluation.get("weights") == "float16"
        rounded = f" Measured {'with' if these else 'before'} the weights {'' if these else 'were '}rounded to 16 bits."
    table = _table(["score", "this model", "baselines"], rows)
    return f"On the {evaluation['split']} split of {_cell(_data(record))}, by {how}.{rounded}\n\n{table}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: object) -> str:
    return one_line(text).replace("|", "\\|")
