"""Images of slots are mixed by a softmax over the slots."""

import pytest
import torch
from slotbench_plugins.decoders._mixture import mix_slots


def test_a_pixel_is_the_mean_of_the_slots_weighted_by_their_claims():
    torch.manual_seed(0)
    components, logits = torch.randn(2, 3, 4, 2, 5, 6).double(), 3 * torch.randn(2, 3, 4, 5, 6).double()
    image, masks = mix_slots(components, logits)
    expected = torch.zeros(2, 3, 2, 5, 6).double()
    total = logits.exp().sum(dim=2)
    for slot in range(4):
        share = logits[:, :, slot].exp() / total
        torch.testing.assert_close(masks[:, :, slot], share)
        expected += share[:, :, None] * components[:, :, slot]
    torch.testing.assert_close(image, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_shares_are_float32_where_the_images_are_half_as_wide(dtype):
    components, logits = torch.randn(1, 2, 3, 3, 8, 8).to(dtype), (10 * torch.randn(1, 2, 3, 8, 8)).to(dtype)
    image, masks = mix_slots(components, logits)
    assert masks.dtype == image.dtype == torch.float32
    torch.testing.assert_close(masks.sum(dim=2), torch.ones(1, 2, 8, 8), rtol=0, atol=1e-6)
