"""Whether this machine can log in to Weights & Biases, without asking its server and without importing wandb."""

from __future__ import annotations

import configparser
import netrc
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["PART", "LoginState", "WandbLoginError", "check_wandb_login", "wandb_login_state", "wandb_mode"]

PART = "_slotbench_part"
"""In the summary of a W&B log: which part of the run it is, from 1. Clocks do not tell the order of the parts."""

DEFAULT_SERVER = "https://api.wandb.ai"
# one service under several addresses; which of them wandb logs in to by default depends on its version
_DEFAULT_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com", "forge.coreweave.com")
_SECRET = re.compile(r"[\w-]{40,}")
_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


class WandbLoginError(ValueError):
    """W&B was asked for online, and there is nothing to log in with."""


@dataclass(frozen=True)
class LoginState:
    """What W&B would log in with.

    Attributes:
        ready: there is a key, and it looks like one; whether the server takes it is not known.
        server: the address that it belongs to.
        source: where the key was found: an environment variable or a file; empty without a key.
        problem: what is missing or wrong, in a sentence; empty if `ready`.
    """

    ready: bool
    server: str
    source: str = ""
    problem: str = ""


def wandb_login_state() -> LoginState:
    """Looks for a key where wandb does: environment, netrc file, settings files, in this order; takes about 1 ms."""
    settings = _settings()
    server = (os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or DEFAULT_SERVER).rstrip("/")
    if os.environ.get("WANDB_API_KEY") and (token := os.environ.get("WANDB_IDENTITY_TOKEN_FILE")):
        problem = f"WANDB_API_KEY and WANDB_IDENTITY_TOKEN_FILE ({token}) are both set; wandb takes only one of them"
        return LoginState(False, server, "WANDB_API_KEY", problem)
    if not os.environ.get("WANDB_API_KEY") and (token := os.environ.get("WANDB_IDENTITY_TOKEN_FILE")):
        found = Path(token).is_file()
        return LoginState(found, server, token, "" if found else f"WANDB_IDENTITY_TOKEN_FILE is {token}: no such file")
    for source, key in _keys(server, settings):
        problem = _key_problem(key)
        return LoginState(not problem, server, source, f"the W&B key of {source} {problem}" if problem else "")
    return LoginState(False, server, "", f"there is no W&B key for {server} on this machine")


def wandb_mode(asked: str) -> str:
    """The mode that a run gets: "offline" if the environment or `wandb offline` says so, else what was asked for.

    Args:
        asked: "off", "offline" or "online".
    """
    if asked != "online":
        return asked
    # what a person has said of this machine must not be overruled by an option
    said = os.environ.get("WANDB_MODE") or _settings().get("mode", "")
    return "offline" if said.lower() in ("offline", "dryrun") else asked


def check_wandb_login(asked: str) -> None:
    """Refuses what would otherwise end in a question on the terminal or in an error after the model has been built.

    Args:
        asked: "off", "offline" or "online".

    Raises:
        WandbLoginError: online, and nothing to log in with; says what to type.
    """
    if wandb_mode(asked) != "online" or (state := wandb_login_state()).ready:
        return
    raise WandbLoginError(
        f"--wandb online: {state.problem}; type `wandb login` or set WANDB_API_KEY, "
        "or take --wandb offline and `wandb sync` later"
    )


def _keys(server: str, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Every key with its source, first the one that wandb takes."""
    if key := os.environ.get("WANDB_API_KEY"):
        yield "WANDB_API_KEY", key
    path = _netrc_path()
    host = urlsplit(server).netloc
    try:
        entries = netrc.netrc(path)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        entries = None
    for name in _DEFAULT_HOSTS if host in _DEFAULT_HOSTS else (host,):
        if entries and (entry := entries.authenticators(name)) and entry[2]:
            yield str(path), entry[2]
    if key := settings.get("api_key"):
        yield "wandb's settings file", key


def _key_problem(key: str) -> str:
    """What a key lacks to be one; nothing if it looks right."""
    # servers of one's own put a prefix and a dash before the secret
    secret = key.partition("-")[2] or key
    if _SECRET.fullmatch(secret) or _TOKEN.fullmatch(key):
        return ""
    if re.fullmatch(r"[\w-]+", secret):
        return f"has {len(secret)} characters; expected 40 or more"
    return "has characters that no key has; expected letters, digits, _ and - only"


def _netrc_path() -> Path:
    if path := os.environ.get("NETRC"):
        return Path(path).expanduser()
    names = [Path.home() / ".netrc", Path.home() / "_netrc"]
    return next((path for path in names if path.exists()), names[0])


def _settings() -> dict[str, str]:
    """What wandb's settings files say: the user's, and over it that of the working folder."""
    user = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb").expanduser()
    here = Path(os.environ.get("WANDB_DIR") or ".") / "wandb"
    found: dict[str, str] = {}
    for path in (user / "settings", here / "settings"):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
            found |= dict(parser.items("default"))
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue
    return found
