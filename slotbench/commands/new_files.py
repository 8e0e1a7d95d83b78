"""The content of what `slotbench new` writes, from the files in `slotbench/templates`."""

from __future__ import annotations

import importlib.resources
import re
import shlex
from dataclasses import dataclass

from slotbench import registry
from slotbench.commands.new_source import Source, source_of_slotbench

__all__ = ["KINDS", "Kind", "Names", "plugin_file", "plugin_files"]


@dataclass(frozen=True)
class Names:
    """What things are called: `fading-slots`, `fading_slots`, `FadingSlots`, and the module that holds the class."""

    distribution: str
    package: str
    class_name: str
    module: str


@dataclass(frozen=True)
class Kind:
    """What depends on the kind of the component.

    Attributes:
        rival: the built-in component that it is compared with.
        key: of the configuration, that names it.
        swap: arguments of `fit` that put it into another experiment.
        experiment: such an experiment.
        expected: what the experiment gave with the class as it is written.
        compared: what the grid compares.
        first: the first of the two, the class itself if absent.
        tested: what the tests are about.
    """

    rival: str
    key: str
    swap: str
    experiment: str
    expected: str = "not measured yet; write down here what it gives."
    compared: str = "{name} and {rival}"
    first: str | None = None
    tested: str = "the laws that every {kind} keeps, from `slotbench.testing`, and what is particular to yours"


_BALLS = "experiments/bouncing_balls.yaml"
KINDS = {
    "core": Kind(
        "SlotSSM",
        "model.core",
        "--model.core {name}",
        _BALLS,
        "squared error per pixel 0.095 six frames ahead (one run); a grey picture has 0.105, the simulator's\n"
        "#   constant velocity 0.014. It has begun to learn; more steps, and a better core, are yours to add.",
    ),
    "encoder": Kind("PatchEncoder", "model.encoder", "--model.encoder {name}", _BALLS),
    "decoder": Kind("TransformerDecoder", "model.decoder", "--model.decoder {name}", _BALLS),
    "aggregation": Kind(
        "WeightedMean",
        "model.core.aggregation",
        "--model.core OCSlotSSM --model.core.aggregation {name}",
        _BALLS,
    ),
    "dataset": Kind(
        "SlotRNN",
        "model.core",
        "--data {name}",
        _BALLS,
        compared="SlotSSM and SlotRNN on {name}",
        first="SlotSSM",
        tested="that a clip depends on its index alone, that splits differ, and the sizes",
    ),
    "task": Kind(
        "SlotRNN",
        "model.core",
        "--model {name}",
        _BALLS,
        compared="SlotSSM and SlotRNN at {name}",
        first="SlotSSM",
        tested="what is decoded, compared and saved",
    ),
}

_FILES = {
    "pyproject.toml": "pyproject.toml",
    ".gitignore": "gitignore",
    "README.md": "README.md",
    ".github/workflows/ci.yml": "ci.yml",
    "experiments/balls.yaml": "balls.yaml",
    "experiments/grids/compare.yaml": "compare.yaml",
}
# what the experiment asks, and the task's arguments that say so: of the other kinds, and of a task
_TASKS = (
    (
        "Clips at the smallest size: look at six frames, then go on alone for six.",
        "    loss: bce\n    context: 6\n    horizon: 6\n",
    ),
    ("Clips at the smallest size, every frame painted again.", ""),
)
_REGISTER_IMPORT = "\nfrom slotbench.registry import register"


def plugin_files(kind: str, names: Names, version: str, source: Source | None = None) -> dict[str, str]:
    """The files of a package by their paths in its folder.

    Args:
        kind: one of `KINDS`.
        names: what things are called.
        version: of slotbench, that the package needs at least.
        source: where slotbench comes from; where this one came from if absent.
    """
    words = _words(kind, names) | {"version": version} | _words_of_source(source or source_of_slotbench())
    files = {path: _filled(f"common/{template}", words) for path, template in _FILES.items()}
    files[f"{names.package}/__init__.py"] = _filled("common/init.py", words)
    plain = words | {"register": "", "register_import": ""}
    files[f"{names.package}/{names.module}.py"] = _filled(f"{kind}/module.py", plain)
    files[f"tests/test_{names.module}.py"] = _filled(f"{kind}/test.py", words) + _filled("common/test_end.py", words)
    return files


def plugin_file(kind: str, names: Names) -> str:
    """The content of a single file for `--plugin`."""
    register = f'\n@register("{_group(kind)}")'
    words = _words(kind, names) | {"register": register, "register_import": _REGISTER_IMPORT}
    return _filled(f"{kind}/module.py", words)


def _words(kind: str, names: Names) -> dict[str, str]:
    of_kind = KINDS[kind]
    parts = {
        "encoder": "PatchEncoder\n      init_args: {dim: 64, patch_size: 8, hidden_dim: 128}",
        "core": "SlotSSM\n      init_args: {num_slots: 4, dim: 64, num_layers: 1, encoder_layers: 1, mlp_ratio: 2}",
        "decoder": "TransformerDecoder\n      init_args: {dim: 64, num_layers: 1, patch_size: 8, mlp_ratio: 2}",
    }
    own = {
        "encoder": f"{names.class_name}\n      init_args: {{dim: 64, patch_size: 8}}",
        "core": f"{names.class_name}\n      init_args: {{num_slots: 4, dim: 64}}",
        "decoder": f"{names.class_name}\n      init_args: {{patch_size: 8}}",
    }
    if kind in own:
        parts[kind] = own[kind]
    elif kind == "aggregation":
        parts["core"] = (
            "OCSlotSSM\n      init_args:\n        num_slots: 4\n        dim: 64\n        aggregation:\n"
            f"          class_path: {names.class_name}"
        )
    yaml = {f"{part}_yaml": f"    {part}:\n      class_path: {text}" for part, text in parts.items()}
    return yaml | {
        "distribution": names.distribution,
        "package": names.package,
        "module": names.module,
        "class": names.class_name,
        "kind": kind,
        "group": _group(kind),
        "rival": of_kind.rival,
        "key": of_kind.key,
        "swap": of_kind.swap.format(name=names.class_name),
        "expected": of_kind.expected,
        "compared": of_kind.compared.format(name=names.class_name, rival=of_kind.rival),
        "first": of_kind.first or names.class_name,
        "tested": of_kind.tested.format(kind=kind),
        "metrics": "val/loss" if kind == "task" else "val/rollout_mse/step_05, val/loss",
        "question": _TASKS[kind == "task"][0],
        "task": names.class_name if kind == "task" else "VideoPrediction",
        "task_arguments": _TASKS[kind == "task"][1],
        "data": names.class_name if kind == "dataset" else "BouncingBalls",
        "objects": "num_squares" if kind == "dataset" else "num_balls",
    }


def _words_of_source(source: Source) -> dict[str, str]:
    default = f", which is `{source.anywhere}` where it is not set" if source.anywhere else ""
    return {
        "slotbench_here": shlex.join(source.here),
        "slotbench_anywhere": source.anywhere.replace("'", ""),
        "ci_default": default,
    }


def _group(kind: str) -> str:
    return next(plural for plural, singular in registry.KINDS.items() if singular == kind)


def _filled(template: str, words: dict[str, str]) -> str:
    source = importlib.resources.files("slotbench").joinpath("templates", "plugin", f"{template}.template")
    # a class takes two empty lines before it; those of what stands before its decorator are in the template
    return re.sub(r"@(\w+)@", lambda found: words[found[1]], source.read_text(encoding="utf-8"))
