"""Errors of parts, Lightning and torch about a setting, as sentences; other errors keep their traceback."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from slotbench.config.settings import Setting
from slotbench.errors import did_you_mean, lines, listing

__all__ = ["REFUSALS", "explain_construction", "explain_library", "explain_monitor", "is_of_library", "named_setting"]

REFUSALS = (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError, AssertionError)
"""What Lightning and torch raise where a setting cannot be."""

_LIBRARIES = ("lightning", "lightning_fabric", "lightning_utilities", "torch", "torchmetrics", "jsonargparse", "numpy")
_STANDARD = ("contextlib", "functools", "importlib", "datetime", "re", "types")
# the part of us that only calls Lightning, and asks it how long the training is
_CALLERS = (
    "slotbench.config",
    "slotbench.commands",
    "slotbench.cli",
    "slotbench.__main__",
    "slotbench.lightning_compat",
    "slotbench.tasks.optimised_module",
)
# messages of EarlyStopping and ModelCheckpoint about a metric that is not logged
_MONITORS = (
    re.compile(r"conditioned on metric `(?P<name>.*?)` which is not available.*?following: (?P<known>`.*`)", re.DOTALL),
    re.compile(r"monitor='(?P<name>.*?)'.*?could not find the monitored key.*?metrics: (?P<known>\[.*?\])", re.DOTALL),
)
_STEP = ("lightning.pytorch.loops.training_epoch_loop", "advance")


def explain_library(error: BaseException, settings: Iterable[Setting]) -> str | None:
    """A sentence for a setting that Lightning or torch refuses before the first step, or torch's optimiser at it.

    None where the mistake may be another: anything that came by way of a part, a task or data, as nothing of ours may
    be taken for a setting; and what was raised in the middle of a training.

    Args:
        error: that ended the command.
        settings: the user's settings.
    """
    frames = _frames(error)
    if not frames or isinstance(error, torch.OutOfMemoryError):
        return None
    text = " ".join(str(error).split())
    if _module(frames[-1]).startswith("torch.optim") and not _has_trained(frames):
        optimizer = type(frames[-1].f_locals.get("self")).__name__
        name = optimizer if optimizer != "NoneType" else "the optimiser"
        return lines(f"{name} cannot take a step: {text}", key="model.optimizer")
    begun = any((_module(frame), frame.f_code.co_name) == _STEP for frame in frames)
    if not is_of_library(error) or (begun and not isinstance(error, MisconfigurationException)):
        return None
    seeds = any(frame.f_code.co_name == "seed_everything" for frame in frames)
    found = named_setting(text, settings)
    key = "seed_everything" if seeds else f"trainer.{found[0]}" if found else None
    return lines(f"Lightning refuses: {text}", given=found[1] if found else None, key=key)


def is_of_library(error: BaseException) -> bool:
    """Whether an error was raised in code of Lightning or torch that no other code but the command line has called."""
    frames = _frames(error)
    calls = [i for i, frame in enumerate(frames) if _module(frame).startswith(_CALLERS)]
    below = [_module(frame) for frame in frames[(calls[-1] + 1 if calls else 0) :]]
    packages = {module.partition(".")[0] for module in below}
    known = packages <= {*_LIBRARIES, *_STANDARD}
    ours = {_module(frame) for frame in frames if _module(frame).partition(".")[0].startswith("slotbench")}
    return bool(below) and known and all(module.startswith(_CALLERS) for module in ours)


def named_setting(text: str, settings: Iterable[Setting]) -> tuple[str, str | None] | None:
    """The trainer's argument that a message is about, with the user's setting of it.

    Named in the message, of several the one that was given; else the one whose value the message repeats.
    """
    given = {
        setting.key[1]: setting for setting in settings if setting.key[:1] == ("trainer",) and len(setting.key) > 1
    }
    words = re.findall(r"\w+", text)
    named = [name for name in inspect.signature(Trainer.__init__).parameters if name in words and name != "self"]
    chosen = [name for name in named if name in given and given[name].on_command_line]
    chosen += [name for name in named if name in given]
    chosen += [name for name, setting in given.items() if setting.on_command_line and str(setting.value) in words]
    if chosen:
        return chosen[0], given[chosen[0]].text
    return (named[0], None) if named else None


def _frames(error: BaseException) -> list[FrameType]:
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _has_trained(frames: Iterable[FrameType]) -> bool:
    owners: list[Any] = [frame.f_locals.get("self") for frame in frames]
    return any(trainer.global_step > 0 for trainer in owners if isinstance(trainer, Trainer))


def explain_construction(error: BaseException, config: Namespace, settings: Iterable[Setting] = ()) -> str:
    """The error of a component or the trainer that refuses a value, with its key in the configuration."""
    # what the parser wraps around it is raised inside the parser
    while _raised_by_parser(error) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    paths = {
        str(value): key.removesuffix(".class_path") for key, value in config.items() if key.endswith(".class_path")
    }
    text = " ".join(str(error).split())
    owner, key = "", ""
    for frame in _frames(error):
        if frame.f_code.co_name == "__init__" and (built := frame.f_locals.get("self")) is not None:
            for cls in type(built).__mro__:
                if (path := f"{cls.__module__}.{cls.__qualname__}") in paths:
                    owner, key = cls.__name__, paths[path].replace("init_args.", "")
                    break
            if isinstance(built, Trainer):
                owner, key = "the trainer", "trainer"
                if (found := named_setting(text, settings)) is not None:
                    key = f"trainer.{found[0]}"
            if not owner and isinstance(built, Callback):
                owner, key = type(built).__name__, f"trainer.callbacks, {type(built).__name__}"
    expected = "--trainer.accelerator auto, or cpu" if key == "trainer.accelerator" else None
    return lines(f"invalid arguments for {owner}: {text}" if owner else text, key=key, expected=expected)


def explain_monitor(error: BaseException) -> str | None:
    """A sentence for a callback that monitors a metric which is not logged; None if the error is another one."""
    found = next((match for pattern in _MONITORS if (match := pattern.search(str(error)))), None)
    if found is None:
        return None
    name, known = found["name"], re.findall(r"[`'](.*?)[`']", found["known"])
    scores = sorted((metric for metric in known if "/" in metric), key=lambda metric: not metric.startswith("val/"))
    return lines(
        f"no metric named {name}, which a callback monitors{did_you_mean(name, scores)}",
        key="trainer.callbacks, monitor",
        logged=listing(scores),
    )


def _raised_by_parser(error: BaseException) -> bool:
    frames = _frames(error)
    return bool(frames) and _module(frames[-1]).partition(".")[0] == "jsonargparse"
