"""Configurations, runs, grids and checkpoints of somebody else: each leaves a file behind if it is believed."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_configs import COMPONENTS, tiny_config
from tiny_discovery import train

from slotbench.cli import run

OWNED = "owned"
PLUGIN = ("--plugin", str(COMPONENTS))


def command() -> dict[str, Any]:
    """A class of slotbench's own that starts a program when it is built."""
    job = {
        "class_path": "slotbench.grids.engines.Job",
        "init_args": {
            "id": "x",
            "folder": "job",
            "command": ["touch", OWNED],
            "environment": {},
        },
    }
    return {"class_path": "slotbench.grids.engines.CommandProcess", "init_args": {"job": job}}


def part(path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


def changed(key: str, value: Any) -> dict[str, Any]:
    config = tiny_config()
    *outer, last = key.split(".")
    place = config
    for name in outer:
        place = place.setdefault(name, {})
    place[last] = value
    return config


LIGHTNING = "lightning.pytorch"
RICH = f"{LIGHTNING}.callbacks.RichProgressBar"
OUTSIDE = "../outside"
ARGUMENTS = "model.init_args"
CORE = f"{ARGUMENTS}.core"

# what somebody else's YAML says, and a word of the answer
COMMANDS: dict[str, tuple[str, Any, str]] = {
    "class in a value of any type": (
        "trainer.callbacks",
        [part(RICH, console_kwargs={"file": command()})],
        "CommandProcess is named where no class is asked for",
    ),
    "class as a mapping": ("trainer.callbacks", [part(RICH, console_kwargs=command())], "console_kwargs"),
    "class in text": ("trainer.callbacks", [part(RICH, console_kwargs={"file": json.dumps(command())})], "no class"),
    "class in a theme": ("trainer.callbacks", [part(RICH, theme=command())], "CommandProcess"),
    "class as a callback": ("trainer.callbacks", [command()], "CommandProcess may not be named"),
    "class among loggers": ("trainer.logger", [command()], "CommandProcess may not be named"),
    "class as a plugin": ("trainer.plugins", [command()], "CommandProcess may not be named"),
    "class as a strategy": ("trainer.strategy", command(), "CommandProcess may not be named"),
    "class as a profiler": ("trainer.profiler", command(), "CommandProcess may not be named"),
    "class as an optimiser": (f"{ARGUMENTS}.optimizer", command(), "CommandProcess may not be named"),
    "class as an argument of an optimiser": (
        f"{ARGUMENTS}.optimizer",
        part("torch.optim.SGD", lr=command()),
        "CommandProcess",
    ),
    "class as a core": (CORE, command(), "CommandProcess may not be named"),
    "class as a task": ("model", command(), "CommandProcess may not be named"),
    "class as data": ("data", command(), "CommandProcess may not be named"),
    "function as a core": (CORE, part("os.system", command=f"touch {OWNED}"), "os.system may not be named"),
    "function as a callback's argument": (
        "trainer.callbacks",
        [part(f"{LIGHTNING}.callbacks.BackboneFinetuning", lambda_func="os.system")],
        "lambda_func of BackboneFinetuning cannot be os.system",
    ),
    "checkpoint's own loader": (
        "model",
        part(
            "slotbench.tasks.slot_task.SlotTask.load_from_checkpoint", checkpoint_path="evil.ckpt", weights_only=False
        ),
        "may not be named",
    ),
    "registered class's loader": (
        "model",
        part("cli_components.TinyTask.load_from_checkpoint", checkpoint_path="evil.ckpt", weights_only=False),
        "may not be named",
    ),
    "logger that reaches the network": (
        "trainer.logger",
        part(f"{LIGHTNING}.loggers.WandbLogger", offline=True, save_dir=OUTSIDE),
        "WandbLogger may not be named",
    ),
}
PATHS: dict[str, tuple[str, Any, str]] = {
    "checkpoints": (
        "trainer.callbacks",
        [part(f"{LIGHTNING}.callbacks.ModelCheckpoint", dirpath=OUTSIDE)],
        "dirpath cannot be ../outside",
    ),
    "checkpoints by name": (
        "trainer.callbacks",
        part("ModelCheckpoint", filename=f"../../{OUTSIDE}/x"),
        "filename cannot be",
    ),
    "logger": ("trainer.logger", part(f"{LIGHTNING}.loggers.CSVLogger", save_dir=OUTSIDE), "save_dir cannot be"),
    "logger by name": (
        "trainer.logger",
        [part(f"{LIGHTNING}.loggers.CSVLogger", save_dir="csv", name=f"../../{OUTSIDE}")],
        "name cannot be",
    ),
    "profiler": (
        "trainer.profiler",
        part(f"{LIGHTNING}.profilers.SimpleProfiler", dirpath=OUTSIDE, filename="x"),
        "dirpath cannot be",
    ),
    "root": ("trainer.default_root_dir", OUTSIDE, "default_root_dir cannot be"),
    "home": ("trainer.default_root_dir", "~/outside", "--trainer.default_root_dir"),
}
CASES = COMMANDS | PATHS


@pytest.fixture
def place(workspace: Path, tiny_components: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, with nothing beside it."""
    inner = workspace / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.setenv("HOME", str(workspace / "home"))
    Path("evil.ckpt").write_bytes(evil_pickle())
    return workspace


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {OWNED}",)


def evil_pickle() -> bytes:
    return pickle.dumps({"state_dict": {}, "evil": Evil()}, protocol=2)


def refused(place: Path, capsys: Any, *arguments: str) -> str:
    capsys.readouterr()
    assert run([*arguments]) == 2
    said: str = capsys.readouterr().err
    assert said.startswith("slotbench: ")
    assert "Traceback" not in said
    assert not untouched(place), said
    return " ".join(said.split())


def untouched(place: Path) -> list[Path]:
    return [path for name in (OWNED, "outside", "job") for path in place.rglob(name)]


@pytest.mark.parametrize("case", CASES)
def test_fit_of_a_configuration_runs_nothing_and_writes_nothing_outside(place, capsys, case):
    key, value, expected = CASES[case]
    Path("theirs.yaml").write_text(yaml.safe_dump(changed(key, value)))
    assert expected in refused(place, capsys, "fit", "--config", "theirs.yaml", *PLUGIN)
    assert not Path("runs").exists()


@pytest.mark.parametrize("case", ["class in a value of any type", "class as a core", "class in text"])
def test_show_and_grids_run_nothing(place, capsys, case):
    key, value, expected = CASES[case]
    Path("theirs.yaml").write_text(yaml.safe_dump(changed(key, value)))
    Path("grid.yaml").write_text("base: theirs.yaml\nproduct: {trainer.max_steps: [1, 2]}\n")
    assert expected in refused(place, capsys, "show", "theirs.yaml", *PLUGIN)
    assert expected in refused(place, capsys, "grid", "check", "grid.yaml", *PLUGIN)
    assert expected in refused(place, capsys, "grid", "show", "grid.yaml", "1", *PLUGIN)


@pytest.mark.parametrize("key", ["settings", "product", "list"])
def test_a_grid_file_types_nothing_for_the_user(place, capsys, key):
    Path("theirs.yaml").write_text(yaml.safe_dump(tiny_config()))
    for name, value in (
        ("weights_only", False),
        ("trainer.default_root_dir", OUTSIDE),
        ("trainer.logger", part("CSVLogger", save_dir=OUTSIDE)),
        ("trainer.logger", json.dumps(part("CSVLogger", save_dir=OUTSIDE))),
    ):
        said = {"settings": {name: value}, "product": {name: [value]}, "list": [{name: value}]}[key]
        Path("grid.yaml").write_text(yaml.safe_dump({"base": "theirs.yaml", key: said}))
        for action in ("check", "run"):
            assert "grid.yaml: " in refused(place, capsys, "grid", action, "grid.yaml", *PLUGIN)


def test_what_the_user_types_counts(place):
    Path("mine.yaml").write_text(yaml.safe_dump(tiny_config()))
    logger = json.dumps(part("lightning.pytorch.loggers.CSVLogger", save_dir=str(place / "csv")))
    typed = ["--trainer.logger", logger, "--trainer.default_root_dir", str(place / "root")]
    assert run(["fit", "--config", "mine.yaml", *PLUGIN, "--trainer.log_every_n_steps", "1", *typed]) == 0
    assert list((place / "csv").rglob("metrics.csv"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_components: Path) -> Path:
    """A run that has been trained; to be copied."""
    return train(tiny_config(), tmp_path_factory.mktemp("trained") / "runs" / "tiny", *PLUGIN)


@pytest.fixture
def their_run(place: Path, trained: Path) -> Callable[..., Path]:
    def copy(key: str | None = None, value: Any = None) -> Path:
        shutil.rmtree("theirs", ignore_errors=True)
        shutil.copytree(trained, "theirs")
        config = yaml.safe_load(Path("theirs/config.yaml").read_text())
        if key is not None:
            *outer, last = key.split(".")
            inner = config
            for name in outer:
                inner = inner[name]
            inner[last] = value
        Path("theirs/config.yaml").write_text(yaml.safe_dump(config))
        return Path("theirs")

    return copy


@pytest.mark.parametrize("action", ["validate", "test", "predict", "probe"])
@pytest.mark.parametrize("case", ["class in a value of any type", "class as an optimiser", "checkpoint's own loader"])
def test_evaluating_a_run_runs_nothing(place, their_run, capsys, action, case):
    key, value, expected = CASES[case]
    their_run(key, value)
    assert expected in refused(place, capsys, action, "theirs", *PLUGIN)


@pytest.mark.parametrize("case", ["logger", "root"])
def test_evaluating_a_run_writes_nothing_outside(place, their_run, capsys, case):
    key, value, expected = CASES[case]
    their_run(key, value)
    for action in ("validate", "test", "predict"):
        assert expected in refused(place, capsys, action, "theirs", *PLUGIN)


def test_a_link_in_the_run_folder_does_not_lead_a_logger_out(place, their_run, capsys):
    their_run("trainer.logger", part("lightning.pytorch.loggers.CSVLogger", save_dir="csv"))
    (place / "target").mkdir()
    Path("theirs/csv").symlink_to(place / "target")
    assert "is a link that leads out of theirs" in refused(place, capsys, "test", "theirs", *PLUGIN)
    assert not list((place / "target").iterdir())


@pytest.mark.parametrize("action", ["validate", "test", "predict", "probe", "fit"])
def test_a_pickle_is_not_run_whatever_the_configuration_says(place, their_run, capsys, action):
    their_run("weights_only", False)
    for name in ("last", "best"):
        Path(f"theirs/checkpoints/{name}.ckpt").unlink(missing_ok=True)
        Path(f"theirs/checkpoints/{name}.ckpt").write_bytes(evil_pickle())
    if action == "fit":
        Path("theirs/result.json").unlink()
        run(["fit", "--resume", "theirs", *PLUGIN])  # starts from the beginning, and says so
        assert not untouched(place)
    else:
        refused(place, capsys, action, "theirs", *PLUGIN)


@pytest.mark.parametrize("action", ["fit", "test"])
def test_a_pickle_that_a_configuration_names_is_not_run(place, capsys, action):
    # as torch writes it, which Lightning reads
    torch.save({"state_dict": {}, "evil": Evil()}, "evil.ckpt")
    Path("theirs.yaml").write_text(yaml.safe_dump({**tiny_config(), "ckpt_path": "evil.ckpt", "weights_only": False}))
    said = refused(place, capsys, action, "--config", "theirs.yaml", *PLUGIN)
    assert "--weights_only false" in said
    assert run([action, "--config", "theirs.yaml", *PLUGIN, "--ckpt_path", "evil.ckpt"]) == 2
    assert not untouched(place)


def test_the_pickle_would_run_if_the_user_typed_it(place):
    torch.save({"state_dict": {}, "evil": Evil()}, "evil.ckpt")
    Path("mine.yaml").write_text(yaml.safe_dump(tiny_config()))
    with pytest.raises(Exception, match=r"state_dict|Missing key|pytorch-lightning_version|hyper"):
        run(["test", "--config", "mine.yaml", *PLUGIN, "--ckpt_path", "evil.ckpt", "--weights_only", "false"])
    assert Path(OWNED).exists()
