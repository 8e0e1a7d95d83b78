"""Where the installed slotbench comes from, as pip takes it."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["Source", "source_of_slotbench"]


@dataclass(frozen=True)
class Source:
    """Arguments of `pip install` that install slotbench.

    Attributes:
        here: on this machine.
        anywhere: on any machine, or "" if only this one has it.
    """

    here: tuple[str, ...]
    anywhere: str = ""


def source_of_slotbench() -> Source:
    """The address or the folder that slotbench was installed from, as pip recorded it (PEP 610)."""
    try:
        text = importlib.metadata.distribution("slotbench").read_text("direct_url.json")
        found = json.loads(text) if text else {}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found = {}
    url = found.get("url") if isinstance(found, dict) else None
    if not isinstance(url, str):
        return Source(("path/to/slotbench",))
    if isinstance(vcs := found.get("vcs_info"), dict):
        revision = vcs.get("commit_id") or vcs.get("requested_revision")
        address = f"{vcs.get('vcs', 'git')}+{_without_secrets(url)}{f'@{revision}' if revision else ''}"
        return Source((address,), address)
    if not url.startswith("file:"):
        return Source((_without_secrets(url),), _without_secrets(url))
    folder = Path(unquote(urlsplit(url).path))
    pinned = ("-c", str(folder / "constraints.txt")) if (folder / "constraints.txt").is_file() else ()
    return Source((*pinned, str(folder)), _remote(folder) if folder.is_dir() else "")


def _remote(folder: Path) -> str:
    """The address that a checkout was cloned from, as pip takes it, if others can reach it."""
    if not (folder / ".git").exists():
        return ""
    # plain reading: nothing that the checkout configures is run
    command = ["git", "-C", str(folder), "config", "--local", "--get", "remote.origin.url"]
    try:
        url = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    if url.startswith(("https://", "http://")):
        return f"git+{_without_secrets(url)}"
    if url.startswith("ssh://"):
        return f"git+{url}"
    user, at, rest = url.partition("@")
    host, colon, path = rest.partition(":")
    return f"git+ssh://{user}@{host}/{path}" if at and colon and "/" not in user + host else ""


def _without_secrets(url: str) -> str:
    """An address without the name and password that may stand in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
