"""Models on the Hugging Face Hub, through huggingface_hub: the extra `hub`.

Only the files that a model is built from are downloaded. Logging in, tokens and mirrors are huggingface_hub's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from slotbench.errors import UserError, lines
from slotbench.io import cache_home, read_json_object
from slotbench.tasks.saving.model_folder import MODEL_CONFIG, TOKENIZER, WEIGHTS, is_model_folder, read_model

__all__ = ["SCHEME", "pull", "push"]

SCHEME = "hf://"
_ADDRESS = re.compile(rf"{SCHEME}(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_FILES = [f"{folder}{name}" for folder in ("", f"{TOKENIZER}/") for name in (MODEL_CONFIG, WEIGHTS)]
_PUSHED = [*_FILES, "README.md", "config.yaml", "record.json"]


def pull(address: str) -> Path:
    """The folder of a model of the Hub, downloaded to the user's cache if it is not there already.

    The address is "hf://USER/REPO", or "hf://USER/REPO@REVISION".
    """
    repo, revision = _parsed(address)
    download, cache = _library().snapshot_download, cache_home() / "hub"
    try:
        folder = Path(download(repo, revision=revision, cache_dir=cache, allow_patterns=_FILES))
    except Exception as error:
        raise _refused(address, error) from error
    if not is_model_folder(folder):
        raise UserError(lines(f"{address} holds no exported model", expected=f"{MODEL_CONFIG} and {WEIGHTS}"))
    return folder


def push(folder: Path, address: str, private: bool = False) -> str:
    """Uploads an exported model to a repository, which is made if it is not there, and returns where it is.

    A repository that is made is private if `private` is true.
    """
    repo, revision = _parsed(address)
    if not is_model_folder(folder):
        raise UserError(lines(f"{folder} holds no exported model", expected="a folder that slotbench export wrote"))
    api = _library().HfApi()
    if "features" not in read_json_object(folder / MODEL_CONFIG).get("task", {}).get("init_args", {}):
        read_model(folder)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, revision=revision, allow_patterns=_PUSHED)
    except Exception as error:
        raise _refused(address, error) from error
    return f"https://huggingface.co/{repo}"


def _parsed(address: str) -> tuple[str, str | None]:
    match = _ADDRESS.fullmatch(address)
    if match is None or ".." in address:
        raise UserError(lines(f"{address} is no address of a model", expected=f"{SCHEME}USER/REPO[@REVISION]"))
    return match["repo"], match["revision"]


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError("huggingface_hub is not installed: pip install 'slotbench[hub]'") from error
    return huggingface_hub


def _refused(address: str, error: Exception) -> UserError:
    """An error of huggingface_hub or of the network, in a line."""
    reason = str(error).strip().partition("\n")[0]
    note = "a private repository, and an upload, need hf auth login first"
    return UserError(lines(f"{address}: {type(error).__name__}: {reason}", note=note))
