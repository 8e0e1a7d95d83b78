"""The stages of a GPU run, how long each may take, and what the command asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["MINUTES", "STAGES", "Settings", "Stage", "limit_of"]

MINUTES = 40.0
"""Minutes that the whole run may take, unless the command says otherwise; the limits of the stages are shares of it."""


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: of its files and of its module in this folder.
        what: what it does, in a line.
        minutes: what it may take of 40; None for the rest of the time.
        planned: minutes that it is expected to take, where nobody has measured.
    """

    name: str
    what: str
    minutes: int | float | None
    planned: int | float


STAGES = (
    Stage("machine", "device, driver, versions, and the report of slotbench doctor", 3, 1.5),
    Stage("gpu_tests", "the tests marked gpu", 5, 3),
    Stage("kernels", "every kernel of slotbench.ops against the others", 6, 5),
    Stage("cores", "slotbench bench cores on the device", 6, 5),
    Stage("training", "training at the papers' sizes, a model of each family, fp32 and bf16-mixed", 10, 9),
    Stage("experiment", "one experiment to its end, with scores and baselines", None, 10),
)
"""In the order in which they run."""


@dataclass(frozen=True)
class Settings:
    """What the command asked for.

    Attributes:
        out: folder of all results.
        device: "cuda" or "cpu".
        quick: tiny sizes: to see that every stage runs.
        minutes: that the run may take.
        command: as it was typed.
        seconds: that the stage at hand may take; the driver fills it in.
    """

    out: Path
    device: str = "cuda"
    quick: bool = False
    minutes: int | float = MINUTES
    command: str = "slotbench bench gpu"
    seconds: int | float = 0.0

    def to_json(self) -> str:
        """The settings on one line."""
        return json.dumps({**asdict(self), "out": str(self.out)})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The settings that `to_json` has written."""
        fields = json.loads(text)
        return cls(**{**fields, "out": Path(fields["out"])})


def limit_of(stage: Stage, minutes: int | float, left: int | float) -> int | float:
    """Seconds that a stage may take.

    Args:
        stage: the stage.
        minutes: of the whole run.
        left: seconds until the run has to end.
    """
    return left if stage.minutes is None else min(60 * stage.minutes * minutes / MINUTES, left)
