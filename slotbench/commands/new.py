"""`slotbench new`: the start of a package, or of a file, that adds a component."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from slotbench import __version__, registry
from slotbench.commands.arguments import Parser
from slotbench.errors import UserError
from slotbench.templates.files import KINDS, Names, plugin_file, plugin_files, words_of

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Writes the files and prints what to type next."""
    description = """Writes a package that adds a component (the class, tests of what it must keep, an experiment, a
        grid that compares it, and CI), or with a kind in the place of `plugin` one file, for --plugin FILE."""
    parser = Parser("slotbench new", description)
    parser.add_argument("what", choices=["plugin", *KINDS])
    parser.add_argument("name", help="such as fading-slots for a package, my_core.py for a file")
    parser.add_argument("--kind", choices=KINDS, default="core", help="of a package's component (default: core)")
    parser.add_argument("--out", type=Path, help="folder of the package (default: NAME)")
    given = parser.parse_args(arguments)
    if given.what == "plugin":
        names = _names(given.name, given.kind)
        out = given.out or Path(given.name)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} exists and is not empty: choose another name, or --out another folder")
        if importlib.util.find_spec(names.package) is not None:
            raise UserError(f"there is a module named {names.package} already: choose another name")
        written = {out / path: text for path, text in plugin_files(given.kind, names, __version__).items()}
        follow = f"cd {out}\n  pip install -e '.[test]'\n  pytest\n  slotbench fit --config experiments/balls.yaml"
    else:
        out = Path(given.name)
        if out.suffix != ".py" or not out.stem.isidentifier():
            raise UserError(f"{out} is not a valid name for a plugin file; expected a name such as my_core.py")
        if out.exists():
            raise UserError(f"{out} is there already: choose another name")
        names = _names(out.stem, given.what)
        words = words_of(given.what, names)
        written = {out: plugin_file(given.what, names)}
        follow = f"slotbench fit --config {words['experiment']} --plugin {out} {words['swap']}"
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {out} with the {names.module} {names.class_name}\n\nNext:\n  {follow}")
    return 0


def _names(name: str, kind: str) -> Names:
    """The names of distribution, package and class that a name in any of their styles stands for."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name):
        raise UserError(f"{name!r} is not a valid name; expected letters, digits and single dashes: fading-slots")
    # FadingSlots is fading-slots; OCSlotSSM is oc-slot-ssm
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    words = [word.lower() for word in re.split(r"[-_]", parted)]
    styled = name if name[0].isupper() and not re.search("[-_]", name) else "".join(word.capitalize() for word in words)
    if kinds := registry.kinds_of(styled):
        raise UserError(f"there is a {registry.KINDS[kinds[0]]} named {styled} already: choose another name")
    return Names(distribution="-".join(words), package="_".join(words), class_name=styled, module=kind)
