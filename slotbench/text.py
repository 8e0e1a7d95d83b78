"""Text that somebody else wrote (names, metrics, settings, file names, messages) on its way to a person.

A run folder, a log, a package's name may hold terminal escapes, markup and formulas; each kind of output has one
function here that all foreign text passes through. Imports nothing of slotbench.
"""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]


def printable(text: object, limit: int = 10_000) -> str:
    """Foreign text for a terminal: no escape sequences, no control or invisible formatting characters, bounded.

    Line breaks and tabs stay; every other control character, and what reverses or hides text (Unicode categories Cc,
    Cf, Co, Cs), is shown as its code, so `\\x1b[2J` is seen and not obeyed.

    Args:
        text: anything; its `str` is taken.
        limit: characters; what is longer is cut, and says so.
    """
    words = str(text)
    if len(words) > limit:
        words = f"{words[:limit]}… ({len(words) - limit:,} more characters)"
    if words.isascii() and words.isprintable():
        return words
    return "".join(_shown(character) for character in words)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
