"""Reads a class's signature and docstring from its source: importing it would import torch."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from typing import Any

__all__ = [
    "Argument",
    "Part",
    "arguments_from_source",
    "defines_class",
    "docstring_from_source",
    "first_sentence",
    "meanings_from_source",
    "section",
    "spelled",
    "summary_from_source",
]

_MOST_FILES = 2000


def summary_from_source(target: str) -> str:
    """First sentence of a class's docstring, found by parsing its module.

    Args:
        target: "module:class".

    Raises:
        ModuleNotFoundError: there is no such module.
        SyntaxError: the module cannot be parsed.
    """
    return first_sentence(docstring_from_source(target))


def docstring_from_source(target: str) -> str:
    """A class's docstring, found by parsing its module; empty if it has none or the module is no Python file.

    Args:
        target: "module:class".

    Raises:
        ModuleNotFoundError: there is no such module.
        SyntaxError: the module cannot be parsed.
    """
    module_name, _, class_name = target.partition(":")
    file = _source_file(module_name)
    if file is None:
        raise ModuleNotFoundError(f"No module named '{module_name}'")
    if file.suffix != ".py":
        return ""
    state = file.stat()
    found = _docstring_in(file, class_name, (state.st_mtime_ns, state.st_size))
    return found if isinstance(found, str) else docstring_from_source(":".join(found))


@functools.lru_cache(maxsize=512)
def _docstring_in(file: Path, class_name: str, changed: tuple[int, int]) -> str | tuple[str, str]:
    """The docstring of a class in a file, or the module and the name that the file imports it from.

    Args:
        file: of Python.
        class_name: of the class.
        changed: when, and the size: a file that is written anew is read again.
    """
    body = ast.parse(file.read_text(encoding="utf-8"), filename=str(file)).body
    if (elsewhere := _imports(body).get(class_name)) is not None:
        return elsewhere
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == class_name and (found := ast.get_docstring(node)):
            return found
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f"{class_name}.__doc__":
            # as torch's optimisers are documented: text with parts that several share
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            first = min(parts, key=lambda part: (part.lineno, part.col_offset), default=None)
            return inspect.cleandoc(str(first.value)) if first is not None else ""
    return ""


def meanings_from_source(target: str, names: Iterable[str]) -> dict[str, str]:
    """What arguments of a class mean: the "Args" of its docstring, and of those of its bases where it leaves one out.

    Args:
        target: "module:class".
        names: of the arguments.
    """
    found = section(docstring_from_source(target), "Args")
    for base in _bases(target):
        if missing := set(names) - set(found):
            found = meanings_from_source(base, missing) | found
    return found


def _bases(target: str) -> list[str]:
    """The bases of a class that its source names, as "module:class"."""
    module_name, _, class_name = target.partition(":")
    file = _source_file(module_name)
    if file is None or file.suffix != ".py":
        return []
    body = ast.parse(file.read_text(encoding="utf-8"), filename=str(file)).body
    imports = _imports(body)
    if class_name in imports:
        return _bases(":".join(imports[class_name]))
    bases = [base for node in body if isinstance(node, ast.ClassDef) and node.name == class_name for base in node.bases]
    return [":".join(imports.get(base.id, (module_name, base.id))) for base in bases if isinstance(base, ast.Name)]


def _imports(body: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Name -> module and name there, of what a module imports from others."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom) and not node.level
        for alias in node.names
    }


def _source_file(module_name: str) -> Path | None:
    """Where a module is, as `importlib.util.find_spec` would say, which imports the module's parents to find out."""
    parts = module_name.split(".")
    path: list[str] | None = None
    for depth, part in enumerate(parts, start=1):
        try:
            spec = _find_spec(".".join(parts[:depth]), path)
        except KeyError:
            # a folder without __init__.py inside a package: its finder wants the parent imported
            path = [str(folder) for parent in path or () if (folder := Path(parent) / part).is_dir()]
            continue
        if spec is None:
            return None
        if depth == len(parts):
            return None if spec.origin is None else Path(spec.origin)
        path = list(spec.submodule_search_locations or ())
    return None


def _find_spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)


def first_sentence(docstring: str) -> str:
    """The docstring up to its first full stop, or its first paragraph."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<! al)[.:](?=\s+[A-Z]|$)", paragraph)
    return paragraph[: end.start() + 1] if end else paragraph


def section(docstring: str, title: str) -> dict[str, str]:
    """The entries of a section of a docstring in Google's style, such as "Args", by name."""
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in docstring.splitlines():
        if not line.startswith(" "):
            inside = line == f"{title}:" or (inside and not line)
        elif inside and line.startswith("    ") and line[4:5] != " ":
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif inside and name:
            found[name] += f" {line.strip()}"
    return found


@dataclass(frozen=True)
class Part:
    """The component that an argument is.

    Attributes:
        base: the class that it is a subclass of; from a source its name, "module:class".
        supplied: how many leading arguments of its constructor the factory supplies.
        many: whether a list of them is wanted.
        only: whether nothing but a component is accepted (and null).
    """

    base: Any
    supplied: int = 0
    many: bool = False
    only: bool = True


@dataclass(frozen=True)
class Argument:
    """One argument of a constructor.

    Attributes:
        hint: its type; from a source as it is written.
        default: its default; from a source as it is written.
        required: whether it must be given.
        part: the component that it is; None for any other value.
        fields: where its type is a dataclass, the arguments that it is given by, such as `batch_size` of `loader`.
    """

    hint: Any = ""
    default: Any = None
    required: bool = False
    part: Part | None = None
    fields: dict[str, Argument] = field(default_factory=dict)


def spelled(arguments: Mapping[str, Argument]) -> list[str]:
    """The names of arguments as they are given: those of a dataclass by their fields."""
    return [
        spelling
        for name, argument in arguments.items()
        for spelling in ([f"{name}.{part}" for part in argument.fields] or [name])
    ]


def arguments_from_source(target: str, method: str = "__init__") -> dict[str, Argument] | None:
    """The arguments of a class's constructor, or of another method, without `self`.

    Args:
        target: "module:class".
        method: of the class.

    Returns:
        None where the source alone does not say: the class is made at run time or decorated, has several bases and no
        constructor of its own, or takes `*args` or `**kwargs`.
    """
    try:
        return _arguments(*target.partition(":")[::2], method, 5)
    except (OSError, ValueError, SyntaxError, ImportError, RecursionError):
        return None


def _arguments(module_name: str, class_name: str, method: str, depth: int) -> dict[str, Argument] | None:
    file = _source_file(module_name)
    if depth == 0 or file is None or file.suffix != ".py":
        return None
    return _arguments_in(file, file.stat().st_mtime_ns, module_name, class_name, method, depth)


@functools.lru_cache(maxsize=256)
def _arguments_in(
    file: Path, changed: int, module_name: str, class_name: str, method: str, depth: int
) -> dict[str, Argument] | None:
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    imports = _imports(tree.body)
    bound = [node for node in ast.walk(tree) if _binds(node, class_name)]
    if not bound and class_name in imports:
        return _arguments(*imports[class_name], method, depth - 1)
    if len(bound) != 1 or not isinstance(cls := bound[0], ast.ClassDef) or cls not in tree.body:
        return None
    if cls.decorator_list or cls.keywords or any(_binds(node, "__new__") for node in cls.body):
        return None
    own = [node for node in ast.walk(cls) if _binds(node, method)]
    if not own:
        names = [base.id for base in cls.bases if isinstance(base, ast.Name)]
        if len(names) != 1 or len(cls.bases) != 1:
            return None
        return _arguments(*imports.get(names[0], (module_name, names[0])), method, depth - 1)
    function = own[0]
    if len(own) != 1 or not isinstance(function, ast.FunctionDef):
        return None
    given = function.args
    if given.vararg or given.kwarg:
        return None
    positional = [*given.posonlyargs, *given.args]
    without = [None] * (len(positional) - len(given.defaults))
    defaults = [*without, *given.defaults, *given.kw_defaults][1:]
    arguments = zip([*positional, *given.kwonlyargs][1:], defaults, strict=True)
    return {argument.arg: _argument(argument, default, imports, module_name) for argument, default in arguments}


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name


def _argument(
    argument: ast.arg, default: ast.expr | None, imports: dict[str, tuple[str, str]], module_name: str
) -> Argument:
    hint, value = (None if node is None else ast.unparse(node) for node in (argument.annotation, default))
    fields: Iterable[str] = ()
    if isinstance(default, ast.Call) and ast.unparse(default.func) == hint:
        # `loader: LoaderOptions = LoaderOptions(...)`
        fields = _fields(*imports.get(hint, (module_name, hint)))
    part = _part(argument.annotation, imports)
    return Argument(hint or "", value, default is None, part, dict.fromkeys(fields, Argument()))


def _part(hint: ast.expr | None, imports: dict[str, tuple[str, str]]) -> Part | None:
    """The component that an annotation asks for, if it is an imported class or a factory of one."""
    supplied = 0
    if isinstance(hint, ast.BinOp) and isinstance(hint.right, ast.Constant) and hint.right.value is None:
        hint = hint.left
    if isinstance(hint, ast.Subscript) and isinstance(hint.value, ast.Name) and hint.value.id == "Callable":
        parts = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else []
        if len(parts) != 2 or not isinstance(parts[0], ast.List):
            return None
        hint, supplied = parts[1], len(parts[0].elts)
    found = isinstance(hint, ast.Name) and imports.get(hint.id)
    return Part(":".join(found), supplied) if found else None


def _fields(module_name: str, class_name: str) -> tuple[str, ...]:
    """The fields of a dataclass, as its source lists them."""
    file = _source_file(module_name)
    if file is None or file.suffix != ".py":
        return ()
    for node in ast.parse(file.read_text(encoding="utf-8"), filename=str(file)).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return tuple(
                line.target.id
                for line in node.body
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
            )
    return ()


def defines_class(module_name: str, name: str) -> bool:
    """Whether a module, or one below it, seems to define a class of this name; True where that is unknown."""
    file = _source_file(module_name)
    if file is None or file.suffix != ".py":
        return True
    files = file.parent.rglob("*.py") if file.name == "__init__.py" else [file]
    pattern = re.compile(rf"\bclass\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]", re.MULTILINE)
    try:
        return any(pattern.search(path.read_text(encoding="utf-8")) for path in islice(files, _MOST_FILES))
    except (OSError, ValueError):
        return True
