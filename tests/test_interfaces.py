from collections import namedtuple
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from slotbench.errors import UserError
from slotbench.interfaces import (
    CoreOutput,
    RecurrentCore,
    SlotSpec,
    State,
    TokenSpec,
    VideoBatch,
    detach_state,
    map_state,
)

PER_FRAME = 4
FRAMES = 3
STEPS = PER_FRAME * FRAMES


def batch_of(clips: int = 2) -> VideoBatch:
    """A clip of 3 frames in 4 patches each, with one target after each frame, every tensor telling its step."""
    steps = torch.arange(STEPS).repeat(clips, 1)
    due = (torch.arange(FRAMES) + 1).repeat(clips, 1) * PER_FRAME - 1
    return VideoBatch(
        frames=steps[:, :, None, None, None].expand(-1, -1, 3, 2, 2).float(),
        time=steps,
        masks=steps[:, :, None, None].expand(-1, -1, 2, 2),
        target=due[:, :, None, None].expand(-1, -1, 4, 4),
        target_masks=due[:, :, None, None].expand(-1, -1, 4, 4),
        target_time=due,
        actions=steps[:, :, None].float(),
        rays=steps[:, :, None, None, None].expand(-1, -1, 6, 2, 2).float(),
        features=steps[:, :, None, None, None].expand(-1, -1, 7, 1, 2).float(),
        objects={"positions": torch.zeros(clips, FRAMES + 1, 5, 2)},
    )


def tensors(batch: VideoBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)} | batch.objects


@given(start=st.integers(0, STEPS - 1), length=st.integers(1, STEPS))
def test_a_slice_holds_its_steps_and_the_targets_due_within_them(start: int, length: int) -> None:
    piece = batch_of().slice_time(start, start + length)
    steps = list(range(start, min(start + length, STEPS)))
    assert piece.num_steps == len(steps)
    for value in (piece.frames, piece.time, piece.masks, piece.actions, piece.rays, piece.features):
        assert value.flatten(2).float().mean(-1)[0].tolist() == steps if value.dim() > 2 else value[0].tolist() == steps
    due = [step for step in steps if step % PER_FRAME == PER_FRAME - 1]
    assert piece.target_time[1].tolist() == due
    assert piece.target[1, :, 0, 0].tolist() == piece.target_masks[1, :, 0, 0].tolist() == due
    assert piece.objects["positions"].shape == (2, FRAMES + 1, 5, 2)


@given(cuts=st.lists(st.integers(1, STEPS - 1), max_size=4))
def test_pieces_put_together_are_the_whole(cuts: list[int]) -> None:
    whole = batch_of()
    borders = [0, *sorted(cuts), STEPS]
    pieces = [whole.slice_time(a, b) for a, b in pairwise(borders) if a < b]
    for name in ("frames", "time", "masks", "target", "target_masks", "target_time", "actions", "rays", "features"):
        assert torch.equal(torch.cat([getattr(piece, name) for piece in pieces], dim=1), getattr(whole, name)), name


def test_a_slice_of_a_slice_still_knows_where_it_is() -> None:
    piece = batch_of().slice_time(2, 11).slice_time(4, 7)
    assert piece.time[0].tolist() == [6, 7, 8]
    assert piece.target_time[0].tolist() == [7]


def test_map_reaches_every_tensor_and_leaves_the_original_alone() -> None:
    batch = batch_of()
    before = {name: value.clone() for name, value in tensors(batch).items()}
    changed = tensors(batch.map(lambda value: value + 1))
    assert changed.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(changed[name], value + 1), name
        assert torch.equal(tensors(batch)[name], value), name


def test_moving_a_batch_moves_all_of_it() -> None:
    for value in tensors(batch_of().to("meta")).values():
        assert value.device.type == "meta"


@pytest.mark.usefixtures("checked_shapes")
def test_a_batch_whose_axes_disagree_is_caught() -> None:
    with pytest.raises(TypeCheckError):
        VideoBatch(torch.zeros(1, 2, 3, 4, 4), torch.arange(3)[None])


Pair = namedtuple("Pair", "left right")


def test_map_state_keeps_the_structure() -> None:
    one = torch.ones(2)
    state = {"a": (one, [one, None]), "b": Pair(one, {"c": one})}
    twice = map_state(lambda value: value * 2, state)
    assert isinstance(twice["b"], Pair)
    assert isinstance(twice["a"], tuple)
    assert isinstance(twice["a"][1], list)
    assert twice["a"][1][1] is None
    for value in (twice["a"][0], twice["a"][1][0], twice["b"].left, twice["b"].right["c"]):
        assert value.tolist() == [2, 2]
    assert one.tolist() == [1, 1]


def test_a_detached_state_has_the_same_values_and_no_history() -> None:
    value = torch.ones(2, requires_grad=True) * 3
    (detached,) = detach_state((value,))
    assert not detached.requires_grad
    assert torch.equal(detached, value)


class Adder(RecurrentCore):
    """State = sum of all tokens so far; the slots show it."""

    attention_kind = "assignment"

    def __init__(self, tokens: TokenSpec, shows_attention: bool) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=1, dim=tokens.dim)
        self.shows_attention = shows_attention

    def initial_state(self, tokens: Tensor) -> State:
        return tokens.new_zeros(tokens.shape[0], 1, tokens.shape[2])

    def cell(self, tokens: Tensor, state: State) -> tuple[Tensor, Tensor | None, State]:
        state = state + tokens.sum(1, keepdim=True)
        attention = tokens.new_ones(tokens.shape[0], 1, tokens.shape[1]) if self.shows_attention else None
        return state, attention, state


@pytest.mark.parametrize("shows_attention", [False, True])
def test_a_recurrent_core_runs_its_cell_over_time_and_takes_up_a_state(shows_attention: bool) -> None:
    core = Adder(TokenSpec(dim=3, num_tokens=4), shows_attention)
    tokens = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    whole = core(tokens)
    assert isinstance(whole, CoreOutput)
    torch.testing.assert_close(whole.slots[:, :, 0], tokens.sum(2).cumsum(1))
    assert (whole.attention is not None) == shows_attention
    if whole.attention is not None:
        assert whole.attention.shape == (2, 5, 1, 4)
    first = core(tokens[:, :2])
    second = core(tokens[:, 2:], first.state)
    torch.testing.assert_close(torch.cat([first.slots, second.slots], dim=1), whole.slots)
    torch.testing.assert_close(second.state, whole.state)


def test_attention_without_its_kind_is_refused_in_a_sentence() -> None:
    slots, weights = torch.zeros(1, 2, 3, 4), torch.full((1, 2, 3, 5), 0.2)
    with pytest.raises(ValueError, match=r"give 'assignment' where slots compete for each token, or 'reading'"):
        CoreOutput(slots, weights, None)
    assert CoreOutput(slots, weights, None, "reading").attention_kind == "reading"
    assert CoreOutput(slots, None, None).attention_kind is None


def test_a_recurrent_core_hands_on_the_kind_of_its_attention() -> None:
    class Reader(RecurrentCore):
        def __init__(self) -> None:
            super().__init__()
            self.slot_spec = SlotSpec(1, 4)

        def initial_state(self, tokens: Tensor) -> State:
            return tokens[:, :1]

        def cell(self, inputs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
            return state, inputs.mean(-1)[:, None].softmax(-1), state

    with pytest.raises(ValueError, match="attention_kind=None"):
        Reader()(torch.zeros(2, 3, 5, 4))

    class Labelled(Reader):
        attention_kind = "reading"

    assert Labelled()(torch.zeros(2, 3, 5, 4)).attention_kind == "reading"


def test_a_video_in_numpy_becomes_a_batch_of_one_clip():
    video = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    batch = VideoBatch.from_numpy(video, masks=video[..., 0], start=7)
    assert batch.frames.shape == (1, 2, 3, 4, 5)
    assert batch.frames[0, 1, 2, 3, 4] * 255 == video[1, 3, 4, 2]
    assert batch.time.tolist() == [[7, 8]]
    assert batch.masks[0, 1, 2, 3] == video[1, 2, 3, 0]


@pytest.mark.parametrize(
    ("frames", "masks", "said"),
    [
        (np.zeros((2, 3, 4, 5), np.uint8), None, "expected \\(time, height, width, channels\\)"),
        (np.zeros((2, 4, 5, 3), np.int64), None, "frames are of int64"),
        (np.zeros((2, 4, 5, 3), np.uint8), np.zeros((2, 4, 4), int), "expected that of the frames, \\(2, 4, 5\\)"),
    ],
)
def test_a_video_of_another_form_is_refused_in_a_sentence(frames, masks, said):
    with pytest.raises(UserError, match=said):
        VideoBatch.from_numpy(frames, masks)
