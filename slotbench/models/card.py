"""The model card of an exported run: README.md in the form of the Hugging Face Hub, made from its record alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any

import yaml

from slotbench.errors import one_line
from slotbench.io import numbers
from slotbench.metric_info import score_text
from slotbench.runs.headlines import ORACLE, split_references

__all__ = ["card"]

_CARD = """---
{metadata}---

# {run[name]}

{task} on {data[class_path]}{model}, trained by slotbench.

## Use

```python
import slotbench
from slotbench.interfaces import VideoBatch

task = slotbench.from_pretrained("FOLDER"{features})  # this folder, or "hf://USER/REPO"
# bytes, or floats in [0, 1]: time x {input[height]} x {input[width]} x {input[channels]}
batch = VideoBatch.from_numpy(video)
shown = task.predict(batch)
```

## Training

{training}
## Scores

{scores}
## Files

`config.json` and `model.safetensors` are what is loaded; no code is. `config.yaml` is the configuration of the training
(`slotbench fit --config config.yaml` repeats it), `record.json` its record.
"""

_EVALUATED_BY = {"test": "`slotbench test`", "validation": "the validation of the training"}
_ROUNDED = {"float16": "with the weights rounded to 16 bits", "float32": "before the weights were rounded to 16 bits"}


def card(record: Mapping[str, Any]) -> str:
    """The text of the card; `record` is what `record.json` holds."""
    evaluation, parts = record["evaluation"], record["parts"]
    measured = numbers(evaluation and evaluation["metrics"])
    scores = [
        (headline, measured[headline["metric"]])
        for headline in (evaluation["headlines"] if measured else ())
        if math.isfinite(measured.get(headline["metric"], math.nan))
    ]
    model = ", ".join(f"{name} {parts[name]}" for name in ("encoder", "core", "decoder") if name in parts)
    return _CARD.format(
        metadata=yaml.safe_dump(_metadata(record, scores), sort_keys=False, allow_unicode=True),
        model=f" ({model})" if model else "",
        training=_table(["", ""], _training(record)),
        features=', features="PATH OF THE FEATURES\' WEIGHTS"' if "features" in parts else "",
        scores=_scores(record, scores) if scores else "None: the run has no evaluation of these weights.\n",
        **record,
    )


def _metadata(record: Mapping[str, Any], scores: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, Any]:
    """The card's data in the form of the Hub."""
    data, tags = record["data"]["class_path"], ["slotbench", "object-centric-learning", "slot-attention", "video"]
    metadata = {"library_name": "slotbench", "tags": [*tags, *filter(None, [record["parts"].get("core")])]}
    if not scores:
        return metadata
    result = {
        "task": {"type": "other", "name": record["task"]},
        "dataset": {"name": data, "type": data, "split": record["evaluation"]["split"]},
        "metrics": [{"type": one["metric"], "name": one["label"], "value": round(value, 6)} for one, value in scores],
    }
    return metadata | {"model-index": [{"name": record["run"]["name"], "results": [result]}]}


def _training(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """What is told of the data and of the training, line by line."""
    run, data = record["run"], record["data"]
    given = {name: value for name, value in data.get("init_args", {}).items() if not isinstance(value, dict | NoneType)}
    counts = [f"{count:,} {name}" for name, count in run["parameters"].items() if name != "total"]
    rows = {
        "settings of the data": ", ".join(f"{name}={value}" for name, value in given.items()),
        "steps": f"{record['step']:,} ({record['checkpoint']})",
        "parameters": f"{run['parameters']['total']:,} ({', '.join(counts)})",
        "features": " ".join(filter(None, run.get("features", {}).values())),
        "weights": record["weights"],
        "sha256": ", ".join(f"{digest} ({name})" for name, digest in record["sha256"].items()),
        "time": f"{run['seconds'] / 60:.1f} min on {run['device']}",
        "precision": run.get("precision"),
        "date": run["created"],
        "command": run["command"],
        "commit": _commit(run.get("git")),
        "commit of slotbench": _commit(run.get("git_slotbench")),
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
    }
    return ((name, text) for name, text in rows.items() if text)


def _commit(state: Mapping[str, Any] | None) -> str:
    return f"{state['commit']}{', with changes that are not committed' * state['dirty']}" if state else ""


def _scores(record: Mapping[str, Any], scores: Iterable[tuple[Mapping[str, Any], float]]) -> str:
    """How the weights were evaluated, and each score beside baselines, the best first, and oracles."""
    rows = []
    for one, value in scores:
        baselines, oracles = split_references(one)
        best_first = sorted(baselines.items(), key=itemgetter(1), reverse=one["higher_is_better"])
        beside = [f"{score_text(baseline)} {name}" for name, baseline in best_first]
        beside += [f"{score_text(oracle)} {name}, {ORACLE}" for name, oracle in oracles.items()]
        rows.append((one["label"], f"**{score_text(value)}**", "; ".join(beside) or "-"))
    split, rounded = record["evaluation"]["split"], _ROUNDED[record["evaluation"]["weights"]]
    how = _EVALUATED_BY[split] + (f", {rounded}" if record["weights"] == "float16" else "")
    table = _table(["score", "this model", "baselines"], rows)
    return f"On the {split} split of {record['data']['class_path']}, by {how}.\n\n{table}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [[one_line(text).replace("|", "\\|") for text in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *cells))
