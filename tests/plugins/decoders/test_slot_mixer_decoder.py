"""SlotMixerDecoder and SLSREncoder: sizes of the paper, rays in pieces, slots in any order, other numbers of views."""

from dataclasses import replace

import torch
from slotbench_plugins.decoders.slot_mixer_decoder import SlotMixerDecoder
from slotbench_plugins.encoders.slsr_encoder import SLSREncoder
from torch import nn

from slotbench.interfaces import SlotSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.rays import NormedMLP, encode_rays, encode_scalars

VIDEO = VideoSpec(3, 6, 5, num_views=2)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def posed(views: int = 2, batch: int = 2, time: int = 3) -> VideoBatch:
    generator = torch.Generator().manual_seed(0)
    rays = torch.randn(batch, time, views, 6, 6, 5, generator=generator, dtype=torch.float64)
    frames = torch.rand(batch, time, views, 3, 6, 5, generator=generator, dtype=torch.float64)
    return VideoBatch(frames, torch.arange(time).repeat(batch, 1), rays=rays)


def slots(number: int = 4) -> torch.Tensor:
    return torch.randn(2, 3, number, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def decoder(**arguments) -> SlotMixerDecoder:
    torch.manual_seed(0)
    return SlotMixerDecoder(SlotSpec(4, 8), VIDEO, dim=16, **arguments).double()


def test_sizes_are_those_of_the_paper():
    with torch.device("meta"):
        for stages, number in ((2, 8_298_432), (3, 12_908_544)):
            assert count(SLSREncoder(VideoSpec(3, 64, 64, num_views=3), 192, stages=stages).convs) == number
        assert [count(NormedMLP(192, blocks)) for blocks in (2, 1, 4)] == [149_376, 74_880, 298_368]
        assert count(SlotMixerDecoder(SlotSpec(6, 192), VIDEO, 192).mlp) == 298_368
        simple = SLSREncoder(VideoSpec(3, 64, 64, num_views=3), 192)
        assert simple.token_spec == TokenSpec(192, 3 * 1024)


def test_scalars_are_sines_and_cosines_in_turn():
    code = encode_scalars(torch.tensor([[0.3, -2.0, 1.0]], dtype=torch.float64), 4.0, octaves=3)
    expected = [
        value
        for number in (0.3, -2.0, 1.0)
        for octave in range(3)
        for value in (
            torch.sin(torch.tensor(torch.pi * 2**octave / 4 * number)),
            torch.cos(torch.tensor(torch.pi * 2**octave / 4 * number)),
        )
    ]
    torch.testing.assert_close(code[0], torch.stack(expected).double(), atol=1e-6, rtol=0)


def test_the_nearest_point_of_a_ray_is_the_same_wherever_on_it_the_camera_is():
    rays = posed().rays.movedim(3, -1).flatten(0, -2)
    place, way = rays[:, :3], torch.nn.functional.normalize(rays[:, 3:], dim=-1)
    moved = [encode_rays(torch.cat([place + far * way, way], dim=-1), 8.0, "nearest") for far in (0.0, 3.0)]
    torch.testing.assert_close(*moved)
    nearest = place - (place * way).sum(-1, keepdim=True) * way
    assert (nearest.norm(dim=-1) <= place.norm(dim=-1) + 1e-9).all()
    torch.testing.assert_close(moved[0][:, :48], encode_scalars(nearest, 8.0))
    for point, paint in (("nearest", decoder(ray_point="nearest")), ("camera", decoder())):
        lines = posed()
        lines.rays = torch.cat([lines.rays[:, :, :, 3:].roll(1, 3), way.reshape(2, 3, 2, 6, 5, 3).movedim(-1, 3)], 3)
        further = replace(lines, rays=lines.rays.clone())
        further.rays[:, :, :, :3] += 2 * further.rays[:, :, :, 3:]
        images = [paint(slots(), batch).reconstruction for batch in (lines, further)]
        assert torch.allclose(*images) == (point == "nearest")


def test_patches_of_the_image_encoder_have_the_code_of_their_mean_ray():
    torch.manual_seed(0)
    video = VideoSpec(3, 6, 4, num_views=2)
    encoder = SLSREncoder(video, 8, 1, norm_groups=2, num_layers=0, patch_size=2, ray_point="nearest").double()
    batch = posed()
    batch = replace(batch, frames=batch.frames[..., :4], rays=batch.rays[..., :4])
    cells = []
    encoder.convs.register_forward_hook(lambda _, inputs, out: cells.append(inputs[0]))
    assert encoder(batch).shape == (2, 3, encoder.token_spec.num_tokens, 8) == (2, 3, 2 * 6, 8)
    ray = batch.rays[0, 0, 1, :, 2:4, :2].mean((1, 2))
    way = ray[3:] / ray[3:].norm()
    code = encode_rays(torch.cat([ray[:3], way]), 16.0, "nearest")
    of_frame = encoder.stem(batch.frames[0, 0, 1:2, :, 2:4, :2])[0, :, 0, 0]
    torch.testing.assert_close(cells[0][1, :, 1, 0], of_frame + encoder.ray(code))


def test_a_pixel_is_painted_from_the_mean_of_the_slots_by_their_shares():
    paint, given, batch = decoder(), slots(), posed()
    hidden = []
    paint.mix.register_forward_hook(lambda _, inputs, out: hidden.append(inputs[0]))
    masks = paint(given, batch).masks
    torch.testing.assert_close(masks.sum(3), torch.ones_like(masks[:, :, :, 0]))
    mixed = torch.einsum("btvshw,btsd->btvhwd", masks, given).reshape(6, -1, 8)
    torch.testing.assert_close(hidden[0], mixed)


def test_tokens_of_one_view_more_stand_behind_the_others_and_views_read_each_other():
    torch.manual_seed(0)
    encoder = SLSREncoder(VIDEO, dim=8, norm_groups=2).double()
    batch = posed(3)
    tokens = encoder(batch)
    assert (encoder.token_spec.num_tokens, encoder.token_spec.grid) == (2 * 9, None)
    assert tokens.shape == (2, 3, 3 * 9, 8)
    other = batch.frames.clone()
    other[:, :, 2] = 1 - other[:, :, 2]
    assert ((encoder(replace(batch, frames=other)) - tokens).abs().amax(-1) > 1e-6).all()
