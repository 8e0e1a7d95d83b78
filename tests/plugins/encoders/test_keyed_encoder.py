"""KeyedEncoder multiplies what is seen by keys of poses, and KeyedMemory asks for it by them."""

from functools import partial

import torch
from torch.nn import functional

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load

ENCODER, MEMORY, S5 = load("encoders", "KeyedEncoder"), load("cores", "KeyedMemory"), load("cores", "S5")


def encoder_and_clip(steps: int = 5):
    torch.manual_seed(0)
    spec = VideoSpec(3, 8, 8, num_actions=6, vector_actions=True)
    encoder = ENCODER(spec, num_tokens=16, dim=5, hidden_dim=7)
    poses = functional.one_hot(torch.randint(3, (2, steps + 1)), 3).float()
    actions = torch.cat([poses[:, :-1], poses[:, 1:]], dim=-1)
    batch = VideoBatch(torch.rand(2, steps, 3, 8, 8), torch.arange(steps).repeat(2, 1), actions=actions)
    return encoder, batch, poses


def test_cells_are_multiplied_by_the_key_of_their_pose_and_end_with_the_next_key():
    encoder, batch, poses = encoder_and_clip()
    values, asked = encoder(batch).split([4, 1], dim=-1)
    key = poses @ encoder.keys.table[:-1]
    cells = encoder.cells(batch.frames.flatten(2)).view(2, 5, 16, 4)
    torch.testing.assert_close(values, cells * key[:, :-1, :, None])
    torch.testing.assert_close(asked[..., 0], key[:, 1:])
    assert encoder.token_spec == TokenSpec(5, 16)


def test_hidden_frames_leave_the_keys_that_are_asked_for():
    encoder, batch, _ = encoder_and_clip()
    shown = encoder(batch)
    batch.hidden = torch.tensor([[False, False, True, False, True]] * 2)
    tokens = encoder(batch)
    assert (tokens[:, [2, 4], :, :4] == 0).all()
    assert torch.equal(tokens[..., 4], shown[..., 4])
    assert torch.equal(tokens[:, [0, 1, 3]], shown[:, [0, 1, 3]])


def test_without_actions_every_step_has_the_same_key():
    encoder = ENCODER(VideoSpec(3, 8, 8), num_tokens=4, dim=2)
    asked = encoder(VideoBatch(torch.rand(1, 3, 3, 8, 8), torch.arange(3)[None]))[..., 1]
    assert torch.equal(asked, encoder.keys.table[0].expand(1, 3, -1))


def test_a_slot_is_what_the_core_makes_of_the_numbers_times_the_key():
    memory = MEMORY(TokenSpec(5, 16), partial(S5, dim=6))
    tokens = torch.randn(2, 4, 16, 5)
    inside = memory.core(tokens[..., :4]).slots
    expected = torch.cat([inside * tokens[..., 4:], tokens[..., 4:]], dim=-1)
    assert torch.equal(memory(tokens).slots, expected)
    assert (memory.slot_spec.num_slots, memory.slot_spec.dim) == (16, 7)
