"""What is said of a name in a configuration that means nothing: the same words whether torch is imported or not."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from slotbench import registry
from slotbench.commands.settings import Setting
from slotbench.errors import FileError, UserError, did_you_mean, lines, listing
from slotbench.files import CONFIG_LIMIT, read_text

__all__ = ["LINKED", "PARTS", "stands_alone", "unknown_argument", "unknown_component", "unknown_key"]

LINKED = frozenset({"data_spec"})
"""Arguments that the command line fills in from the data."""
PARTS = ("model", "data", "trainer")

_IN_FILE = re.compile(r"\((?P<path>.*), line \d+\)$")
_ANCHORS = "write an anchor where it is first used, `core: &mine {...}`, and *mine from there on; no key holds them"


def unknown_component(kind: str, name: str, setting: Setting | None) -> UserError:
    """No component of that kind has the name."""
    names = registry.names(kind)
    elsewhere = [registry.KINDS[other] for other in registry.kinds_of(name)]
    also = f" ({name} is another kind: {', '.join(elsewhere)})" if elsewhere else ""
    return UserError(
        lines(
            f"no {registry.KINDS[kind]} named {name}{also}{did_you_mean(name, names)}",
            given=setting.text if setting else None,
            available=listing(names),
        )
    )


def unknown_argument(owner: str, name: str, arguments: Iterable[str], setting: Setting | None) -> UserError:
    """A component, or the trainer, has no such argument."""
    known = [argument for argument in arguments if argument not in LINKED]
    return UserError(
        lines(
            f"{owner} has no argument {name}{did_you_mean(name, known, 0.5)}",
            given=setting.text if setting else None,
            arguments=listing(known, 12),
        )
    )


def unknown_key(name: str, setting: Setting | None, known: list[str], owner: str | None) -> UserError:
    """The configuration has no such top-level key.

    Args:
        name: of the key.
        setting: that gave it.
        known: the keys that there are.
        owner: "model", "data" or "trainer", if that has an argument of the name.
    """
    key = list(setting.key) if setting else [name]
    dashes = "--" if setting and setting.on_command_line else ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    # somebody may have left out the part that the argument belongs to
    meant = [owner, *key] if owner else [near[0], *key[1:]] if near else []
    return UserError(
        lines(
            f"no argument {dashes}{'.'.join(key)}" + (f"; did you mean {dashes}{'.'.join(meant)}?" if meant else ""),
            given=setting.text if setting else None,
            expected=f"one of {listing(known)}" + ("" if meant else ", or a part's, such as --model.core.ARGUMENT"),
            anchors=_ANCHORS if _holds_anchor(key[0], setting) else None,
        )
    )


def _holds_anchor(name: str, setting: Setting | None) -> bool:
    """Whether the key of a file is there to hold an anchor, `name: &anchor`."""
    found = _IN_FILE.search(setting.text) if setting is not None and not setting.on_command_line else None
    if found is None:
        return False
    try:
        text = read_text(found["path"], CONFIG_LIMIT)
    except FileError:
        return False
    block = re.search(rf"^{re.escape(name)}:(.*\n?)((?:[ \t#-].*\n?|\n)*)", text, re.MULTILINE)
    return block is not None and re.search(r"[:\-\s]&\w", f" {block[1]}{block[2]}") is not None


def stands_alone(setting: Setting) -> UserError:
    """A word of the command line belongs to no key."""
    expected = "an argument with a key, such as --model.core.num_slots 3"
    if setting.text.endswith((".yaml", ".yml")):
        expected = f"--config {setting.text}"
    return UserError(lines(f"{setting.text} stands alone", expected=expected))
