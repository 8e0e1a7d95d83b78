"""The compiled functions of the balls in their readable form, of the same bytes; and what they show, read back."""

from __future__ import annotations

import math

import numpy as np
from einops import rearrange

from slotbench.data.balls.blinking_colours import PALETTE
from slotbench.data.balls.physics import BOX, SUBSTEPS


def patchify(video: np.ndarray, patches_per_side: int) -> np.ndarray:
    """Cuts each frame into P x P cells and puts them in a row: step s is cell s % P^2, row-major, of frame s // P^2."""
    p = patches_per_side
    return rearrange(video, "frames (y h) (x w) ... -> (frames y x) h w ...", y=p, x=p)


def unpatchify(steps: np.ndarray, patches_per_side: int) -> np.ndarray:
    """Puts the cells that `patchify` cut back into frames."""
    p = patches_per_side
    return rearrange(steps, "(frames y x) h w ... -> frames (y h) (x w) ...", y=p, x=p)


def class_image(rgb: np.ndarray) -> np.ndarray:
    """The class of each pixel of a colour image, channels last; every colour must be one of the palette."""
    same = (rgb[..., None, :] == PALETTE).all(-1)
    assert same.any(-1).all()
    return same.argmax(-1)


def simulate_reference(
    start: np.ndarray,
    start_velocity: np.ndarray,
    radii: np.ndarray,
    masses: np.ndarray,
    centres: np.ndarray,
    positions: np.ndarray,
    velocities: np.ndarray,
    ids: np.ndarray,
) -> None:
    """`slotbench.data.balls.physics._simulate`: physics in Python floats, drawing in numpy."""
    for clip in range(len(positions)):
        x, v, r, m = (values[clip].tolist() for values in (start, start_velocity, radii, masses))
        for frame in range(positions.shape[1]):
            for _ in range(SUBSTEPS if frame > 0 else 0):
                _step(x, v, r, m)
            positions[clip, frame], velocities[clip, frame] = x, v
        for i in reversed(range(len(r))):
            beside = centres - positions[clip, :, i, :1]
            below = centres - positions[clip, :, i, 1:]
            squared = (below * below)[:, :, None] + (beside * beside)[:, None, :]
            ids[clip][squared <= r[i] * r[i]] = i + 1


def _step(x: list[list[float]], v: list[list[float]], r: list[float], m: list[float]) -> None:
    """One sub-step, in place."""
    for position, velocity, radius in zip(x, v, r, strict=True):
        for axis in (0, 1):
            position[axis] += (1.0 / SUBSTEPS) * velocity[axis]
            if position[axis] - radius < 0.0:
                velocity[axis] = abs(velocity[axis])
            if position[axis] + radius > BOX:
                velocity[axis] = -abs(velocity[axis])
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            across, down = x[j][0] - x[i][0], x[j][1] - x[i][1]
            squared = across * across + down * down
            reach = r[i] + r[j]
            if squared >= reach * reach or squared == 0.0:
                continue
            distance = math.sqrt(squared)
            across, down = across / distance, down / distance
            vi = v[i][0] * across + v[i][1] * down
            vj = v[j][0] * across + v[j][1] * down
            if vi - vj <= 0.0:  # already parting; exchanging again would make them stick
                continue
            new_vj = (2.0 * m[i] * vi + vj * (m[j] - m[i])) / (m[i] + m[j])
            new_vi = new_vj + vj - vi
            v[i][0] += (new_vi - vi) * across
            v[i][1] += (new_vi - vi) * down
            v[j][0] += (new_vj - vj) * across
            v[j][1] += (new_vj - vj) * down


def paint_reference(
    ids: np.ndarray,
    shown: np.ndarray,
    asked: np.ndarray,
    palette: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
    targets: np.ndarray,
) -> None:
    """`slotbench.data.balls.blinking_colours._paint`."""
    num_clips, num_context, side, _ = targets.shape
    p = side // masks.shape[-1]
    row = np.arange(num_context)[:, None, None]
    for clip in range(num_clips):
        before, after = ids[clip, :-1], ids[clip, 1:]
        masks[clip] = patchify(before, p)
        frames[clip] = np.moveaxis(patchify(palette[shown[clip][row, before]], p), -1, 1)
        targets[clip] = asked[clip][row, after]
