"""Settings arranged by key, later ones over earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slotbench.commands.settings import Setting

__all__ = ["Node", "tree_of"]


@dataclass
class Node:
    """The settings of one key: its own value, and those of the keys below it.

    Attributes:
        setting: what was said last about the key itself.
        children: the keys below it.
        outdated: whether it was given for a class that a later setting replaced: the parser drops what does not fit.
    """

    setting: Setting | None = None
    children: dict[str, Node] = field(default_factory=dict)
    outdated: bool = False

    @property
    def value(self) -> Any:
        """What was said last about the key itself."""
        return None if self.setting is None else self.setting.value

    def first_setting(self) -> Setting | None:
        """A setting to show for this key: its own, else the first below it."""
        if self.setting is not None:
            return self.setting
        return next(filter(None, (child.first_setting() for child in self.children.values())), None)

    def mark_outdated(self) -> None:
        """Marks this key and all below it."""
        self.outdated = True
        for child in self.children.values():
            child.mark_outdated()


def tree_of(settings: Iterable[Setting]) -> Node:
    """The settings in one tree; those without a key are left out."""
    root = Node()
    for setting in settings:
        node = root
        for part in setting.key:
            node = node.children.setdefault(part, Node())
        if node is root:
            continue
        if node.setting is not None and node.setting.value != setting.value:
            for child in node.children.values():
                child.mark_outdated()
        node.setting, node.outdated = setting, False
    return root
