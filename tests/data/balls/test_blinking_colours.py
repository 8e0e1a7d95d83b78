from unittest import mock

import numpy as np
import pytest
from ball_reference import paint_reference
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.balls import blinking_colours
from slotbench.data.balls.blinking_colours import WHITE, paint, rule_classes

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


def test_paint_colours_each_instance_and_looks_one_frame_ahead() -> None:
    ids = np.array([[[[0, 1], [2, 0]], [[1, 1], [0, 2]]]], dtype=np.uint8)
    shown = np.array([[[0, WHITE, RED]]], dtype=np.uint8)
    asked = np.array([[[0, BLUE, RED]]], dtype=np.uint8)
    frames, masks, targets = paint(ids, shown, asked, 2)
    assert masks[0, :, 0, 0].tolist() == [0, 1, 2, 0]
    assert frames[0, :, :, 0, 0].tolist() == [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 0, 0]]
    assert targets[0, 0].tolist() == [[BLUE, BLUE], [0, RED]]


@given(seed=st.integers(0, 10**6), p=st.integers(1, 3), cell=st.integers(1, 4), num_frames=st.integers(2, 4))
def test_compiled_and_readable_painters_give_the_same_bytes(seed: int, p: int, cell: int, num_frames: int) -> None:
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, 5, (2, num_frames, p * cell, p * cell), dtype=np.uint8)
    shown, asked = generator.integers(0, 7, (2, 2, num_frames - 1, 5), dtype=np.uint8)
    compiled = paint(ids, shown, asked, p)
    with mock.patch.object(blinking_colours, "compiled", return_value=paint_reference):
        reference = paint(ids, shown, asked, p)
    for fast, readable in zip(compiled, reference, strict=True):
        assert fast.tobytes() == readable.tobytes()
