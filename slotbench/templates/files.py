"""The files of `slotbench new`: templates of this folder, copied with their words filled in.

`plugin/common` and `plugin/KIND` hold the files of a package at their paths in it, and in `words.toml` what stands for
`@NAME@` in them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["KINDS", "Names", "plugin_file", "plugin_files", "words_of"]

KINDS = ("core", "encoder", "decoder", "aggregation", "tokenizer", "dataset", "task")
_FOLDER = Path(__file__).with_name("plugin")
_SUFFIX = ".template"


@dataclass(frozen=True)
class Names:
    """Names of a package, such as `fading-slots`, `fading_slots`, `FadingSlots`, and the module of the class."""

    distribution: str
    package: str
    class_name: str
    module: str


def plugin_files(kind: str, names: Names, version: str) -> dict[str, str]:
    """The files of a package by their paths in its folder.

    Args:
        kind: one of `KINDS`.
        names: of the package.
        version: the oldest slotbench that the package works with.
    """
    words = words_of(kind, names) | {"version": version}
    return {_filled(path, words): _filled(text, words) for path, text in _templates(kind)}


def plugin_file(kind: str, names: Names) -> str:
    """The content of a single file for `--plugin`."""
    words = words_of(kind, names)
    words |= {"register": f'\n@register("{kind}s")', "register_import": "\nfrom slotbench.registry import register"}
    return next(_filled(text, words) for path, text in _templates(kind) if path.endswith("@module@.py"))


def words_of(kind: str, names: Names) -> dict[str, str]:
    """What stands for each `@NAME@` in the files of a kind, such as "swap", "experiment" or "rival"."""
    given = {**asdict(names), "kind": kind, "group": f"{kind}s", "register": "", "register_import": ""}
    given["class"] = given.pop("class_name")
    own: dict[str, str] = {}
    for folder in ("common", kind):
        own |= tomllib.loads((_FOLDER / folder / "words.toml").read_text(encoding="utf-8"))
    return given | {name: _filled(text, given | own) for name, text in own.items()}


def _templates(kind: str) -> Iterator[tuple[str, str]]:
    """Path in the package and text of every template of a kind."""
    for folder in (_FOLDER / "common", _FOLDER / kind):
        for file in sorted(folder.rglob(f"*{_SUFFIX}")):
            yield file.relative_to(folder).as_posix().removesuffix(_SUFFIX), file.read_text(encoding="utf-8")


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: words[found[1]], text)
