"""Configurations as flat settings, and which of them tell runs apart: what makes a row and what is shown of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotbench.comparison.records import ComparisonError, RunRecord, UnknownNameError
from slotbench.configurations import shortest_keys
from slotbench.errors import FileError

__all__ = [
    "MOST_SETTINGS",
    "Keys",
    "choose_keys",
    "flat_settings",
    "label",
    "plain_value",
    "resolve_key",
    "telling_keys",
    "values_of",
]

MOST_SETTINGS = 2000
"""Settings that a configuration may have: what compares runs looks at pairs of them."""

_DEPTH, _BITS = 60, 1024

# whose classes the command line takes by their last name
_SHORT = ("slotbench.", "slotbench_plugins.", "torch.optim.")


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by the keys that one types on the command line; the order stays.

    A component `{class_path: C, init_args: {a: 1}}` under `key` becomes `key: C` and `key.a: 1`. Classes of ours and of
    torch.optim lose their modules, as on the command line; others keep theirs. Lists stay values, components in them
    included. Numbers become equal in type where they are equal in value (JSON writes 2.0 as 2), and numbers that are
    not finite become words (JSON has none).

    Args:
        config: the nested configuration.

    Raises:
        FileError: it has more than `MOST_SETTINGS` settings.

    >>> flat_settings({"model": {"core": {"class_path": "RIM", "init_args": {"top_k": 4.0}}}, "seed_everything": 0})
    {'model.core': 'RIM', 'model.core.top_k': 4, 'seed_everything': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        _flatten(str(key), value, flat, 1)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, Any], depth: int) -> None:
    if len(flat) >= MOST_SETTINGS:
        raise FileError(f"has more than {MOST_SETTINGS:,} settings; a configuration has fewer")
    if not isinstance(value, Mapping) or not value or depth > _DEPTH:
        flat[key] = _settled(value, depth)
        return
    inner: Mapping[str, Any] = value
    if isinstance(path := value.get("class_path"), str):
        flat[key] = _class_name(path)
        given = [value.get(name) for name in ("init_args", "dict_kwargs")]
        inner = {name: item for part in given if isinstance(part, Mapping) for name, item in part.items()}
    for name, item in inner.items():
        _flatten(f"{key}.{name}", item, flat, depth + 1)


def _class_name(path: str) -> str:
    return path.rpartition(".")[2] if path.startswith(_SHORT) else path


def _settled(value: Any, depth: int) -> Any:
    if depth > _DEPTH and isinstance(value, Mapping | list | tuple):
        return "nested too deeply"
    if isinstance(value, Mapping):
        return {str(key): _settled(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settled(item, depth + 1) for item in value]
    if isinstance(value, int) and value.bit_length() > _BITS:
        # Python refuses to print an integer of thousands of digits
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        # beyond this a float does not hold every whole number, and keeps its exponent when printed
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


SEED, DATA_SEED = "seed_everything", "data.loader.seed"
# Where and how a run is executed, watched and written down; two runs that differ in nothing else are the same run.
_EXECUTION = frozenset({"ckpt_path", "weights_only", "data.loader.num_workers"}) | {
    f"trainer.{name}"
    for name in (
        *("accelerator", "strategy", "devices", "num_nodes", "plugins", "benchmark", "use_distributed_sampler"),
        *("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "enable_autolog_hparams"),
        *("default_root_dir", "profiler", "barebones", "model_registry", "log_every_n_steps", "detect_anomaly"),
        *("num_sanity_val_steps", "val_check_interval", "check_val_every_n_epoch", "inference_mode"),
    )
}
_ORDER = ("model.core", "model.", "data", "model.optimizer", "model.schedule", "trainer.", "")


@dataclass(frozen=True)
class Keys:
    """Settings by the part that they have in a comparison.

    Attributes:
        shown: columns, most telling first.
        grouping: settings that must be equal within a row: the columns, and what is folded.
        seeds: settings that are a run's seed.
        folded: arguments left out because they follow from the class of their component; by that component.
        execution: settings that differ and make no difference to what is compared.
        are_given: the user chose the columns, so other settings may differ within a row.
    """

    shown: list[str]
    grouping: list[str]
    seeds: list[str] = field(default_factory=list)
    folded: Mapping[str, list[str]] = field(default_factory=dict)
    execution: list[str] = field(default_factory=list)
    are_given: bool = False


def choose_keys(runs: Sequence[RunRecord], *, everything: bool = False) -> Keys:
    """The settings in which runs differ, sorted into their parts.

    An argument is folded if it has one value for each class of the components that it belongs to: what is left of a
    core when the core itself is compared. A setting that is absent counts as one that is null.

    Args:
        runs: at least one; runs without a configuration are passed over.
        everything: fold nothing, and count the execution too.
    """
    settings = [run.settings for run in runs if run.settings]
    differing = _differing(settings)
    seeds = _seeds(settings, differing)
    execution = [] if everything else [key for key in differing if _is_execution(key)]
    grouping = sorted((key for key in differing if key not in (*seeds, *execution)), key=_rank)
    folded: dict[str, list[str]] = {}
    if not everything:
        components = [key for key in grouping if any(other.startswith(f"{key}.") for other in grouping)]
        for key in grouping:
            parents = [parent for parent in components if key.startswith(f"{parent}.")]
            if parents and key != "model.core" and _follows(key, parents, settings):
                folded.setdefault(parents[-1], []).append(key)
    hidden = {key for keys in folded.values() for key in keys}
    return Keys([key for key in grouping if key not in hidden], grouping, seeds, folded, execution)


def _is_execution(key: str) -> bool:
    # arguments of a strategy or a logger too
    return key in _EXECUTION or any(key.startswith(f"{execution}.") for execution in _EXECUTION)


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

    "seed" is the run's, as in a grid, where runs differ by it.

    Raises:
        UnknownNameError: no run has it.
        ComparisonError: several settings end like that.
    """
    known = list(dict.fromkeys(key for run in runs for key in run.settings))
    if given in known:
        return given
    ending = [key for key in known if key.endswith(f".{given}")]
    differing = _differing([run.settings for run in runs if run.settings])
    if given == "seed" and SEED in differing:
        ending.append(SEED)
    if len(ending) == 1:
        return ending[0]
    telling = [key for key in ending if key in differing]
    if len(telling) == 1:
        return telling[0]
    if ending:
        raise ComparisonError(f"{given} may be {' or '.join(telling or ending)}: type one of them")
    raise UnknownNameError("setting", given, differing or known)


def label(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A row in a few words: names of classes as they are, other values behind the short name of their key."""
    names = shortest_keys(keys)
    words = []
    for key in keys:
        value = settings.get(key)
        if value is None:
            continue
        is_class = isinstance(value, str) and value[:1].isupper()
        words.append(value if is_class else f"{names[key]}={plain_value(value)}")
    return ", ".join(words)


def telling_keys(settings: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The first of the keys that are enough to tell all these settings apart, as far as all of the keys do.

    >>> telling_keys([{"core": "RIM", "dim": 8}, {"core": "S5", "dim": 9}], ["core", "dim"])
    ['core']
    """

    def groups(chosen: Sequence[str]) -> int:
        return len({tuple(plain_value(given.get(key)) for key in chosen) for given in settings})

    chosen: list[str] = []
    for key in keys:
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    return chosen
