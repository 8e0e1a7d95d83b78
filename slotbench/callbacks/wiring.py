"""The loggers and callbacks that record a run, as the command line plugs them into a trainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger

from slotbench.callbacks.collapse import Collapse
from slotbench.callbacks.compiled_parts import CompiledParts, CompileMode
from slotbench.callbacks.curves import CurveWriter
from slotbench.callbacks.divergence import Divergence
from slotbench.callbacks.evaluation import EvaluationRecord
from slotbench.callbacks.final_validation import FinalValidation
from slotbench.callbacks.graceful_stop import GracefulStop
from slotbench.callbacks.loggers import RunFolderLogger, WandbOptions, wandb_logger
from slotbench.callbacks.media_logger import MediaLogger
from slotbench.callbacks.prediction_writer import PredictionWriter
from slotbench.callbacks.random_state import RandomState
from slotbench.callbacks.reporting import DataReading, EndReport
from slotbench.callbacks.run_checkpoint import RunCheckpoint
from slotbench.callbacks.run_record import RunRecord
from slotbench.callbacks.throughput_bar import ThroughputBar
from slotbench.runs.evaluation_place import EvaluationPlace
from slotbench.runs.folder import RunFolder

__all__ = ["evaluation_parts", "run_parts"]


def run_parts(
    folder: RunFolder,
    *,
    wandb: str,
    wandb_project: str | None,
    config: dict[str, Any],
    wandb_options: WandbOptions | None = None,
    again: str = "",
    final_validation: bool = True,
    compile_mode: CompileMode = "off",
    finish: Callable[[], object] | None = None,
) -> tuple[list[Logger], list[Callback]]:
    """Loggers and callbacks of a training run, new or resumed, for `Trainer(logger=..., callbacks=...)`.

    `wandb` is "off", "offline" or "online", `again` are options to repeat when the run is resumed, and `finish` writes
    the result once the run has reached its end, before pictures and report.
    """
    loggers: list[Logger] = [RunFolderLogger(folder)]
    if wandb != "off" and (mirror := wandb_logger(folder, wandb, wandb_project, config, wandb_options)) is not None:
        loggers.append(mirror)
    random_state, divergence = RandomState(), Divergence()
    checkpoint = RunCheckpoint(folder.checkpoints, random_state=random_state, divergence=divergence)
    stop = GracefulStop(checkpoint)
    # In this order when a run ends: its state and result, a last checkpoint, the terminal back, pictures, and only then
    # the report that names them. Lightning moves the checkpoint callback itself to the end.
    return loggers, [
        RunRecord(folder, stop=stop, finish=finish),
        stop,
        divergence,
        DataReading(),
        Collapse(),
        FinalValidation(final_validation),
        CompiledParts(compile_mode),
        ThroughputBar(),
        MediaLogger(folder),
        CurveWriter(folder),
        EndReport(folder, again=again),
        random_state,
        checkpoint,
    ]


def evaluation_parts(
    run_path: str | Path,
    subcommand: str,
    save: Sequence[str] = (),
    *,
    half: bool = False,
    settings: Mapping[str, str | None] = {},
) -> tuple[list[Logger], list[Callback]]:
    """Loggers and callbacks for `validate`, `test` and `predict` on a run that exists; its own record stays as it is.

    `save` names arrays that `predict` writes beside the pictures; with `half` weights are rounded to 16 bits first;
    `settings` are those that differ from the run's, for the record.
    """
    folder = RunFolder.open(run_path)
    # callbacks that only matter to training are absent on purpose
    warnings.filterwarnings("ignore", message="Be aware that when using `ckpt_path`, callbacks used to create")
    place = EvaluationPlace(folder, subcommand)
    media = PredictionWriter(place, save) if subcommand == "predict" else MediaLogger(folder, place=place)
    record = EvaluationRecord(folder, subcommand, place=place, half=half, settings=settings)
    return [], [DataReading(), ThroughputBar(), media, record]
