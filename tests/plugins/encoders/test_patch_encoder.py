from __future__ import annotations

import pytest
import torch
from einops import rearrange
from slotbench_plugins.encoders.patch_encoder import PatchEncoder

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec


def clip(frames: torch.Tensor, start: int = 0) -> VideoBatch:
    batch, time = frames.shape[:2]
    return VideoBatch(frames, torch.arange(start, start + time).expand(batch, -1))


def patched(frames: torch.Tensor, per_side: int) -> VideoBatch:
    """The same frames, cut into cells that come one after the other."""
    pattern = "batch time channels (cell_row row) (cell_col col) -> batch (time cell_row cell_col) channels row col"
    return clip(rearrange(frames, pattern, cell_row=per_side, cell_col=per_side))


def spec(side: int = 16, per_side: int = 1) -> VideoSpec:
    return VideoSpec(channels=3, height=side // per_side, width=side // per_side, patches_per_side=per_side)


@pytest.mark.parametrize(("per_side", "grid"), [(1, (16, 16)), (4, (4, 4)), (8, (2, 2)), (16, (1, 1))])
def test_tokens_per_step_are_those_of_the_paper(per_side, grid):
    encoder = PatchEncoder(spec(64, per_side), dim=8)
    assert encoder.token_spec == TokenSpec(dim=8, num_tokens=grid[0] * grid[1], grid=grid)


def test_a_token_sees_its_own_patch_alone_in_row_major_order():
    encoder, frames = PatchEncoder(spec(), dim=8), torch.rand(1, 1, 3, 16, 16)
    before = encoder(clip(frames))
    frames[0, 0, :, 4:8, 8:12] += 0.5
    changed = (encoder(clip(frames)) != before).any(dim=-1)[0, 0]
    assert changed.nonzero().flatten().tolist() == [1 * 4 + 2]


@pytest.mark.parametrize("per_side", [2, 4])
def test_cut_frames_give_the_tokens_of_whole_frames(per_side):
    """No weight depends on P, and a token knows where it lies in the full frame and in which frame."""
    whole, cut = PatchEncoder(spec(), dim=8).double(), PatchEncoder(spec(per_side=per_side), dim=8).double()
    cut.load_state_dict(whole.state_dict())
    frames = torch.rand(2, 3, 3, 16, 16, dtype=torch.float64)
    expected = rearrange(whole(clip(frames)), "batch time (row col) dim -> batch time row col dim", row=4)
    tokens = rearrange(
        cut(patched(frames, per_side)),
        "batch (time cell_row cell_col) (row col) dim -> batch time (cell_row row) (cell_col col) dim",
        cell_row=per_side,
        cell_col=per_side,
        row=4 // per_side,
    )
    torch.testing.assert_close(tokens, expected)


def test_equal_patches_are_told_apart_by_place_and_by_time():
    tokens = PatchEncoder(spec(), dim=32)(clip(torch.zeros(1, 3, 3, 16, 16)))
    assert torch.pdist(tokens.flatten(0, 2)).min() > 0.01


def test_steps_of_one_frame_share_their_time_unless_asked():
    blank = torch.zeros(1, 2, 3, 16, 16)
    by_frame, by_step = (
        PatchEncoder(spec(per_side=2), dim=8, positions="learned", time_index=index) for index in ("frame", "step")
    )
    for encoder in (by_frame, by_step):
        torch.nn.init.zeros_(encoder.positions)
    frame, step = by_frame(patched(blank, 2))[0, :, 0], by_step(patched(blank, 2))[0, :, 0]
    torch.testing.assert_close(frame[:4], frame[:1].expand(4, -1))
    assert not torch.allclose(frame[0], frame[4])
    assert torch.pdist(step).min() > 1e-3
