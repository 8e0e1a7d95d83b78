"""`slotbench completion bash|zsh`: completion of commands, options, settings, components and files in a shell.

A completer of our own: one that asks the parser, as argcomplete does, imports torch at every key press.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench import registry
from slotbench.errors import FileError, UserError, lines
from slotbench.help_text import print_help

if TYPE_CHECKING:
    from slotbench.config.setting_names import SettingNames

__all__ = ["candidates", "main"]

_USAGE = """Usage: slotbench completion bash|zsh

Prints a script that completes commands, options, settings, components and files when one presses TAB:
  eval "$(slotbench completion bash)"    in ~/.bashrc
  eval "$(slotbench completion zsh)"     in ~/.zshrc, below compinit"""

_BASH = """_slotbench() {
    local IFS=$'\\n'
    COMPREPLY=($(@COMMAND@ "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[./] ]]; then compopt -o nospace; fi
}
complete -o default -F _slotbench slotbench"""
_ZSH = """_slotbench() {
    local -a found open
    found=(${(f)"$(@COMMAND@ "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    compset -P '--*='
    open=(${(M)found:#*[./]})
    found=(${found:#*[./]})
    (( ${#found} )) && compadd -- $found
    (( ${#open} )) && compadd -S '' -- $open
    (( ${#found} + ${#open} )) || _files
}
compdef _slotbench slotbench"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH}
_WORDS = "words"  # what the scripts ask for

# a name with any other sign is left to the shell, which knows how to quote it
_PLAIN = re.compile(r"[\w./@%+,:=~-]+")
_MOST_FILES = 2000
_WITH_SETTINGS = ("fit", "validate", "test", "predict", "show", "match", "probe")
_GRIDS_WITH_SETTINGS = ("run", "retry", "check")
_OF_FILES = ("fit", "validate", "test", "predict", "probe", "export", "show", "grid", "compare")


def main(command: str, arguments: list[str]) -> int:
    """Prints the script of a shell, or the completions of a line."""
    if arguments[:1] == [_WORDS]:
        print("\n".join(word for word in candidates(arguments[1:]) if _PLAIN.fullmatch(word)))
        return 0
    if not arguments or {"-h", "--help"} & {*arguments}:
        print_help(_USAGE)
        return 0
    if len(arguments) != 1 or arguments[0] not in _SCRIPTS:
        raise UserError(lines("completion takes the name of a shell", expected=f"one of {', '.join(_SCRIPTS)}"))
    # -P: no module of the working folder is imported on pressing TAB
    asks = f"{shlex.quote(sys.executable)} -P -m slotbench completion {_WORDS}"
    print(_SCRIPTS[arguments[0]].replace("@COMMAND@", asks))
    return 0


def candidates(words: list[str]) -> list[str]:
    """What the last word of a command line can become; one that ends with "." or "/" is the beginning of others.

    Of `--option=value` these are the values alone.

    Args:
        words: those behind "slotbench" up to the cursor, the last one perhaps empty; bash splits them at "=".
    """
    *before, typed = _joined(words) or [""]
    option, equals, value = typed.partition("=")
    try:
        if typed.startswith("-") and equals:
            found, typed = _values(before, option), value
        elif len(before) > 1 and before[-1].startswith("-") and "=" not in before[-1] and not typed.startswith("-"):
            found = _values(before[:-1], before[-1])
        elif typed.startswith("-"):
            found = _options(before, typed)
        else:
            found = _words(before, typed)
        if found is None:
            found = _files(typed)
    except (UserError, FileError, registry.RegistryError, OSError):
        return []
    return sorted({word for word in found if word.startswith(typed)})


def _joined(words: list[str]) -> list[str]:
    """The words with those that bash has split at "=" put together."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _known_options(before: list[str]) -> dict[str, str]:
    """The options of a command, as its help lists them, and what they take."""
    from slotbench.cli import run

    depth = 2 if before[:1] == ["grid"] else 1
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        run([*before[:depth], "--help"])
    text = out.getvalue()
    usage = re.findall(r"(--[a-z][\w-]*)(?: ([A-Z][A-Z_=]*|[a-z|]+\b))?", text.partition("\n\n")[0])
    known = {"--help": "", **dict(usage)}
    for head in re.findall(r"^  (-\S.*?)(?:  .*)?$", text, re.MULTILINE):
        flags = re.findall(r"(?:^|, )(--?[\w-]+)(?![\w.])", head)
        known |= dict.fromkeys(flags, head.rpartition(flags[-1])[2].strip() if flags else "")
    return known


def _options(before: list[str], typed: str) -> list[str]:
    if not before:
        return ["--help", "--version"]
    found = [option for option in _known_options(before) if option.startswith("--")]
    if _has_settings(before):
        names = _settings(before).names(typed.lstrip("-"))
        found += [f"--{name}" for name in names if before[0] != "probe" or name.startswith("data.")]
    return found


def _values(before: list[str], option: str) -> list[str] | None:
    """What an option takes; None for a configuration, [] for what the shell completes itself, such as files."""
    if option in ("--config", "-c"):
        return None
    takes = _known_options(before).get(option) if before else ""
    if takes == "":
        return _words(before, "")
    if takes is None:
        return (_settings(before).values(option.lstrip("-")) or []) if _has_settings(before) else []
    if option in ("--like", "--model.core"):
        return registry.names("cores")
    return [word for word in re.split(r"[|\s]", takes) if word.islower()]


def _words(before: list[str], typed: str) -> list[str] | None:
    """What a word without dashes can be, as `_values` says it."""
    from slotbench.cli import COMMANDS

    if not before:
        return list(COMMANDS)
    command, *rest = before
    if command == "completion":
        return list(_SCRIPTS)
    if command == "grid" and not rest:
        from slotbench.commands.grid import ACTIONS

        return list(ACTIONS)
    if command == "plugins":
        return [*registry.KINDS, *(name for kind in registry.KINDS for name in registry.names(kind))]
    if command == "match" or (command == "bench" and rest[:1] == ["cores"]):
        return registry.names("cores")
    if command == "bench" and not rest:
        from slotbench.bench.subjects import SUBJECTS

        return ["cores", *SUBJECTS, "gpu"]
    if command == "prepare" and not rest:
        return registry.names("datasets")
    if command == "new" and not rest:
        return ["plugin", *registry.KINDS.values()]
    return None if command in _OF_FILES else []


def _has_settings(before: list[str]) -> bool:
    return before[0] in _WITH_SETTINGS or (before[0] == "grid" and "".join(before[1:2]) in _GRIDS_WITH_SETTINGS)


def _settings(before: list[str]) -> SettingNames:
    """The settings of the files and of the command line so far."""
    from slotbench.config.setting_names import SettingNames
    from slotbench.config.settings import command_line_settings, read_settings

    command, *rest = before
    if command == "grid":
        rest = _base_of(rest[1]) + rest[2:] if rest[1:] and not rest[1].startswith("-") else rest[1:]
    elif command != "match" and rest and not rest[0].startswith("-"):
        file = Path(rest[0])
        rest = ["--config", str(file / "config.yaml" if file.is_dir() else file), *rest[1:]]
    try:
        return SettingNames(read_settings(rest))
    except (UserError, FileError):
        return SettingNames(command_line_settings(rest))


def _base_of(grid: str) -> list[str]:
    """The words of the experiment that a grid file varies, and of its settings for all points."""
    from slotbench.grids.grid_file import read_grid_file
    from slotbench.grids.values import as_argument

    try:
        file = read_grid_file(Path(grid))
    except (UserError, FileError):
        return []
    bases = [word for base in file.base for word in ("--config", str(base))]
    return bases + [f"--{key}={as_argument(value)}" for key, value in file.settings.items()]


def _files(typed: str) -> list[str]:
    """Folders, and YAML files; with nothing typed the experiments too. A run has nothing to choose in it."""
    folder = typed.rpartition("/")[0] + "/" if "/" in typed else ""
    with os.scandir(os.path.expanduser(folder) or ".") as entries:
        there = list(islice(entries, _MOST_FILES))
    found = []
    for entry in there:
        if entry.name.startswith(".") and not typed.rpartition("/")[2].startswith("."):
            continue
        if entry.is_dir():
            is_run = Path(entry.path, "run.json").is_file()
            found.append(f"{folder}{entry.name}{'' if is_run else '/'}")
        elif entry.name.endswith((".yaml", ".yml")):
            found.append(f"{folder}{entry.name}")
    if not typed and Path("experiments").is_dir():
        found += map(str, sorted(Path("experiments").glob("*.yaml")))
    return found
