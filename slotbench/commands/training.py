"""`slotbench fit | validate | test | predict`: LightningCLI over the registry, recorded in a run folder."""

from __future__ import annotations

import os
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger

from slotbench import registry
from slotbench.commands.names import config_files, load_named
from slotbench.commands.options import RunOptions, split_options
from slotbench.data.base import SlotDataModule
from slotbench.tasks.base import SlotTask

__all__ = ["main"]

RUN_DIR_VARIABLE = "SLOTBENCH_RUN_DIR"


def main(command: str, arguments: list[str]) -> int:
    """Runs one of the four commands."""
    options, arguments = split_options(arguments)
    for file in options.plugin:
        registry.load_file(file)
    load_named(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.name is None:
        files = config_files(arguments)
        options.name = files[0].stem if files else "run"
    cli_class(command, options)(args=[command, *arguments])
    return 0


def cli_class(command: str, run_options: RunOptions) -> type[SlotbenchCLI]:
    """The command-line interface reduced to one command: building the arguments of all four takes longer."""

    class OneCommandCLI(SlotbenchCLI):
        options = run_options

        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return {command: LightningCLI.subcommands()[command]}

    return OneCommandCLI


class SlotbenchCLI(LightningCLI):
    """LightningCLI with any task, any data set, sizes handed from the data to the task, and a run folder for `fit`."""

    options: RunOptions

    def __init__(self, args: ArgsType) -> None:
        super().__init__(
            SlotTask,
            SlotDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            args=args,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Hands the data's sizes to the task."""
        parser.link_arguments("data.spec", "model.init_args.data_spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses without LightningCLI's warning about arguments that are given besides those in sys.argv."""
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Leaves the configuration as the user gave it, where LightningCLI would put the checkpoint's over it."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Makes the trainer, and before it the run folder that it writes to."""
        config = self.config_init[self.subcommand]["trainer"]
        loggers, callbacks = self._recorders()
        given = config.get("logger")
        given = given if isinstance(given, list) else [given] if isinstance(given, Logger) else []
        config["logger"] = [*loggers, *given] or False
        theirs = config.get("callbacks") or []
        config["callbacks"] = [*(theirs if isinstance(theirs, list) else [theirs]), *callbacks]
        return super().instantiate_trainer(**kwargs)

    def _recorders(self) -> tuple[list[Logger], list[Callback]]:
        if self.subcommand != "fit":
            return [], []
        from slotbench.runs.folder import RunFolder
        from slotbench.runs.wiring import run_parts

        text = self._parser("fit").dump(self.config["fit"], skip_none=False)
        assert self.options.name is not None
        folder = RunFolder.create(self.options.runs_dir, self.options.name, group=self.options.group)
        folder.write_config(text)
        os.environ[RUN_DIR_VARIABLE] = str(folder.path)
        return run_parts(
            folder, wandb=self.options.wandb, wandb_project=self.options.wandb_project, config=yaml.safe_load(text)
        )
