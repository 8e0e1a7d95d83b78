"""What runs can use beside the framework: W&B, SLURM, Ray, movies, the physics of MOViLike."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from types import ModuleType

from slotbench.health.findings import Finding, broken, first_line, note, ok

__all__ = ["ffmpeg", "ray", "sim3d", "slurm", "submitit", "video", "wandb"]


def wandb() -> Finding:
    """Whether Weights & Biases can mirror runs."""
    from slotbench.runs.wandb_compat import is_set_off, is_set_offline, login_problem, login_server

    if importlib.util.find_spec("wandb") is None:
        return broken("wandb is not installed", "pip install wandb")
    version = importlib.metadata.version("wandb")
    mode = os.environ.get("WANDB_MODE", "")
    if is_set_off():
        if mode.lower() == "disabled":
            return note(f"{version}, and WANDB_MODE=disabled: nothing is mirrored", "unset WANDB_MODE")
        fix = "wandb enabled, or unset WANDB_DISABLED"
        return note(f"{version}, and `wandb disabled` or WANDB_DISABLED: nothing is mirrored", fix)
    if is_set_offline():
        by = f"WANDB_MODE={mode}" if mode else "`wandb offline`"
        return ok(f"{version}, offline by {by}: `wandb sync` sends it later")
    if (problem := login_problem()) is None:
        return ok(f"{version}, a key for {login_server()}")
    return note(f"{version}; {problem}", "wandb login, or set WANDB_API_KEY; --wandb offline needs no key")


def slurm() -> Finding:
    """Whether jobs can be submitted to SLURM."""
    inside = f", inside job {job}" if (job := os.environ.get("SLURM_JOB_ID")) else ""
    if sbatch := shutil.which("sbatch"):
        return ok(f"{sbatch}{inside}")
    return note(f"there is no sbatch{inside}", "a login node of a cluster has it; --engine local needs none")


def submitit() -> Finding:
    """Whether grids can run on SLURM."""
    return _engine("submitit", "slurm")


def ray() -> Finding:
    """Whether grids can run on Ray."""
    return _engine("ray", "ray")


def _engine(package: str, engine: str) -> Finding:
    # not imported: ray takes seconds
    if importlib.util.find_spec(package) is None:
        return note(f"not installed; needed by --engine {engine}", f"pip install {package}")
    return ok(f"{importlib.metadata.version(package)}, needed by --engine {engine}")


def video() -> Finding:
    """Whether PyAV reads movies and writes MP4."""
    av = _imported("av", "video", "PyAV", "movies and MP4")
    if isinstance(av, Finding):
        return av
    try:
        av.CodecContext.create("libx264", "w")
    except Exception as error:
        return broken(f"PyAV {av.__version__} writes no MP4: {first_line(error)}", "pip install 'slotbench[video]'")
    return ok(f"PyAV {av.__version__} reads movies and writes MP4")


def ffmpeg() -> Finding:
    """Whether there is an ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return ok(found)
    return note("not there; slotbench needs none: PyAV brings its own", "see video")


def sim3d() -> Finding:
    """Whether mujoco simulates a falling ball."""
    mujoco = _imported("mujoco", "sim3d", "mujoco", "the physics of MOViLike")
    if isinstance(mujoco, Finding):
        return mujoco
    ball = "<mujoco><worldbody><body pos='0 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(ball)
    data = mujoco.MjData(model)
    for _ in range(10):
        mujoco.mj_step(model, data)
    if not data.qpos[2] < 1:
        return broken(f"mujoco {mujoco.__version__}: a ball does not fall", "reinstall it")
    return ok(f"mujoco {mujoco.__version__} simulates")


def _imported(module: str, extra: str, name: str, why: str) -> ModuleType | Finding:
    """The module, or why there is none."""
    if importlib.util.find_spec(module) is None:
        return note(f"{name} is not installed; {why}", f"pip install 'slotbench[{extra}]'")
    try:
        return importlib.import_module(module)
    except Exception as error:
        return broken(f"{name}: {first_line(error)}", f"pip install --force-reinstall {module}")
