"""The compiled drawing of sprites in its readable form, of the same bytes."""

from __future__ import annotations

import numpy as np


def inside(shape: int, height: int, width: int) -> np.ndarray:
    """Which pixels of its patch a sprite covers."""
    row, column = np.mgrid[:height, :width]
    down, across = row - (height - 1) / 2, column - (width - 1) / 2
    if shape == 0:
        return down**2 + across**2 <= (height / 2) ** 2
    if shape == 1:
        nearer_edge = np.where(column <= width / 2 - 1, column + 1, width - column)
        return (height - row) * width <= 2 * height * nearer_edge
    if shape == 2:
        return np.ones((height, width), bool)
    return abs(down) + abs(across) <= height / 2


def light(texture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The brightness of a patch, from a quarter to one, bilinear between the points of a grid laid over it."""
    along = []
    for size, points in zip((height, width), texture.shape, strict=True):
        weights = np.zeros((size, points))
        for pixel in range(size):
            place = (pixel + 0.5) / size * (points - 1)
            below = min(int(place), points - 2)
            weights[pixel, below], weights[pixel, below + 1] = 1 - (place - below), place - below
        along.append(weights)
    return 0.25 + 0.75 * (along[0] @ texture @ along[1].T)


def shade_reference(shapes: np.ndarray, sizes: np.ndarray, textures: np.ndarray, shades: np.ndarray) -> None:
    """`slotbench.data.sprites.world._shade_sprites`."""
    for clip, i in np.ndindex(*shapes.shape):
        height, width = sizes[clip, i].tolist()
        patch = inside(int(shapes[clip, i]), height, width) * light(textures[clip, i], height, width)
        shades[clip, i, :height, :width] = patch


def draw_reference(
    first: int,
    births: np.ndarray,
    starts: np.ndarray,
    velocities: np.ndarray,
    sizes: np.ndarray,
    colours: np.ndarray,
    shades: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
    visibility: np.ndarray,
    bboxes: np.ndarray,
) -> None:
    """`slotbench.data.sprites.world._draw_sprites`: the back sprite first, each on a canvas that is then cut."""
    side = masks.shape[-1]
    for clip, frame in np.ndindex(*masks.shape[:2]):
        for i in range(births.shape[1]):
            age = first + frame - births[clip, i]
            if births[clip, i] < 0 or age < 0:
                continue
            height, width = sizes[clip, i].tolist()
            centre = starts[clip, i] + age * velocities[clip, i]
            left, top = np.floor(centre - (np.array([width, height]) - 1) / 2 + 0.5).astype(int)
            patch = shades[clip, i, :height, :width]
            row, column = np.nonzero(patch)
            y, x = top + row, left + column
            kept = (y >= 0) & (y < side) & (x >= 0) & (x < side)
            painted = (patch[row[kept], column[kept]] * colours[clip, i][:, None] + 0.5).astype(np.uint8)
            frames[clip, frame][:, y[kept], x[kept]] = painted
            masks[clip, frame, y[kept], x[kept]] = i + 1
        for i in range(births.shape[1]):
            rows, columns = np.nonzero(masks[clip, frame] == i + 1)
            visibility[clip, frame, i] = len(rows)
            if len(rows):
                box = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
                bboxes[clip, frame, i] = np.array(box) / side
