"""Which settings tell runs apart: what makes a row, what is shown of it, and what only follows from something else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotbench.comparison.records import ComparisonError, RunRecord, UnknownNameError

__all__ = ["Keys", "choose_keys", "label", "plain_value", "resolve_key", "short_names", "values_of"]

SEED, DATA_SEED = "seed_everything", "data.seed"
# Where and how a run is executed, watched and written down; two runs that differ in nothing else are the same run.
_CONDUCT = frozenset(
    {
        "ckpt_path",
        "weights_only",
        "data.num_workers",
        "trainer.accelerator",
        "trainer.strategy",
        "trainer.devices",
        "trainer.num_nodes",
        "trainer.logger",
        "trainer.enable_checkpointing",
        "trainer.enable_progress_bar",
        "trainer.enable_model_summary",
        "trainer.default_root_dir",
        "trainer.profiler",
        "trainer.barebones",
        "trainer.model_registry",
        "trainer.enable_autolog_hparams",
        "trainer.num_sanity_val_steps",
        "trainer.log_every_n_steps",
        "trainer.val_check_interval",
        "trainer.check_val_every_n_epoch",
        "trainer.benchmark",
        "trainer.inference_mode",
        "trainer.use_distributed_sampler",
        "trainer.detect_anomaly",
        "trainer.plugins",
    }
)
_ORDER = ("model.core", "model.", "data", "model.optimizer", "model.schedule", "trainer.", "")


@dataclass(frozen=True)
class Keys:
    """Settings by the part that they have in a comparison.

    Attributes:
        shown: columns, most telling first.
        grouping: settings that must be equal within a row: the columns, and what is folded.
        seeds: settings that are a run's seed.
        folded: arguments left out because they follow from the class of their component; by that component.
        conduct: settings that differ and make no difference to what is compared.
        are_given: somebody has chosen the columns, so other settings may differ within a row.
    """

    shown: list[str]
    grouping: list[str]
    seeds: list[str] = field(default_factory=list)
    folded: Mapping[str, list[str]] = field(default_factory=dict)
    conduct: list[str] = field(default_factory=list)
    are_given: bool = False


def choose_keys(runs: Sequence[RunRecord], *, everything: bool = False) -> Keys:
    """The settings in which runs differ, sorted into their parts.

    An argument is folded if it has one value for each class of the components that it belongs to: what is left of a
    core when the core itself is compared. A setting that is absent counts as one that is null.

    Args:
        runs: at least one; runs without a configuration are passed over.
        everything: fold nothing, and count the conduct too.
    """
    settings = [run.settings for run in runs if run.settings]
    differing = _differing(settings)
    seeds = _seeds(settings, differing)
    conduct = [] if everything else [key for key in differing if _is_conduct(key)]
    grouping = sorted((key for key in differing if key not in (*seeds, *conduct)), key=_rank)
    folded: dict[str, list[str]] = {}
    if not everything:
        components = [key for key in grouping if any(other.startswith(f"{key}.") for other in grouping)]
        for key in grouping:
            parents = [parent for parent in components if key.startswith(f"{parent}.")]
            if parents and key != "model.core" and _follows(key, parents, settings):
                folded.setdefault(parents[-1], []).append(key)
    hidden = {key for keys in folded.values() for key in keys}
    return Keys([key for key in grouping if key not in hidden], grouping, seeds, folded, conduct)


def _is_conduct(key: str) -> bool:
    # arguments of a strategy or a logger too
    return key in _CONDUCT or any(key.startswith(f"{conduct}.") for conduct in _CONDUCT)


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(key for given in settings for key in given)
    return [key for key in names if len(values_of(key, settings)) > 1]


def values_of(key: str, settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The different values of a setting, by their text."""
    found: dict[str, Any] = {}
    for given in settings:
        value = given.get(key)
        found.setdefault(plain_value(value), value)
    return found


def _seeds(settings: Sequence[Mapping[str, Any]], differing: Sequence[str]) -> list[str]:
    if DATA_SEED not in differing:
        return [SEED]
    pairs = {(plain_value(given.get(SEED)), plain_value(given.get(DATA_SEED))) for given in settings}
    both = len({seed for seed, _ in pairs}), len({seed for _, seed in pairs})
    return [SEED, DATA_SEED] if both == (len(pairs), len(pairs)) else [SEED]


def _follows(key: str, parents: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> bool:
    seen: dict[tuple[str, ...], str] = {}
    for given in settings:
        classes = tuple(plain_value(given.get(parent)) for parent in parents)
        if seen.setdefault(classes, plain_value(given.get(key))) != plain_value(given.get(key)):
            return False
    return True


def _rank(key: str) -> tuple[int, int, int]:
    matching = [index for index, prefix in enumerate(_ORDER) if key == prefix or key.startswith(prefix)]
    longest = max(matching, key=lambda index: len(_ORDER[index]))
    return longest, key.count("."), 0 if key == _ORDER[longest] else 1


def plain_value(value: Any) -> str:
    """A setting as one types it; text that is unique for the value."""
    if isinstance(value, str):
        return value
    if value is None:
        return "–"
    return json.dumps(value, sort_keys=True, default=str)


def resolve_key(given: str, runs: Sequence[RunRecord]) -> str:
    """A setting by its name, or by the end of it where that is enough.

    Raises:
        UnknownNameError: no run has it.
        ComparisonError: several settings end like that.
    """
    known = list(dict.fromkeys(key for run in runs for key in run.settings))
    if given in known:
        return given
    ending = [key for key in known if key.endswith(f".{given}")]
    if len(ending) == 1:
        return ending[0]
    differing = _differing([run.settings for run in runs if run.settings])
    telling = [key for key in ending if key in differing]
    if len(telling) == 1:
        return telling[0]
    if ending:
        raise ComparisonError(f"{given} may be {' or '.join(telling or ending)}: type one of them")
    raise UnknownNameError("setting", given, differing or known)


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest end of each key that no other of them ends with."""
    names = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[index:]) for index in reversed(range(len(parts)))]
        others = [other for other in keys if other != key]
        names[key] = next(
            (end for end in ends if not any(other == end or other.endswith(f".{end}") for other in others)), key
        )
    return names


def label(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A row in a few words: names of classes as they are, other values behind the short name of their key."""
    names = short_names(keys)
    words = []
    for key in keys:
        value = settings.get(key)
        if value is None:
            continue
        is_class = isinstance(value, str) and value[:1].isupper()
        words.append(value if is_class else f"{names[key]}={plain_value(value)}")
    return ", ".join(words)
