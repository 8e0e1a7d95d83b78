"""The models of the RIM thesis, as experiments and grids build them, have the parameters of its author's code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from slotbench.config.command_line import resolve
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.interfaces import TokenSpec, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
FOLDER = PAPER.parent / "grids" / "paper"
GRIDS = sorted([*FOLDER.glob("rim_*_models.yaml"), *FOLDER.glob("rim_*_sparse_*.yaml")])
DATA = {"rim_moving_mnist": VideoSpec(1, 64, 64), "rim_moving_sprites": VideoSpec(3, 64, 64)}

GRU_600, GRU_258 = 1_198_800, 250_776
FLAT = {"rim_moving_mnist": 188_848, "rim_moving_sprites": 460_576}
TOTALS = {
    ("rim_moving_mnist_models", "GRU CAT"): 3_890_497,
    ("rim_moving_mnist_models", "RIM CAT 6"): 3_607_393,
    ("rim_moving_mnist_models", "OC-RIM FF SBD 6"): 1_176_758,
    ("rim_moving_mnist_models", "OC-RIM CAT 6,3"): 3_587_445,
    ("rim_moving_mnist_models", "OC-RIM SBD 6,3"): 1_306_218,
    ("rim_moving_mnist_models", "OC-RIM SBD 6,6"): 1_306_218,
    ("rim_moving_mnist_models", "OC-RIM BCD 6,3"): 1_539_590,
    ("rim_moving_mnist_models", "OC-RIM BCD 6,6"): 1_539_590,
    ("rim_moving_sprites_models", "GRU-258 CAT"): 1_813_659,
    ("rim_moving_sprites_models", "GRU-600 CAT"): 4_162_515,
    ("rim_moving_sprites_models", "RIM CAT 6"): 3_879_411,
    ("rim_moving_sprites_models", "OC-RIM CAT 6,3"): 3_753_479,
    ("rim_moving_sprites_models", "OC-RIM FF SBD 6"): 1_397_384,
    ("rim_moving_sprites_models", "OC-RIM SBD 6,3"): 1_532_988,
    ("rim_moving_sprites_models", "OC-RIM SBD 6,6"): 1_532_988,
    ("rim_moving_sprites_models", "OC-RIM BCD 6,3"): 1_705_624,
    ("rim_moving_sprites_models", "OC-RIM BCD 6,6"): 1_705_624,
    ("rim_moving_mnist_sparse_ocrim", "6/6"): 1_306_218,
    ("rim_moving_mnist_sparse_ocrim", "3/6"): 1_306_218,
    ("rim_moving_mnist_sparse_ocrim", "2/6"): 1_306_218,
    ("rim_moving_mnist_sparse_rim", "6/6"): 3_607_393,
    ("rim_moving_mnist_sparse_rim", "4/6"): 3_607_393,
}
"""Of the rows that the author's code was counted for, by grid and label."""


@cache
def rows(path: Path) -> dict[str, tuple[str, ...]]:
    """The command line of every variant, by its label."""
    grid = expand(read_grid_file(path))
    labels = [entry.label for entry in grid.file.list]
    return {labels[dict(point.alternatives)["list"]]: point.arguments for point in grid.points}


@cache
def resolved(arguments: tuple[str, ...]) -> dict[str, Any]:
    """What the parser makes of a command line; it raises for what it refuses."""
    return yaml.safe_load(resolve([*arguments]).yaml())


def built(kind: str, part: dict[str, Any], *specs: Any) -> torch.nn.Module:
    """A part as a configuration describes it, without memory for its weights."""
    arguments = {name: tuple(value) if isinstance(value, list) else value for name, value in part["init_args"].items()}
    with torch.device("meta"):
        return load(kind, part["class_path"].rpartition(".")[2])(*specs, **arguments)


def model_of(config: dict[str, Any], frame: VideoSpec) -> torch.nn.ModuleDict:
    parts = config["model"]["init_args"]
    encoder = built("encoders", parts["encoder"], frame)
    core = built("cores", parts["core"], encoder.token_spec)
    decoder = built("decoders", parts["decoder"], core.slot_spec, frame)
    return torch.nn.ModuleDict({"encoder": encoder, "core": core, "decoder": decoder})


def frame_of(path: Path) -> VideoSpec:
    (base,) = read_grid_file(path).base
    return DATA[base.stem]


def cases() -> list[Any]:
    """Every row; all but those that have a system or a decoder that no other has are slow."""
    first = {
        "GRU CAT",
        "GRU-258 CAT",
        "RIM CAT 6",
        "OC-RIM FF SBD 6",
        "OC-RIM SBD 6,3",
        "OC-RIM BCD 6,3",
        "3/6",
        "4/10",
        "4/6, tested 6/6",
    }
    return [
        pytest.param(path, label, id=f"{path.stem}-{label}", marks=() if label in first else pytest.mark.slow)
        for path in GRIDS
        for label in rows(path)
    ]


@pytest.mark.parametrize(("path", "label"), cases())
def test_the_parser_takes_every_row_and_its_model_has_the_parameters_of_the_thesis(path, label):
    config = resolved(rows(path)[label])
    model = model_of(config, frame_of(path))
    counts = trainable_parameters(model)
    total = TOTALS.get((path.stem, label))
    assert total is None or counts["total"] == total
    cells = model["core"].slot_spec.num_slots
    said = label.split()[-1]
    if "/" in said:
        for number, part in ((model["core"].top_k, label.split(",")[0]), (model["core"].eval().num_active, said)):
            assert (number, cells) == tuple(map(int, part.split("/")))
    elif "GRU" not in label:
        assert cells == model["core"].top_k == int(said.split(",")[0])
        inputs = config["model"]["init_args"]["core"]["init_args"]["num_inputs"]
        assert inputs == (int(said.split(",")[1]) if "," in said else None)
    decoders = {"CAT": "ConcatenationDecoder", "BCD": "ComponentDecoder", "SBD": "SpatialBroadcastDecoder"}
    for name, decoder in decoders.items():
        if name in label:
            assert type(model["decoder"]).__name__ == decoder
    task = config["model"]["init_args"]
    assert (task["loss"], task["loss_sum"], task["context"], task["horizon"]) == ("mse", "frames", 10, 10)
    assert task["optimizer"]["init_args"]["lr"] == 7e-4
    assert config["trainer"]["gradient_clip_val"] == 1.0


def test_every_row_that_was_counted_is_there():
    assert TOTALS.keys() <= {(path.stem, label) for path in GRIDS for label in rows(path)}


@pytest.mark.parametrize(
    ("name", "decoder", "total"),
    [
        ("rim_moving_mnist", None, 1_241_238),
        ("rim_moving_mnist", "ComponentDecoder", 1_474_610),
        ("rim_moving_sprites", None, 1_468_008),
        ("rim_moving_sprites", "ComponentDecoder", 1_640_644),
    ],
)
def test_slots_as_wide_as_the_thesis_says(name, decoder, total):
    config = yaml.safe_load((PAPER / f"{name}.yaml").read_text())
    parts = config["model"]["init_args"]
    parts["core"]["init_args"]["slot_dim"] = 64
    if decoder is not None:
        parts["decoder"] = {"class_path": decoder, "init_args": {}}
    assert trainable_parameters(model_of(config, DATA[name]))["total"] == total


@pytest.mark.parametrize(("name", "width", "core"), [("rim_moving_mnist", 600, 1_198_800)])
def test_the_core_of_a_gru(name, width, core):
    gru = load("cores", "GRU")(TokenSpec(64, 1), dim=width)
    assert trainable_parameters(gru)["total"] == core


@pytest.mark.parametrize("name", DATA)
def test_the_experiments_are_the_presets_of_the_parts(name):
    """Same parts from the file and from the class methods: the same weights from the same seed, and the same images."""
    config, frame = yaml.safe_load((PAPER / f"{name}.yaml").read_text()), DATA[name]
    preset = name.removeprefix("rim_")
    encoder = getattr(load("encoders", "StridedCNNEncoder"), preset)(frame, "map")
    core = load("cores", "OCRIM").code(encoder.token_spec)
    decoder = getattr(load("decoders", "SpatialBroadcastDecoder"), preset)(core.slot_spec, frame)
    written = model_of(config, frame)
    for part, other in (("encoder", encoder), ("core", core), ("decoder", decoder)):
        shapes = {key: value.shape for key, value in other.state_dict().items()}
        assert {key: value.shape for key, value in written[part].state_dict().items()} == shapes
        plain = {k: v for k, v in vars(other).items() if isinstance(v, str | int | float | bool | tuple)}
        assert {k: v for k, v in vars(written[part]).items() if k in plain} == plain


def settings_of(model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Every number, name and choice that a model and its parts have been given, but for the specs of its input."""
    return {
        name: {
            k: v
            for k, v in vars(part).items()
            if k != "built_from" and (v is None or isinstance(v, str | int | float | bool | tuple))
        }
        for name, part in model.named_modules()
    }


@pytest.mark.parametrize("name", ["SCOFF", "ALTSCOFF"])
def test_schemata_at_paper_size_are_the_presets_and_the_stable_rows_differ_by_what_the_header_says(name):
    path = FOLDER / "rim_moving_mnist_schemata.yaml"
    found = {}
    for label in (f"OC-{name}", f"OC-{name}, stable"):
        config = resolved(rows(path)[label])
        found[label] = model_of(config, DATA["rim_moving_mnist"])["core"]
    ours, stable = found.values()
    with torch.device("meta"):
        preset = load("cores", name).thesis(TokenSpec(64, 36), num_inputs=3)
    assert [(k, v.shape) for k, v in ours.state_dict().items()] == [
        (k, v.shape) for k, v in preset.state_dict().items()
    ]
    left, right = settings_of(ours), settings_of(preset)
    left[""].pop("all_active", None), right[""].pop("all_active", None)  # six of six, said or not
    assert left == right
    assert ours.sample_in_evaluation
    assert ours.units.scale == 1
    assert not stable.sample_in_evaluation
    assert stable.units.scale < 1


@pytest.mark.parametrize(("name", "points"), [("rim_moving_mnist_sweep", 24), ("rim_moving_mnist_scoff_sweep", 32)])
def test_a_sweep_has_every_combination_and_300_epochs_of_10_000_clips(name, points):
    grid = expand(read_grid_file(FOLDER / f"{name}.yaml"))
    axes = grid.file.product
    found = {tuple(point.settings[key] for key in axes) for point in grid.points}
    assert len(found) == len(grid.points) == points
    config = resolved(grid.points[-1].arguments)
    loader, trainer = config["data"]["init_args"]["loader"], config["trainer"]
    assert trainer["max_steps"] * loader["batch_size"] == loader["train_size"] == 300 * 10_000
    core = model_of(config, DATA["rim_moving_mnist"])["core"]
    assert core.num_active == core.slot_spec.num_slots
    given = config["model"]["init_args"]["core"]["init_args"]
    assert tuple(given[key.rpartition(".")[2]] for key in axes) == tuple(values[-1] for values in axes.values())


def test_rim_is_ocrim_without_slots_on_one_token():
    tokens = TokenSpec(64, 1)
    rim, ocrim = load("cores", "RIM").thesis(tokens).eval(), load("cores", "OCRIM").thesis(tokens, 6, None).eval()
    ocrim.load_state_dict(rim.state_dict())
    clip = torch.randn(2, 3, 1, 64)
    torch.testing.assert_close(ocrim(clip).slots, rim(clip).slots)
