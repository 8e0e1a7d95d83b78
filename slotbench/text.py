"""Makes foreign text (names, metrics, settings, file names, messages) safe to print.

A run folder, a log, a package's name may hold terminal escapes, markup and formulas; each kind of output has one
function here that all foreign text passes through. Imports nothing of slotbench.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["csv_cell", "latex_text", "markdown_cell", "one_line", "printable", "rich_text"]

# what a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian scripts
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    # after a line of a table, brackets and a star are read as arguments of its end
    **{sign: f"{{{sign}}}" for sign in "[]*"},
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "²": r"$^2$",
    "∞": r"$\infty$",
    "–": "--",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"\textbar{}",
}

# an underscore between letters or digits is none of Markdown's; entities hold where backslashes do not
_MARKDOWN = re.compile(r"[\\`*\[\]{}|~$#!]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def printable(text: object, limit: int = 10_000) -> str:
    """Foreign text for a terminal: no escape sequences, no control or invisible formatting characters, bounded.

    Line breaks and tabs stay; every other control character, and what reverses or hides text (Unicode categories Cc,
    Cf, Co, Cs), is shown as its code, so `\\x1b[2J` is seen and not obeyed.

    Args:
        text: anything; its `str` is taken.
        limit: characters; longer text is cut and marked.
    """
    words = str(text)
    if len(words) > limit:
        words = f"{words[:limit]}… ({len(words) - limit:,} more characters)"
    if words.isascii() and words.isprintable():
        return words
    return "".join(_shown(character) for character in words)


def one_line(text: object, limit: int = 10_000) -> str:
    """`printable` for a cell of a table or a part of a line: line breaks and tabs too are shown as their codes."""
    words = printable(text, limit)
    if words.isprintable():
        return words
    return "".join(
        f"\\x{ord(sign):02x}" if sign in "\n\t" else f"\\u{ord(sign):04x}" if sign in "\u2028\u2029" else sign
        for sign in words
    )


def rich_text(text: object) -> str:
    """Foreign text for a string that rich reads markup in: `console.print(f"[bold]{rich_text(name)}[/bold]")`.

    Where rich reads none (`Text(...)`, `markup=False`), `printable` or `one_line` is enough.
    """
    from rich.markup import escape

    words = printable(text)
    body = words.rstrip("\\")
    # before a tag each of them would be taken for its escape
    return escape(body) + "\\\\" * (len(words) - len(body))


def csv_cell(value: object) -> object:
    """Foreign text for a cell of a CSV file: what a spreadsheet would take for a formula begins with an apostrophe.

    Numbers and None stay as they are, and so does text that is a number, such as "-1e-3".
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    words = one_line(value)
    if not words.lstrip().startswith(_FORMULA) and not str(value).startswith(("\t", "\r", "\n")):
        return words
    try:
        float(words)
    except ValueError:
        return f"'{words}"
    return words


def latex_text(text: object) -> str:
    """Foreign text for LaTeX, in text mode: every character that means something to TeX is written out."""
    return "".join(_LATEX.get(sign, sign) for sign in one_line(text))


def markdown_cell(text: object) -> str:
    """Foreign text for a line or a table's cell in Markdown: no markup, no HTML, no mathematics, no end of the cell."""
    words = "".join(_ENTITIES.get(sign, sign) for sign in one_line(text))
    return _MARKDOWN.sub(r"\\\g<0>", words)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
