from fractions import Fraction

import numpy as np
import pytest
import torch
from ball_reference import class_image, unpatchify
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.blinking_colours import WHITE
from slotbench.data.balls.physics import Balls, simulate
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import VideoBatch


def episodes(data: BlinkingBalls, count: int, split: str = "train") -> VideoBatch:
    return data.dataset(split).clips(range(count))


def context_classes(batch: VideoBatch, clip: int, patches_per_side: int) -> np.ndarray:
    """The class images of the context frames, put together again."""
    return class_image(unpatchify(batch.frames[clip].permute(0, 2, 3, 1).numpy(), patches_per_side))


@pytest.mark.parametrize(
    ("num_frames", "patches_per_side", "length", "tokens"),
    [(6, 4, 80, 16), (6, 8, 320, 4), (6, 16, 1280, 1), (11, 4, 160, 16), (11, 8, 640, 4), (11, 16, 2560, 1)],
)
def test_sequences_have_the_lengths_of_the_paper(
    num_frames: int, patches_per_side: int, length: int, tokens: int
) -> None:
    data = BlinkingBalls(num_frames=num_frames, patches_per_side=patches_per_side)
    batch = episodes(data, 2)
    side = 64 // patches_per_side
    assert (side // 4) ** 2 == tokens
    assert batch.frames.shape == (2, length, 3, side, side)
    assert batch.masks.shape == (2, length, side, side)
    assert batch.target.shape == batch.target_masks.shape == (2, num_frames - 1, 64, 64)
    assert batch.time.tolist() == [list(range(length))] * 2
    assert batch.target_time.tolist() == [[(f + 1) * patches_per_side**2 - 1 for f in range(num_frames - 1)]] * 2
    assert {t.dtype for t in (batch.frames, batch.masks, batch.target, batch.target_masks)} == {torch.uint8}
    assert batch.objects["positions"].shape == batch.objects["velocities"].shape == (2, num_frames, 4, 2)
    assert batch.objects["context"].shape == (2, num_frames - 1, 2)
    for rule in ("earliest", "most_frequent", "last"):
        assert batch.objects[rule].shape == (2, num_frames - 1, 4)


def test_each_context_frame_has_one_coloured_ball_and_the_log_says_which() -> None:
    batch = episodes(BlinkingBalls(num_frames=11), 30)
    for clip in range(30):
        classes = context_classes(batch, clip, 4)
        masks = unpatchify(batch.masks[clip].numpy(), 4)
        for frame, (drawn, colour) in enumerate(batch.objects["context"][clip].tolist()):
            seen = {ball: set(classes[frame][masks[frame] == ball + 1].tolist()) for ball in range(4)}
            # balls touch but never hide one another: each of them is there to be seen
            assert seen == {ball: {colour if ball == drawn else WHITE} for ball in range(4)}
            assert set(classes[frame][masks[frame] == 0].tolist()) == {0}


@pytest.mark.parametrize("rule", ["earliest", "most_frequent"])
def test_targets_show_the_next_frame_in_the_colours_of_the_rule(rule: str) -> None:
    batch = episodes(BlinkingBalls(rule, num_frames=8), 20)
    for clip in range(20):
        for frame in range(7):
            target, masks = batch.target[clip, frame], batch.target_masks[clip, frame]
            assert (target[masks == 0] == 0).all()
            for ball in range(4):
                assert (target[masks == ball + 1] == batch.objects[rule][clip, frame, ball]).all()


def test_targets_are_simulated_and_are_the_context_frames_that_follow() -> None:
    data = BlinkingBalls()
    batch = episodes(data, 10)
    start = {name: batch.objects[name].numpy().astype(float) for name in ("positions", "velocities")}
    balls = Balls(
        start["positions"][:, 0],
        start["velocities"][:, 0],
        *(batch.objects[name].numpy().astype(float) for name in ("radii", "masses")),
    )
    # the log is in single precision, so a pixel on the rim may differ
    again = simulate(balls, 6, 64)
    np.testing.assert_allclose(again.positions, start["positions"], atol=1e-4)
    assert (again.ids[:, -1] != batch.target_masks[:, -1].numpy()).mean() < 1e-3
    assert (batch.target_masks[:, -1] != batch.target_masks[:, -2]).float().mean() > 1e-2
    for clip in range(10):
        np.testing.assert_array_equal(batch.target_masks[clip, :-1], unpatchify(batch.masks[clip].numpy(), 4)[1:])


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_rule_patches_and_resolution_change_neither_motion_nor_draws(seed: int) -> None:
    first, other = (
        episodes(
            BlinkingBalls(rule, patches_per_side=p, resolution=r, num_frames=t, loader=LoaderOptions(seed=seed)), 3
        )
        for rule, p, r, t in (("earliest", 1, 8, 6), ("most_frequent", 2, 32, 6))
    )
    for name, value in first.objects.items():
        assert torch.equal(value, other.objects[name]), name
    # colours come after the balls are drawn, so a longer episode begins with the same motion
    longer = episodes(
        BlinkingBalls(patches_per_side=1, resolution=8, num_frames=11, loader=LoaderOptions(seed=seed)), 3
    )
    assert torch.equal(longer.objects["positions"][:, :6], first.objects["positions"])


# exact, by enumeration of all histories: P(white), then of the coloured balls how often two rules agree
FREQUENCIES = [
    (3, 5, 0.1317, 0.9526, 0.5033, 0.5453),
    (4, 5, 0.2373, 0.9749, 0.6149, 0.6379),
    (5, 5, 0.3277, 0.9846, 0.6874, 0.7018),
    (3, 10, 0.0173, 0.7959, 0.2706, 0.4081),
    (4, 10, 0.0563, 0.8748, 0.3591, 0.4531),
    (5, 10, 0.1074, 0.9176, 0.4406, 0.5063),
]


@pytest.mark.parametrize(("num_balls", "num_context", "white", "same", "last_earliest", "last_frequent"), FREQUENCIES)
def test_colour_frequencies_are_the_exact_ones(
    num_balls: int, num_context: int, white: float, same: float, last_earliest: float, last_frequent: float
) -> None:
    data = BlinkingBalls(
        "earliest", num_context + 1, 1, num_balls, resolution=4, radii=(1.0,), loader=LoaderOptions(seed=1)
    )
    logged = episodes(data, 1500).objects
    answers = {rule: logged[rule][:, -1] for rule in ("earliest", "most_frequent", "last")}
    coloured = answers["earliest"] != WHITE
    assert white == pytest.approx(float((1 - Fraction(1, num_balls)) ** num_context), abs=5e-5)

    def check(event: Tensor, among: Tensor, expected: float) -> None:
        # balls of one episode are not independent, so the spread is taken over episodes
        hits, tries = (event & among).sum(1).double(), among.sum(1).double()
        error = (hits - expected * tries).std() / tries.mean() / len(hits) ** 0.5
        assert abs(float(hits.sum() / tries.sum()) - expected) < 3 * float(error) + 5e-5

    check(~coloured, torch.ones_like(coloured), white)
    check(answers["earliest"] == answers["most_frequent"], coloured, same)
    check(answers["last"] == answers["earliest"], coloured, last_earliest)
    check(answers["last"] == answers["most_frequent"], coloured, last_frequent)
