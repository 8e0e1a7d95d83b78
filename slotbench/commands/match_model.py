"""Builds the model that a command line describes, at any value of one argument of its core, to count its parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import yaml
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from slotbench.commands.construction import explain_construction
from slotbench.commands.lightning_cli import config_only_cli, resolved_yaml
from slotbench.commands.match_width import RefusedError
from slotbench.commands.options import RunOptions
from slotbench.commands.settings import Setting
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.nn.parameters import trainable_parameters

__all__ = ["Counts", "Model"]


@dataclass(frozen=True)
class Counts:
    """Trainable parameters of the three parts."""

    encoder: int
    core: int
    decoder: int

    @property
    def total(self) -> int:
        """Those of the whole model."""
        return self.encoder + self.core + self.decoder

    def of(self, part: str) -> int:
        """Those of the "core", or of the whole "model"."""
        return self.core if part == "core" else self.total


class Model:
    """Data and task of a command line, parsed once and built as often as there are sizes to count.

    Nothing is trained or simulated: the data set only says its sizes, and weights lie on torch's meta device wherever
    the components can be built there.

    Args:
        arguments: settings as `slotbench fit` takes them.
        settings: the same, as read beforehand.
        options: what may be imported.
    """

    def __init__(self, arguments: list[str], settings: list[Setting], options: RunOptions) -> None:
        cli = config_only_cli("fit", arguments, settings, options)
        self._parser = cli._parser("fit")
        self._config = cli.config["fit"]
        self._text = resolved_yaml(cli)

    def core(self) -> dict[str, Any]:
        """Name and arguments of the core, complete, as they stand in a configuration."""
        core: dict[str, Any] = yaml.safe_load(self._text)["model"]["init_args"]["core"]
        return core

    def require(self, argument: str) -> None:
        """Checks that the core has the argument.

        Raises:
            UserError: it has not.
        """
        core = self.core()
        known = core.get("init_args", {})
        if argument not in known:
            raise UserError(
                lines(
                    f"{core['class_path']} has no argument {argument}{did_you_mean(argument, known)}",
                    arguments=listing(known, 20),
                    expected=f"--argument {core['class_path']}=ARGUMENT, one that sets its width",
                )
            )

    def counts(self, argument: str | None = None, value: int | None = None) -> Counts:
        """Parameters of the model, with one argument of the core set to a value if given.

        Raises:
            RefusedError: a component does not take its arguments.
        """
        config = self._config
        if argument is not None:
            config = copy.deepcopy(config)
            config["model"]["init_args"]["core"]["init_args"][argument] = value
        try:
            try:
                with torch.device("meta"):
                    task = self._parser.instantiate(config)["model"]
            except (ValueError, RuntimeError) as error:
                # RuntimeError: a component that computes with its weights while it makes them
                if not any(isinstance(cause, RuntimeError) for cause in _causes(error)):
                    raise
                task = self._parser.instantiate(config)["model"]
        except (ValueError, MisconfigurationException) as error:
            raise RefusedError(explain_construction(error, config)) from error
        return Counts(*(trainable_parameters(part)["total"] for part in (task.encoder, task.core, task.decoder)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was raised from: the parser wraps whatever a component raises."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
