"""`slotbench push FOLDER hf://USER/REPO`: an exported model onto the Hugging Face Hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from slotbench.commands.arguments import Parser

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench push FOLDER hf://USER/REPO [--private]

Uploads a model that slotbench export wrote: its card, weights, configuration, record and evaluation records, and no
other file of the folder. The repository is made if it is not there, and is public unless you say --private.
slotbench.from_pretrained("hf://USER/REPO") reads it.

  hf://USER/REPO[@BRANCH]  where to
  --private                if the repository is made, only you can read it

Needs huggingface_hub, pip install 'slotbench[hub]', and once hf auth login."""


def main(command: str, arguments: list[str]) -> int:
    """Uploads the folder."""
    given = _parser().parse_args(arguments)
    from slotbench.models.hub import push

    print(f"{given.folder} is at {push(given.folder, given.address, given.private)}")
    print(f"to use it: slotbench.from_pretrained({given.address!r})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench push")
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    parser.add_argument("--private", action="store_true")
    return parser
