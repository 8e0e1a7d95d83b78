"""Explains a refusal of the parser: the setting, its place, and what is expected there.

The parser's own message wraps the reason in one layer per level of nesting. So when it has refused, the settings are
walked again, beside the classes that they configure.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch import Trainer

from slotbench import registry
from slotbench.config.arguments import describe_type, fits, parameters_of, plain
from slotbench.config.jsonargparse_compat import import_path, is_importable
from slotbench.config.policy import allowed_paths
from slotbench.config.settings import Node, Setting
from slotbench.config.walk import LINKED, Walk, unknown_component
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.sources import Argument, Part

__all__ = ["explain"]

_NAME = re.compile(r"[\w.]+")


def explain(settings: Iterable[Setting], options: Mapping[str, Any]) -> None:
    """Raises the explanation of the first setting that is wrong; returns if all of them look right.

    Args:
        settings: the user's settings, in order.
        options: top-level keys besides model, data and trainer, such as "ckpt_path", with their types.

    Raises:
        UserError: says what is wrong, where, and what would be right.
    """
    _ClassWalk().check(settings, {name: Argument(hint, None, True) for name, hint in options.items()})


class _ClassWalk(Walk):
    """A walk that compares settings with the classes themselves."""

    is_final = True

    def signature(self, kind: str, name: str) -> Mapping[str, Argument]:
        return parameters_of(registry.load(kind, name), 0)

    def trainer(self) -> Mapping[str, Argument]:
        return parameters_of(Trainer, 0)

    def interface(self, kind: str) -> type:
        return registry.interface_of(kind)

    def resolve(
        self, node: Node, part: Part, default: Any, key: str
    ) -> tuple[str, Mapping[str, Argument], Iterable[str]] | None:
        chosen = default if inspect.isclass(default) else None
        if node.value is not None:
            chosen = self._named(str(node.value), node, part.base, key)
        elif chosen is None and node.children:
            setting = node.first_setting()
            raise UserError(
                lines(
                    f"{key} has arguments but no class",
                    given=setting.text if setting else None,
                    expected=f"--{key} NAME before them",
                    available=self._available(part.base),
                )
            )
        if chosen is None:
            return None
        linked = LINKED & set(inspect.signature(chosen).parameters)
        return chosen.__name__, parameters_of(chosen, part.supplied), linked

    def _named(self, name: str, node: Node, base: type, key: str) -> type:
        kind = registry.kind_of_class(base)
        noun = registry.KINDS[kind] if kind else base.__name__
        given = node.setting.text if node.setting else None
        if "." not in name:
            known = {cls.__name__: cls for cls in _subclasses(base)}
            if kind and name in registry.names(kind):
                return registry.load(kind, name)
            if name in known and not inspect.isabstract(known[name]):
                return known[name]
            if kind:
                raise unknown_component(kind, name, node.setting)
            public = sorted(name for name in known if not name.startswith("_"))
            raise UserError(
                lines(
                    f"no {noun} named {name}{did_you_mean(name, public)}",
                    given=given,
                    available=self._available(base),
                )
            )
        if not is_importable(name):
            raise UserError(
                lines(
                    f"{name} may not be named here: it is neither registered nor allowed",
                    given=given,
                    allowed=self._available(base),
                    **{"to allow it": f"--allow-import {name.rpartition('.')[0]}  (only if you trust what it runs)"},
                )
            )
        try:
            module_name, _, attribute = name.rpartition(".")
            found = getattr(__import__(module_name, fromlist=[attribute]), attribute)
        except Exception as error:
            raise UserError(
                lines(f"{name} cannot be imported: {type(error).__name__}: {error}", given=given)
            ) from error
        if not (inspect.isclass(found) and issubclass(found, base)):
            raise UserError(
                lines(
                    f"{name} is not a {noun}: {key} takes a subclass of {import_path(base)}",
                    given=given,
                    available=self._available(base),
                )
            )
        return found

    def arguments(self, node: Node, owner: str, known: Mapping[str, Argument], linked: Iterable[str], key: str) -> None:
        super().arguments(node, owner, known, linked, key)
        for name, argument in known.items():
            if argument.required and name not in node.children and name not in LINKED:
                part = argument.part
                raise UserError(
                    lines(
                        f"{owner} needs {name}",
                        expected=f"--{key}.{name} {'NAME' if part else describe_type(argument.hint)}",
                        available=self._available(part.base) if part else None,
                    )
                )

    def value(self, node: Node, argument: Argument, key: str, owner: str) -> None:
        part = argument.part
        for item in node.appended:
            if part is not None and _NAME.fullmatch(str(item.value)):
                self.component(item, part, None, key)
        # one may stand alone where a list is taken
        if part is not None and part.many and all(index.isdigit() for index in node.children):
            for index, child in node.children.items():
                self.component(child, part, None, f"{key}.{index}")
            if node.children or node.setting is None or not isinstance(node.setting.value, str):
                return
        named = part is not None and any(cls.__name__ == node.value for cls in _subclasses(part.base))
        if part is not None and (node.children or part.only or named):
            self.component(node, part, argument.default, key)
        else:
            _check_value(node, argument, key, owner, self._available(part.base) if part else None)

    def _available(self, base: type) -> str:
        kind = registry.kind_of_class(base)
        if kind:
            return listing(registry.names(kind))
        known = {f"{cls.__module__}.{cls.__qualname__}": cls.__name__ for cls in _subclasses(base)}
        names = {path.rpartition(".")[2] for path in allowed_paths()}
        return listing(sorted(name for name in known.values() if name in names), 20)


def _check_value(node: Node, argument: Argument, key: str, owner: str, available: str | None) -> None:
    setting = node.setting
    if setting is None or node.outdated or argument.hint in (inspect.Parameter.empty, None, Any):
        return
    if not fits(setting, argument.hint):
        default = "" if argument.required else f"  (default: {plain(argument.default)})"
        name = f"{key.rpartition('.')[2]} of {owner}" if owner else key
        raise UserError(
            lines(
                f"{name} cannot be {plain(setting.value)}",
                given=setting.text,
                expected=f"{describe_type(argument.hint)}{default}",
                available=available,
            )
        )


def _subclasses(base: type) -> list[type]:
    below: list[type] = base.__subclasses__()
    return [base, *dict.fromkeys(found for subclass in below for found in _subclasses(subclass))]
