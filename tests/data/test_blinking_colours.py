import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from slotbench.data.blinking_colours import (
    PALETTE,
    WHITE,
    dequantise,
    paint,
    patchify,
    quantise,
    rule_classes,
    unpatchify,
)

RED, GREEN, BLUE = 2, 3, 4

contexts = st.lists(st.tuples(st.integers(0, 3), st.integers(2, 6)), min_size=1, max_size=12)


def oracle(rule: str, history: list[int]) -> int:
    """What colour a ball with this history has, from the paper's wording and with nothing else in mind."""
    if not history:
        return WHITE
    if rule == "earliest":
        return history[0]
    if rule == "last":
        return history[-1]
    highest = max(history.count(colour) for colour in history)
    return next(colour for colour in history if history.count(colour) == highest)


@pytest.mark.parametrize(
    ("history", "earliest", "most_frequent", "last"),
    [
        ([RED, GREEN, GREEN], RED, GREEN, GREEN),
        ([RED, GREEN, RED, GREEN], RED, RED, GREEN),
        ([GREEN, RED, RED, GREEN], GREEN, GREEN, GREEN),
        ([RED, GREEN, GREEN, BLUE, BLUE], RED, GREEN, BLUE),
        ([BLUE], BLUE, BLUE, BLUE),
        ([], WHITE, WHITE, WHITE),
    ],
)
def test_rules_on_histories_made_by_hand(history: list[int], earliest: int, most_frequent: int, last: int) -> None:
    # ball 1 has the history; ball 0 is painted once, so that no context is empty
    classes = rule_classes(np.array([(0, RED), *((1, colour) for colour in history)]), num_balls=2)
    assert classes["earliest"][-1, 1] == earliest
    assert classes["most_frequent"][-1, 1] == most_frequent
    assert classes["last"][-1, 1] == last


@given(context=contexts)
def test_rules_agree_with_the_oracle_after_every_frame(context: list[tuple[int, int]]) -> None:
    classes = rule_classes(np.array(context), num_balls=4)
    for rule, answers in classes.items():
        for frame in range(len(context)):
            for ball in range(4):
                history = [colour for drawn, colour in context[: frame + 1] if drawn == ball]
                assert answers[frame, ball] == oracle(rule, history)


def test_the_palette_is_seven_colours_of_full_or_no_brightness() -> None:
    assert PALETTE.shape == (7, 3)
    assert len({tuple(colour) for colour in PALETTE.tolist()}) == 7
    assert set(np.unique(PALETTE)) == {0, 255}
    assert PALETTE[0].tolist() == [0, 0, 0]
    assert PALETTE[WHITE].tolist() == [255, 255, 255]


@given(classes=stn.arrays(np.uint8, stn.array_shapes(max_dims=4, max_side=6), elements=st.integers(0, 6)))
def test_quantising_undoes_dequantising(classes: np.ndarray) -> None:
    rgb = dequantise(classes)
    np.testing.assert_array_equal(quantise(rgb), classes)
    np.testing.assert_array_equal(dequantise(quantise(rgb)), rgb)


@pytest.mark.parametrize("colour", [(0, 255, 255), (254, 0, 0), (0, 0, 1), (128, 128, 128)])
def test_colours_outside_the_palette_are_refused(colour: tuple[int, int, int]) -> None:
    image = dequantise(np.zeros((2, 2), dtype=np.uint8)).copy()
    image[1, 0] = colour
    with pytest.raises(
        ValueError, match=f"1 pixels have a colour outside the palette.*{list(colour)}".replace("[", r"\[")
    ):
        quantise(image)


@given(frames=st.integers(1, 4), p=st.integers(1, 5), cell=st.integers(1, 4), channels=st.sampled_from([(), (3,)]))
def test_patches_go_back_to_where_they_came_from(frames: int, p: int, cell: int, channels: tuple[int, ...]) -> None:
    video = np.random.default_rng(0).integers(0, 255, (frames, p * cell, p * cell, *channels), dtype=np.uint8)
    steps = patchify(video, p)
    assert steps.shape == (frames * p * p, cell, cell, *channels)
    np.testing.assert_array_equal(unpatchify(steps, p), video)
    for step in range(len(steps)):
        row, column = divmod(step % p**2, p)
        cut = video[step // p**2, row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]
        np.testing.assert_array_equal(steps[step], cut)


@pytest.mark.parametrize("kernel", ["numba", "numpy"])
def test_paint_colours_each_instance_and_looks_one_frame_ahead(kernel: str) -> None:
    ids = np.array([[[[0, 1], [2, 0]], [[1, 1], [0, 2]]]], dtype=np.uint8)
    shown = np.array([[[0, WHITE, RED]]], dtype=np.uint8)
    asked = np.array([[[0, BLUE, RED]]], dtype=np.uint8)
    frames, masks, targets = paint(ids, shown, asked, 2, kernel)
    assert masks[0, :, 0, 0].tolist() == [0, 1, 2, 0]
    assert frames[0, :, :, 0, 0].tolist() == [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 0, 0]]
    assert targets[0, 0].tolist() == [[BLUE, BLUE], [0, RED]]


@given(seed=st.integers(0, 10**6), p=st.integers(1, 3), cell=st.integers(1, 4), num_frames=st.integers(2, 4))
def test_compiled_and_readable_painters_give_the_same_bytes(seed: int, p: int, cell: int, num_frames: int) -> None:
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, 5, (2, num_frames, p * cell, p * cell), dtype=np.uint8)
    shown, asked = generator.integers(0, 7, (2, 2, num_frames - 1, 5), dtype=np.uint8)
    for fast, readable in zip(paint(ids, shown, asked, p, "numba"), paint(ids, shown, asked, p, "numpy"), strict=True):
        assert fast.tobytes() == readable.tobytes()
