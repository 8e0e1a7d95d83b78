"""The encoder that has learned to see goes before every core of the grid, and hardly more of its run does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import yaml

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
CORES = yaml.safe_load((EXPERIMENTS / "grids/cater_like_pixel_cores.yaml").read_text())["list"]


def experiment(name: str) -> dict:
    return yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text())


def parts_of(config: dict, core: str | None = None, dim: int | None = None) -> dict[str, dict[str, tuple[int, ...]]]:
    """Names and shapes of what the parts learn."""
    given, resolution = config["model"]["init_args"], config["data"]["init_args"]["resolution"]
    lists = {key: tuple(v) if isinstance(v, list) else v for key, v in given["encoder"]["init_args"].items()}
    encoder = load("encoders", given["encoder"]["class_path"])(VideoSpec(3, resolution, resolution), **lists)
    made = load("cores", core or given["core"]["class_path"])
    own = given["core"]["init_args"] | ({"dim": dim} if dim else {})
    taken = {key: value for key, value in own.items() if key in inspect.signature(made).parameters}
    part = made(encoder.token_spec, **taken)
    side = config["data"]["init_args"]["grid"]
    spec = SlotSpec(part.slot_spec.num_slots, part.slot_spec.dim)
    decoder = load("decoders", given["decoder"]["class_path"])(
        spec, VideoSpec(side**2, 1, 1), **given["decoder"]["init_args"]
    )
    named = {"encoder": encoder, "core": part, "decoder": decoder}
    return {kind: {name: tuple(p.shape) for name, p in part.named_parameters()} for kind, part in named.items()}


@pytest.mark.parametrize("entry", CORES, ids=lambda entry: entry["label"])
def test_the_encoder_fits_and_the_core_does_not(entry):
    sight = parts_of(experiment("cater_like_sight"))
    core = parts_of(experiment("cater_like_memory"), entry["model.core"], entry["model.core.dim"])
    assert sight["encoder"] == core["encoder"]
    # of cores with one slot encoder the norm of the tokens too, which is the image encoder's end
    norm = {f"encoder.layers.0.context_norm.{name}" for name in ("weight", "bias")}
    assert {name for name, _ in sight["core"].items() & core["core"].items()} <= norm
    # one number for each cell
    assert {name for name, _ in sight["decoder"].items() & core["decoder"].items()} == {"head.bias"}
