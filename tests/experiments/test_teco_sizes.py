"""The ConvS5 paper's TECO models, as the experiments build them, have the authors' numbers of parameters."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from slotbench.interfaces import DataSpec, Tokenized, Tokenizer, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load
from slotbench.tasks.codes.teco import TECO
from slotbench.tasks.optimisation import WarmupStepsCosine

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
UNREAD_START = 2048
"""S5's start token in the authors' code, which nothing reads and which is not here."""
SIZES = {
    "dmlab_teco_convs5": (1024, 175_374_000, 5e-4),
    "dmlab_teco_convssm": (1024, 175_374_000, 1e-5),
    "dmlab_teco_s5": (1024, 180_409_520 - UNREAD_START, 1e-3),
    "dmlab_teco_transformer": (1024, 173_088_944, 1e-4),
    "minecraft_teco_convs5": (1024, 214_754_544, 5e-4),
    "habitat_teco_convs5": (8192, 351_100_784, 1e-4),
}
"""Codes of the tokenizer, parameters, learning rate."""
IN_PRINT = {
    "minecraft_teco_convs5": ({"decoder": {"blocks": 8}}, 226_560_240),
    "habitat_teco_convs5": ({"num_latent_codes": 1024}, 350_804_848),
}


class Vectors(Tokenizer):
    """The sizes of the papers' VQ-GANs, and nothing else."""

    def __init__(self, video_spec: VideoSpec, num_codes: int):
        super().__init__()
        self.code_spec = VideoSpec(num_codes, 16, 16)
        self.register_buffer("codebook", torch.zeros(num_codes, 256))

    def forward(self, frames: Tensor) -> Tokenized:
        raise NotImplementedError

    def decode(self, codes: Tensor) -> Tensor:
        raise NotImplementedError


def config_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((PAPER / f"{name}.yaml").read_text())


def count(name: str, changes: dict[str, Any] | None = None) -> int:
    config, changes = config_of(name), changes or {}
    given, side = config["model"]["init_args"], config["data"]["init_args"]["resolution"]

    def factory(part: str) -> partial[Any]:
        kind = MaskGit if part == "prior" else load(f"{part}s", given[part]["class_path"])
        arguments = given[part]["init_args"] | changes.get(part, {})
        return partial(kind, **{key: tuple(one) if isinstance(one, list) else one for key, one in arguments.items()})

    frame = VideoSpec(3, side, side, config["data"]["init_args"]["num_actions"])
    latents = {key: changes.get(key, given[key]) for key in ("latent_dim", "num_latent_codes", "latent_code_dim")}
    with torch.device("meta"):
        task = TECO(
            *(factory(part) for part in ("encoder", "core", "decoder")),
            prior=factory("prior"),
            tokenizer=partial(Vectors, num_codes=SIZES[name][0]),
            action_dim=given["action_dim"],
            data_spec=DataSpec(frame, frame),
            **latents,
        )
    return trainable_parameters(task)["total"]


@pytest.mark.parametrize("name", SIZES)
def test_the_papers_models_have_the_authors_number_of_parameters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected, rate = SIZES[name]
    changes = {}
    if name == "dmlab_teco_s5":  # eigenvectors of 2,048 states take 20 s; how many blocks, changes no size
        monkeypatch.setattr("slotbench_plugins.cores.s5.S5StateSpace._initialise_maps", lambda *_: None)
        changes = {"core": {"blocks": 32}}
    assert count(name, changes) == expected
    assert f"{expected:,} parameters" in re.sub(r"\n# +", " ", (PAPER / f"{name}.yaml").read_text())
    assert config_of(name)["model"]["init_args"]["optimizer"]["init_args"]["lr"] == rate


@pytest.mark.parametrize("name", IN_PRINT)
def test_sizes_as_printed_make_the_number_that_the_header_says(name: str) -> None:
    changes, expected = IN_PRINT[name]
    assert count(name, changes) == expected
    assert f"makes {expected:,} parameters" in re.sub(r"\n# +", " ", (PAPER / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", SIZES)
def test_batch_length_and_schedule_are_the_papers(name: str) -> None:
    config = config_of(name)
    data, trainer, model = config["data"]["init_args"], config["trainer"], config["model"]["init_args"]
    assert data["loader"]["batch_size"] * trainer["devices"] == 16
    assert data["num_frames"] == model["context"] + model["horizon"] == 300
    assert trainer["max_steps"] == (500_000 if "dmlab" in name else 1_000_000)
    assert model["schedule"]["init_args"] == {"warmup_steps": 5000, "reach_zero_at_end": False}
    assert model["schedule"]["class_path"] == WarmupStepsCosine.__name__
    assert (model["drop_loss"], model["drop_actions"]) == (0.9, 0.0 if "minecraft" in name else 0.5)
    assert model["frame_mask"] == (144 if "dmlab" in name else None)
