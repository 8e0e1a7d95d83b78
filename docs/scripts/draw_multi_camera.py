"""Draws docs/assets/multi_camera.png and prints how well held-out views are predicted without learning.

python docs/scripts/draw_multi_camera.py --videos 40
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.multi_camera_like.multi_camera_like import MultiCameraLike
from slotbench.interfaces import VideoBatch

ASSET = Path(__file__).parent.parent / "assets" / "multi_camera.png"
COLORS = np.array(
    [(20, 20, 20), (230, 80, 70), (80, 190, 90), (80, 120, 230), (240, 200, 70), (190, 90, 210)], np.uint8
)


def all_cameras(level: str, side: int = 96) -> np.ndarray:
    """Three steps of a video: every camera in a column, images above masks."""
    count = {"simple": 5, "ego": 6}[level]
    data = MultiCameraLike(level=level, resolution=side, num_shown=count, test_videos=2, samples_per_side=3)  # type: ignore[arg-type]
    batch = data.dataset("test").clips([0])
    order = batch.objects["views"][0].argsort()
    rows = []
    for step in (0, batch.num_steps // 2):
        frames = batch.frames[0, step, order].permute(0, 2, 3, 1).numpy()
        masks = COLORS[batch.require("masks")[0, step, order].numpy()]
        rows += [np.concatenate([np.pad(one, ((1, 1), (1, 1), (0, 0)), constant_values=255) for one in row], axis=1)
                 for row in (frames, masks)]  # fmt: skip
    return np.concatenate(rows)


def psnr(errors: list[torch.Tensor]) -> float:
    """Of the mean squared error of all pixels."""
    return float(-10 * torch.cat(errors).mean().log10())


def baselines(level: str, videos: int) -> dict[str, tuple[float, float]]:
    """PSNR of held-out views, of all pixels and of those of objects, by predictor."""
    options = LoaderOptions(val_batch_size=4)
    data = MultiCameraLike(level=level, train_videos=64, test_videos=videos, loader=options)  # type: ignore[arg-type]
    every: dict[str, list[torch.Tensor]] = {}
    inside: dict[str, list[torch.Tensor]] = {}
    for batch in data.test_dataloader():
        assert isinstance(batch, VideoBatch)
        assert batch.held_out is not None
        truth, seen = to_unit_range(batch.held_out).frames, batch.held_out.require("masks") > 0
        for name, predicted in data.held_out_baselines(batch).items():
            error = (predicted - truth).square().mean(3)
            every.setdefault(name, []).append(error.flatten())
            inside.setdefault(name, []).append(error[seen])
    return {name: (psnr(every[name]), psnr(inside[name])) for name in every}


def main() -> None:
    """Draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--videos", type=int, default=100, help="test videos that are scored")
    videos = parser.parse_args().videos
    pictures = [all_cameras(level) for level in ("simple", "ego")]
    width = max(picture.shape[1] for picture in pictures)
    filled = [np.pad(p, ((0, 12), (0, width - p.shape[1]), (0, 0)), constant_values=255) for p in pictures]
    Image.fromarray(np.concatenate(filled)[:-12]).save(ASSET, optimize=True)
    print("| level | prediction of held-out views | PSNR | on objects |\n|---|---|---|---|")
    for level in ("simple", "ego"):
        for name, (total, objects) in baselines(level, videos).items():
            print(f"| `{level}` | `{name}` | {total:.2f} | {objects:.2f} |")


if __name__ == "__main__":
    main()
