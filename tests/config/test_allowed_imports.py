"""Configurations and checkpoints of a stranger: each leaves a file behind if it is believed."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_configs import COMPONENTS, tiny_config
from tiny_discovery import train

from slotbench.cli import run
from slotbench.config.policy import listed_classes

PLUGIN = ("--plugin", str(COMPONENTS))
PROGRAM = {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "owned"]}}
LOADER = "load_from_checkpoint"


def part(path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": arguments}


CASES: dict[str, tuple[str, Any]] = {
    "core": ("model.init_args.core", PROGRAM),
    "optimiser": ("model.init_args.optimizer", PROGRAM),
    "argument of an optimiser": ("model.init_args.optimizer", part("torch.optim.SGD", lr=PROGRAM)),
    "task": ("model", PROGRAM),
    "data": ("data", PROGRAM),
    "callback": ("trainer.callbacks", [PROGRAM]),
    "logger": ("trainer.logger", [PROGRAM]),
    "strategy": ("trainer.strategy", PROGRAM),
    "value of any type": (
        "trainer.callbacks",
        [part("lightning.pytorch.callbacks.RichProgressBar", console_kwargs={"file": PROGRAM})],
    ),
    "text": (
        "trainer.callbacks",
        [part("lightning.pytorch.callbacks.RichProgressBar", console_kwargs={"file": json.dumps(PROGRAM)})],
    ),
    "function": ("model.init_args.core", part("os.system", command="touch owned")),
    "loader of a checkpoint": ("model", part(f"cli_components.TinyTask.{LOADER}", checkpoint_path="evil.ckpt")),
    "logger that reaches the network": ("trainer.logger", part("lightning.pytorch.loggers.WandbLogger", offline=True)),
}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_components: Path) -> Path:
    return train(tiny_config(), tmp_path_factory.mktemp("trained") / "runs" / "tiny", *PLUGIN)


@pytest.fixture
def place(workspace: Path, tiny_components: Path) -> Path:
    # as torch writes it, which Lightning reads
    torch.save({"state_dict": {}, "evil": Evil()}, "evil.ckpt")
    return workspace


def ended(*arguments: str) -> None:
    """The command is refused, or ends in an error of what it was given, and has run nothing."""
    code: int | str
    try:
        code = run([*arguments, *PLUGIN])
    except Exception as error:
        code = str(error)
    assert code != 0
    assert not Path("owned").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_runs_nothing(place: Path, case: str) -> None:
    key, value = CASES[case]
    config: Any = tiny_config()
    *outer, last = key.split(".")
    inner = config
    for name in outer:
        inner = inner[name]
    inner[last] = value
    Path("theirs.yaml").write_text(yaml.safe_dump(config))
    ended("fit", "--config", "theirs.yaml", "--trainer.fast_dev_run", "true")


@pytest.mark.parametrize("action", ["fit", "test"])
def test_a_pickle_that_a_configuration_names_is_not_run(place: Path, action: str, capsys: Any) -> None:
    Path("theirs.yaml").write_text(yaml.safe_dump({**tiny_config(), "ckpt_path": "evil.ckpt", "weights_only": False}))
    ended(action, "--config", "theirs.yaml")
    assert "cannot be read as plain tensors" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["validate", "test", "predict", "probe"])
def test_the_checkpoint_of_a_run_is_not_run(place: Path, trained: Path, action: str) -> None:
    shutil.copytree(trained, "theirs")
    config = yaml.safe_load(Path("theirs/config.yaml").read_text())
    Path("theirs/config.yaml").write_text(yaml.safe_dump(config | {"weights_only": False}))
    shutil.copy("evil.ckpt", "theirs/checkpoints/last.ckpt")
    ended(action, "theirs")


def test_a_grid_file_does_not_let_a_checkpoint_run_code(place: Path, capsys: Any) -> None:
    Path("grid.yaml").write_text(yaml.safe_dump({"base": "tiny.yaml", "settings": {"weights_only": False}}))
    ended("grid", "check", "grid.yaml")
    assert "no setting weights_only" in " ".join(capsys.readouterr().err.split())


def test_the_pickle_would_run_if_the_user_typed_it(place: Path) -> None:
    with pytest.raises(Exception, match=r"state_dict|Missing key|pytorch-lightning_version|hyper"):
        run(["test", "--config", "tiny.yaml", *PLUGIN, "--ckpt_path", "evil.ckpt", "--weights_only", "false"])
    assert Path("owned").exists()


def test_an_import_path_is_used_once_it_is_allowed_and_not_imported_before(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    source = "from cli_components import TinyCore\nopen('imported', 'w').close()\nclass Theirs(TinyCore): pass\n"
    Path("their_parts.py").write_text(source)
    monkeypatch.syspath_prepend(place)
    typed = ["show", "tiny.yaml", *PLUGIN, "--model.core", "their_parts.Theirs"]
    assert run(typed) == 2
    assert "--allow-import their_parts" in capsys.readouterr().err
    assert not Path("imported").exists()
    assert run([*typed, "--allow-import", "their_parts"]) == 0
    core = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["core"]
    assert core["class_path"] == "their_parts.Theirs"


def test_an_allowed_module_that_ends_the_process_is_a_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    Path("their_script.py").write_text("import sys\n\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(place)
    typed = ["show", "tiny.yaml", *PLUGIN, "--model.core", "their_script.Theirs", "--allow-import", "their_script"]
    assert run(typed) == 2
    assert "their_script.py cannot be imported: SystemExit: 0" in " ".join(capsys.readouterr().err.split())
    assert run(["fit", "--config", "tiny.yaml", *PLUGIN, "--model.help", "TinyTask"]) == 0


def test_every_listed_class_is_there() -> None:
    for path in listed_classes():
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type), path
