"""STEVE, and PSB with its decoder, as the experiments build them, have the public numbers of parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


def built(kind: str, part: dict, *specs: object) -> nn.Module:
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in part["init_args"].items()}
    with torch.device("meta"):
        return load(kind, part["class_path"])(*specs, **arguments)


def model_of(name: str, side: int = 128) -> nn.ModuleDict:
    parts = yaml.safe_load((PAPER / f"{name}.yaml").read_text())["model"]["init_args"]
    frame = VideoSpec(channels=3, height=side, width=side)
    tokenizer = built("tokenizers", parts["tokenizer"], frame)
    encoder = built("encoders", parts["encoder"], frame)
    core = built("cores", parts["core"], encoder.token_spec)
    decoder = built("decoders", parts["decoder"], core.slot_spec, tokenizer.code_spec)
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
