"""Every slot paints its own image from copies of itself, as in the tables of the papers."""

import pytest
import torch
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

SpatialBroadcastDecoder = load("decoders", "SpatialBroadcastDecoder")
SLOTS = SlotSpec(num_slots=3, dim=6)
PSB = {"num_layers": 3, "kernel_size": 5, "output_kernel": 5, "slot_norm": True, "grid_norm": True}
CLEVR = {"num_layers": 5, "kernel_size": 5, "output_kernel": 3, "positions": "ramps"}


def reference(decoder, slots, strides):
    """One slot of one step at a time, by transposed convolutions, and an explicit mixture."""
    batch, time, count, dim = slots.shape
    images = []
    for slot in slots.reshape(-1, dim):
        if isinstance(decoder.slot_norm, torch.nn.LayerNorm):
            slot = (slot - slot.mean()) / (slot.var(correction=0) + 1e-5).sqrt()
            slot = slot * decoder.slot_norm.weight + decoder.slot_norm.bias
        coordinates = decoder.position.coordinates
        grid = slot + coordinates @ decoder.position.linear.weight.T + decoder.position.linear.bias
        if isinstance(decoder.grid_norm, torch.nn.GroupNorm):
            grid = (grid - grid.mean()) / (grid.var(correction=0) + 1e-5).sqrt()
            grid = grid * decoder.grid_norm.weight + decoder.grid_norm.bias
        image = grid.permute(2, 0, 1)
        for index, (conv, stride) in enumerate(zip(decoder.convs, strides, strict=True)):
            if index:
                image = image.clamp(min=0)
            # every pixel in spreads a kernel's worth; of what comes out, the same size or twice as many pixels
            # are kept, from just before the kernel's middle
            side, first = [stride * before for before in image.shape[1:]], (conv.weight.shape[-1] - 1) // 2
            spread = F.pad(F.conv_transpose2d(image[None], conv.weight, None, stride)[0], (0, 1, 0, 1))
            image = spread[:, first : first + side[0], first : first + side[1]] + conv.bias[:, None, None]
        images.append(image)
    images = torch.stack(images).reshape(batch, time, count, *images[0].shape)
    claims = images[:, :, :, -1].exp()
    masks = claims / claims.sum(dim=2, keepdim=True)
    return sum(masks[:, :, k, None] * images[:, :, k, :-1] for k in range(count)), masks, images[:, :, :, :-1]


@pytest.mark.parametrize(
    ("arguments", "side", "strides"),
    [
        ({"broadcast_size": 4}, (16, 16), (2, 2, 1)),
        ({"broadcast_size": 3}, (6, 8), (2, 1)),
        ({**PSB, "broadcast_size": 2}, (32, 32), (2, 2, 2, 2)),
        ({**PSB, "broadcast_size": 2}, (16, 16), (2, 2, 2, 1)),
        ({**PSB, "broadcast_size": 2}, (8, 8), (2, 2, 1, 1)),
        ({**CLEVR, "broadcast_size": 2}, (32, 32), (2, 2, 2, 2, 1, 1)),
    ],
    ids=["light", "light, not square", "PSB", "PSB at half size", "PSB at a quarter", "CLEVR"],
)
def test_values_and_gradients_are_those_of_each_slot_on_its_own(arguments, side, strides):
    torch.manual_seed(0)
    decoder = SpatialBroadcastDecoder(SLOTS, VideoSpec(2, *side), channels=5, **arguments)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    decoder.double()
    slots = torch.randn(1, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    assert tuple(conv.stride[0] for conv in decoder.convs) == strides
    decoded = decoder(slots)
    reconstruction, masks, components = reference(decoder, slots, strides)
    torch.testing.assert_close(decoded.reconstruction, reconstruction)
    torch.testing.assert_close(decoded.masks, masks)
    torch.testing.assert_close(decoded.components, components)
    weights = torch.randn_like(reconstruction)
    wanted_for = [slots, *decoder.parameters()]
    found = torch.autograd.grad((decoded.reconstruction * weights).sum(), wanted_for)
    wanted = torch.autograd.grad((reconstruction * weights).sum(), wanted_for)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("side", "layers"), [(16, 2), (32, 3), (64, 4)])
def test_the_light_decoder_has_a_layer_per_doubling_and_one_more(side, layers):
    assert len(SpatialBroadcastDecoder(SLOTS, VideoSpec(3, side, side)).convs) == layers


def test_initial_rgb_moves_the_image_and_no_mask():
    torch.manual_seed(0)
    grey = SpatialBroadcastDecoder(SLOTS, VideoSpec(3, 16, 16), initial_rgb=0.5)
    torch.manual_seed(0)
    black = SpatialBroadcastDecoder(SLOTS, VideoSpec(3, 16, 16))
    slots = torch.randn(2, 2, 3, 6)
    torch.testing.assert_close(grey(slots).reconstruction, black(slots).reconstruction + 0.5)
    torch.testing.assert_close(grey(slots).masks, black(slots).masks)


def test_xavier_bounds_the_weights_and_empties_the_biases():
    torch.manual_seed(0)
    decoder = SpatialBroadcastDecoder(
        SlotSpec(3, 64), VideoSpec(3, 32, 32), channels=64, kernel_size=5, initialisation="xavier", initial_rgb=0.25
    )
    assert decoder.convs[1].weight.detach().abs().max() == pytest.approx((6 / (2 * 64 * 25)) ** 0.5, rel=0.05)
    assert not any(conv.bias.any() for conv in decoder.convs[:-1])
    assert decoder.convs[-1].bias.tolist() == [0.25, 0.25, 0.25, 0]
