"""The papers' models, as the experiments build them, have the papers' numbers of parameters."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from slotbench.config.command_line import resolve
from slotbench.data.multi_camera_like.multi_camera_like import MultiCameraLike
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.interfaces import CodeEncoder, DataSpec, Tokenized, Tokenizer, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
GRIDS = PAPER.parent / "grids" / "paper"
KINDS = {"aggregation": "aggregations", "tokenizer": "tokenizers", "encoder": "encoders", "core": "cores"}

# experiment -> what is counted, by its path in the model -> trainable parameters; "" is the whole model
SIZES: dict[str, dict[str, int]] = {}
# PSB and SAVi on MOVi-A and B
for _movi in "ab":
    SIZES[f"movi_{_movi}_psb"] = {"": 5_607_187, "encoder": 2_857_536 - 11 * 192, "decoder": 520_324}
    SIZES[f"movi_{_movi}_psb"] |= {f"core.layers.{layer}": 742_981 for layer in range(3)}
    SIZES[f"movi_{_movi}_ocslotssm"] = {"core": 3 * (751_440 - 4 * 192) + 11 * 192}
    for _model in ("ocslotssm", "savi"):
        _name = f"movi_{_movi}_{_model}"
        SIZES[_name] = SIZES.get(_name, {}) | {"encoder.convs": 2_779_968, "decoder.convs": 518_596}
    SIZES[f"movi_{_movi}_video_transformer"] = {"core": 2_273_856, "decoder": 520_324}
# attention normalisation: CLEVR6 and DINOSAUR
for _aggregation, _more in {"weighted_mean": 0, "weighted_sum": 0, "batch_scaled": 2, "layer_norm": 128}.items():
    SIZES[f"clevr6_{_aggregation}"] = {"": 890_308 + _more, "core": 54_336 + _more, "decoder.convs": 514_628}
    SIZES[f"clevr6_{_aggregation}"] |= {"encoder.convs": 312_256, "encoder.position": 320, "decoder.position": 320}
for _aggregation, _more in {"weighted_mean": 0, "weighted_sum": 0, "batch_scaled": 2, "layer_norm": 256}.items():
    SIZES[f"movi_c_dinosaur_{_aggregation}"] = {"": 4_091_393 + _more, "core": 280_960 + _more}
    SIZES[f"movi_c_dinosaur_{_aggregation}"] |= {"encoder": 690_560, "decoder": 3_119_873}
# PSB in three dimensions, Tables 6 to 12
for _level, (_encoder, _convs, _slots) in {
    "simple": (9_634_944, 8_298_432, 6),
    "ego": (14_245_056, 12_908_544, 7),
}.items():
    _shared = {"encoder": _encoder, "encoder.convs": _convs, "core": 2_230_488 + _slots * 192, "core.layers.0": 743_368}
    SIZES[f"{_level}3d_psb_slotmixer"] = _shared | {"decoder": 1_801_155, "decoder.mlp": 298_368}
    SIZES[f"{_level}3d_psb_nerf"] = _shared | {"decoder": 684_107, "decoder.field.block1": 149_376}
# SLATE, STEVE, and PSB with STEVE's decoder
for _movi in "cde":
    SIZES[f"movi_{_movi}_steve"] = {"": 8_668_803, "tokenizer": 680_515, "core": 853_056, "decoder.codes": 786_432}
    SIZES[f"movi_{_movi}_steve"] |= {"decoder.head": 786_432, "decoder.layers": 4_735_872 - 384}
    SIZES[f"movi_{_movi}_psb"] = {"tokenizer": 680_515, "core.layers.0": 742_981, "decoder.codes": 786_432}
# ConvS5 on Moving MNIST: encoder with its table of actions, core with its input map, decoder
for _frames in (300, 600):
    _name = f"moving_mnist_{_frames}"
    for _core, _count in {
        "convs5": 18_893_824 + 66_048,
        "convssm": 18_893_824 + 66_048,
        "convlstm": 37_818_880,
    }.items():
        SIZES[f"{_name}_{_core}"] = {"encoder": 1_223_554, "core": _count, "decoder": 1_497_985}
    SIZES |= {f"{_name}_{_core}": {"": 163_500_291} for _core in ("transformer", "performer")}
    SIZES[f"{_name}_cwvae"] = {"encoder": 689_120, "core": 7_950_688, "decoder": 3_783_009}

HALF = {"core.dim": 128, "core.state_dim": 128}
COARSE = {"encoder.depths": [64, 128, 256], "core.patch": 16, "decoder.depths": [64, 128, 256]}
CHANGED = [
    ("moving_mnist_600_convs5", HALF, 7_409_155),
    ("moving_mnist_600_convlstm", {"core.dim": 128}, 12_120_067),
    ("moving_mnist_300_transformer", COARSE, 240_073_475),
]
"""The authors' released presets of Moving MNIST."""

# models of codes: experiment, changes, parameters
CODES: list[tuple[str, dict[str, Any], int]] = [
    ("dmlab_convs5", {}, 99_220_336),
    ("dmlab_convssm", {}, 99_220_336),
    ("dmlab_s5", {}, 254_275_952),
    ("dmlab_transformer", {}, 152_050_544),
    ("dmlab_performer", {}, 152_050_544),
    ("dmlab_convs5", {"decoder.depths": [256]}, 83_615_856),
    ("dmlab_s5", {"core.output_dim": 64}, 134_771_056),
    ("dmlab_teco_convs5", {}, 175_374_000),
    ("dmlab_teco_convssm", {}, 175_374_000),
    # without the start token of the authors' code, which nothing reads; how many blocks, changes no size
    ("dmlab_teco_s5", {"core.blocks": 32}, 180_409_520 - 2048),
    ("dmlab_teco_transformer", {}, 173_088_944),
    ("minecraft_teco_convs5", {}, 214_754_544),
    ("habitat_teco_convs5", {}, 351_100_784),
    ("minecraft_teco_convs5", {"decoder.blocks": 8}, 226_560_240),
    ("habitat_teco_convs5", {"num_latent_codes": 1024}, 350_804_848),
]
ABLATION = {
    "3x3 3x3 ResNet": 99_220_336,
    "1x1 3x3 ResNet": 85_065_328,
    "1x1 1x1 ResNet": 99_908_912,
    "3x3 3x3 GLU": 70_635_504,
    "1x1 5x5 GLU": 82_889_872,
    "1x1 1x1 GLU": 30_002_032,
    "S5": 140_106_096,
}
"""Rows of Table 9, as the grid balances them."""
THESIS = {
    ("rim_moving_mnist_models", "GRU CAT"): 3_890_497,
    ("rim_moving_mnist_models", "RIM CAT 6"): 3_607_393,
    ("rim_moving_mnist_models", "OC-RIM FF SBD 6"): 1_176_758,
    ("rim_moving_mnist_models", "OC-RIM CAT 6,3"): 3_587_445,
    ("rim_moving_mnist_models", "OC-RIM SBD 6,3"): 1_306_218,
    ("rim_moving_mnist_models", "OC-RIM BCD 6,3"): 1_539_590,
    ("rim_moving_sprites_models", "GRU-258 CAT"): 1_813_659,
    ("rim_moving_sprites_models", "RIM CAT 6"): 3_879_411,
    ("rim_moving_sprites_models", "OC-RIM SBD 6,6"): 1_532_988,
    ("rim_moving_sprites_models", "OC-RIM BCD 6,6"): 1_705_624,
    ("rim_moving_mnist_sparse_ocrim", "3/6"): 1_306_218,
    ("rim_moving_mnist_sparse_rim", "4/6"): 3_607_393,
}
"""Rows of the RIM thesis that its author's code was counted for, by grid and label."""


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


@pytest.fixture(autouse=True)
def blank_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the products with eigenvectors, which change no size."""
    for name in ("s5.S5StateSpace", "conv_s5.ConvStateSpace"):
        monkeypatch.setattr(f"slotbench_plugins.cores.{name}._initialise_maps", lambda *_: None)


def config_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((PAPER / f"{name}.yaml").read_text())


def factory(part: str, described: dict[str, Any], changes: dict[str, Any]) -> partial[Any]:
    """What makes a part as a configuration describes it, its own parts included."""
    arguments = described.get("init_args", {}) | {
        key.partition(".")[2]: value for key, value in changes.items() if key.startswith(f"{part}.")
    }
    for name, value in arguments.items():
        if isinstance(value, dict) and "class_path" in value:
            arguments[name] = factory(name, value, {})
        elif isinstance(value, list):
            arguments[name] = tuple(value)
    name = described["class_path"].rpartition(".")[2]
    if part == "prior":
        from slotbench.nn.mask_git import MaskGit

        return partial(MaskGit, **arguments)
    return partial(load(KINDS.get(part, f"{part}s"), name), **arguments)


def frames_of(config: dict[str, Any]) -> DataSpec:
    """The sizes of an experiment's data, without its files."""
    data, name = config["data"].get("init_args", {}), config["data"]["class_path"]
    if name == "MultiCameraLike":
        return MultiCameraLike(**{key: value for key, value in data.items() if key != "loader"}).spec
    if name == "FeatureFile":
        frame = VideoSpec(768, 28, 28)
    else:
        side, actions = data.get("resolution", 128), data.get("num_actions", 0)
        frame = VideoSpec(1 if name == "MovingMNIST" else 3, side, side, actions)
    return DataSpec(frame, frame)


def model_of(config: dict[str, Any], changes: dict[str, Any] | None = None) -> nn.ModuleDict:
    parts, sizes = config["model"]["init_args"], frames_of(config)
    made, changes = nn.ModuleDict(), changes or {}
    seen, target = sizes.input, VideoSpec(sizes.target.channels, sizes.target.height, sizes.target.width)
    with torch.device("meta"):
        if parts.get("tokenizer") is not None:
            made["tokenizer"] = factory("tokenizer", parts["tokenizer"], changes)(seen)
            target = made["tokenizer"].code_spec
            seen = replace(seen, codes=target)
        made["encoder"] = factory("encoder", parts["encoder"], changes)(seen)
        made["core"] = factory("core", parts["core"], changes)(made["encoder"].token_spec)
        made["decoder"] = factory("decoder", parts["decoder"], changes)(made["core"].slot_spec, target)
    if isinstance(made["encoder"], CodeEncoder):
        made["encoder"].share(made["decoder"].tables)
    return made


def count(module: nn.Module) -> int:
    return trainable_parameters(module)["total"]


def header(name: str) -> str:
    return re.sub(r"\n# +", " ", (PAPER / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", SIZES)
def test_parts_have_the_papers_number_of_parameters(name: str) -> None:
    model = model_of(config_of(name))
    found = {path: count(model.get_submodule(path)) for path in SIZES[name]}
    assert found == SIZES[name]
    if name.startswith("moving_mnist"):
        assert f" {count(model):,} parameters" in header(name)


@pytest.mark.parametrize(("name", "changes", "expected"), CHANGED)
def test_released_presets_have_the_authors_number_of_parameters(
    name: str, changes: dict[str, Any], expected: int
) -> None:
    assert count(model_of(config_of(name), changes)) == expected
    assert f"({expected:,} parameters)" in header(name)


def task_of_codes(name: str, changes: dict[str, Any]) -> nn.Module:
    config = config_of(name)
    given = config["model"]["init_args"]
    parts = [part for part in ("encoder", "core", "decoder", "prior") if part in given]
    sizes = ("latent_dim", "num_latent_codes", "latent_code_dim", "action_dim")
    with torch.device("meta"):
        return load("tasks", config["model"]["class_path"])(
            **{part: factory(part, given[part], changes) for part in parts},
            tokenizer=partial(Vectors, num_codes=8192 if "habitat" in name else 1024),
            data_spec=frames_of(config),
            **{key: changes.get(key, given[key]) for key in sizes if key in given},
        )


@pytest.mark.parametrize(("name", "changes", "expected"), CODES)
def test_models_of_codes_have_the_authors_number_of_parameters(
    name: str, changes: dict[str, Any], expected: int
) -> None:
    assert count(task_of_codes(name, changes)) == expected
    if not changes:
        assert f"{expected:,} parameters" in header(name)
        data, trainer = config_of(name)["data"]["init_args"], config_of(name)["trainer"]
        assert data["loader"]["batch_size"] * trainer["devices"] == 16


@pytest.mark.parametrize("label", ABLATION)
def test_the_ablation_is_balanced_to_the_printed_numbers(label: str) -> None:
    rows = {row["label"]: row for row in yaml.safe_load((GRIDS / "dmlab_kernels.yaml").read_text())["list"]}
    assert rows.keys() == ABLATION.keys()
    changes = {key.removeprefix("model."): value for key, value in rows[label].items() if key.startswith("model.core.")}
    name = "dmlab_s5" if rows[label].get("model.core") == "S5" else "dmlab_convs5"
    assert count(task_of_codes(name, changes)) == ABLATION[label]


@pytest.mark.parametrize(("grid", "label"), THESIS)
def test_rows_of_the_thesis_have_the_parameters_of_its_authors_code(grid: str, label: str) -> None:
    expanded = expand(read_grid_file(GRIDS / f"{grid}.yaml"))
    labels = [entry.label for entry in expanded.file.list]
    (point, *_) = (one for one in expanded.points if labels[dict(one.alternatives)["list"]] == label)
    config = yaml.safe_load(resolve([*point.arguments]).yaml())
    model = model_of(config)
    assert count(model) == THESIS[grid, label]
    if "/" in label:
        assert model["core"].top_k == int(label.partition("/")[0])
    task = config["model"]["init_args"]
    assert (task["loss"], task["loss_sum"], task["context"], task["horizon"]) == ("mse", "frames", 10, 10)


def test_experiments_that_are_compared_differ_by_what_they_compare_alone() -> None:
    for model in ("ocslotssm", "savi", "psb", "video_transformer"):
        a, b = config_of(f"movi_a_{model}"), config_of(f"movi_b_{model}")
        paths = [config["data"]["init_args"].pop("path") for config in (a, b)]
        assert (paths, a) == (["cache/movi_a", "cache/movi_b"], b)
    clevr = [config_of(path.stem) for path in PAPER.glob("clevr6_*.yaml")]
    classes = {one["model"]["init_args"]["core"]["init_args"].pop("aggregation")["class_path"] for one in clevr}
    assert len(classes) == len(clevr) == 4
    assert all(config == clevr[0] for config in clevr)
    savi, oc = config_of("movi_a_savi"), config_of("movi_a_ocslotssm")
    assert savi["model"]["init_args"].pop("core") != oc["model"]["init_args"].pop("core")
    assert savi == oc
    for level in ("simple", "ego"):
        mixer, nerf = (config_of(f"{level}3d_psb_{decoder}") for decoder in ("slotmixer", "nerf"))
        for name in ("decoder", "rays_per_step", "rays_at_once"):
            assert mixer["model"]["init_args"].pop(name) != nerf["model"]["init_args"].pop(name)
        assert mixer == nerf
