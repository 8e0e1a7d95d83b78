"""The commands of `slotbench`, and which module runs each. Imports neither torch nor lightning.

A command is `main(name, arguments)` of a module of `slotbench.commands`, which is imported when the command is given;
it returns the exit code.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from slotbench import __version__
from slotbench.errors import FileError, UserError, wrapped
from slotbench.registry import RegistryError

__all__ = ["COMMANDS", "run"]

# name -> (module of slotbench.commands, what it does)
COMMANDS = {
    "demo": ("demo", "draw the trained models that come along, on new clips; half a minute"),
    "fit": ("training", "train the experiment that a YAML file describes"),
    "validate": ("training", "evaluate a run on its validation split"),
    "test": ("training", "evaluate a run on its test split"),
    "predict": ("training", "write a run's predictions"),
    "score": ("score", "score masks that any program has written against the truth"),
    "export": ("export", "write a run's trained model to a folder, with a model card; --push uploads it"),
    "probe": ("probe", "measure what a run's slots know about the objects"),
    "grid": ("grid", "run many experiments from one file"),
    "show": ("show", "print a configuration, complete, as YAML"),
    "match": ("match", "find the widths at which cores have the same number of parameters"),
    "prepare": ("prepare", "write a data set to a cache that is quick to read"),
    "bench": ("bench", "measure speed and memory of the cores on this machine"),
    "new": ("new", "start a package, or a file, that adds a component"),
    "plugins": ("plugins", "list the components that can be named in a configuration"),
    "compare": ("compare", "print one table of runs, over seeds and variants"),
    "doctor": ("doctor", "check this installation, and say what to type where something is wrong"),
}
_EXAMPLES = """\
  slotbench demo                                               trained models on new clips: pictures and a GIF
  slotbench fit --config experiments/blinking_balls.yaml       train; needs no download and no GPU
  slotbench fit --config FILE --model.core NAME                the same with another temporal core
  slotbench test runs/NAME/ID                                  evaluate a finished run
  slotbench compare runs/NAME                                  one table of runs, over seeds"""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line, without the program's name, and returns the exit code.

    0 for success, 1 for a failure while running, 2 for a command line or configuration that cannot be run, 130 when
    interrupted. Errors are a few lines on stderr; with `--debug` the traceback is printed as well.
    """
    arguments = list(arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        if arguments[:1] == ["help"] and len(arguments) > 1:
            arguments = [*arguments[1:], "--help"]
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(_help())
            return 0
        if arguments[0] in ("-V", "--version", "version"):
            print(f"slotbench {__version__}")
            return 0
        return _command(arguments[0], arguments[1:])
    except (UserError, RegistryError, FileError) as error:
        if debug:
            traceback.print_exc()
        print(wrapped(f"slotbench: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        return 130
    except SystemExit as end:
        # the parser after printing its help, or a run that was stopped by a signal
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:
        # the reader of our output has gone, as in `slotbench plugins | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if debug or error.filename is None:
            raise
        print(f"slotbench: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


def _command(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        meant = f"; did you mean slotbench {near[0]}?" if near else ""
        if name.endswith((".yaml", ".yml")) or name.startswith("-"):
            meant = f"; did you mean slotbench fit {name}?"
        raise UserError(f"no command named {name}{meant}\n  commands: {', '.join(COMMANDS)}")
    module = importlib.import_module(f"slotbench.commands.{COMMANDS[name][0]}")
    code: int = module.main(name, arguments)
    return code


def _help() -> str:
    commands = "\n".join(f"  {name:<10}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"slotbench {__version__}: one bench for slot-based and object-centric video models\n\n"
        f"Usage: slotbench COMMAND ...\n\nCommands:\n{commands}\n\nExamples:\n{_EXAMPLES}\n\n"
        "slotbench COMMAND --help says more about a command; --debug shows the traceback of an error."
    )
