from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.frame_transformer import FrameTransformer
from slotbench_plugins.cores.performer import Performer
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder
from torch import nn

from slotbench.interfaces import TokenSpec, VideoSpec

SPEC = TokenSpec(dim=5, num_tokens=8, grid=(2, 4))
BOTH = pytest.mark.parametrize("kind", [FrameTransformer, Performer])


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def layers_and_head(inputs: int, width: int, hidden: int, layers: int) -> int:
    """Numbers in the linear map into the transformer, its layers, and the linear map and norm after them."""
    layer = 4 * width + 4 * (width**2 + width) + (width * hidden + hidden) + (hidden * width + width)
    return (inputs * width + width) + layers * layer + (width**2 + width) + 2 * width


@BOTH
@pytest.mark.parametrize(
    ("depths", "total"), [((64, 128, 256, 512), 163_500_291), ((64, 128, 256), 240_073_475)], ids=["8x8", "16x16"]
)
def test_the_papers_sizes_give_its_models_number_of_parameters(kind, depths, total):
    video = VideoSpec(1, 64, 64)
    with torch.device("meta"):
        encoder = ResNetEncoder(video, depths=depths, action_dim=1)
        core = kind(encoder.token_spec, dim=1024, num_layers=8, num_heads=16, mlp_ratio=4, output_dim=256)
        decoder = ResNetDecoder(core.slot_spec, video, depths=depths)
    cells = encoder.token_spec.num_tokens
    projections = cells * (depths[-1] + 1) * 1024 + cells * 1024 * 256
    assert count(core) == projections + 1024 + layers_and_head(1024, 1024, 4096, 8)
    assert count(encoder, core, decoder) == total


def test_a_single_layer_sees_no_frame_beyond_the_window():
    torch.manual_seed(0)
    core = FrameTransformer(SPEC, dim=16, num_layers=1, window=3).double()
    tokens = torch.randn(1, 7, 8, 5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(core(tokens).slots[:, 5].square().sum(), tokens)
    assert gradient[0].flatten(1).any(dim=-1).tolist() == [False, False, False, True, True, True, False]
