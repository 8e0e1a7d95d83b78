"""What runs can use beside the framework: W&B, SLURM, Ray, movies, the physics of MOViLike."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Iterator
from types import ModuleType

from slotbench.health.findings import Finding, first_line

__all__ = ["TOOL_NAMES", "tools"]

TOOL_NAMES = ("wandb", "slurm", "submitit", "ray", "video", "ffmpeg", "sim3d")


def tools() -> Iterator[Finding]:
    """One finding each."""
    yield _wandb()
    yield _slurm()
    yield _package("submitit", "submitit", "needed by --engine slurm", "pip install submitit")
    yield _package("ray", "ray", "needed by --engine ray", "pip install ray")
    yield _video()
    if ffmpeg := shutil.which("ffmpeg"):
        yield Finding("tools", "ffmpeg", "ok", ffmpeg)
    else:
        yield Finding("tools", "ffmpeg", "note", "not there; slotbench needs none: PyAV brings its own", "see video")
    yield _sim3d()


def _wandb() -> Finding:
    from slotbench.runs.wandb_compat import is_set_off, is_set_offline, login_problem, login_server

    if importlib.util.find_spec("wandb") is None:
        return Finding("tools", "wandb", "broken", "wandb is not installed", "pip install wandb")
    version = importlib.metadata.version("wandb")
    mode = os.environ.get("WANDB_MODE", "")
    if is_set_off():
        by = "WANDB_MODE=disabled" if mode.lower() == "disabled" else "`wandb disabled` or WANDB_DISABLED"
        fix = "unset WANDB_MODE" if mode.lower() == "disabled" else "wandb enabled, or unset WANDB_DISABLED"
        return Finding("tools", "wandb", "note", f"{version}, and {by}: nothing is mirrored", fix)
    if is_set_offline():
        said = f"WANDB_MODE={mode}" if mode else "`wandb offline`"
        return Finding("tools", "wandb", "ok", f"{version}, offline by {said}: `wandb sync` sends it later")
    if (problem := login_problem()) is None:
        return Finding("tools", "wandb", "ok", f"{version}, a key for {login_server()}")
    fix = "wandb login, or set WANDB_API_KEY; --wandb offline needs no key"
    return Finding("tools", "wandb", "note", f"{version}; {problem}", fix)


def _slurm() -> Finding:
    inside = f", inside job {job}" if (job := os.environ.get("SLURM_JOB_ID")) else ""
    if sbatch := shutil.which("sbatch"):
        return Finding("tools", "slurm", "ok", f"{sbatch}{inside}")
    fix = "a login node of a cluster has it; --engine local needs none"
    return Finding("tools", "slurm", "note", f"there is no sbatch{inside}", fix)


def _package(name: str, module: str, why: str, fix: str) -> Finding:
    # not imported: ray takes seconds
    if importlib.util.find_spec(module) is None:
        return Finding("tools", name, "note", f"not installed; {why}", fix)
    return Finding("tools", name, "ok", f"{importlib.metadata.version(name)}, {why}")


def _video() -> Finding:
    fix = "pip install 'slotbench[video]'"
    av = _imported("av")
    if isinstance(av, Finding):
        return av
    try:
        av.CodecContext.create("libx264", "w")
    except Exception as error:
        return Finding("tools", "video", "broken", f"PyAV {av.__version__} writes no MP4: {first_line(error)}", fix)
    return Finding("tools", "video", "ok", f"PyAV {av.__version__} reads movies and writes MP4")


def _sim3d() -> Finding:
    mujoco = _imported("mujoco")
    if isinstance(mujoco, Finding):
        return mujoco
    ball = "<mujoco><worldbody><body pos='0 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(ball)
    data = mujoco.MjData(model)
    for _ in range(10):
        mujoco.mj_step(model, data)
    if not data.qpos[2] < 1:
        return Finding("tools", "sim3d", "broken", f"mujoco {mujoco.__version__}: a ball does not fall", "reinstall it")
    return Finding("tools", "sim3d", "ok", f"mujoco {mujoco.__version__} simulates")


_EXTRA_OF = {"av": ("video", "PyAV", "movies and MP4"), "mujoco": ("sim3d", "mujoco", "the physics of MOViLike")}


def _imported(module: str) -> ModuleType | Finding:
    """The module, or why there is none."""
    extra, name, why = _EXTRA_OF[module]
    if importlib.util.find_spec(module) is None:
        return Finding("tools", extra, "note", f"{name} is not installed; {why}", f"pip install 'slotbench[{extra}]'")
    try:
        return importlib.import_module(module)
    except Exception as error:
        return Finding(
            "tools", extra, "broken", f"{name}: {first_line(error)}", f"pip install --force-reinstall {module}"
        )
