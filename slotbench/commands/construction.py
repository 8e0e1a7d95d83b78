"""Says which component refused a value that the parser had let through."""

from __future__ import annotations

import re

from jsonargparse import Namespace
from lightning.pytorch import Trainer

from slotbench.errors import did_you_mean, lines, listing

__all__ = ["explain_construction", "explain_monitor"]

# what EarlyStopping and ModelCheckpoint say of a metric that nobody logs
_MONITORS = (
    re.compile(r"conditioned on metric `(?P<name>.*?)` which is not available.*?following: (?P<known>`.*`)", re.DOTALL),
    re.compile(r"monitor='(?P<name>.*?)'.*?could not find the monitored key.*?metrics: (?P<known>\[.*?\])", re.DOTALL),
)


def explain_construction(error: BaseException, config: Namespace) -> str:
    """What a component, or the trainer, said when it refused a value, with the key that it is configured by."""
    # what the parser wraps around it is raised inside the parser
    while _raised_by_parser(error) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    paths = {
        str(value): key.removesuffix(".class_path") for key, value in config.items() if key.endswith(".class_path")
    }
    trace = error.__traceback__
    owner, key = "", ""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "__init__" and (built := frame.f_locals.get("self")) is not None:
            for cls in type(built).__mro__:
                if (path := f"{cls.__module__}.{cls.__qualname__}") in paths:
                    owner, key = cls.__name__, paths[path].replace("init_args.", "")
                    break
            if isinstance(built, Trainer):
                owner, key = "the trainer", "trainer"
        trace = trace.tb_next
    text = str(error).strip()
    return lines(f"{owner} refuses its arguments: {text}" if owner else text, key=key)


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
    module = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return module.partition(".")[0] == "jsonargparse"
