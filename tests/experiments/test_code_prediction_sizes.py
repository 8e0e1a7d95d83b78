"""The ConvS5 paper's models of codes, as the experiments build them, have the authors' numbers of parameters."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
import yaml
from test_teco_sizes import PAPER, Vectors, config_of

from slotbench.interfaces import DataSpec, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load
from slotbench.tasks.codes.code_prediction import CodePrediction
from slotbench.tasks.optimisation import WarmupStepsCosine

SIZES = {
    "dmlab_convs5": (99_220_336, 5e-4, True),
    "dmlab_convssm": (99_220_336, 1e-5, True),
    "dmlab_s5": (254_275_952, 1e-3, True),
    "dmlab_transformer": (152_050_544, 5e-4, False),
    "dmlab_performer": (152_050_544, 5e-4, False),
}
"""Parameters, learning rate, whether the authors' sampler hides a frame more than their training."""
OTHERS = [
    ("dmlab_convs5", "decoder", {"depths": [256]}, 83_615_856),
    ("dmlab_s5", "core", {"output_dim": 64}, 134_771_056),
]
ABLATION = {
    "3x3 3x3 ResNet": (99_220_336, "100M"),
    "1x1 3x3 ResNet": (85_065_328, "85M"),
    "1x1 1x1 ResNet": (99_908_912, "100M"),
    "3x3 3x3 GLU": (70_635_504, "71M"),
    "1x1 5x5 GLU": (82_889_872, "83M"),
    "1x1 1x1 GLU": (30_002_032, "30M"),
    "S5": (140_106_096, "140M"),
}
"""Parameters of Table 9's rows as the grid balances them; of the first it prints 100M, Table 15 101M."""


def balanced(entry: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The experiment that has the core of a row of the ablation, and what the row changes of it."""
    changes = {key.removeprefix("model.core."): one for key, one in entry.items() if key.startswith("model.core.")}
    return ("dmlab_s5" if entry.get("model.core") == "S5" else "dmlab_convs5"), changes


def count(name: str, changed: str = "", changes: dict[str, Any] | None = None) -> int:
    given = config_of(name)["model"]["init_args"]

    def factory(part: str) -> partial[Any]:
        arguments = given[part]["init_args"] | ((changes or {}) if part == changed else {})
        tuples = {key: tuple(one) if isinstance(one, list) else one for key, one in arguments.items()}
        return partial(load(f"{part}s", given[part]["class_path"]), **tuples)

    frame = VideoSpec(3, 64, 64, config_of(name)["data"]["init_args"]["num_actions"])
    with torch.device("meta"):
        task = CodePrediction(
            *(factory(part) for part in ("encoder", "core", "decoder")),
            tokenizer=partial(Vectors, num_codes=1024),
            data_spec=DataSpec(frame, frame),
        )
    return trainable_parameters(task)["total"]


@pytest.fixture
def blank_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the products with eigenvectors, which change no size."""
    for name in ("s5.S5StateSpace", "conv_s5.ConvStateSpace"):
        monkeypatch.setattr(f"slotbench_plugins.cores.{name}._initialise_maps", lambda *_: None)


@pytest.mark.usefixtures("blank_maps")
@pytest.mark.parametrize("name", SIZES)
def test_the_papers_models_have_the_authors_number_of_parameters(name: str) -> None:
    expected, rate, early = SIZES[name]
    assert count(name) == expected
    header = re.sub(r"\n# +", " ", (PAPER / f"{name}.yaml").read_text())
    assert f"{expected:,} parameters" in header
    assert ("(`mask_early`)" in header) is early
    assert config_of(name)["model"]["init_args"]["optimizer"]["init_args"]["lr"] == rate


@pytest.mark.usefixtures("blank_maps")
@pytest.mark.parametrize("label", ABLATION)
def test_the_ablation_is_balanced_to_the_printed_numbers(label: str) -> None:
    grid = PAPER.parent / "grids" / "paper" / "dmlab_kernels.yaml"
    rows = {row["label"]: row for row in yaml.safe_load(grid.read_text())["list"]}
    name, changes = balanced(rows[label])
    expected, printed = ABLATION[label]
    assert count(name, "core", changes) == expected
    assert expected == pytest.approx(1e6 * int(printed.removesuffix("M")), abs=0.8e6)
    assert f"{expected:,}" in grid.read_text()
    assert rows.keys() == ABLATION.keys()


@pytest.mark.usefixtures("blank_maps")
@pytest.mark.parametrize(("name", "part", "changes", "expected"), OTHERS)
def test_sizes_of_tables(name: str, part: str, changes: dict[str, Any], expected: int) -> None:
    assert count(name, part, changes) == expected


@pytest.mark.parametrize("name", SIZES)
def test_batch_length_and_schedule_are_the_papers(name: str) -> None:
    config = config_of(name)
    data, trainer, model = config["data"]["init_args"], config["trainer"], config["model"]["init_args"]
    assert data["loader"]["batch_size"] * trainer["devices"] == 16
    assert data["num_frames"] == model["context"] + model["horizon"] == 300
    assert trainer["max_steps"] == 500_000
    assert model["schedule"]["init_args"] == {"warmup_steps": 5000, "reach_zero_at_end": False}
    assert model["schedule"]["class_path"] == WarmupStepsCosine.__name__
    assert (model["drop_actions"], model["frame_mask"], model["label_smoothing"]) == (0.5, 144, 0.01)
