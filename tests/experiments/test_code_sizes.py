"""SLATE, STEVE, and PSB with its decoder, as the experiments build them, have the public numbers of parameters."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from slotbench.interfaces import CodeEncoder, SlotSpec, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


def factory(kind: str, part: dict) -> partial[nn.Module]:
    """What makes a part, whose own parts are given by their name and arguments."""
    arguments: dict[str, Any] = {}
    for name, value in part["init_args"].items():
        if isinstance(value, dict) and "class_path" in value:
            value = factory(f"{name}s", value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return partial(load(kind, part["class_path"]), **arguments)


def built(kind: str, part: dict, *specs: object) -> nn.Module:
    with torch.device("meta"):
        return factory(kind, part)(*specs)


def parts_of(name: str) -> dict:
    return yaml.safe_load((PAPER / f"{name}.yaml").read_text())["model"]["init_args"]


def model_of(name: str, side: int = 128) -> nn.ModuleDict:
    parts = parts_of(name)
    frame = VideoSpec(channels=3, height=side, width=side)
    tokenizer = built("tokenizers", parts["tokenizer"], frame)
    encoder = built("encoders", parts["encoder"], replace(frame, codes=tokenizer.code_spec))
    core = built("cores", parts["core"], encoder.token_spec)
    decoder = built("decoders", parts["decoder"], core.slot_spec, tokenizer.code_spec)
    if isinstance(encoder, CodeEncoder):
        encoder.share(decoder.tables)
    return nn.ModuleDict({"encoder": encoder, "core": core, "decoder": decoder, "tokenizer": tokenizer})


def count(module: nn.Module) -> int:
    return trainable_parameters(module)["total"]


@pytest.mark.parametrize("movi", "cde")
def test_steve_has_the_sizes_of_its_public_default(movi):
    model = model_of(f"movi_{movi}_steve")
    of_encoder = count(model["decoder"].slot_map)
    assert count(model["tokenizer"]) == 680_515
    assert count(model["core"]) == 853_056
    assert count(model["encoder"]) + count(model["core"]) + of_encoder == 1_482_560
    assert count(model["decoder"].codes) == count(model["decoder"].head) == 786_432
    assert count(model["decoder"].layers) + count(model["decoder"].norm) == 4_735_872
    assert count(model["decoder"]) - of_encoder == 6_505_728
    assert count(model) == 8_668_803
    assert model["tokenizer"].code_spec == VideoSpec(channels=4096, height=32, width=32)


def test_steve_at_64_pixels():
    assert count(model_of("movi_e_steve", 64)) == 8_521_347


def test_the_tiny_tokenizer_and_decoder_of_the_public_code():
    frame = VideoSpec(channels=3, height=32, width=32)
    tokenizer = built("tokenizers", {"class_path": "DVAE", "init_args": {"num_codes": 64}}, frame)
    assert count(tokenizer) == 160_387


@pytest.mark.parametrize("movi", "cde")
def test_psb_has_its_own_blocks_and_the_decoder_of_steve(movi):
    model, steve = model_of(f"movi_{movi}_psb"), model_of(f"movi_{movi}_steve")
    slots = {"c": 11, "d": 24, "e": 24}[movi]
    assert count(model["core"]) == 2_229_327 + slots * 192
    assert count(model["decoder"]) == count(steve["decoder"])
    assert count(model["tokenizer"]) == count(steve["tokenizer"])


@pytest.mark.parametrize("model", ["steve", "psb"])
def test_the_experiments_differ_by_their_data_and_slots_alone(model):
    configs = [yaml.safe_load((PAPER / f"movi_{movi}_{model}.yaml").read_text()) for movi in "cde"]
    paths = [config["data"]["init_args"].pop("path") for config in configs]
    slots = [config["model"]["init_args"]["core"]["init_args"].pop("num_slots") for config in configs]
    assert paths == [f"cache/movi_{movi}" for movi in "cde"]
    assert slots == ([15, 15, 15] if model == "steve" else [11, 24, 24])
    assert configs[0] == configs[1] == configs[2]


def test_slate_has_the_sizes_of_its_public_default():
    # layer by layer from the description of the code: 64 pixels, 1,024 codes, width 192, 4 layers
    model = model_of("clevr_slate", 64)
    tables = 1024 * 192 + 257 * 192
    assert count(model["tokenizer"]) == 95_104 + 190_531
    assert count(model["encoder"]) == tables + 384 + 2 * (192 * 192 + 192)
    assert count(model["core"]) == 384 + 3 * 384 + 3 * 192**2 + 222_336 + 74_112
    assert count(model["decoder"].slot_map) == 192**2
    assert count(model["decoder"].layers) + count(model["decoder"].norm) == 2_368_128
    # the start is one more row of SLATE's table of codes
    assert count(model) == 3_616_451 == 285_635 + tables + 192 + 74_496 + 408_576 + 36_864 + 2_368_128 + 192 * 1024
    assert model["tokenizer"].code_spec == VideoSpec(channels=1024, height=16, width=16)


@pytest.mark.parametrize(("movi", "model"), [(movi, model) for movi in "cde" for model in ("steve", "psb")])
def test_the_decoder_of_masks_is_that_of_table_5(movi, model):
    masks = parts_of(f"movi_{movi}_{model}")["mask_decoder"]
    decoder = built("decoders", masks, SlotSpec(11, 192), VideoSpec(channels=3, height=128, width=128))
    assert count(decoder) == 520_324


@pytest.mark.parametrize("name", ["clevr_slate", *(f"movi_{movi}_steve" for movi in "cde")])
def test_slots_add_1e_8_to_every_share_and_the_start_is_that_of_the_code(name):
    parts = parts_of(name)
    aggregation = factory("aggregations", parts["core"]["init_args"]["aggregation"])(192)
    assert (aggregation.eps, aggregation.eps_form) == (1e-8, "entry")
    assert parts["decoder"]["init_args"]["init"] == name.split("_")[-1]


def test_steves_cells_lie_at_their_centres_in_an_image_from_0_to_1():
    parts = parts_of("movi_c_steve")["encoder"]
    position = factory("encoders", parts)(VideoSpec(channels=3, height=16, width=16)).position
    centres = (torch.arange(8) + 0.5) / 8
    torch.testing.assert_close(position.coordinates[2, :, 0], centres)
    torch.testing.assert_close(position.coordinates[:, 5, 1], centres)
    torch.testing.assert_close(position.coordinates[..., :2] + position.coordinates[..., 2:], torch.ones(8, 8, 2))
