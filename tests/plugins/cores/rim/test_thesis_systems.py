"""The thesis' systems, put together of encoder, core and decoder: they have the parameters that its code's shapes have.

The counts are sums over the shapes of the thesis author's code, made apart from what is tested here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from slotbench_plugins.cores.rim import GRU, OCRIM, RIM
from slotbench_plugins.decoders.component_decoder import ComponentDecoder
from slotbench_plugins.decoders.concatenation_decoder import ConcatenationDecoder
from slotbench_plugins.decoders.spatial_broadcast_decoder import SpatialBroadcastDecoder
from slotbench_plugins.encoders.strided_cnn_encoder import StridedCNNEncoder
from torch import nn

from slotbench.interfaces import TemporalCore, TokenSpec, VideoBatch, VideoSpec

CAT, BCD = ConcatenationDecoder, ComponentDecoder
TEXT, FLOW = OCRIM.thesis, partial(OCRIM.feature_flow, num_slots=6)
# decoder "SBD": that of the data set; the map of the feature flow is 32 wide
SYSTEMS = [
    ("GRU-600, CAT", "flat", 64, partial(GRU, dim=600), CAT, 3_890_497, 4_162_515),
    ("GRU-258, CAT", "flat", 64, partial(GRU, dim=258), CAT, None, 1_813_659),
    ("RIM, CAT", "flat", 64, RIM.thesis, CAT, 3_607_393, 3_879_411),
    ("RIM + slots, CAT", "map", 64, OCRIM.code, CAT, 3_587_445, 3_753_479),
    ("OC-RIM, SBD", "map", 64, OCRIM.code, "SBD", 1_306_218, 1_532_988),
    ("OC-RIM, BCD", "map", 64, OCRIM.code, BCD, 1_539_590, 1_705_624),
    ("OC-RIM (FF), SBD", "map", 32, FLOW, "SBD", 1_176_758, 1_397_384),
    ("OC-RIM of the text, SBD", "map", 64, TEXT, "SBD", 1_241_238, 1_468_008),
    ("OC-RIM of the text, BCD", "map", 64, TEXT, BCD, 1_474_610, 1_640_644),
    ("OC-RIM of the text with 6 slots, SBD", "map", 64, partial(TEXT, num_inputs=6), "SBD", 1_241_238, 1_468_008),
]


@pytest.mark.parametrize("data", ["moving_mnist", "moving_sprites"])
@pytest.mark.parametrize(
    ("output", "dim", "make", "decoder", "mnist", "sprites"), [s[1:] for s in SYSTEMS], ids=[s[0] for s in SYSTEMS]
)
def test_a_system_has_the_parameters_of_the_thesis_code(
    output: str,
    dim: int,
    make: Callable[[TokenSpec], TemporalCore],
    decoder,
    mnist: int | None,
    sprites: int,
    data: str,
) -> None:
    expected = mnist if data == "moving_mnist" else sprites
    if expected is None:
        pytest.skip("the thesis has no such system on this data set")
    video = VideoSpec(1 if data == "moving_mnist" else 3, 64, 64)
    encoder = getattr(StridedCNNEncoder, data)(video, output, dim)
    core = make(encoder.token_spec)
    build = getattr(SpatialBroadcastDecoder, data) if decoder == "SBD" else decoder
    system = nn.ModuleList([encoder, core, build(core.slot_spec, video)]).eval()
    assert sum(parameter.numel() for parameter in system.parameters()) == expected
    frames = torch.rand(1, 2, video.channels, 64, 64)
    with torch.no_grad():
        decoded = system[2](core(encoder(VideoBatch(frames, torch.arange(2)[None]))).slots)
    assert decoded.reconstruction.shape == frames.shape
    assert 0 <= decoded.reconstruction.min() <= decoded.reconstruction.max() <= 1
