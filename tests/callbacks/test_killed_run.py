"""Killing a training at any moment leaves a run folder that can be read, with a checkpoint that is whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from PIL import Image

from slotbench.callbacks.curves import draw_curves
from slotbench.runs.folder import RunFolder

SCRIPT = Path(__file__).with_name("tiny_run.py")
KILLS = 4


def test_killed_at_any_moment_the_run_can_be_read(tmp_path: Path) -> None:
    moments = random.Random(1)
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--processes", str(KILLS), "--val_check_interval", "3"]
    with open(tmp_path / "output.txt", "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    read = checkpoints = 0
    try:
        for killed in range(KILLS):
            while len(found := sorted(tmp_path.glob("tiny/[0-9]*"))) <= killed:
                assert process.poll() is None, (tmp_path / "output.txt").read_text()
                time.sleep(0.002)
            # named by the second, so the newest is the one whose process lives
            (folder,) = (run for path in found if (run := RunFolder.open(path)).state != "killed")
            if killed % 2:
                while folder.last_checkpoint() is None:
                    time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.3))
            os.kill(folder.info["pid"], signal.SIGKILL)
            # the last one is not forked: its parent is this test
            if killed == KILLS - 1:
                process.wait(timeout=30)
            while folder.state != "killed":
                time.sleep(0.002)
            steps = [row["step"] for row in folder.history() if "train/loss" in row]
            assert steps == list(range(len(steps)))
            for path in folder.checkpoints.glob("*.ckpt"):
                saved = torch.load(path, weights_only=True)["global_step"]
                assert saved % 3 == 0
                assert saved <= len(steps)
                checkpoints += 1
            for path in folder.media.glob("*.png"):
                with Image.open(path) as picture:
                    picture.verify()
            draw_curves(folder)
            read += 1
    finally:
        process.kill()
        process.wait()
    assert read == KILLS
    assert checkpoints >= KILLS // 2
