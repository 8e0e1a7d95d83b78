"""Compiled loops of the maze: its passages, the walk of the agent, its views, and when a surface was seen last.

Cells are squares of side 1, x to the right and y down; arrays of cells are indexed [y, x]. A position is in steps of a
quarter of a cell, so that the middle of cell c is 4 c + 2; a heading is in sixteenths of a turn, 0 to the right and 4
down. Random numbers come from the generator that is given.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["SUBSTEPS", "carve", "last_seen", "render", "walk"]

SUBSTEPS = 4
"""Steps from the middle of a cell to that of the next."""

LEFT, RIGHT, FORWARD = 0, 1, 2
HALF_VIEW = math.tan(math.pi / 6)
"""Half of the width of what is seen at distance 1: a view of 60 degrees."""
WALL_HEIGHT = 0.75
CEILING = (135, 135, 150)
GROUND = (90, 80, 70)
SIDE_SHADE = 0.7
"""Light of walls that face up or down, against those that face left or right."""


@njit(cache=True, nogil=True)
def carve(walls, loops, rng):  # type: ignore[no-untyped-def]
    """Opens a random tree of passages between the rooms, and then `loops` more walls between two rooms."""
    rooms = (len(walls) - 1) // 2
    stack = np.zeros((rooms * rooms, 2), np.int64)
    stack[0, 0], stack[0, 1] = int(rng.random() * rooms), int(rng.random() * rooms)
    walls[2 * stack[0, 0] + 1, 2 * stack[0, 1] + 1] = 0
    depth = 1
    while depth:
        row, col = stack[depth - 1]
        found = 0
        next_row, next_col = row, col
        for direction in range(4):
            r, c = row + (direction == 0) - (direction == 1), col + (direction == 2) - (direction == 3)
            if 0 <= r < rooms and 0 <= c < rooms and walls[2 * r + 1, 2 * c + 1]:
                found += 1
                if rng.random() * found < 1:  # each of those found is chosen with equal probability
                    next_row, next_col = r, c
        if not found:
            depth -= 1
            continue
        walls[row + next_row + 1, col + next_col + 1] = 0
        walls[2 * next_row + 1, 2 * next_col + 1] = 0
        stack[depth, 0], stack[depth, 1] = next_row, next_col
        depth += 1
    for _ in range(loops):
        found, chosen_row, chosen_col = 0, 0, 0
        for r in range(1, len(walls) - 1):
            for c in range(1, len(walls) - 1):
                if walls[r, c] and r % 2 != c % 2:
                    found += 1
                    if rng.random() * found < 1:
                        chosen_row, chosen_col = r, c
        if found:
            walls[chosen_row, chosen_col] = 0


@njit(cache=True, nogil=True)
def walk(walls, rng, poses, actions):  # type: ignore[no-untyped-def]
    """Walks on shortest paths to one random open cell after the other, turning in the middle of cells."""
    size = len(walls)
    open_cells = np.argwhere(walls == 0)
    distance = np.zeros((size, size), np.int64)
    queue = np.zeros((size * size, 2), np.int64)
    start = open_cells[int(rng.random() * len(open_cells))]
    target_row, target_col = start
    middle = SUBSTEPS // 2
    x, y = SUBSTEPS * start[1] + middle, SUBSTEPS * start[0] + middle
    heading = 4 * int(rng.random() * 4)
    wanted = heading
    for step in range(len(poses)):
        poses[step, 0], poses[step, 1], poses[step, 2] = x, y, heading
        if x % SUBSTEPS == middle and y % SUBSTEPS == middle and heading % 4 == 0:
            row, col = y // SUBSTEPS, x // SUBSTEPS
            if row == target_row and col == target_col:
                while row == target_row and col == target_col:
                    target_row, target_col = open_cells[int(rng.random() * len(open_cells))]
                wanted = -1
            if wanted < 0 or wanted == heading:
                distance[:] = -1
                distance[target_row, target_col] = 0
                queue[0, 0], queue[0, 1] = target_row, target_col
                first, last = 0, 1
                while first < last:
                    r, c = queue[first]
                    first += 1
                    for direction in range(4):
                        to_r, to_c = r + (direction == 1) - (direction == 3), c + (direction == 0) - (direction == 2)
                        if not walls[to_r, to_c] and distance[to_r, to_c] < 0:
                            distance[to_r, to_c] = distance[r, c] + 1
                            queue[last, 0], queue[last, 1] = to_r, to_c
                            last += 1
                found = 0
                for direction in range(4):
                    to_r, to_c = row + (direction == 1) - (direction == 3), col + (direction == 0) - (direction == 2)
                    if not walls[to_r, to_c] and distance[to_r, to_c] == distance[row, col] - 1:
                        found += 1
                        if rng.random() * found < 1:
                            wanted = 4 * direction
        turn = (wanted - heading) % 16
        if turn == 0:
            actions[step] = FORWARD
            x += (heading == 0) - (heading == 8)
            y += (heading == 4) - (heading == 12)
        elif turn < 8 or (turn == 8 and rng.random() < 0.5):
            actions[step] = RIGHT
            heading = (heading + 1) % 16
        else:
            actions[step] = LEFT
            heading = (heading - 1) % 16


@njit(cache=True, nogil=True)
def render(walls, patterns, colours, palette, poses, frames, surfaces):  # type: ignore[no-untyped-def]
    """Draws what is seen from each pose, one ray for each column of pixels.

    Args:
        walls: 1 where there is one.
        patterns: of each cell, 0 to 3: plain, two halves one above the other, two beside each other, four quarters.
        colours: "size size 2", the two colours of each cell, rows of `palette`.
        palette: "colours 3".
        poses: "steps 3", x, y and heading.
        frames: "steps 3 side side", filled.
        surfaces: "steps side side", filled with twice the number of the cell, plus which of its colours; -1 for none.
    """
    side, size = frames.shape[-1], len(walls)
    for step in range(len(poses)):
        eye_x, eye_y = poses[step, 0] / SUBSTEPS, poses[step, 1] / SUBSTEPS
        angle = poses[step, 2] * math.pi / 8
        cosine, sine = math.cos(angle), math.sin(angle)
        for col in range(side):
            offset = (2 * (col + 0.5) / side - 1) * HALF_VIEW
            ray_x, ray_y = cosine - sine * offset, sine + cosine * offset
            x, y = int(eye_x), int(eye_y)
            pass_x = abs(1 / ray_x) if abs(ray_x) > 1e-9 else 1e9
            pass_y = abs(1 / ray_y) if abs(ray_y) > 1e-9 else 1e9
            step_x, step_y = (1 if ray_x > 0 else -1), (1 if ray_y > 0 else -1)
            next_x = (x + 1 - eye_x if ray_x > 0 else eye_x - x) * pass_x
            next_y = (y + 1 - eye_y if ray_y > 0 else eye_y - y) * pass_y
            distance, faces_side = 0.0, True
            while not walls[y, x]:
                faces_side = next_x < next_y
                if faces_side:
                    distance, x, next_x = next_x, x + step_x, next_x + pass_x
                else:
                    distance, y, next_y = next_y, y + step_y, next_y + pass_y
            across = eye_y + distance * ray_y if faces_side else eye_x + distance * ray_x
            right = int(2 * (across - math.floor(across)))
            shade = 1.0 if faces_side else SIDE_SHADE
            height = WALL_HEIGHT * side / max(distance, 0.1)
            for row in range(side):
                up = (row + 0.5 - side / 2) / height + 0.5
                if up < 0 or up >= 1:
                    for channel in range(3):
                        frames[step, channel, row, col] = CEILING[channel] if up < 0 else GROUND[channel]
                    surfaces[step, row, col] = -1
                    continue
                lower = int(2 * up)
                pattern = patterns[y, x]
                which = 0
                if pattern == 1:
                    which = lower
                elif pattern == 2:
                    which = right
                elif pattern == 3:
                    which = (lower + right) % 2
                for channel in range(3):
                    frames[step, channel, row, col] = int(palette[colours[y, x, which], channel] * shade)
                surfaces[step, row, col] = 2 * (size * y + x) + which


@njit(cache=True, nogil=True)
def last_seen(surfaces, seen):  # type: ignore[no-untyped-def]
    """The last step before each at which the surface of a pixel was seen anywhere in the frame."""
    steps, rows, cols = surfaces.shape
    latest = np.full(surfaces.max() + 1, -1, np.int64)
    for step in range(steps):
        for row in range(rows):
            for col in range(cols):
                surface = surfaces[step, row, col]
                seen[step, row, col] = latest[surface] if surface >= 0 else -1
        for row in range(rows):
            for col in range(cols):
                if surfaces[step, row, col] >= 0:
                    latest[surfaces[step, row, col]] = step
