"""Models of the papers' experiments, built from their YAML files, have the authors' numbers of parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from slotbench.interfaces import CodeEncoder, DataSpec, SlotSpec, Tokenized, Tokenizer, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
GRIDS = PAPER.parent / "grids" / "paper"
KINDS = {"aggregation": "aggregations", "tokenizer": "tokenizers", "decoder": "decoders", "encoder": "encoders"}
FEATURES = {
    **{f"movi_{movi}_small": VideoSpec(384, 28, 28) for movi in "ce"},
    "ytvis2021": VideoSpec(768, 14, 14),
    "movi_c_dinov2_small": VideoSpec(384, 24, 24),
    "movi_e_dinov2": VideoSpec(768, 24, 24),
    "ytvis2021_dinov2": VideoSpec(768, 37, 37),
}
"""Folders of features of other sizes than DINO's ViT-B/8 has at 224 pixels."""
DINOSAUR, TECO = VideoSpec(channels=768, height=28, width=28), ("latent_dim", "num_latent_codes", "latent_code_dim")

# clevr6: 54,336 of the core but for what an aggregation learns
CLEVR6 = {"encoder.convs": 312_256, "encoder.position": 320, "decoder.position": 320, "decoder.convs": 514_628}
PSB = {"encoder": 2_857_536 - 2112, "core.layers.0": 742_981, "core": 2_231_439, "decoder": 520_324, "total": 5_607_187}
SLOT_SSM = {"encoder.convs": 2_779_968, "decoder.convs": 518_596}
STEVE = {"tokenizer": 680_515, "core": 853_056, "decoder.codes": 786_432, "decoder.head": 786_432, "total": 8_668_803}
DINO = {"encoder": 690_560, "decoder": 3_119_873}
CONV_S5, CONV_LSTM = (
    {"encoder": 1_223_554, "core": 18_959_872, "decoder": 1_497_985, "total": 21_681_411},
    {"encoder": 1_223_554, "core": 37_818_880, "decoder": 1_497_985, "total": 40_540_419},
)
CWVAE = {"encoder": 689_120, "core": 7_950_688, "decoder": 3_783_009, "total": 12_422_817}
NERF, MIXER = {"decoder": 684_107, "decoder.field.block1": 149_376}, {"decoder": 1_801_155, "decoder.mlp": 298_368}
VQGANS = {"dmlab": 23_278_723, "minecraft": 79_842_947, "habitat": 81_677_955}
COUNTS: dict[str, dict[str, int]] = {
    **{f"clevr6_{name}": CLEVR6 | {"core": 54_336, "total": 890_308} for name in ("weighted_mean", "weighted_sum")},
    "clevr6_batch_scaled": CLEVR6 | {"core": 54_338, "total": 890_310},
    "clevr6_layer_norm": CLEVR6 | {"core": 54_464, "total": 890_436},
    **{f"movi_c_dinosaur_weighted_{name}": DINO | {"core": 280_960, "total": 4_091_393} for name in ("mean", "sum")},
    "movi_c_dinosaur_batch_scaled": DINO | {"total": 4_091_395},
    "movi_c_dinosaur_layer_norm": DINO | {"total": 4_091_649},
    **{f"movi_{movi}_psb": PSB for movi in "ab"},
    **{f"movi_{movi}_savi": SLOT_SSM for movi in "ab"},
    # a layer of the paper, by our count, without the biases in the competition's four maps
    **{f"movi_{movi}_ocslotssm": SLOT_SSM | {"core": 3 * (751_440 - 4 * 192) + 11 * 192} for movi in "ab"},
    **{f"movi_{movi}_video_transformer": {"core": 2_273_856, "decoder": 520_324} for movi in "ab"},
    **{f"movi_{movi}_steve": STEVE for movi in "cde"},
    **{f"movi_{movi}_psb": {"tokenizer": 680_515, "core": 2_229_327 + 24 * 192} for movi in "de"},
    "movi_c_psb": {"tokenizer": 680_515, "core": 2_229_327 + 11 * 192},
    "clevr_slate": {"tokenizer": 285_635, "core": 408_576, "decoder.slot_map": 36_864, "total": 3_616_451},
    **{f"moving_mnist_{frames}_{core}": CONV_S5 for frames in (300, 600) for core in ("convs5", "convssm")},
    **{f"moving_mnist_{frames}_convlstm": CONV_LSTM for frames in (300, 600)},
    **{f"moving_mnist_{f}_{core}": {"total": 163_500_291} for f in (300, 600) for core in ("transformer", "performer")},
    **{f"moving_mnist_{frames}_cwvae": CWVAE for frames in (300, 600)},
    "simple3d_psb_slotmixer": MIXER | {"encoder": 9_634_944, "core": 2_230_488 + 6 * 192, "total": 13_667_739},
    "simple3d_psb_nerf": NERF | {"encoder.convs": 8_298_432, "core.layers.2": 743_368, "total": 12_550_691},
    "ego3d_psb_slotmixer": MIXER | {"encoder": 14_245_056, "core": 2_230_488 + 7 * 192, "total": 18_278_043},
    "ego3d_psb_nerf": NERF | {"encoder.convs": 12_908_544, "decoder.field.block2": 74_880, "total": 17_160_995},
    **{f"dmlab_{core}": {"total": 99_220_336} for core in ("convs5", "convssm")},
    "dmlab_s5": {"total": 254_275_952},
    **{f"dmlab_{core}": {"total": 152_050_544} for core in ("transformer", "performer")},
    **{f"dmlab_teco_{core}": {"total": 175_374_000} for core in ("convs5", "convssm")},
    # without S5's start token in the authors' code, which nothing reads
    "dmlab_teco_s5": {"total": 180_409_520 - 2048},
    "dmlab_teco_transformer": {"total": 173_088_944},
    "minecraft_teco_convs5": {"total": 214_754_544},
    "habitat_teco_convs5": {"total": 351_100_784},
    "minecraft_teco_transformer": {"total": 271_278_832},
    # without three of four start tokens in TECO's code
    "habitat_teco_transformer": {"total": 386_098_544 - 3 * 1024},
    **{f"{name}_vqgan": {"total": total} for name, total in VQGANS.items()},
    "rim_moving_mnist": {"total": 1_306_218},
    "rim_moving_sprites": {"total": 1_532_988},
    # of martius-lab/videosaur and of the object-centric learning framework, by our count of their code
    **{f"videosaur_movi_{m}": {"encoder": 1_379_456, "core": 347_264, "decoder": 4_614_928} for m in "ce"},
    "videosaur_ytvis2021": {"encoder": 1_281_088, "core": 87_616, "decoder": 3_324_932},
    "slotcontrast_movi_c": {"encoder": 345_664, "core": 120_704 + 11 * 64, "decoder": 2_597_249},
    "slotcontrast_ytvis2021": {"encoder": 1_281_088, "decoder": 3_041_601},
    **{f"dinosaur_movi_{movi}": {"encoder": 197_888, "core": 280_960, "decoder": 2_726_273} for movi in "ce"},
}
"""Experiment -> trainable parameters of parts, by their place in the model."""

HALF, COARSE = {"dim": 128, "state_dim": 128}, {"depths": [64, 128, 256]}
CHANGED: list[tuple[str, dict[str, dict[str, Any]], int]] = [
    ("moving_mnist_600_convs5", {"core": HALF}, 7_409_155),
    ("moving_mnist_600_convlstm", {"core": {"dim": 128}}, 12_120_067),
    ("moving_mnist_300_transformer", {"encoder": COARSE, "core": {"patch": 16}, "decoder": COARSE}, 240_073_475),
    ("movi_e_steve", {"data": {"resolution": 64}}, 8_521_347),
    ("dmlab_convs5", {"decoder": {"depths": [256]}}, 83_615_856),
    ("dmlab_s5", {"core": {"output_dim": 64}}, 134_771_056),
    ("minecraft_teco_convs5", {"decoder": {"blocks": 8}}, 226_560_240),
    ("habitat_teco_convs5", {"task": {"num_latent_codes": 1024}}, 350_804_848),
    ("rim_moving_mnist", {"core": {"slot_dim": 64}}, 1_241_238),
    ("rim_moving_sprites", {"core": {"slot_dim": 64}}, 1_468_008),
]
"""Other sizes of the authors: an experiment, arguments of its parts, and parameters in all."""

THESIS = {
    ("rim_moving_mnist_models", "GRU CAT"): 3_890_497,
    ("rim_moving_mnist_models", "RIM CAT 6"): 3_607_393,
    ("rim_moving_mnist_models", "OC-RIM FF SBD 6"): 1_176_758,
    ("rim_moving_mnist_models", "OC-RIM CAT 6,3"): 3_587_445,
    ("rim_moving_mnist_models", "OC-RIM SBD 6,6"): 1_306_218,
    ("rim_moving_mnist_models", "OC-RIM BCD 6,3"): 1_539_590,
    ("rim_moving_sprites_models", "GRU-258 CAT"): 1_813_659,
    ("rim_moving_sprites_models", "GRU-600 CAT"): 4_162_515,
    ("rim_moving_sprites_models", "RIM CAT 6"): 3_879_411,
    ("rim_moving_sprites_models", "OC-RIM CAT 6,3"): 3_753_479,
    ("rim_moving_sprites_models", "OC-RIM FF SBD 6"): 1_397_384,
    ("rim_moving_sprites_models", "OC-RIM SBD 6,3"): 1_532_988,
    ("rim_moving_sprites_models", "OC-RIM BCD 6,3"): 1_705_624,
    ("rim_moving_mnist_sparse_ocrim", "3/6"): 1_306_218,
    ("rim_moving_mnist_sparse_rim", "4/6"): 3_607_393,
}
"""Rows of the RIM thesis, by grid and label, that its author's code was counted for."""

ABLATION = {
    "3x3 3x3 ResNet": 99_220_336,
    "1x1 3x3 ResNet": 85_065_328,
    "1x1 1x1 ResNet": 99_908_912,
    "3x3 3x3 GLU": 70_635_504,
    "1x1 5x5 GLU": 82_889_872,
    "1x1 1x1 GLU": 30_002_032,
    "S5": 140_106_096,
}
"""Rows of ConvS5's Table 9, as the grid balances them."""


class Vectors(Tokenizer):
    """The sizes of the papers' VQ-GANs, and nothing else."""

    def __init__(self, video_spec: VideoSpec, num_codes: int) -> None:
        super().__init__()
        self.code_spec = VideoSpec(num_codes, 16, 16)
        self.register_buffer("codebook", torch.zeros(num_codes, 256))

    def forward(self, frames: Tensor) -> Tokenized:
        raise NotImplementedError

    def decode(self, codes: Tensor) -> Tensor:
        raise NotImplementedError


def config_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((PAPER / f"{name}.yaml").read_text())


def header(path: Path) -> str:
    """The comments of a file as one line."""
    return " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))


def factory(kind: str, part: Mapping[str, Any]) -> partial[Any]:
    """What makes a part, whose own parts are given by their name and arguments."""
    arguments: dict[str, Any] = {}
    for name, value in part.get("init_args", {}).items():
        if isinstance(value, dict) and "class_path" in value:
            value = factory(KINDS[name], value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    name = part["class_path"].rpartition(".")[2]
    return partial(MaskGit if name == "MaskGit" else load(kind, name), **arguments)


def frame_of(config: Mapping[str, Any]) -> VideoSpec:
    """What the encoder of an experiment is built from."""
    kind, given = config["data"]["class_path"].rpartition(".")[2], config["data"]["init_args"]
    if config["model"]["class_path"] == "FrameTokenization":
        return VideoSpec(3, given["resolution"], given["resolution"])
    if kind == "MultiCameraLike":
        return MultiCameraLike(**{key: value for key, value in given.items() if key != "loader"}).spec.input
    if config["model"]["init_args"]["encoder"]["class_path"] == "MLPEncoder":
        return FEATURES.get(Path(given["path"]).name, DINOSAUR)
    side = given.get("resolution", 64)
    return VideoSpec(1 if kind == "MovingMNIST" else 3, side, side, given.get("num_actions", 0))


def model_of(config: Mapping[str, Any]) -> nn.Module:
    """A model as a configuration describes it, without memory for its weights."""
    given, frame = config["model"]["init_args"], frame_of(config)
    task = config["model"]["class_path"]
    with torch.device("meta"):
        if task in ("CodePrediction", "TECO"):
            parts = {part: factory(f"{part}s", given[part]) for part in ("encoder", "core", "decoder")}
            if task == "TECO":
                parts |= {name: given[name] for name in (*TECO, "action_dim")}
                parts["prior"] = factory("", {"class_path": "MaskGit"} | given["prior"])
            codes = 8192 if config["data"]["class_path"] == "ActionVideos" and given.get("num_codes") == 8192 else 1024
            tokenizer = partial(Vectors, num_codes=config.get("codes", codes))
            return load("tasks", task)(**parts, tokenizer=tokenizer, data_spec=DataSpec(frame, frame))
        if task == "FrameTokenization":
            return factory("tokenizers", given["tokenizer"])(frame)
        model = nn.ModuleDict()
        target, read = replace(frame, num_views=1, num_actions=0), frame
        if "tokenizer" in given:
            model["tokenizer"] = factory("tokenizers", given["tokenizer"])(frame)
            target, read = model["tokenizer"].code_spec, replace(frame, codes=model["tokenizer"].code_spec)
        model["encoder"] = factory("encoders", given["encoder"])(read)
        model["core"] = factory("cores", given["core"])(model["encoder"].token_spec)
        if terms := [
            factory("objectives", one)(model["core"].slot_spec, target) for one in given.get("objectives", ())
        ]:
            target = replace(target, channels=sum(term.paints for term in terms))
        model["decoder"] = factory("decoders", given["decoder"])(model["core"].slot_spec, target)
        if isinstance(model["encoder"], CodeEncoder):
            model["encoder"].share(model["decoder"].tables)
    return model


def count(model: nn.Module, place: str = "total") -> int:
    part = model if place == "total" else model.get_submodule(place)
    return trainable_parameters(part)["total"]


@pytest.fixture(autouse=True)
def blank_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the eigenvectors of states, which take seconds and change no size."""
    for name in ("s5.S5StateSpace", "conv_s5.ConvStateSpace"):
        monkeypatch.setattr(f"slotbench_plugins.cores.{name}._initialise_maps", lambda *_: None)


@pytest.mark.parametrize("name", COUNTS)
def test_models_of_the_papers_have_the_authors_numbers_of_parameters(name: str) -> None:
    config = config_of(name) | ({"codes": 8192} if "habitat" in name else {})
    if name == "dmlab_teco_s5":  # how many blocks, changes no size
        config["model"]["init_args"]["core"]["init_args"]["blocks"] = 32
    model = model_of(config)
    assert {place: count(model, place) for place in COUNTS[name]} == COUNTS[name]
    if re.match(".*mnist|dmlab|minecraft|habitat", name):
        assert f"{count(model):,} parameters" in header(PAPER / f"{name}.yaml") or name.startswith("rim")


@pytest.mark.parametrize(("name", "changes", "expected"), CHANGED)
def test_other_sizes_of_the_authors(name: str, changes: dict[str, Any], expected: int) -> None:
    config = config_of(name) | ({"codes": 8192} if "habitat" in name else {})
    parts = config["model"]["init_args"]
    for part, arguments in changes.items():
        places = {"data": config["data"]["init_args"], "task": parts}
        (places[part] if part in places else parts[part]["init_args"]).update(arguments)
    assert count(model_of(config)) == expected


@pytest.mark.parametrize("label", ABLATION)
def test_convs5s_ablation_is_balanced_to_the_printed_numbers(label: str) -> None:
    rows = {row["label"]: row for row in yaml.safe_load((GRIDS / "dmlab_kernels.yaml").read_text())["list"]}
    config = config_of("dmlab_s5" if label == "S5" else "dmlab_convs5")
    core = config["model"]["init_args"]["core"]["init_args"]
    core.update({key[11:]: value for key, value in rows[label].items() if key.startswith("model.core.")})
    assert count(model_of(config)) == ABLATION[label]


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], tuple[Any, Any]]:
    """The point of every row of the thesis' grids, by grid and label."""
    found = {}
    for name in {name for name, _ in THESIS}:
        grid = expand(read_grid_file(GRIDS / f"{name}.yaml"))
        labels = [entry.label for entry in grid.file.list]
        found |= {(name, labels[dict(point.alternatives)["list"]]): point.arguments for point in grid.points}
    return found


@pytest.mark.parametrize(("grid", "label"), THESIS)
def test_rows_of_the_rim_thesis_resolve_to_models_of_its_authors_size(rows, grid: str, label: str) -> None:
    config = yaml.safe_load(resolve([*rows[grid, label]]).yaml())
    model = model_of(config)
    assert count(model) == THESIS[grid, label]
    said = label.split()[-1]
    core, cells = model.get_submodule("core"), model.get_submodule("core").slot_spec.num_slots
    if "/" in said:
        assert f"{core.top_k}/{cells}" == said
    elif "GRU" not in label:
        assert cells == core.top_k == int(said.split(",")[0])
    assert config["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 7e-4


@pytest.mark.parametrize("name", ["rim_moving_mnist", "rim_moving_sprites"])
def test_experiments_of_the_rim_thesis_are_the_presets_of_the_parts(name: str) -> None:
    config, preset = config_of(name), name.removeprefix("rim_")
    frame = frame_of(config)
    encoder = getattr(load("encoders", "StridedCNNEncoder"), preset)(frame, "map")
    core = load("cores", "OCRIM").code(encoder.token_spec)
    decoder = getattr(load("decoders", "SpatialBroadcastDecoder"), preset)(core.slot_spec, frame)
    written = model_of(config)
    for part, other in (("encoder", encoder), ("core", core), ("decoder", decoder)):
        shapes = {key: value.shape for key, value in other.state_dict().items()}
        assert {key: value.shape for key, value in written.get_submodule(part).state_dict().items()} == shapes


def test_rim_is_ocrim_without_slots_on_one_token() -> None:
    tokens = TokenSpec(64, 1)
    rim, ocrim = load("cores", "RIM").thesis(tokens).eval(), load("cores", "OCRIM").thesis(tokens, 6, None).eval()
    ocrim.load_state_dict(rim.state_dict())
    clip = torch.randn(2, 3, 1, 64)
    torch.testing.assert_close(ocrim(clip).slots, rim(clip).slots)


ALIKE = [
    *(([f"movi_a_{core}", f"movi_b_{core}"], ["data"]) for core in ("psb", "savi", "ocslotssm", "video_transformer")),
    ([f"clevr6_{name}" for name in ("weighted_mean", "weighted_sum", "batch_scaled", "layer_norm")], ["core"]),
    (["movi_a_savi", "movi_a_ocslotssm"], ["core"]),
    (["movi_a_psb", "movi_a_video_transformer"], ["core", "encoder"]),
    ([f"movi_{movi}_steve" for movi in "cde"], ["data"]),
    ([f"movi_{movi}_psb" for movi in "cde"], ["data", "core"]),
    (["simple3d_psb_slotmixer", "simple3d_psb_nerf"], ["decoder", "rays_per_step", "rays_at_once"]),
    (["ego3d_psb_slotmixer", "ego3d_psb_nerf"], ["decoder", "rays_per_step", "rays_at_once"]),
]


@pytest.mark.parametrize(("names", "differ"), ALIKE)
def test_experiments_that_are_compared_differ_by_one_thing(names: list[str], differ: list[str]) -> None:
    configs = [config_of(name) for name in names]
    for config in configs:
        for key in differ:
            (config if key == "data" else config["model"]["init_args"]).pop(key, None)
    assert all(config == configs[0] for config in configs)


@pytest.mark.parametrize(
    "name", sorted(name for name in COUNTS if re.match("(dmlab|minecraft|habitat)(?!_vqgan)", name))
)
def test_batch_length_and_schedule_of_codes_are_the_papers(name: str) -> None:
    config = config_of(name)
    data, trainer, model = config["data"]["init_args"], config["trainer"], config["model"]["init_args"]
    own = re.match("(minecraft|habitat)_teco_transformer", name)  # numbers of TECO's paper
    assert data["loader"]["batch_size"] * trainer["devices"] == (32 if own else 16)
    assert data["num_frames"] == model["rollout"]["context"] + model["rollout"]["horizon"] == 300
    assert trainer["max_steps"] == (500_000 if "dmlab" in name else 1_000_000)
    assert model["schedule"]["init_args"] == {"warmup_steps": 5000, "reach_zero_at_end": False}


@pytest.mark.parametrize("name", sorted(name for name in COUNTS if "_teco_" in name))
def test_the_loss_of_teco_is_that_of_its_code(name: str) -> None:
    model, rule = config_of(name)["model"]["init_args"], {"label_smoothing": 0.01, "quantiser_weight": 1.0}
    assert {key: model[key] for key in (*rule, "masked_loss", "drop_loss")} == rule | {
        "masked_loss": "all",
        "drop_loss": 0.9,
    }


@pytest.mark.parametrize("frames", [300, 600])
def test_cwvae_starts_and_steps_as_keras_does(frames: int) -> None:
    model = config_of(f"moving_mnist_{frames}_cwvae")["model"]["init_args"]
    assert [model[part]["init_args"]["init"] for part in ("encoder", "core")] == ["keras"] * 2
    assert model["optimizer"]["class_path"].endswith("AdamTF")
    assert model["optimizer"]["init_args"] == {"lr": 3e-4, "eps": 1e-4}


@pytest.mark.parametrize("name", VQGANS)
def test_the_vqgan_of_a_set_makes_the_codes_that_its_models_read(name: str) -> None:
    config = config_of(f"{name}_vqgan")
    codes = model_of(config).code_spec
    assert codes == VideoSpec(8192 if name == "habitat" else 1024, 16, 16)
    assert model_of(config).codebook.shape[1] == 256
    data = config_of(f"{name}_teco_convs5")["data"]["init_args"]
    assert config["data"]["init_args"]["resolution"] == data["resolution"]
    assert config["model"]["init_args"]["optimizer"]["init_args"]["lr"] == pytest.approx(16 * 4.5e-6)


def test_the_savi_that_psb_is_compared_with() -> None:
    tokens = model_of(config_of("movi_a_psb")).get_submodule("encoder").token_spec
    given = {"num_slots": 11, "dim": 192, "num_iterations": 3, "mlp_ratio": 4}
    for slot_init, expected in (({}, 1_076_544), ({"slot_init": "gaussian"}, 1_074_816)):
        with torch.device("meta"):
            assert count(load("cores", "SAVi")(tokens, **given, **slot_init)) == expected


@pytest.mark.parametrize("name", [f"movi_{movi}_{model}" for movi in "cde" for model in ("steve", "psb")])
def test_the_decoder_of_masks_is_that_of_table_5(name: str) -> None:
    masks = config_of(name)["model"]["init_args"]["mask_decoder"]
    with torch.device("meta"):
        assert count(factory("decoders", masks)(SlotSpec(11, 192), VideoSpec(3, 128, 128))) == 520_324


def test_features_come_out_as_they_went_in() -> None:
    torch.manual_seed(0)
    given = config_of("movi_c_dinosaur_weighted_mean")["model"]["init_args"]
    encoder = factory("encoders", given["encoder"])(DINOSAUR)
    core = factory("cores", given["core"])(encoder.token_spec)
    with torch.no_grad():
        tokens = encoder(VideoBatch(torch.randn(1, 1, 768, 28, 28), torch.zeros(1, 1, dtype=torch.long)))
        found = factory("decoders", given["decoder"])(core.slot_spec, DINOSAUR)(core(tokens).slots)
    assert tokens.shape == (1, 1, 784, 128)
    assert found.masks.shape == (1, 1, 11, 28, 28)
    mixture = (found.masks[:, :, :, None] * found.components).sum(dim=2)
    torch.testing.assert_close(found.reconstruction, mixture, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("level", ["simple", "ego"])
def test_what_the_cameras_see_lies_between_the_nearest_and_the_farthest_point_of_a_ray(level: str) -> None:
    pytest.importorskip("mujoco")
    config = config_of(f"{level}3d_psb_nerf")
    decoder = config["model"]["init_args"]["decoder"]["init_args"]
    given = {key: value for key, value in config["data"]["init_args"].items() if key != "loader"}
    videos = MultiCameraLike(**given | {"resolution": 16}).simulated("train")
    for made in map(videos.video, range(4)):
        depth, masks, cameras = (made[key] for key in ("depth", "masks", "cameras"))
        assert depth.min() > decoder["near"]
        # behind it the ground goes on to the horizon ("simple"), or there is nothing
        seen = depth[masks > 0] if level == "simple" else depth[depth < 1000]
        assert (seen < decoder["far"]).mean() > 0.999
        # codes repeat at twice the bound: no point of a ray has that of a place among the cameras
        assert decoder["far"] + 2 * abs(cameras[..., :3, 3]).max() < 2 * decoder["max_value"]
