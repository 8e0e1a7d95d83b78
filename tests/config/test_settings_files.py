"""Configuration files that would take all time or memory to read, or are no files: one sentence, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tiny_configs import COMPONENTS, tiny_config

from slotbench.cli import run
from slotbench.config.settings import read_settings
from slotbench.errors import UserError

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BILLIONS = "{" + ALIASES.replace("\n", ", ").rstrip(", ") + "}"


def refused(capsys, *arguments: str) -> str:
    assert run([*arguments, "--plugin", str(COMPONENTS)]) == 2
    said: str = capsys.readouterr().err
    assert said.startswith("slotbench: ")
    assert "Traceback" not in said
    assert len(said) < 2000
    return " ".join(said.split())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ALIASES.encode(), "values once its aliases are written out"),
        (b"[" * 100_000, "nested more than"),
        (b"a: " + b"{b: " * 5_000, "nested more than"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"a: &a [*a]\n", "an alias that holds itself"),
        (b"a: 2020-13-45\n", "not a valid value"),
        (b"a: " + b"9" * 5_000, "not a valid value"),
        (b"# " + b"x" * (5 << 20), "is larger than"),
        (b"a: !!python/object/apply:os.system [touch owned]\n", "a is not a valid value"),
    ],
)
def test_a_file_that_is_no_configuration(workspace, tiny_components, capsys, content, expected):
    Path("theirs.yaml").write_bytes(content)
    assert expected in refused(capsys, "fit", "--config", "theirs.yaml")
    assert expected in refused(capsys, "show", "tiny.yaml", "--config", "theirs.yaml")


@pytest.mark.parametrize("key", ["model.init_args.core", "trainer.callbacks", "trainer.max_time", "data"])
def test_text_that_multiplies_when_it_is_read_as_yaml(workspace, tiny_components, capsys, key):
    config = tiny_config()
    *outer, last = key.split(".")
    inner = config
    for name in outer:
        inner = inner[name]
    inner[last] = BILLIONS
    Path("theirs.yaml").write_text(yaml.safe_dump(config))
    assert "values once its aliases are written out" in refused(capsys, "show", "theirs.yaml")


@pytest.mark.parametrize("where", ["itself", "a value of its own"])
def test_a_pipe_is_not_waited_for(workspace, tiny_components, capsys, where):
    os.mkfifo("pipe.yaml")
    if where == "itself":
        assert "pipe.yaml is a named pipe" in refused(capsys, "fit", "--config", "pipe.yaml")
    else:
        config = tiny_config()
        config["model"]["init_args"]["core"] = "pipe.yaml"
        Path("theirs.yaml").write_text(yaml.safe_dump(config))
        assert "pipe.yaml is a named pipe" in refused(capsys, "fit", "--config", "theirs.yaml")


def test_a_pipe_without_the_ending_of_a_configuration_is_not_waited_for(workspace, tiny_components, capsys):
    os.mkfifo("pipe")
    config = tiny_config()
    config["model"]["init_args"]["core"] = "pipe"
    Path("theirs.yaml").write_text(yaml.safe_dump(config))
    assert "pipe" in refused(capsys, "fit", "--config", "theirs.yaml")


def test_a_device_behind_a_link_is_not_read(workspace, tiny_components, capsys):
    Path("zero.yaml").symlink_to("/dev/zero")
    assert "zero.yaml is a device" in refused(capsys, "fit", "--config", "zero.yaml")


def test_a_value_in_a_file_of_its_own_still_is_one(workspace, tiny_components, capsys):
    config = tiny_config()
    Path("core.yaml").write_text(yaml.safe_dump(config["model"]["init_args"]["core"]))
    config["model"]["init_args"]["core"] = "core.yaml"
    Path("whole.yaml").write_text(yaml.safe_dump(config))
    assert run(["show", "whole.yaml", "--plugin", str(COMPONENTS)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["model"]["init_args"]["core"]["init_args"]["num_slots"] == 3


def test_files_that_lead_to_one_another_end(workspace):
    Path("a.yaml").write_text("model: b.yaml\n")
    Path("b.yaml").write_text("core: a.yaml\n")
    with pytest.raises(UserError, match="back to itself"):
        read_settings(["--config", "a.yaml"])
    for number in range(20):
        Path(f"{number}.yaml").write_text(f"x: {number + 1}.yaml\n")
    with pytest.raises(UserError, match="more and more files"):
        read_settings(["--config", "0.yaml"])
    # forty times as many at each step
    for number in range(7):
        Path(f"w{number}.yaml").write_text("".join(f"k{key}: w{number + 1}.yaml\n" for key in range(40)))
    Path("w7.yaml").write_text("x: 1\n")
    with pytest.raises(UserError, match="more and more files"):
        read_settings(["--config", "w0.yaml"])
