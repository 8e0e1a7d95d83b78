"""Configurations as flat settings, and which of them tell runs apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from slotbench.comparison.runs import ComparisonError, Runs, UnknownNameError, plain_value
from slotbench.configurations import shortest_keys

__all__ = ["SEED", "Keys", "choose_keys", "flat_settings", "label", "only_runs", "resolve_key"]

SEED, DATA_SEED = "seed_everything", "data.loader.seed"
# how a run is executed, watched and written down: two runs that differ in nothing else are the same run
_TRAINER = (
    *("accelerator", "strategy", "devices", "num_nodes", "plugins", "benchmark", "use_distributed_sampler", "logger"),
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "enable_autolog_hparams", "profiler"),
    *("default_root_dir", "barebones", "model_registry", "log_every_n_steps", "detect_anomaly", "inference_mode"),
    *("num_sanity_val_steps", "val_check_interval", "check_val_every_n_epoch"),
)
_EXECUTION = ("ckpt_path", "weights_only", "data.loader.num_workers", *(f"trainer.{name}" for name in _TRAINER))
_ORDER = ("model.core", "model.", "data", "model.optimizer", "model.schedule", "trainer.", "")
# whose classes the command line takes by their last name
_SHORT = ("slotbench.", "slotbench_plugins.", "torch.optim.")


def flat_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings as text, by the keys that one types on the command line; null is left out.

    A component `{class_path: C, init_args: {a: 1}}` under `key` becomes `key: C` and `key.a: 1`.

    >>> flat_settings({"model": {"core": {"class_path": "RIM", "init_args": {"top_k": 4.0}}}, "ckpt_path": None})
    {'model.core': 'RIM', 'model.core.top_k': '4'}
    """
    flat: dict[str, str] = {}
    for key, value in config.items():
        _flatten(str(key), value, flat)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, str]) -> None:
    if not isinstance(value, Mapping) or not value:
        if value is not None:
            # JSON writes 2.0 as 2, and W&B's configurations are JSON
            whole = isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**53
            flat[key] = plain_value(int(value) if whole and isinstance(value, float) else value)
        return
    inner: Mapping[str, Any] = value
    if isinstance(path := value.get("class_path"), str):
        flat[key] = path.rpartition(".")[2] if path.startswith(_SHORT) else path
        inner = {**(value.get("init_args") or {}), **(value.get("dict_kwargs") or {})}
    for name, item in inner.items():
        _flatten(f"{key}.{name}", item, flat)


@dataclass(frozen=True)
class Keys:
    """Settings by the part that they have in a comparison.

    Attributes:
        shown: columns, most telling first.
        grouping: settings that must be equal within a row: the columns, and what follows from them.
        seeds: settings that are a run's seed.
        folded: arguments that follow from the class of their component.
        execution: settings that differ and make no difference to what is compared.
        are_given: the user chose the columns, so other settings may differ within a row.
    """

    shown: list[str]
    grouping: list[str]
    seeds: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)
    execution: list[str] = field(default_factory=list)
    are_given: bool = False


def choose_keys(settings: pd.DataFrame, *, everything: bool = False) -> Keys:
    """The settings in which runs differ, sorted into their parts.

    Args:
        settings: a line a run, as text.
        everything: leave nothing out as following from a class, or as execution.
    """
    settings = settings.dropna(how="all").fillna("–")
    differing = [key for key in settings if settings[key].nunique() > 1]
    seeds = [SEED]
    if DATA_SEED in differing and SEED in settings:
        pairs = settings[[SEED, DATA_SEED]].drop_duplicates()
        if pairs[SEED].is_unique and pairs[DATA_SEED].is_unique:
            seeds.append(DATA_SEED)
    execution = [key for key in differing if not everything and _is_execution(key)]
    grouping = sorted((key for key in differing if key not in (*seeds, *execution)), key=_rank)
    folded = [key for key in grouping if not everything and _follows(key, grouping, settings)]
    return Keys([key for key in grouping if key not in folded], grouping, seeds, folded, execution)


def _is_execution(key: str) -> bool:
    return any(key == execution or key.startswith(f"{execution}.") for execution in _EXECUTION)


def _follows(key: str, grouping: Sequence[str], settings: pd.DataFrame) -> bool:
    """Whether an argument has one value for each class of the components that it belongs to."""
    parents = [parent for parent in grouping if key.startswith(f"{parent}.")]
    return bool(parents) and key != "model.core" and settings.groupby(parents)[key].nunique().max() == 1


def _rank(key: str) -> tuple[int, int, int]:
    matching = [index for index, prefix in enumerate(_ORDER) if key == prefix or key.startswith(prefix)]
    longest = max(matching, key=lambda index: len(_ORDER[index]))
    return longest, key.count("."), 0 if key == _ORDER[longest] else 1


def resolve_key(given: str, settings: pd.DataFrame) -> str:
    """A setting by its name, or by the end of it where that is enough; "seed" is the run's.

    Raises:
        UnknownNameError: no run has it.
        ComparisonError: several settings end like that.
    """
    if given in settings:
        return given
    differing = [key for key in settings if settings[key].fillna("–").nunique() > 1]
    ending = [key for key in settings if key.endswith(f".{given}")]
    if given == "seed" and SEED in settings:
        ending.append(SEED)
    telling = [key for key in ending if key in differing] if len(ending) > 1 else ending
    if len(telling) == 1:
        return telling[0]
    if ending:
        raise ComparisonError(f"{given} may be {' or '.join(telling or ending)}: type one of them")
    raise UnknownNameError("setting", given, differing or list(settings))


def only_runs(runs: Runs, conditions: Sequence[str]) -> Runs:
    """The runs with these settings: "KEY=VALUE", values as patterns; of one key any may hold.

    Raises:
        ComparisonError: a condition is none, or no run fulfils it.
    """
    wanted: dict[str, list[str]] = {}
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals:
            raise ComparisonError(f"--only {condition!r}: expected KEY=VALUE, such as data.level=a")
        wanted.setdefault(resolve_key(key, runs.settings), []).append(value)
    keep = pd.Series(True, index=runs.facts.index)
    for key, values in wanted.items():
        texts = runs.settings[key].fillna("–")
        found = texts.map(lambda text, values=values: any(fnmatchcase(text, value) for value in values))
        if not (keep & found).any():
            given = ", ".join(f"{key}={value}" for value in values)
            raise ComparisonError(f"no run has {given}; they have {key}: {', '.join(sorted(texts.unique()))}")
        keep &= found
    part = runs.chosen(keep)
    if len(part) < len(runs):
        part.notes = [f"{len(part)} of {len(runs)} runs: those with {', '.join(conditions)}", *runs.notes]
    return part


def label(settings: pd.Series, keys: Sequence[str]) -> str:
    """A row in a few words: names of classes as they are, other values behind the short name of their key."""
    names = shortest_keys(keys)
    words = [(names[key], settings[key]) for key in keys if isinstance(settings.get(key), str)]
    return ", ".join(value if value[:1].isupper() else f"{name}={value}" for name, value in words)
