"""Writes a checkpoint straight to where it belongs."""

from __future__ import annotations

import hashlib
import io
import os
import threading
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

    Attributes:
        digests: SHA-256 of what was written last to a path.
    """

    def __init__(self) -> None:
        self.digests: dict[Path, str] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any | None = None) -> None:
        """Writes the file, and takes its checksum meanwhile; one that could not be written whole is removed.

        Raises:
            OSError: the disk is full, or cannot be written to.
        """
        content = io.BytesIO()
        torch.save(checkpoint, content)
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        self.digests.pop(file, None)
        # of what was meant to be written, not of what can be read back; meanwhile the writing waits for the disk
        digest = hashlib.sha256()
        hashing = threading.Thread(target=digest.update, args=(content.getbuffer(),))
        hashing.start()
        try:
            with open(file, "wb") as out:
                out.write(content.getbuffer())
                out.flush()
                os.fsync(out.fileno())
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        finally:
            hashing.join()
        self.digests[file] = digest.hexdigest()
