"""The DINOSAUR model of the attention normalisation paper (Appendix F), in the paper's sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from scipy.ndimage import map_coordinates
from torch.nn import functional as F

from slotbench.interfaces import Decoded, VideoBatch, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "paper"
FEATURES = VideoSpec(channels=768, height=28, width=28)
TOTALS = {
    "weighted_mean": 4_091_393,
    "weighted_sum": 4_091_393,
    "batch_scaled": 4_091_395,
    "layer_norm": 4_091_649,
}


def built(part: dict, *specs: object) -> torch.nn.Module:
    """A part as a configuration describes it."""
    arguments = dict(part.get("init_args", {}))
    if (aggregation := arguments.get("aggregation")) is not None:
        kind = load("aggregations", aggregation["class_path"])
        arguments["aggregation"] = lambda dim: kind(dim, **aggregation.get("init_args", {}))
    kinds = {"MLPEncoder": "encoders", "SlotAttention": "cores", "MLPPatchDecoder": "decoders"}
    return load(kinds[part["class_path"]], part["class_path"])(*specs, **arguments)


def model(experiment: str) -> torch.nn.ModuleDict:
    config = yaml.safe_load((EXPERIMENTS / f"movi_c_dinosaur_{experiment}.yaml").read_text())["model"]["init_args"]
    encoder = built(config["encoder"], FEATURES)
    core = built(config["core"], encoder.token_spec)
    decoder = built(config["decoder"], core.slot_spec, FEATURES)
    return torch.nn.ModuleDict({"encoder": encoder, "core": core, "decoder": decoder})


@pytest.mark.parametrize(("experiment", "total"), TOTALS.items(), ids=list(TOTALS))
def test_the_experiment_has_as_many_parameters_as_the_paper_says(experiment, total):
    counts = trainable_parameters(model(experiment))
    assert counts["total"] == total
    assert counts["encoder"] == 690_560
    assert counts["decoder"] == 3_119_873
    assert counts["core"] == 280_960 + total - 4_091_393


@pytest.fixture(scope="module")
def decoded() -> tuple[Decoded, torch.Tensor]:
    torch.manual_seed(0)
    parts = model("weighted_mean")
    batch = VideoBatch(torch.randn(1, 1, 768, 28, 28), torch.zeros(1, 1, dtype=torch.long))
    with torch.no_grad():
        tokens = parts["encoder"](batch)
        assert tokens.shape == (1, 1, 784, 128)
        out = parts["core"](tokens)
        assert out.slots.shape == (1, 1, 11, 128)
        assert out.attention.shape == (1, 1, 11, 784)
        return parts["decoder"](out.slots), out.attention


def test_features_come_out_as_they_went_in(decoded):
    found, _ = decoded
    assert found.reconstruction.shape == (1, 1, 768, 28, 28)
    assert found.masks.shape == (1, 1, 11, 28, 28)
    assert found.components.shape == (1, 1, 11, 768, 28, 28)
    torch.testing.assert_close(found.masks.sum(dim=2), torch.ones(1, 1, 28, 28))
    mixture = (found.masks[:, :, :, None] * found.components).sum(dim=2)
    torch.testing.assert_close(found.reconstruction, mixture, atol=1e-5, rtol=1e-5)


def test_masks_are_upscaled_between_the_centres_of_their_cells(decoded):
    """28 -> 224 by linear interpolation at (i + 1/2) / 8 - 1/2, the border repeated: `align_corners=False`."""
    masks = decoded[0].masks[:, 0].double()
    upscaled = F.interpolate(masks, size=(224, 224), mode="bilinear", align_corners=False)
    where = (torch.arange(224, dtype=torch.float64) + 0.5) / 8 - 0.5
    rows, cols = torch.meshgrid(where, where, indexing="ij")
    for slot in range(11):
        plain = map_coordinates(masks[0, slot].numpy(), [rows.numpy(), cols.numpy()], order=1, mode="nearest")
        assert abs(upscaled[0, slot] - torch.from_numpy(plain)).max() <= 1e-12
    torch.testing.assert_close(upscaled.sum(dim=1), torch.ones(1, 224, 224, dtype=torch.float64), atol=1e-6, rtol=0)
