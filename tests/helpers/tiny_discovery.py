"""Object discovery on bouncing balls that trains in a moment, for tests that look at its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slotbench.cli import run

__all__ = ["tiny_discovery", "train"]


def tiny_discovery(
    core: str = "SAVi",
    num_slots: int = 3,
    *,
    steps: int = 2,
    eval_frames: int = 3,
    clips: tuple[int, int] = (4, 4),
    baseline_clips: int = 0,
) -> dict[str, Any]:
    """The configuration of slots that find balls.

    Args:
        core: SAVi or SlotAttention.
        num_slots: slots.
        steps: of the training, which ends in a validation.
        eval_frames: of a clip in evaluation.
        clips: of validation and test.
        baseline_clips: that baselines are scored on.
    """
    return {
        "model": {
            "class_path": "SlotAutoencoding",
            "init_args": {
                "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
                "core": {"class_path": core, "init_args": {"num_slots": num_slots, "dim": 8, "num_iterations": 1}},
                "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
                "baseline_clips": baseline_clips,
            },
        },
        "data": {
            "class_path": "BouncingBalls",
            "init_args": {"num_balls": 2, "num_frames": 2, "eval_frames": eval_frames, "resolution": 16}
            | {"loader": {"batch_size": 4, "val_batch_size": 4, "val_size": clips[0], "test_size": clips[1]}},
        },
        "trainer": {"max_steps": steps, "val_check_interval": 1, "check_val_every_n_epoch": None, "accelerator": "cpu"}
        | {"enable_progress_bar": False, "num_sanity_val_steps": 0},
    }


def train(config: dict[str, Any], run_dir: Path, *arguments: str) -> Path:
    """Trains a configuration into a run folder, which is returned; the configuration lies beside it."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    file = run_dir.parent.parent / "tiny.yaml"
    file.write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTBENCH_RUN_DIR", "")  # the command sets it, for processes that it starts
        assert run(["fit", "--config", str(file), "--run_dir", str(run_dir), *arguments]) == 0
    return run_dir
