"""Whether this machine can log in to W&B, as wandb itself finds out; and canaries for what is private in wandb."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from slotbench.runs.wandb_compat import is_set_off, is_set_offline, login_problem, login_server, mirror_settings

KEY = "0123456789" * 4


@pytest.fixture(autouse=True)
def nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("API_KEY", "IDENTITY_TOKEN_FILE", "BASE_URL", "MODE", "DIR", "DISABLED"):
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # it reads its settings once per process
    yield
    wandb.teardown()


def test_without_a_key_there_is_one_sentence_and_no_question() -> None:
    assert login_problem() == f"there is no W&B key for {login_server()} on this machine"


@pytest.mark.parametrize(
    ("variable", "value", "off"),
    [
        ("WANDB_MODE", "disabled", True),
        ("WANDB_DISABLED", "true", True),
        ("WANDB_DISABLED", "false", False),
        ("WANDB_MODE", "offline", False),
        ("WANDB_MODE", "sometimes", False),
    ],
)
def test_wandb_is_off_where_the_environment_says_so(
    variable: str, value: str, off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_set_off()
    wandb.teardown()
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
    wandb.teardown()
    monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.lab.example")
    assert (login_problem(), login_server()) == (None, "http://wandb.lab.example")


def test_what_does_not_look_like_a_key_is_none_and_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abc")
    problem = login_problem()
    assert problem is not None
    assert "must have 40+ characters, has 3" in problem
    assert "abc" not in problem
    assert "\n" not in problem


def test_a_setting_that_wandb_refuses_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    problem = login_problem()
    assert problem is not None
    assert "mode" in problem
    assert "\n" not in problem
    assert not is_set_offline()


@pytest.mark.parametrize("mode", ["offline", "dryrun"])
def test_the_environment_can_say_that_this_machine_is_offline(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_set_offline()
    wandb.teardown()
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


def test_wandb_still_has_what_is_used_of_its_private_parts() -> None:
    from wandb.sdk import wandb_setup
    from wandb.sdk.lib import wbauth

    version = f"wandb {wandb.__version__}"
    asked = set(inspect.signature(wbauth.authenticate_session).parameters)
    assert asked >= {"host", "source", "prompt", "update_session"}, (
        f"{version} cannot say without a question whether it can log in: `--wandb online` without a key hangs"
    )
    settings = wandb_setup.singleton().settings
    assert hasattr(settings, "base_url"), f"{version} does not say which server it logs in to"
    assert hasattr(settings, "mode"), f"{version} does not say whether `wandb offline` was typed"
    assert mirror_settings(True).x_transaction_log_flush_interval == 1, (
        f"{version} no longer flushes its log every second: a killed run loses more of its mirror"
    )
