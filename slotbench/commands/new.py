"""`slotbench new`: the start of a package, or of a file, that adds a component."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from slotbench import __version__, registry
from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.files import make_folder, why_unwritable
from slotbench.help_text import print_help
from slotbench.templates.files import KINDS, Names, plugin_file, plugin_files, words_of

__all__ = ["USAGE", "main"]

USAGE = f"""Usage: slotbench new plugin NAME [--kind KIND] [--out DIR]
       slotbench new KIND FILE.py

Writes a package that adds a component to slotbench: the class, tests of what it must keep, an experiment, a grid that
compares it, and CI. It installs, passes its own tests and trains as it stands; then change the class.
With a kind in the place of `plugin` it writes one file, for --plugin FILE.

  slotbench new plugin fading-slots                    ./fading-slots with the core FadingSlots
  slotbench new plugin my-encoder --kind encoder
  slotbench new core my_core.py                        one file with the core MyCore

KIND: {", ".join(KINDS)}; core if it is not named."""


@dataclass(frozen=True)
class _Request:
    what: str
    name: str
    kind: str
    out: Path


def main(command: str, arguments: list[str]) -> int:
    """Writes the files and prints what to type next."""
    if not arguments:
        print_help(USAGE)
        return 0
    request = _request(arguments)
    if request.what == "plugin":
        return _plugin(request)
    return _file(request)


def _plugin(request: _Request) -> int:
    names = _names(request.name, request.kind)
    if importlib.util.find_spec(names.package) is not None:
        raise UserError(
            lines(f"there is a module named {names.package} already, which the package would hide: choose another name")
        )
    out = request.out
    # a link that leads nowhere is there too: writing would follow it
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise UserError(lines(f"{out} exists and is not empty: choose another name, or --out another folder"))
    written = plugin_files(request.kind, names, __version__)
    made = not out.exists()
    try:
        for path, content in written.items():
            _write(out / path, content)
    except FileError:
        if made:  # half a package would be in the way of the next try
            shutil.rmtree(out, ignore_errors=True)
        raise
    print(
        f"wrote {out}: {len(written)} files, the {request.kind} {names.class_name} in {names.package}/{names.module}.py"
    )
    print(
        f"\nNext:\n  cd {shlex.quote(str(out))}\n  pip install -e '.[test]'\n  pytest\n"
        "  slotbench fit --config experiments/balls.yaml"
    )
    return 0


def _file(request: _Request) -> int:
    file = Path(request.name)
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise UserError(
            lines(f"{file} is not a valid name for a plugin file", expected="a name like a module, such as my_core.py")
        )
    names = _names(file.stem, request.kind)
    if importlib.util.find_spec(file.stem) is not None and not os.path.lexists(file):
        raise UserError(lines(f"there is a module named {file.stem} already: choose another name for the file"))
    if os.path.lexists(file):
        what = f"is a link to {os.readlink(file)}" if file.is_symlink() else "is there already"
        raise UserError(lines(f"{file} {what}: choose another name"))
    _write(file, plugin_file(request.kind, names))
    words = words_of(request.kind, names)
    typed = shlex.quote(str(file))
    print(f"wrote {file} with the {request.kind} {names.class_name}")
    print(
        f"\nNext:\n  slotbench doctor --plugin {typed} --require {names.class_name}\n"
        f"  slotbench fit --config {words['experiment']} --plugin {typed} {words['swap']}"
    )
    return 0


def _write(path: Path, content: str) -> None:
    """Writes a file that is not there yet, and through no link.

    Raises:
        FileError: it cannot be written; nothing of it is left.
    """
    begun = False
    try:
        make_folder(path.parent)
        with open(path, "x", encoding="utf-8") as file:
            begun = True
            file.write(content)
    except (OSError, MemoryError) as error:
        if begun:
            path.unlink(missing_ok=True)
        why = why_unwritable(error) if isinstance(error, OSError) else "there is not enough memory"
        raise FileError(f"{path} cannot be written: {why}; choose another folder") from error


def _request(arguments: list[str]) -> _Request:
    given: dict[str, str] = {}
    plain: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option in ("--kind", "--out"):
            given[option] = value if equals else next(waiting, "")
            if not given[option]:
                raise UserError(lines(f"{option} has no value", expected=f"{option} VALUE"))
        elif argument.startswith("-"):
            raise UserError(f"new has no option {argument}; slotbench new --help lists them")
        else:
            plain.append(argument)
    what = plain[0] if plain else ""
    known = ["plugin", *KINDS]
    if what not in known:
        raise UserError(
            lines(f"no kind named {what or '(nothing)'}{did_you_mean(what, known)}", known=", ".join(known))
        )
    if len(plain) != 2:
        raise UserError(
            lines(f"new {what} takes one name, and {len(plain) - 1} are given", expected=USAGE.splitlines()[0])
        )
    kind = given.get("--kind", "core") if what == "plugin" else what
    if kind not in KINDS:
        raise UserError(lines(f"no kind named {kind}{did_you_mean(kind, KINDS)}", kinds=", ".join(KINDS)))
    if what != "plugin" and given:
        raise UserError(lines(f"new {what} writes the file that is named, and takes no {next(iter(given))}"))
    return _Request(what, plain[1], kind, Path(given.get("--out", plain[1])))


def _names(name: str, kind: str) -> Names:
    """The names of distribution, package and class that a name in any of their styles stands for.

    Raises:
        UserError: it is not a valid name, or a component has it.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name):
        raise UserError(
            lines(f"{name!r} is not a valid name", expected="letters, digits and single dashes, such as fading-slots")
        )
    # FadingSlots is fading-slots; OCSlotSSM is oc-slot-ssm
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    words = [word.lower() for word in re.split(r"[-_]", parted)]
    styled = name if name[0].isupper() and not re.search("[-_]", name) else "".join(word.capitalize() for word in words)
    package = "_".join(words)
    if keyword.iskeyword(package):
        raise UserError(lines(f"{package} is a keyword of Python: choose another name"))
    if kinds := registry.kinds_of(styled):
        held = " and ".join(registry.KINDS[found] for found in kinds)
        raise UserError(lines(f"there is a {held} named {styled} already: choose another name"))
    return Names(distribution="-".join(words), package=package, class_name=styled, module=kind)
