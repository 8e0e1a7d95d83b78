"""What a part's arguments become when the part is exchanged for another class, or one of them is set to null."""

from __future__ import annotations

from typing import Any

from jsonargparse import Namespace, _typehints, _util

__all__ = ["keep_only_what_was_said", "take_null_for_a_value"]

_discard = _typehints.discard_init_args_on_class_path_change


def keep_only_what_was_said() -> None:
    """Lets an exchanged part keep the arguments that somebody gave, and none that were the old class's defaults.

    jsonargparse carries every argument over that the new class takes too, defaults included: a task whose default
    optimiser is AdamW would hand AdamW's decay of 0.01 to an Adam, which decays by another rule and learns nothing.
    A value that was given and is the old default is not told apart from the default.
    """
    # no public place to say it
    _typehints.discard_init_args_on_class_path_change = _discard_defaults


def take_null_for_a_value() -> None:
    """Lets `--model.core.ARGUMENT null` mean null.

    jsonargparse hands the arguments of a part within a part on as text, and writes null as Python does, "None", which
    it then reads as a word.
    """
    # no public place to say it
    _util.NestedArg.__new__ = _new_nested_argument  # type: ignore[method-assign, assignment]


def _new_nested_argument(cls: Any, key: str, val: Any) -> tuple[Any, ...]:
    made: tuple[Any, ...] = tuple.__new__(cls, (key, "null" if val is None else val))
    return made


def _discard_defaults(parser_or_action: Any, prev_val: Any, value: Any) -> None:
    # without arguments there is nothing to drop, and the class may be one that no configuration may import
    given = prev_val.get("init_args") if isinstance(prev_val, Namespace) else None
    if given and prev_val["class_path"] != value["class_path"]:
        added = getattr(parser_or_action, "sub_add_kwargs", {})
        parser = _typehints.ActionTypeHint.get_class_parser(prev_val["class_path"], added)
        defaults = parser.get_defaults()
        for key, kept in list(given.items(branches=True, nested=False)):
            if key in defaults and defaults[key] == kept:
                given.pop(key)
    _discard(parser_or_action, prev_val, value)
