"""Whether this machine can log in to W&B, and where: from the environment and the files that wandb documents.

wandb is imported by `mirror_settings` alone, when a run asks for W&B, and none of its private names is used.
"""

from __future__ import annotations

import configparser
import netrc
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["TAG_LENGTH", "is_set_off", "is_set_offline", "login_problem", "login_server", "mirror_settings"]

TAG_LENGTH = 64
"""Characters of a tag that W&B takes."""


def login_problem() -> str | None:
    """What keeps this machine from logging in to W&B, in a sentence; None if there are credentials.

    No server is asked whether it takes them.
    """
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return None
    server = login_server()
    files = (
        [Path(os.environ["NETRC"])]
        if os.environ.get("NETRC")
        else [Path.home() / name for name in (".netrc", "_netrc")]
    )
    for file in files:
        try:
            if netrc.netrc(str(file)).authenticators(urlsplit(server).hostname or server):
                return None
        except (OSError, netrc.NetrcParseError):
            continue
    return f"there is no W&B key for {server} on this machine"


def login_server() -> str:
    """The address of the W&B server that this machine logs in to."""
    return _setting("base_url") or "https://api.wandb.ai"


def is_set_off() -> bool:
    """Whether WANDB_MODE=disabled, `wandb disabled` or WANDB_DISABLED turns logging off on this machine."""
    # wandb itself has stopped to heed the second; other libraries still do
    disabled = os.environ.get("WANDB_DISABLED", "").strip().lower() in ("1", "true", "yes", "on")
    return disabled or _setting("mode") == "disabled"


def is_set_offline() -> bool:
    """Whether WANDB_MODE or `wandb offline` keeps this machine from sending anything to a server."""
    return _setting("mode") in ("offline", "dryrun")


def mirror_settings(is_offline: bool) -> Any:
    """The settings of a run that mirrors a run folder; its log is flushed every second where wandb can."""
    import wandb

    # wandb's own interval of 15 s would lose that much, the configuration included, when the process is killed
    flush = "x_transaction_log_flush_interval"
    own: dict[str, Any] = {flush: 1} if flush in wandb.Settings.model_fields else {}
    # the terminal is ours: a progress bar would fill wandb's log of it
    return wandb.Settings(console="off", silent=is_offline, quiet=True, **own)


def _setting(name: str) -> str:
    """A setting of wandb: of the environment, else of the folder's file, else of the user's."""
    if given := os.environ.get(f"WANDB_{name.upper()}"):
        return given
    home = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    found = configparser.ConfigParser()
    found.read([home / "settings", Path(os.environ.get("WANDB_DIR", ".")) / "wandb" / "settings"])
    return found.get("default", name, fallback="")
