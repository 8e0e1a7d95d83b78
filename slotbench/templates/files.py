"""The content of what `slotbench new` writes, and how to install the slotbench that wrote it."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["KINDS", "Kind", "Names", "Source", "plugin_file", "plugin_files", "source_of_slotbench"]


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


@dataclass(frozen=True)
class Source:
    """What `pip install` is to be given.

    Attributes:
        here: on this machine.
        anywhere: on any machine, or "" if only this one has it.
    """

    here: tuple[str, ...]
    anywhere: str = ""


_BALLS = "experiments/bouncing_balls.yaml"
KINDS = {
    "core": Kind(
        "SlotSSM",
        "model.core",
        "--model.core {name}",
        _BALLS,
        "squared error per pixel 0.095 six frames ahead (one run); a grey image has 0.105, the simulator's\n"
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
    "tokenizer": Kind(
        "PatchKMeans", "model.tokenizer", "--model.tokenizer {name}", "experiments/movi_like_textured.yaml"
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
        "Clips at the smallest size: six frames of context, then an autoregressive roll-out of six.",
        "    loss: bce\n    context: 6\n    horizon: 6\n",
    ),
    ("Clips at the smallest size, every frame reconstructed.", ""),
)
_CODES = "Clips at the smallest size, the codes of every frame predicted from its slots."
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
    register = f'\n@register("{kind}s")'
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
    arguments, metrics = _TASKS[kind == "task"][1], "val/rollout_mse/step_05, val/loss"
    if kind == "tokenizer":
        parts["decoder"] = "AutoregressiveTransformer\n      init_args: {dim: 64, num_layers: 1, mlp_ratio: 2}"
        arguments = f"    tokenizer:\n      class_path: {names.class_name}\n"
        metrics = "val/psnr/frame, val/slot_gap"
    yaml = {f"{part}_yaml": f"    {part}:\n      class_path: {text}" for part, text in parts.items()}
    return yaml | {
        "distribution": names.distribution,
        "package": names.package,
        "module": names.module,
        "class": names.class_name,
        "kind": kind,
        "group": f"{kind}s",
        "rival": of_kind.rival,
        "key": of_kind.key,
        "swap": of_kind.swap.format(name=names.class_name),
        "expected": of_kind.expected,
        "compared": of_kind.compared.format(name=names.class_name, rival=of_kind.rival),
        "first": of_kind.first or names.class_name,
        "tested": of_kind.tested.format(kind=kind),
        "metrics": "val/loss" if kind == "task" else metrics,
        "question": _CODES if kind == "tokenizer" else _TASKS[kind == "task"][0],
        "task": {"task": names.class_name, "tokenizer": "CodeAutoencoding"}.get(kind, "VideoPrediction"),
        "task_arguments": arguments,
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


def _filled(template: str, words: dict[str, str]) -> str:
    source = importlib.resources.files("slotbench").joinpath("templates", "plugin", f"{template}.template")
    # a class takes two empty lines before it; those of what stands before its decorator are in the template
    return re.sub(r"@(\w+)@", lambda found: words[found[1]], source.read_text(encoding="utf-8"))


def source_of_slotbench() -> Source:
    """The address or the folder that slotbench was installed from, as pip has written it down (PEP 610)."""
    try:
        text = importlib.metadata.distribution("slotbench").read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found = {}
    url = found.get("url") if isinstance(found, dict) else None
    if not isinstance(url, str):
        return Source(("path/to/slotbench",))
    if isinstance(vcs := found.get("vcs_info"), dict):
        revision = vcs.get("commit_id") or vcs.get("requested_revision")
        address = f"{vcs.get('vcs', 'git')}+{_without_secrets(url)}{f'@{revision}' if revision else ''}"
        return Source((address,), address)
    if not url.startswith("file:"):
        return Source((_without_secrets(url),), _without_secrets(url))
    folder = Path(unquote(urlsplit(url).path))
    pinned = ("-c", str(folder / "constraints.txt")) if (folder / "constraints.txt").is_file() else ()
    return Source((*pinned, str(folder)), _remote(folder) if folder.is_dir() else "")


def _remote(folder: Path) -> str:
    """The address that a checkout was cloned from, as pip takes it, if others can reach it."""
    if not (folder / ".git").exists():
        return ""
    # plain reading: nothing that the checkout configures is run
    command = ["git", "-C", str(folder), "config", "--local", "--get", "remote.origin.url"]
    try:
        url = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    if url.startswith(("https://", "http://")):
        return f"git+{_without_secrets(url)}"
    if url.startswith("ssh://"):
        return f"git+{url}"
    user, at, rest = url.partition("@")
    host, colon, path = rest.partition(":")
    return f"git+ssh://{user}@{host}/{path}" if at and colon and "/" not in user + host else ""


def _without_secrets(url: str) -> str:
    """An address without the name and password that may stand in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
