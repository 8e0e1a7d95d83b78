"""What a measuring process is asked to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["OUT_OF_MEMORY", "Job"]

OUT_OF_MEMORY = "out of memory"
"""The problem that is reported where the memory limit is hit."""


@dataclass(frozen=True)
class Job:
    """One core at one length.

    Attributes:
        core: its name.
        stages: "inference" and "training" of a clip, or "streaming" step by step.
        length: time steps.
        batch: clips.
        slots: number of slots, where the core takes `num_slots`.
        dim: width of tokens, and of slots where the core takes `dim`.
        tokens: tokens per time step.
        repeats: how often each stage is timed.
        seconds: time for a stage; fewer repeats are made, down to one, where more would not fit.
        memory: GiB that a stage may take beyond the idle process.
        threads: of torch and of compiled kernels.
        device: "cpu" or "cuda".
        plugins: files of registered components to import first.
    """

    core: str
    stages: tuple[str, ...]
    length: int
    batch: int
    slots: int
    dim: int
    tokens: int
    repeats: int
    seconds: float
    memory: float
    threads: int
    device: str
    plugins: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` has written."""
        fields: dict[str, Any] = json.loads(text)
        for name in ("stages", "plugins"):
            fields[name] = tuple(fields[name])
        return cls(**fields)

    def to_json(self) -> str:
        """The job on one line."""
        return json.dumps(asdict(self))
