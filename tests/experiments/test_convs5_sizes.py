"""The ConvS5 paper's Moving-MNIST models, as the experiments build them, have the authors' numbers of parameters."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
import yaml

from slotbench.interfaces import VideoSpec
from slotbench.registry import load
from slotbench.tasks.optimisation import WarmupStepsCosine

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
HALF = {"dim": 128, "state_dim": 128}
COARSE = {"encoder": {"depths": [64, 128, 256]}, "core": {"patch": 16}, "decoder": {"depths": [64, 128, 256]}}

# encoder with its table of actions, core with its input map, decoder, and all of them
SIZES = {
    "300_convs5": (1_223_552 + 2, 18_893_824 + 66_050 - 2, 1_497_985, 21_681_411),
    "300_convlstm": (1_223_552 + 2, 37_748_736 + 4_096 + 66_048, 1_497_985, 40_540_419),
    "300_transformer": (None, None, None, 163_500_291),
    # the code of CW-VAE has 44,000 weights more, of zeros that stand for a level above the top
    "300_cwvae": (689_120, 7_950_688, 3_783_009, 12_422_817),
}
SIZES |= {name.replace("300", "600"): sizes for name, sizes in SIZES.items()}
RELEASED = {
    "600_convs5": ({"core": HALF}, 7_409_155),
    "600_convlstm": ({"core": {"dim": 128}}, 12_120_067),
    "300_transformer": (COARSE, 240_073_475),
}


def header(path):
    """The comments of a file as one line."""
    lines = [line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")]
    return " " + " ".join(lines)


def config_of(name):
    return yaml.safe_load((PAPER / f"moving_mnist_{name}.yaml").read_text())


def sizes(name, changes=None):
    config = config_of(name)
    parts, side = config["model"]["init_args"], config["data"]["init_args"]["resolution"]
    frame = VideoSpec(channels=1, height=side, width=side)

    def build(part, *specs):
        arguments = parts[part].get("init_args", {}) | (changes or {}).get(part, {})
        arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
        return load(f"{part}s", parts[part]["class_path"])(*specs, **arguments)

    with torch.device("meta"):
        encoder = build("encoder", frame)
        core = build("core", encoder.token_spec)
        decoder = build("decoder", core.slot_spec, frame)
    counts = [sum(p.numel() for p in part.parameters() if p.requires_grad) for part in (encoder, core, decoder)]
    return (*counts, sum(counts))


@pytest.mark.parametrize("name", SIZES)
def test_the_papers_models_have_the_authors_number_of_parameters(name):
    for count, expected in zip(sizes(name), SIZES[name], strict=True):
        assert expected is None or count == expected


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_presets_have_the_authors_number_of_parameters(name):
    changes, expected = RELEASED[name]
    count = sizes(name, changes)[-1]
    assert count == expected
    assert f"({count:,} parameters)" in header(PAPER / f"moving_mnist_{name}.yaml")


@pytest.mark.parametrize(("name", "same_as"), [("convssm", "convs5"), ("performer", "transformer")])
def test_the_variants_are_as_large_as_what_they_are_variants_of(name, same_as):
    for frames in (300, 600):
        assert sizes(f"{frames}_{name}") == sizes(f"{frames}_{same_as}")


@pytest.mark.parametrize("path", sorted(PAPER.glob("moving_mnist_*.yaml")), ids=lambda path: path.stem)
def test_headers_say_the_size_and_the_schedule_is_the_authors(path):
    name = path.stem.removeprefix("moving_mnist_")
    assert f" {sizes(name)[-1]:,} parameters (" in header(path)
    config = config_of(name)
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    assert data["num_frames"] == int(name[:3])
    assert data["eval_frames"] == model["context"] + model["horizon"] == 1300
    if name.endswith("cwvae"):  # it is not theirs
        return
    assert data["loader"]["batch_size"] * config["trainer"]["devices"] == 8
    assert (model["decay"], model["loss"], model["loss_sum"], model["quantise"]) == ("all", "l1_l2", "rows", True)
    assert model["schedule"]["class_path"] == WarmupStepsCosine.__name__
    defaults = inspect.signature(WarmupStepsCosine).parameters
    assert all(defaults[key].default == value for key, value in model["schedule"]["init_args"].items())


def test_all_twelve_experiments_are_there():
    cores = ["convlstm", "convs5", "convssm", "cwvae", "performer", "transformer"]
    expected = [f"moving_mnist_{frames}_{core}" for frames in (300, 600) for core in cores]
    assert sorted(path.stem for path in PAPER.glob("moving_mnist_*.yaml")) == expected
