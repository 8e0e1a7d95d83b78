"""MLPDecoder paints all pixels from all slots at once."""

import pytest
import torch

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

DECODER = load("decoders", "MLPDecoder")


def test_every_pixel_depends_on_every_slot() -> None:
    torch.manual_seed(0)
    decoder = DECODER(SlotSpec(3, 5), VideoSpec(2, 4, 6), hidden_dim=32)
    slots = torch.randn(2, 3, 3, 5)
    painted = decoder(slots).reconstruction
    assert painted.shape == (2, 3, 2, 4, 6)
    for slot in range(3):
        other = slots.clone()
        other[0, 1, slot] += 1
        changed = (decoder(other).reconstruction != painted).flatten(2).all(-1)
        assert changed.tolist() == [[False, True, False], [False] * 3]


def test_another_number_of_slots_and_no_width_are_refused() -> None:
    decoder = DECODER(SlotSpec(3, 5), VideoSpec(2, 4, 6))
    with pytest.raises(ValueError, match="built for 3 slots and got 4"):
        decoder(torch.zeros(1, 1, 4, 5))
    with pytest.raises(ValueError, match="hidden_dim is 0"):
        DECODER(SlotSpec(3, 5), VideoSpec(2, 4, 6), hidden_dim=0)
