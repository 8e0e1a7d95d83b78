"""The rank of this process among those of its run, and how it finds the run folder that they share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEVICE_SHARE_VARIABLE", "RUN_DIR_VARIABLE", "Launch", "find_launch"]

RUN_DIR_VARIABLE = "SLOTBENCH_RUN_DIR"
"""By this environment variable the process that made the run folder tells those that it starts where it is."""

DEVICE_SHARE_VARIABLE = "SLOTBENCH_DEVICE_SHARE"
"""By this environment variable a grid tells a run how many share its CUDA device, each with an equal part of memory."""


@dataclass(frozen=True)
class Launch:
    """How this process was started.

    Attributes:
        rank: its number among the processes of the run; 0 writes the run folder.
        together: whether something from outside (torchrun, srun) has started several, none of which knows the others.
        job: default name of the run folder; None if nothing is unique.
        token: the same in all processes that were started together, and in no others.
    """

    rank: int
    together: bool = False
    job: str | None = None
    token: str = ""


def find_launch(rank: int, environment: Mapping[str, str] | None = None) -> Launch:
    """Reads the variables of torchrun, of SLURM, and of Lightning's own launcher, which makes `rank` of them."""
    known = os.environ if environment is None else environment
    # Lightning on several nodes without a scheduler: the first process of each node has no rank yet
    rank = rank or int(known.get("NODE_RANK") or 0)
    if known.get(RUN_DIR_VARIABLE) and rank > 0:
        return Launch(rank)
    if "TORCHELASTIC_RUN_ID" in known or ("RANK" in known and int(known.get("WORLD_SIZE") or 1) > 1):
        given = known.get("TORCHELASTIC_RUN_ID", "none")
        meeting = f"{known.get('MASTER_ADDR', '')}:{known.get('MASTER_PORT', '')}"
        token = f"torchrun {given} {meeting} {known.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        several = int(known.get("WORLD_SIZE") or 1) > 1
        return Launch(rank, several, None if given == "none" else f"torchrun-{given}", token)
    if "SLURM_PROCID" in known and int(known.get("SLURM_NTASKS") or 1) > 1 and "SLURM_STEP_ID" in known:
        job, step = known.get("SLURM_JOB_ID", ""), known["SLURM_STEP_ID"]
        token = f"slurm {job}.{step} {known.get('SLURM_RESTART_COUNT', '0')}"
        return Launch(rank, True, f"slurm-{job}.{step}" if job else None, token)
    return Launch(rank)
