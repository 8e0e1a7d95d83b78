"""Draws a run's curves while it trains."""

from __future__ import annotations

import time
import warnings

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from slotbench.runs.curves import draw_curves
from slotbench.runs.folder import RunFolder

__all__ = ["CurveWriter"]


class CurveWriter(Callback):
    """Draws the curves at the end, on interruption, and after a validation as long as that costs next to nothing.

    At the end that is once the result is written.

    Args:
        folder: the run.
        share: largest share of the running time that drawing between validations may take.
    """

    def __init__(self, folder: RunFolder, share: int | float = 0.02) -> None:
        self._folder = folder
        self._share = share
        self._cost = 0.5  # seconds; a guess until measured
        self._drawn_at = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws if the last drawing is long enough ago."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        if self._cost < min(1.0, self._share * (time.monotonic() - self._drawn_at)):
            self._draw(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws."""
        self._draw(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Draws what there is."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._draw(trainer)

    def _draw(self, trainer: Trainer) -> None:
        if not trainer.is_global_zero:
            return
        start = time.monotonic()
        try:
            draw_curves(self._folder)
        except Exception as error:  # a picture must neither end a run nor hide why it ended
            warnings.warn(f"could not draw the curves of {self._folder.path}: {error}", stacklevel=2)
        self._drawn_at = time.monotonic()
        self._cost = self._drawn_at - start
