"""Every use of what is private or experimental in wandb, in one file, and whether it can log in.

pyproject.toml bounds the version of wandb from above, and `tests/runs/test_wandb_compat.py` says for each name what
breaks without it. wandb is imported by the functions, when a run or a comparison asks for W&B, and not before.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = [
    "LEGACY_PART",
    "PART",
    "TAG_LENGTH",
    "is_set_off",
    "is_set_offline",
    "login_problem",
    "login_server",
    "mirror_settings",
]

TAG_LENGTH = 64
"""Characters of a tag that W&B takes."""

PART = "slotbench_part"
"""Below "_wandb" in the configuration of a W&B log: which part of the run it is, from 1. Clocks do not tell the order
of the parts. W&B keeps what is its own under that name, and shows none of it."""

LEGACY_PART = "_slotbench_part"
"""The same in the summary, where version 0.1 put it."""


def login_problem() -> str | None:
    """What keeps this machine from logging in to W&B, in a sentence; None if there are credentials.

    wandb looks for them itself: in the environment, the netrc file and its settings files. Nothing is asked on the
    terminal, and no server is asked whether it takes them.
    """
    from wandb.sdk.lib import wbauth

    try:
        server = login_server()
        found = wbauth.authenticate_session(host=server, source="slotbench", prompt=False, update_session=False)
    except Exception as error:  # of wandb, or of pydantic, which reads its settings
        return (" ".join(str(error).split()) or type(error).__name__)[:200].rstrip(".")
    return None if found is not None else f"there is no W&B key for {server} on this machine"


def login_server() -> str:
    """The address of the W&B server that this machine logs in to."""
    return str(_settings().base_url)


def is_set_off() -> bool:
    """Whether WANDB_MODE=disabled, `wandb disabled` or WANDB_DISABLED turns logging off on this machine.

    wandb itself has stopped to heed the last; other libraries still do.
    """
    if os.environ.get("WANDB_DISABLED", "").strip().lower() in ("1", "true", "yes", "on"):
        return True
    try:
        return bool(_settings().mode == "disabled")
    except ValueError:  # a setting that wandb refuses; `login_problem` says which
        return False


def is_set_offline() -> bool:
    """Whether WANDB_MODE or `wandb offline` keeps this machine from sending anything to a server."""
    try:
        return _settings().mode in ("offline", "dryrun")
    except ValueError:  # a setting that wandb refuses; `login_problem` says which
        return False


def mirror_settings(is_offline: bool) -> Any:
    """The settings of a run that mirrors a run folder.

    Its log is flushed every second: wandb's own interval of 15 s would lose that much, the configuration included, when
    the process is killed.
    """
    import wandb

    return wandb.Settings(
        x_transaction_log_flush_interval=1,
        # the terminal is ours: a progress bar would fill wandb's log of it
        console="off",
        silent=is_offline,
        quiet=True,
    )


def _settings() -> Any:
    from wandb.sdk import wandb_setup

    return wandb_setup.singleton().settings
