"""The compiled ray-caster; its readable form, of the same images, is among the tests.

All that the kernel uses is in this file: the compiler's cache on disk notices a change of this file, not of an import.
Only additions, multiplications, divisions and square roots are used, in a fixed order, so a scene gives the same bytes
each time. Small functions are compiled into their callers: calls with many arrays cost more than what they compute.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["BOX", "CHECKS", "CONE", "CUBE", "CYLINDER", "FAR", "NOISE", "PLAIN", "SPHERE", "STRIPES", "render_into"]
__all__ += ["AMBIENT", "FILL", "FILL_X", "FILL_Y", "FILL_Z", "KEY"]

CUBE, CYLINDER, SPHERE, CONE, BOX = 0, 1, 2, 3, 4
PLAIN, STRIPES, CHECKS, NOISE = 0, 1, 2, 3

FAR = 1000.0
"""Distance of what is not there, above the horizon."""

AMBIENT, KEY, FILL = 0.42, 0.62, 0.12
"""Light from everywhere, from the lamp, and from a second light without shadows, which shines from (-0.6, 0, 0.8)."""
FILL_X, FILL_Y, FILL_Z = -0.6, 0.0, 0.8


@njit(cache=True, nogil=True, error_model="numpy")
def _cone(half, near, far, nz, ox, oy, oz, dx, dy, dz):  # type: ignore[no-untyped-def]
    """`_solid` for a cone of radius `half` at z = -half and its tip at z = half, from `near` to `far` between these."""
    # inside where a t^2 + 2 b t + c <= 0: the distance from the axis is at most half of that below the tip
    below = half - oz
    a = dx * dx + dy * dy - 0.25 * dz * dz
    b = ox * dx + oy * dy + 0.25 * below * dz
    c = ox * ox + oy * oy - 0.25 * below * below
    disc = b * b - a * c
    if a > 0.0:
        if disc < 0.0:
            return 1.0, 0.0, 0.0, 0.0, 0.0
        root = math.sqrt(disc)
        enter, leave = (-b - root) / a, (-b + root) / a
    elif a < 0.0:
        # steeper than the side: inside before it leaves through the tip's cone upwards, or after it enters downwards
        root = math.sqrt(max(0.0, disc))
        one, other = (-b - root) / a, (-b + root) / a
        enter, leave = (max(one, other), math.inf) if dz < 0.0 else (-math.inf, min(one, other))
    else:
        # parallel to the side
        if b == 0.0 and c > 0.0:
            return 1.0, 0.0, 0.0, 0.0, 0.0
        enter, leave = -math.inf, math.inf
        if b > 0.0:
            leave = -0.5 * c / b
        elif b < 0.0:
            enter = -0.5 * c / b
    if enter <= near:
        return near, min(far, leave), 0.0, 0.0, nz
    x, y = ox + enter * dx, oy + enter * dy
    across = math.sqrt(x * x + y * y)
    if across == 0.0:
        return enter, min(far, leave), 0.0, 0.0, 1.0
    # the side falls by two for each step outwards
    scale = math.sqrt(0.8)
    return enter, min(far, leave), scale * x / across, scale * y / across, 0.5 * scale


@njit(cache=True, nogil=True, error_model="numpy")
def _solid(shape, half, ox, oy, oz, dx, dy, dz):  # type: ignore[no-untyped-def]
    """Where a ray enters and leaves a solid at the origin, and the normal where it enters; entering last is a miss."""
    if shape == SPHERE:
        b = ox * dx + oy * dy + oz * dz
        c = ox * ox + oy * oy + oz * oz - half * half
        disc = b * b - c
        if disc < 0.0:
            return 1.0, 0.0, 0.0, 0.0, 0.0
        root = math.sqrt(disc)
        near = -b - root
        return near, -b + root, (ox + near * dx) / half, (oy + near * dy) / half, (oz + near * dz) / half
    near, far = -math.inf, math.inf
    nx, ny, nz = 0.0, 0.0, 0.0
    # between two planes, across z for both
    if dz == 0.0:
        if abs(oz) > half:
            return 1.0, 0.0, 0.0, 0.0, 0.0
    else:
        sign = 1.0 if dz > 0.0 else -1.0
        near, far, nz = (-sign * half - oz) / dz, (sign * half - oz) / dz, -sign
    if shape in (CUBE, BOX):
        for axis in range(2):
            o, d = (ox, dx) if axis == 0 else (oy, dy)
            if d == 0.0:
                if abs(o) > half:
                    return 1.0, 0.0, 0.0, 0.0, 0.0
            else:
                sign = 1.0 if d > 0.0 else -1.0
                enter, leave = (-sign * half - o) / d, (sign * half - o) / d
                if enter > near:
                    near, nz = enter, 0.0
                    nx, ny = (-sign, 0.0) if axis == 0 else (0.0, -sign)
                far = min(far, leave)
        return near, far, nx, ny, nz
    if shape == CONE:
        return _cone(half, near, far, nz, ox, oy, oz, dx, dy, dz)
    a = dx * dx + dy * dy
    b = ox * dx + oy * dy
    c = ox * ox + oy * oy - half * half
    if a == 0.0:
        if c > 0.0:
            return 1.0, 0.0, 0.0, 0.0, 0.0
        return near, far, nx, ny, nz
    disc = b * b - a * c
    if disc < 0.0:
        return 1.0, 0.0, 0.0, 0.0, 0.0
    root = math.sqrt(disc)
    enter, leave = (-b - root) / a, (-b + root) / a
    if enter > near:
        near = enter
        nx, ny, nz = (ox + near * dx) / half, (oy + near * dy) / half, 0.0
    return near, min(far, leave), nx, ny, nz


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _passes(windows, time, i, x, y):  # type: ignore[no-untyped-def]
    """Whether a ray with these slopes cannot meet object i."""
    return x < windows[time, i, 0] or x > windows[time, i, 1] or y < windows[time, i, 2] or y > windows[time, i, 3]


@njit(cache=True, nogil=True, error_model="numpy")
def _meet(shapes, halves, solids, time, i, ox, oy, oz, dx, dy, dz):  # type: ignore[no-untyped-def]
    """`_solid` for object i, where it is at that time; the normal is in its own axes.

    A box is a cube of half side 1 in axes as long as one over its half sides.
    """
    rx, ry, rz = ox - solids[time, i, 0], oy - solids[time, i, 1], oz - solids[time, i, 2]
    near, far, nx, ny, nz = _solid(
        shapes[i],
        halves[i],
        solids[time, i, 3] * rx + solids[time, i, 6] * ry + solids[time, i, 9] * rz,
        solids[time, i, 4] * rx + solids[time, i, 7] * ry + solids[time, i, 10] * rz,
        solids[time, i, 5] * rx + solids[time, i, 8] * ry + solids[time, i, 11] * rz,
        solids[time, i, 3] * dx + solids[time, i, 6] * dy + solids[time, i, 9] * dz,
        solids[time, i, 4] * dx + solids[time, i, 7] * dy + solids[time, i, 10] * dz,
        solids[time, i, 5] * dx + solids[time, i, 8] * dy + solids[time, i, 11] * dz,
    )
    if shapes[i] == BOX:
        axis = 3 if nx != 0.0 else (4 if ny != 0.0 else 5)
        a, b, c = solids[time, i, axis], solids[time, i, axis + 3], solids[time, i, axis + 6]
        length = math.sqrt(a * a + b * b + c * c)
        nx, ny, nz = nx / length, ny / length, nz / length
    return near, far, nx, ny, nz


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _first(shapes, halves, solids, windows, time, x, y, ox, oy, oz, dx, dy, dz):  # type: ignore[no-untyped-def]
    """The first object on a ray (0 the floor or nothing), its distance, and the normal there in the object's axes."""
    found, distance = 0, FAR
    nx, ny, nz = 0.0, 0.0, 1.0
    if dz < 0.0:
        distance = min(FAR, -oz / dz)
    for i in range(len(shapes)):
        if _passes(windows, time, i, x, y):
            continue
        near, far, ix, iy, iz = _meet(shapes, halves, solids, time, i, ox, oy, oz, dx, dy, dz)
        if near <= far and 0.0 < near < distance:
            found, distance, nx, ny, nz = i + 1, near, ix, iy, iz
    return found, distance, nx, ny, nz


@njit(cache=True, nogil=True, error_model="numpy")
def _lattice(i, j, k, seed):  # type: ignore[no-untyped-def]
    """A number in 0..1 for each point of the integer lattice."""
    mixed = (i * 73856093 ^ j * 19349663 ^ k * 83492791 ^ seed * 2654435) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 1274126177) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 974634777) & 0x7FFFFFFF
    return (mixed ^ (mixed >> 16)) / 2147483647.0


@njit(cache=True, nogil=True, error_model="numpy")
def _noise(x, y, z, seed):  # type: ignore[no-untyped-def]
    """Noise that is smooth between the points of the lattice."""
    i, j, k = math.floor(x), math.floor(y), math.floor(z)
    u, v, w = x - i, y - j, z - k
    u, v, w = u * u * (3.0 - 2.0 * u), v * v * (3.0 - 2.0 * v), w * w * (3.0 - 2.0 * w)
    total = 0.0
    for corner in range(8):
        a, b, c = corner & 1, corner >> 1 & 1, corner >> 2
        weight = (u if a else 1.0 - u) * (v if b else 1.0 - v) * (w if c else 1.0 - w)
        total += weight * _lattice(i + a, j + b, k + c, seed)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _second_share(textures, surface, x, y, z):  # type: ignore[no-untyped-def]
    """How much of the second colour a solid texture has at a point."""
    kind = int(textures[surface, 0])
    if kind == PLAIN:
        return 0.0
    frequency, offset = textures[surface, 1], textures[surface, 2]
    if kind == STRIPES:
        along = x * textures[surface, 3] + y * textures[surface, 4] + z * textures[surface, 5]
        at = along * frequency + offset
        edge = (abs(2.0 * (at - math.floor(at)) - 1.0) - 0.5) * 5.0 + 0.5
        return min(1.0, max(0.0, edge))
    x, y, z = x * frequency + offset, y * frequency + offset, z * frequency + offset
    if kind == CHECKS:
        return float((math.floor(x) + math.floor(y) + math.floor(z)) & 1)
    seed = int(offset * 1024.0)
    level = (2.0 * _noise(x, y, z, seed) + _noise(2.0 * x, 2.0 * y, 2.0 * z, seed + 1)) / 3.0
    return min(1.0, max(0.0, (level - 0.5) * 4.0 + 0.5))


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _color(  # type: ignore[no-untyped-def]
    shapes, halves, solids, windows, lamp_windows, time, colors, textures, gloss, light,
    x, y, ox, oy, oz, dx, dy, dz, out,
):  # fmt: skip
    """Adds the light that comes along a ray to `out`, in units in which the square root is what is seen."""
    found, distance, nx, ny, nz = _first(shapes, halves, solids, windows, time, x, y, ox, oy, oz, dx, dy, dz)
    px, py, pz = ox + distance * dx, oy + distance * dy, oz + distance * dz
    if found > 0:
        i = found - 1
        half = halves[i]
        nx, ny, nz = (
            solids[time, i, 3] * nx + solids[time, i, 4] * ny + solids[time, i, 5] * nz,
            solids[time, i, 6] * nx + solids[time, i, 7] * ny + solids[time, i, 8] * nz,
            solids[time, i, 9] * nx + solids[time, i, 10] * ny + solids[time, i, 11] * nz,
        )
        qx, qy, qz = px - solids[time, i, 0], py - solids[time, i, 1], pz - solids[time, i, 2]
        share = _second_share(
            textures,
            found,
            (solids[time, i, 3] * qx + solids[time, i, 6] * qy + solids[time, i, 9] * qz) / half,
            (solids[time, i, 4] * qx + solids[time, i, 7] * qy + solids[time, i, 10] * qz) / half,
            (solids[time, i, 5] * qx + solids[time, i, 8] * qy + solids[time, i, 11] * qz) / half,
        )
    else:
        share = _second_share(textures, 0, px, py, 0.0)
    lx, ly, lz = light[0] - px, light[1] - py, light[2] - pz
    reach = math.sqrt(lx * lx + ly * ly + lz * lz)
    lx, ly, lz = lx / reach, ly / reach, lz / reach
    facing = nx * lx + ny * ly + nz * lz
    lit = facing > 0.0
    if lit:
        # from above the lamp, where slopes mean nothing, comparisons with nan spare no object
        across, along = (-lx / lz, -ly / lz) if lz > 0.0 else (math.nan, math.nan)
        for i in range(len(shapes)):
            # a convex solid is in its own shadow just where it faces away
            if i + 1 != found and not _passes(lamp_windows, time, i, across, along):
                near, far, _, _, _ = _meet(shapes, halves, solids, time, i, px, py, pz, lx, ly, lz)
                if near <= far and far > 0.0 and near < reach:
                    lit = False
                    break
    diffuse = AMBIENT * (0.75 + 0.25 * nz) + FILL * max(0.0, nx * FILL_X + ny * FILL_Y + nz * FILL_Z)
    highlight = 0.0
    if lit:
        diffuse += KEY * facing
        if gloss[found, 1] > 0.0:
            hx, hy, hz = lx - dx, ly - dy, lz - dz
            highlight = max(0.0, nx * hx + ny * hy + nz * hz) / math.sqrt(hx * hx + hy * hy + hz * hz)
            for _ in range(int(gloss[found, 3])):
                highlight = highlight * highlight
    diffuse *= gloss[found, 0]
    if gloss[found, 2] > 0.0:
        mirrored = dz - 2.0 * (nx * dx + ny * dy + nz * dz) * nz
        diffuse += gloss[found, 2] * (0.25 + 0.75 * mirrored if mirrored > 0.0 else 0.25 + 0.1 * mirrored)
    for channel in range(3):
        seen = colors[found, 0, channel] + share * (colors[found, 1, channel] - colors[found, 0, channel])
        own = seen * seen
        out[channel] += own * diffuse + (0.5 + 0.5 * own) * highlight * gloss[found, 1]


@njit(cache=True, nogil=True, error_model="numpy")
def _ground_boxes(cameras, camera_rotations, slopes):  # type: ignore[no-untyped-def]
    """From where to where on the ground the rays of each pixel end in the first frame: "row column 4", x and then y.

    A pixel that sees past the ground's end has no bounds.
    """
    side, rays = slopes.shape
    boxes = np.empty((side, side, 4))
    for row in range(side):
        for column in range(side):
            low_x, high_x, low_y, high_y = math.inf, -math.inf, math.inf, -math.inf
            for ray in range(rays * rays):
                x, y = slopes[column, ray % rays], -slopes[row, ray // rays]
                # per unit downwards; the axes are the columns of the rotation
                turn = camera_rotations[0]
                down = turn[2, 2] - turn[2, 0] * x - turn[2, 1] * y
                reach = cameras[0, 2] / down
                if not 0.0 < reach < 0.1 * FAR:
                    low_x, high_x, low_y, high_y = -math.inf, math.inf, -math.inf, math.inf
                    break
                px = cameras[0, 0] + reach * (turn[0, 0] * x + turn[0, 1] * y - turn[0, 2])
                py = cameras[0, 1] + reach * (turn[1, 0] * x + turn[1, 1] * y - turn[1, 2])
                low_x, high_x = min(low_x, px), max(high_x, px)
                low_y, high_y = min(low_y, py), max(high_y, py)
            boxes[row, column, 0], boxes[row, column, 1] = low_x, high_x
            boxes[row, column, 2], boxes[row, column, 3] = low_y, high_y
    return boxes


@njit(cache=True, nogil=True, error_model="numpy")
def _objects_near(windows, lamp_windows, time, light, slopes, boxes, near):  # type: ignore[no-untyped-def]
    """Marks the pixels that an object or its shadow may touch: those whose bounds meet that of its windows."""
    side, last = len(slopes), slopes.shape[1] - 2
    near[:] = False
    for i in range(windows.shape[1]):
        # where rays from the lamp through the object meet the ground
        shade = lamp_windows[time, i] * light[2]
        for row in range(side):
            y0, y1 = -slopes[row, last], -slopes[row, 0]
            in_rows = y1 >= windows[time, i, 2] and y0 <= windows[time, i, 3]
            for column in range(side):
                x0, x1 = slopes[column, 0], slopes[column, last]
                seen = in_rows and x1 >= windows[time, i, 0] and x0 <= windows[time, i, 1]
                shaded = (
                    boxes[row, column, 1] >= light[0] + shade[0]
                    and boxes[row, column, 0] <= light[0] + shade[1]
                    and boxes[row, column, 3] >= light[1] + shade[2]
                    and boxes[row, column, 2] <= light[1] + shade[3]
                )
                near[row, column] = near[row, column] or seen or shaded


@njit(cache=True, nogil=True, error_model="numpy")
def render_into(  # type: ignore[no-untyped-def]
    width, shapes, cameras, camera_rotations, halves, solids, windows, lamp_windows, colors, textures, gloss, light,
    samples, frames, masks, depth,
):  # fmt: skip
    """Fills `frames`, `masks` and `depth`; arguments as in `ray_caster`.

    Where the camera stands still, the empty ground is painted once, and later only what objects may touch.
    """
    side = masks.shape[1]
    light_sum = np.empty(3)
    # where rays go through a row or a column of pixels, as slopes; the last goes through the centre
    slopes = np.empty((side, samples + 1))
    for column in range(side):
        for sample in range(samples):
            slopes[column, sample] = ((column + (sample + 0.5) / samples) / side - 0.5) * width
        slopes[column, samples] = ((column + 0.5) / side - 0.5) * width
    still = len(cameras) > 1 and light[2] > 0.0
    for time in range(len(cameras)):
        still = still and (cameras[time] == cameras[0]).all() and (camera_rotations[time] == camera_rotations[0]).all()
    ground, ground_depth = np.empty((3, side, side), np.uint8), np.empty((side, side), np.float32)
    boxes, near = _ground_boxes(cameras, camera_rotations, slopes), np.ones((side, side), np.bool_)
    # the turn before the first is that of the empty ground
    for turn in range(-1 if still else 0, len(cameras)):
        time, there = max(turn, 0), shapes if turn >= 0 else shapes[:0]
        ox, oy, oz = cameras[time, 0], cameras[time, 1], cameras[time, 2]
        if still and turn >= 0:
            _objects_near(windows, lamp_windows, time, light, slopes, boxes, near)
            frames[time], depth[time] = ground, ground_depth
            masks[time] = 0
        for row in range(side):
            for column in range(side):
                if not near[row, column]:
                    continue
                light_sum[:] = 0.0
                for sample in range(samples * samples + 1):
                    centre = sample == samples * samples
                    x = slopes[column, samples if centre else sample % samples]
                    y = -slopes[row, samples if centre else sample // samples]
                    length = math.sqrt(x * x + y * y + 1.0)
                    dx = camera_rotations[time, 0, 0] * x + camera_rotations[time, 0, 1] * y
                    dy = camera_rotations[time, 1, 0] * x + camera_rotations[time, 1, 1] * y
                    dz = camera_rotations[time, 2, 0] * x + camera_rotations[time, 2, 1] * y
                    dx = (dx - camera_rotations[time, 0, 2]) / length
                    dy = (dy - camera_rotations[time, 1, 2]) / length
                    dz = (dz - camera_rotations[time, 2, 2]) / length
                    if centre:
                        found, distance, _, _, _ = _first(
                            there, halves, solids, windows, time, x, y, ox, oy, oz, dx, dy, dz
                        )
                        masks[time, row, column] = found
                        depth[time, row, column] = distance
                    else:
                        _color(
                            there, halves, solids, windows, lamp_windows, time, colors, textures, gloss, light,
                            x, y, ox, oy, oz, dx, dy, dz, light_sum,
                        )  # fmt: skip
                for channel in range(3):
                    value = math.sqrt(light_sum[channel] / (samples * samples))
                    frames[time, channel, row, column] = int(min(1.0, value) * 255.0 + 0.5)
        if turn < 0:
            ground[:], ground_depth[:] = frames[0], depth[0]
