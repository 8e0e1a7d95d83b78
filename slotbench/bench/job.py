"""What a bench of cores measures, and what one of its processes is asked to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["OUT_OF_MEMORY", "Job", "Settings"]

OUT_OF_MEMORY = "out of memory"
"""The problem that is reported where the memory limit is hit."""


@dataclass(frozen=True)
class Settings:
    """What is measured, how, and within which limits.

    Attributes:
        cores: their names.
        lengths: time steps of the clips; streaming takes the largest.
        batch: clips.
        slots: number of slots, where the core takes `num_slots`.
        dim: width of tokens, and of slots where the core takes `dim`.
        tokens: tokens per time step.
        repeats: how often each point is timed; fewer, down to once, where more would not fit into `seconds`.
        seconds: time for one measure of one core at one length.
        memory: GiB that it may take beyond the idle process.
        threads: of torch and of compiled kernels.
        device: "cpu" or "cuda".
        plugins: files of registered components.
    """

    cores: tuple[str, ...]
    lengths: tuple[int, ...]
    batch: int = 6
    slots: int = 6
    dim: int = 64
    tokens: int = 16
    repeats: int = 3
    seconds: float = 120.0
    memory: float = 6.0
    threads: int = 1
    device: str = "cpu"
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One core at one length.

    Attributes:
        core: its name.
        stages: "inference" and "training" of a clip, or "streaming" step by step.
        length: time steps.
        settings: of the whole bench.
    """

    core: str
    stages: tuple[str, ...]
    length: int
    settings: Settings

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` has written."""

        def tuples(fields: dict) -> dict:
            return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}

        fields = tuples(json.loads(text))
        return cls(**fields | {"settings": Settings(**tuples(fields["settings"]))})

    def to_json(self) -> str:
        """The job on one line."""
        return json.dumps(asdict(self))
