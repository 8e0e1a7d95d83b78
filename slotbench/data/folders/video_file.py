"""Base class of video files: a length, and frames by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

__all__ = ["VideoFile"]


class VideoFile(ABC):
    """A video with random access to its frames.

    Attributes:
        path: the file or folder.
        length: its frames.
    """

    path: Path
    length: int

    @abstractmethod
    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these ascending numbers, each "height width 3" in bytes, one after the other.

        Raises:
            DataFilesError: one cannot be read.
        """
