"""A frozen network makes features, and leaves no trace in the model that has it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from vit_files import SMALL, vit_state

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import decay_groups
from slotbench.pretrained import vit
from slotbench.pretrained.feature_extractor import DINOFeatures
from slotbench.pretrained.weights import WeightError

FRAME = VideoSpec(channels=3, height=10, width=10)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setitem(vit.ARCHITECTURES, "small", SMALL)
    torch.save(vit_state(), tmp_path / "small.pth")
    return str(tmp_path / "small.pth")


@pytest.fixture
def extractor(path):
    return DINOFeatures(FRAME, path, arch="small", resolution=12)


class Model(nn.Module):
    def __init__(self, extractor):
        super().__init__()
        self.extractor = extractor
        self.trained = nn.Linear(12, 4)


def test_frames_become_maps_of_features(extractor):
    assert extractor.spec == VideoSpec(channels=12, height=3, width=3)
    features = extractor(torch.rand(2, 5, 3, 10, 10))
    assert features.shape == (2, 5, 12, 3, 3)
    assert features.dtype == torch.float32


def test_frames_are_normalised_and_resized_bicubically(extractor):
    frames = torch.rand(1, 2, 3, 10, 10)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    # in the other order: nothing is clamped, so it is the same
    resized = nn.functional.interpolate(frames[0], size=(12, 12), mode="bicubic", align_corners=False)
    expected = vit.ViT.from_tensors(vit_state(), "small", (3, 3))((resized - mean[:, None, None]) / std[:, None, None])
    torch.testing.assert_close(extractor(frames)[0], expected, atol=1e-5, rtol=1e-5)


def test_frames_of_the_right_size_are_not_touched_by_the_resizing(path):
    extractor = DINOFeatures(VideoSpec(3, 12, 12), path, arch="small", resolution=12)
    frames = torch.rand(1, 1, 3, 12, 12)
    expected = extractor.network((frames[0] - extractor.mean) / extractor.std)
    torch.testing.assert_close(extractor(frames)[0], expected)


def test_how_many_frames_go_at_once_changes_nothing(path, extractor):
    frames = torch.rand(2, 3, 3, 10, 10)
    piecewise = DINOFeatures(FRAME, path, arch="small", resolution=12, frames_at_once=4)
    torch.testing.assert_close(piecewise(frames), extractor(frames), atol=1e-6, rtol=1e-6)


def test_the_network_is_not_trained_and_stays_in_evaluation(extractor):
    model = Model(extractor).train()
    model.requires_grad_()
    assert not extractor.network.training
    assert not any(parameter.requires_grad for parameter in extractor.network.parameters())
    assert {name for name, _ in model.named_parameters()} == {"trained.weight", "trained.bias"}
    assert sum(p.numel() for group in decay_groups(model.parameters()) for p in group["params"]) == 12 * 4 + 4


def test_no_gradient_goes_through(extractor):
    frames = torch.rand(1, 1, 3, 10, 10, requires_grad=True)
    assert not extractor(frames).requires_grad


def test_a_checkpoint_does_not_hold_it_and_is_loaded_without_it(extractor):
    model = Model(extractor)
    state = model.state_dict()
    assert set(state) == {"trained.weight", "trained.bias"}
    assert model.load_state_dict(state, strict=True).missing_keys == []


def test_the_network_goes_where_the_model_goes(extractor):
    model = Model(extractor).double()
    assert {parameter.dtype for parameter in extractor.network.parameters()} == {torch.float64}
    assert model.extractor(torch.rand(1, 1, 3, 10, 10)).dtype == torch.float64
    model.to("meta")
    assert {parameter.device.type for parameter in extractor.network.parameters()} == {"meta"}


def test_what_cannot_be_is_refused(path, tmp_path):
    with pytest.raises(ValueError, match="of 3 channels, and these have 1"):
        DINOFeatures(VideoSpec(1, 10, 10), path, arch="small", resolution=12)
    with pytest.raises(ValueError, match="resolution is 14; expected a multiple of 4"):
        DINOFeatures(FRAME, path, arch="small", resolution=14)
    with pytest.raises(ValueError, match="no vision transformer named 'tiny'; choose one of vit_small_patch8"):
        DINOFeatures(FRAME, path, arch="tiny")
    with pytest.raises(WeightError, match=r"no weights for a small of DINO at nowhere\.pth"):
        DINOFeatures(FRAME, "nowhere.pth", arch="small", resolution=12)
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(WeightError, match="does not hold one vision transformer"):
        DINOFeatures(FRAME, str(tmp_path / "other.pth"), arch="small", resolution=12)
    torch.save({"state": Model(nn.Identity())}, tmp_path / "code.pth")
    with pytest.raises(WeightError, match="cannot be read as plain tensors"):
        DINOFeatures(FRAME, str(tmp_path / "code.pth"), arch="small", resolution=12)
