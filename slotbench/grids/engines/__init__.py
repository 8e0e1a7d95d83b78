"""The engines by name. Each is imported when it is asked for: submitit and Ray are extras."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotbench.grids.engines.base import Engine, EngineError, TimeLimit

__all__ = ["ENGINES", "EngineOptions", "make_engine"]

ENGINES = ("local", "slurm", "ray")


@dataclass(frozen=True)
class EngineOptions:
    """Options of the command line for the engine.

    Attributes:
        jobs: how many run at the same time; None leaves it to the engine.
        slurm: pairs of KEY and VALUE of --slurm.KEY VALUE.
        limit: when the jobs end; None for no limit.
    """

    jobs: int | None = None
    slurm: Sequence[tuple[str, str]] = ()
    limit: TimeLimit | None = None


def make_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of that name.

    Raises:
        EngineError: there is no such engine, or it cannot work here.
    """
    if options.slurm and name != "slurm":
        raise EngineError(f"--slurm.{options.slurm[0][0]} is for --engine slurm; the engine is {name}")
    if options.limit is not None and name in ENGINES[1:]:
        instead = "; --slurm.time N gives each job N minutes" if name == "slurm" else ""
        raise EngineError(f"--minutes is for --engine local; the engine is {name}{instead}")
    if name == "local":
        from slotbench.grids.engines.local import LocalEngine

        return LocalEngine(1 if options.jobs is None else options.jobs, options.limit or TimeLimit())
    if name == "slurm":
        from slotbench.grids.engines.slurm import SlurmEngine
        from slotbench.grids.engines.slurm_options import SlurmOptions

        return SlurmEngine(SlurmOptions.from_settings(options.slurm), jobs=options.jobs)
    if name == "ray":
        from slotbench.grids.engines.ray_engine import RayEngine

        return RayEngine(options.jobs)
    raise EngineError(f"no engine {name}; there are {', '.join(ENGINES)}")
