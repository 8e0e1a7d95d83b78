"""Writes a checkpoint straight to where it belongs."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH

__all__ = ["CheckpointFile"]


class CheckpointFile(TorchCheckpointIO):
    """Serialises in memory, writes one file, and waits until the disk has it.

    Lightning's own writes to the system's temporary folder first, which may be small and on another disk, and does not
    wait: a file that is renamed into place before its content is on the disk is empty after a power cut.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any | None = None) -> None:
        """Writes the file; one that could not be written whole is removed.

        Raises:
            OSError: the disk is full, or cannot be written to.
        """
        content = io.BytesIO()
        torch.save(checkpoint, content)
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(file, "wb") as out:
                out.write(content.getbuffer())
                out.flush()
                os.fsync(out.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise
