"""MLPDecoder paints all pixels from all slots at once."""

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
