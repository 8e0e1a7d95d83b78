"""The decoder paints every cell from slot and position alone, and shares the cells out among the slots."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

MLPPatchDecoder = load("decoders", "MLPPatchDecoder")
SLOTS, VIDEO = SlotSpec(num_slots=3, dim=6), VideoSpec(channels=2, height=4, width=8)


def make(patch_size=1, **arguments):
    torch.manual_seed(0)
    return MLPPatchDecoder(SLOTS, VIDEO, **({"hidden_dim": 8} | arguments), patch_size=patch_size).double()


def random_slots(count=3):
    return torch.randn(2, 2, count, 6, dtype=torch.float64)


def painted_alone(decoder, slot, row, col):
    """(content "channels", logit) of one pixel by one slot, layer by layer."""
    size, cols = decoder.patch_size, decoder.grid[1]
    x = slot + decoder.positions[row // size * cols + col // size]
    for layer in (decoder.first, *decoder.hidden):
        x = (layer.weight @ x + layer.bias).relu()
    x = decoder.head.weight @ x + decoder.head.bias
    inside = row % size * size + col % size
    return x[inside * VIDEO.channels :][: VIDEO.channels], x[size**2 * VIDEO.channels + inside]


@pytest.mark.parametrize(("patch_size", "num_hidden"), [(1, 3), (2, 1), (4, 2)])
def test_a_pixel_is_the_mixture_of_what_the_slots_paint_there(patch_size, num_hidden):
    decoder, slots = make(patch_size, num_hidden=num_hidden), random_slots()
    found = decoder(slots)
    assert len(decoder.hidden) == num_hidden - 1
    for clip, step, row, col in [(0, 1, 3, 6), (1, 0, 0, 0), (1, 1, 2, 5)]:
        alone = [painted_alone(decoder, slots[clip, step, slot], row, col) for slot in range(3)]
        shares = torch.stack([logit for _, logit in alone]).softmax(dim=0)
        contents = torch.stack([content for content, _ in alone])
        torch.testing.assert_close(found.masks[clip, step, :, row, col], shares)
        torch.testing.assert_close(found.components[clip, step, :, :, row, col], contents)
        torch.testing.assert_close(found.reconstruction[clip, step, :, row, col], shares @ contents)


def test_components_of_features_cost_no_memory_of_their_own():
    found = make()(random_slots())
    # as they left the head: a cell's slots side by side, each with its mask logit
    assert found.components.stride()[2:4] == (VIDEO.channels + 1, 1)
    assert found.components.untyped_storage().nbytes() == 8 * 2 * 2 * 32 * 3 * (VIDEO.channels + 1)


def test_gradients_are_those_of_a_decoder_written_out():
    decoder, slots = make(2), random_slots().requires_grad_()
    target = torch.randn(2, 2, 2, 4, 8, dtype=torch.float64)
    F.mse_loss(decoder(slots).reconstruction, target).backward()

    def loss_at(weight):
        return F.mse_loss(
            torch.func.functional_call(decoder, {"first.weight": weight}, (slots,)).reconstruction, target
        )

    step = torch.zeros_like(decoder.first.weight)
    step[1, 2] = 1e-5
    with torch.no_grad():
        slope = (loss_at(decoder.first.weight + step) - loss_at(decoder.first.weight - step)) / 2e-5
    torch.testing.assert_close(decoder.first.weight.grad[1, 2], slope, atol=1e-9, rtol=1e-5)
