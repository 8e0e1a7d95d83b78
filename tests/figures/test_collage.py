"""Videos and pictures in one video: each whole, in its place, for as long as the longest."""

from __future__ import annotations

import numpy as np

from slotbench.figures.collage import collage


def flat(*shape: int, colour: tuple[int, int, int]) -> np.ndarray:
    return np.broadcast_to(np.array(colour, np.uint8), (*shape, 3)).copy()


def test_a_short_video_is_held_and_a_picture_stays() -> None:
    long, short = flat(4, 60, 300, colour=(250, 0, 0)), flat(2, 60, 300, colour=(0, 250, 0))
    short[1] = (0, 0, 250)
    sheet = collage({"long": long, "short": short, "wide": flat(40, 900, colour=(250, 250, 0))})
    assert len(sheet) == 4
    greens, blues, yellows = (
        [int((frame == colour).all(-1).sum()) for frame in sheet]
        for colour in ((0, 250, 0), (0, 0, 250), (250, 250, 0))
    )
    assert greens == [60 * 300, 60 * 300, 0, 0]
    assert blues == [0, 0, 60 * 300, 60 * 300]
    assert yellows == [40 * 900] * 4


def test_small_videos_are_enlarged_by_whole_pixels() -> None:
    sheet = collage({"small": flat(1, 20, 100, colour=(250, 0, 0))})
    assert int((sheet[0] == (250, 0, 0)).all(-1).sum()) == (5 * 20) * (5 * 100)


def test_a_gif_can_hold_all_of_its_colours() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (3, 50, 200, 3), dtype=np.uint8)
    assert len(np.unique(collage({"noise": noise}).reshape(-1, 3), axis=0)) <= 256
