"""Arguments that cannot be are refused by a sentence with their name and value."""

from __future__ import annotations

from typing import Any

import pytest

from slotbench.interfaces import SlotSpec, TokenSpec, VideoSpec
from slotbench.registry import load

TOKENS, FRAME, GREY = TokenSpec(16, 16, (4, 4)), VideoSpec(3, 16, 16), VideoSpec(1, 16, 16)
SLOTS, CELLS = SlotSpec(4, 16), SlotSpec(6, 16, (2, 3))
SPECS: dict[str, tuple[Any, ...]] = {
    "cores": (TOKENS,),
    "encoders": (FRAME,),
    "decoders": (SLOTS, FRAME),
    "tokenizers": (FRAME,),
}
REFUSED: dict[tuple[str, str], list[tuple[dict[str, Any], str]]] = {
    ("cores", "PSB"): [({"num_slots": 0}, "num_slots=0"), ({"window": 4, "causal": False}, "window=4 limits")],
    ("cores", "SAVi"): [({"num_iterations": 0}, "num_iterations=0"), ({"num_heads": 3}, "num_heads=3")],
    ("cores", "SlotSSM"): [
        ({"num_slots": [8, 4, 2]}, r"num_slots=\[8, 4, 2\] names 3 layers, but num_layers=2"),
        ({"ssm": "mamba2", "head_dim": 32}, "set head_dim to one of 1, 2, 4, 5"),
    ],
    ("cores", "SlotTransformer"): [({"window": 0}, "window=0"), ({"random_offset": -1}, "0 or more, got -1")],
    ("cores", "VideoTransformer"): [({"dim": 18}, "multiple of 4, got dim=18"), ({"slot_grid": (5, 4)}, "slot_grid")],
    ("cores", "ConvS5"): [({"c_kernel": 4}, "c_kernel must be odd")],
    ("cores", "S5"): [({"patch": 3}, "patch=3 must divide the 4 rows and 4 columns")],
    ("decoders", "TransformerDecoder"): [
        ({"patch_size": 3}, "patches of 3 x 3 pixels do not tile an image of 16 x 16")
    ],
    ("decoders", "ComponentDecoder"): [({"channels": (4, 3)}, r"channels=\(4, 3\); expected 3 positive")],
    ("decoders", "SpatialBroadcastDecoder"): [
        ({"broadcast_size": 0}, "broadcast_size=0"),
        ({"disabled_slots": (-1,)}, r"disabled_slots is \(-1,\)"),
    ],
    ("encoders", "CNNEncoder"): [
        ({"channels": (8, 8)}, "one number per convolution"),
        ({"kernel_sizes": (5, 4, 3, 3)}, "odd kernel_sizes"),
    ],
    ("encoders", "PatchEncoder"): [({"patch_size": 5}, "patches of 5 x 5 pixels do not tile a step of 16 x 16")],
    ("encoders", "ResNetTransformerEncoder"): [({"width": 6, "norm_groups": 4}, "norm_groups=4 does not divide 6")],
    ("tokenizers", "PatchKMeans"): [({"patch_size": 5}, "tile")],
}


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "message"),
    [(kind, name, arguments, message) for (kind, name), table in REFUSED.items() for arguments, message in table],
)
def test_arguments_that_cannot_be_are_refused(kind: str, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(kind, name)(*SPECS[kind], **arguments)


def test_a_decoder_of_cells_needs_a_core_of_cells() -> None:
    with pytest.raises(ValueError, match=r"has 4 slots without one: use a core .*ConvS5.*or a decoder of slots"):
        load("decoders", "ResNetDecoder")(SLOTS, FRAME)
    with pytest.raises(ValueError, match="from 2 x 3 cells that is 4 x 6 pixels, and 16 x 16 are wanted"):
        load("decoders", "ResNetDecoder")(CELLS, FRAME, depths=(4, 4))
