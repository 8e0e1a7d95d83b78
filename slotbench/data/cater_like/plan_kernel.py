"""The floor as seen from above: an image of what nothing covers, for sets whose models read positions."""

from __future__ import annotations

from numba import njit

__all__ = ["plan_into"]


@njit(cache=True, nogil=True)
def plan_into(places, radii, tops, square, seen, colors, half_floor, frames, masks):  # type: ignore[no-untyped-def]
    """Fills `frames` "time 3 side side" and `masks`, y upwards; what is higher is drawn over what is lower.

    Arguments:

    - `places`: "time objects 3".
    - `radii`: of discs, or half the diagonal of squares "objects".
    - `tops`: heights of the objects "objects".
    - `square`: whether it is drawn as a square "objects".
    - `seen`: whether it is drawn at all "time objects".
    - `colors`: of the floor and the objects, bytes "objects+1 3".
    - `half_floor`: half the side of the floor.
    - `frames`: bytes.
    - `masks`: 0 for the floor, i + 1 for object i.
    """
    side = masks.shape[1]
    for time in range(len(masks)):
        for row in range(side):
            y = half_floor * (1.0 - (2.0 * row + 1.0) / side)
            for column in range(side):
                x = half_floor * ((2.0 * column + 1.0) / side - 1.0)
                found, highest = 0, 0.0
                for i in range(len(radii)):
                    top = places[time, i, 2] + tops[i]
                    if not seen[time, i] or top < highest:
                        continue
                    dx, dy = abs(x - places[time, i, 0]), abs(y - places[time, i, 1])
                    inside = dx * dx + dy * dy <= radii[i] * radii[i]
                    if square[i]:
                        inside = max(dx, dy) <= radii[i] * 0.7071067811865476
                    if inside:
                        found, highest = i + 1, top
                masks[time, row, column] = found
                for channel in range(3):
                    frames[time, channel, row, column] = colors[found, channel]
