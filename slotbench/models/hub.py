"""Models on the Hugging Face Hub, through huggingface_hub: the extra `hub`.

Only the files that a model is built from are downloaded, after their sizes have been looked at, from the commit that
the address stood for at that moment. Logging in, tokens and mirrors are huggingface_hub's (`hf auth login`, `HF_TOKEN`,
`HF_ENDPOINT`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from slotbench.errors import UserError, lines
from slotbench.files import cache_home, make_folder
from slotbench.tasks.saving.model_folder import (
    MODEL_CONFIG,
    TOKENIZER,
    WEIGHTS,
    is_model_folder,
    read_model,
)
from slotbench.text import one_line

__all__ = ["SCHEME", "pull", "push"]

SCHEME = "hf://"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,94}"
_ADDRESS = re.compile(rf"{SCHEME}(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9_./-]{{0,254}}))?")
_COMMIT = re.compile("[0-9a-f]{40}")
_LIMITS = {
    f"{folder}{name}": limit
    for folder in ("", f"{TOKENIZER}/")
    for name, limit in ((MODEL_CONFIG, 1 << 20), (WEIGHTS, 8 << 30))
}
"""The files that a model is built from, with the bytes that each may have."""

_PUSHED = [*_LIMITS, "README.md", "config.yaml", "record.json"]

T = TypeVar("T")


def pull(address: str) -> Path:
    """The folder of a model of the Hub, downloaded to the user's cache if it is not there already.

    Args:
        address: "hf://USER/REPO", or "hf://USER/REPO@REVISION".

    Raises:
        UserError: it is no address, huggingface_hub is not installed or cannot download it, there is no model, or a
            file is too large.
    """
    repo, revision = _parsed(address)
    library = _library()
    found = _asked(address, lambda: library.HfApi().model_info(repo, revision=revision, files_metadata=True))
    commit = str(found.sha)
    if not _COMMIT.fullmatch(commit):
        raise UserError(f"{address} has no commit that could be downloaded")
    sizes = {one.rfilename: one.size for one in found.siblings or () if one.rfilename in _LIMITS}
    if not {MODEL_CONFIG, WEIGHTS} <= set(sizes):
        raise UserError(
            lines(f"{address} holds no exported model", expected=f"a repository with {MODEL_CONFIG} and {WEIGHTS}")
        )
    for name, size in sizes.items():
        if not isinstance(size, int) or size > _LIMITS[name]:
            raise UserError(f"{name} of {address} has {size} bytes, more than the {_LIMITS[name]:,} that it may have")
    folder = cache_home() / "hub" / repo.replace("/", "--") / commit
    make_folder(folder)
    for name in sizes:
        # a folder of our own: in huggingface_hub's cache files are links that lead out of theirs
        if not (folder / name).is_file():
            fetch = partial(library.hf_hub_download, repo, name, revision=commit, local_dir=folder)
            _asked(address, fetch)
    return folder


def push(folder: Path, address: str, private: bool = False) -> str:
    """Uploads an exported model to a repository, which is made if it is not there, and returns where it is.

    Args:
        folder: that `slotbench export` wrote.
        address: "hf://USER/REPO".
        private: whether a repository that is made is private.

    Raises:
        UserError: it is no model or no address, huggingface_hub is not installed, or the Hub refuses.
        FileError: the model cannot be read.
    """
    repo, revision = _parsed(address)
    if not is_model_folder(folder):
        raise UserError(lines(f"{folder} holds no exported model", expected="a folder that slotbench export wrote"))
    library = _library()
    read_model(folder)
    api = library.HfApi()
    _asked(address, lambda: api.create_repo(repo, private=private, exist_ok=True))
    message = "Upload a model exported by slotbench"
    _asked(
        address,
        lambda: api.upload_folder(
            repo_id=repo, folder_path=folder, revision=revision, commit_message=message, allow_patterns=_PUSHED
        ),
    )
    return f"https://huggingface.co/{repo}"


def _parsed(address: str) -> tuple[str, str | None]:
    match = _ADDRESS.fullmatch(address)
    if match is None or ".." in address:
        raise UserError(
            lines(f"{address} is no address of a model", expected=f"{SCHEME}USER/REPO, or {SCHEME}USER/REPO@REVISION")
        )
    return match["repo"], match["revision"]


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            lines(
                "huggingface_hub is not installed",
                type="pip install 'slotbench[hub]'",
            )
        ) from error
    return huggingface_hub


def _asked(address: str, call: Callable[[], T]) -> T:
    """What a call of huggingface_hub returns; its errors, and those of the network, in a line."""
    try:
        return call()
    except Exception as error:
        reason = one_line(str(error).strip().partition("\n")[0], 300)
        raise UserError(
            lines(
                f"{address}: {type(error).__name__}: {reason}",
                note="a private repository, and an upload, need hf auth login first",
            )
        ) from error
