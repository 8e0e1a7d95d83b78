"""Says which component refused a value that the parser had let through."""

from __future__ import annotations

from jsonargparse import Namespace
from lightning.pytorch import Trainer

from slotbench.errors import lines

__all__ = ["explain_construction"]


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


def _raised_by_parser(error: BaseException) -> bool:
    module = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return module.partition(".")[0] == "jsonargparse"
