"""Whether there is a key is found out where wandb would look, without wandb and without its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slotbench.runs.wandb_login import WandbLoginError, check_wandb_login, wandb_login_state, wandb_mode

KEY = "0123456789" * 4


@pytest.fixture(autouse=True)
def nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("API_KEY", "IDENTITY_TOKEN_FILE", "BASE_URL", "MODE", "DIR"):
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def netrc(path: Path, machine: str, key: str = KEY) -> None:
    path.write_text(f"machine {machine}\n  login user\n  password {key}\n")


def test_without_a_key_one_sentence_says_what_to_type() -> None:
    state = wandb_login_state()
    assert not state.ready
    with pytest.raises(WandbLoginError) as refused:
        check_wandb_login("online")
    said = str(refused.value)
    assert "there is no W&B key for https://api.wandb.ai" in said
    assert "wandb login" in said
    assert "--wandb offline" in said
    assert "\n" not in said


def test_a_key_of_the_environment_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert (wandb_login_state().ready, wandb_login_state().source) == (True, "WANDB_API_KEY")
    check_wandb_login("online")


@pytest.mark.parametrize("machine", ["api.wandb.ai", "api.forge.coreweave.com"])
def test_a_key_of_the_netrc_file_will_do(tmp_path: Path, machine: str) -> None:
    netrc(tmp_path / ".netrc", machine)
    state = wandb_login_state()
    assert state.ready
    assert state.source == str(tmp_path / ".netrc")


def test_a_key_belongs_to_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc(tmp_path / "keys", "wandb.lab.example:8080")
    monkeypatch.setenv("NETRC", str(tmp_path / "keys"))
    assert not wandb_login_state().ready
    monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.lab.example:8080/")
    assert wandb_login_state().ready
    assert wandb_login_state().server == "http://wandb.lab.example:8080"


def test_settings_files_are_read(tmp_path: Path) -> None:
    for folder, line in (("config", f"api_key = {KEY}"), ("wandb", "base_url = https://wandb.lab.example")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "settings").write_text(f"[default]\n{line}\n")
    state = wandb_login_state()
    assert (state.ready, state.server) == (True, "https://wandb.lab.example")


@pytest.mark.parametrize(
    ("key", "said"),
    [("abc", "has 3 characters; expected 40 or more"), ("<your key here>" * 4, "has characters that no key has")],
)
def test_what_does_not_look_like_a_key_is_none(monkeypatch: pytest.MonkeyPatch, key: str, said: str) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    state = wandb_login_state()
    assert not state.ready
    assert said in state.problem
    assert key not in state.problem


@pytest.mark.parametrize("key", [f"local-{KEY}", KEY + "_AB", "header.payload.signature"])
def test_other_shapes_of_keys_are_known(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    assert wandb_login_state().ready


def test_a_token_file_stands_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    assert "no such file" in wandb_login_state().problem
    (tmp_path / "token").write_text("token")
    assert wandb_login_state().ready
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert "takes only one of them" in wandb_login_state().problem


@pytest.mark.parametrize("broken", ["machine api.wandb.ai password", "\x00\xff", "machine api.wandb.ai login x"])
def test_a_broken_netrc_file_is_none(tmp_path: Path, broken: str) -> None:
    (tmp_path / ".netrc").write_text(broken, encoding="latin-1")
    assert not wandb_login_state().ready


def test_offline_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_wandb_login("offline")
    check_wandb_login("off")
    assert wandb_mode("online") == "online"
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nmode = offline\n")
    assert wandb_mode("online") == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert wandb_mode("online") == "online"
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    assert (wandb_mode("online"), wandb_mode("off")) == ("offline", "off")
    check_wandb_login("online")


def test_looking_imports_neither_wandb_nor_torch() -> None:
    code = (
        "import sys; from slotbench.runs.wandb_login import wandb_login_state; wandb_login_state(); "
        "print([name for name in ('wandb', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
