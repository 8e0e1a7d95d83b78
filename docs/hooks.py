"""What the pages take from the project when they are built: components, a notebook, its version and its repository."""

from __future__ import annotations

import contextlib
import html
import importlib.metadata
import io
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

from slotbench import registry
from slotbench.cli import COMMANDS, run

_OURS = "slotbench"
_HERE = Path(__file__).parent


def on_config(config: Any, **_: Any) -> Any:
    """Names the version below every page, and links to the repository that they are built from, if it has an address.

    With the repository every page has a link to edit it.
    """
    address = _repository()
    if address and not config.repo_url:
        config.repo_url, config.repo_name = address, "/".join(address.rsplit("/", 2)[1:])
        config.edit_uri = "edit/main/docs/"
    config.copyright = f"slotbench {importlib.metadata.version('slotbench')}"
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Fills in `<!-- components: KIND -->`, with slotbench's own only, commands, notebooks and the repository.

    Front matter that is not closed before an empty line, or is still there, is an error: it would be printed, or would
    take a part of the page with it.
    """
    source = page.file.content_string
    if markdown.startswith("---") or (source.startswith("---") and not re.match(r"---\n(.+\n)*?---\n", source)):
        raise PluginError(f"{page.file.src_uri}: expected front matter in YAML between two lines ---")
    address = config.repo_url
    markdown = markdown.replace("<!-- repository -->", f"[the repository]({address})" if address else "the repository")
    markdown = re.sub(r"<!-- notebook: ([\w.]+) -->", lambda match: _notebook(_HERE / match[1]), markdown)
    markdown = markdown.replace("<!-- commands -->", "\n\n".join(_help(name) for name in COMMANDS))
    return re.sub(r"<!-- components: (\w+) -->", lambda match: _table(match[1]), markdown)


def _help(command: str) -> str:
    """A section with what `slotbench COMMAND --help` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run([command, "--help"])
    return f"### {command}\n\n```text\n{printed.getvalue().strip()}\n```"


def _notebook(path: Path) -> str:
    """The cells of a notebook with the outputs that it has, as Markdown; nothing is run."""
    return "\n\n".join(map(_cell, json.loads(path.read_text(encoding="utf-8"))["cells"]))


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(_output, cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        shown = html.escape("".join(data["text/plain"]))
        return f'<img class="output" alt="{shown}" src="data:image/png;base64,{data["image/png"].strip()}">'
    text = "".join(output.get("text") or data["text/plain"])
    return f'<pre class="output"><code>{html.escape(text.rstrip())}</code></pre>'


def _table(kind: str) -> str:
    found = [entry for entry in registry.entries(kind) if entry.distribution == _OURS]
    rows = [f"| {_linked(entry)} | {entry.summary} |" for entry in found]
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows]) if rows else "None in this release."


def _linked(entry: registry.Entry) -> str:
    """The name, as a link to the class in the reference if it is one of ours."""
    path = entry.target.replace(":", ".")
    return f"[`{entry.name}`][{path}]" if path.startswith(_OURS) else f"`{entry.name}`"


def _repository() -> str | None:
    """Where CI says that it builds from, else the clone's own origin."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}"
    command = ["git", "-C", str(_HERE), "remote", "get-url", "origin"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return found.removesuffix(".git") if found.startswith("https://") and "@" not in found else None
