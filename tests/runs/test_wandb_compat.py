"""Whether this machine can log in to W&B, from the environment and the files that wandb documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slotbench.runs.wandb_compat import is_set_off, is_set_offline, login_problem, login_server, mirror_settings

KEY = "0123456789" * 4


@pytest.fixture(autouse=True)
def nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("API_KEY", "IDENTITY_TOKEN_FILE", "BASE_URL", "MODE", "DIR", "DISABLED"):
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def test_without_a_key_there_is_one_sentence_and_no_question() -> None:
    assert login_problem() == f"there is no W&B key for {login_server()} on this machine"


@pytest.mark.parametrize(
    ("variable", "value", "off"),
    [
        ("WANDB_MODE", "disabled", True),
        ("WANDB_DISABLED", "true", True),
        ("WANDB_DISABLED", "false", False),
        ("WANDB_MODE", "offline", False),
    ],
)
def test_wandb_is_off_where_the_environment_says_so(
    variable: str, value: str, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_set_off()
    monkeypatch.setenv(variable, value)
    assert is_set_off() is off


def test_wandb_is_off_where_its_settings_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = disabled\n")
    assert is_set_off()
    assert not is_set_offline()


def test_a_key_of_the_environment_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert login_problem() is None


def test_a_key_of_the_netrc_file_belongs_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text(f"machine wandb.lab.example\n  login user\n  password {KEY}\n")
    assert login_problem() is not None
    monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.lab.example")
    assert (login_problem(), login_server()) == (None, "http://wandb.lab.example")


@pytest.mark.parametrize("mode", ["offline", "dryrun"])
def test_the_environment_can_say_that_this_machine_is_offline(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_set_offline()
    monkeypatch.setenv("WANDB_MODE", mode)
    assert is_set_offline()


def test_so_can_wandb_offline(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    assert is_set_offline()


def test_the_module_imports_neither_wandb_nor_torch() -> None:
    code = (
        "import sys, slotbench.runs.wandb_compat; print([name for name in ('wandb', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_mirror_is_flushed_every_second() -> None:
    assert mirror_settings(True).x_transaction_log_flush_interval == 1
