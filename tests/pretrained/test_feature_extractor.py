"""A frozen network makes features, and leaves no trace in the model that has it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from vit_folders import vit_folder

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import decay_groups
from slotbench.pretrained.vit_features import ViTFeatures

FRAME = VideoSpec(channels=3, height=10, width=10)


@pytest.fixture
def path(tmp_path):
    return vit_folder(tmp_path)


@pytest.fixture
def extractor(path):
    return ViTFeatures(FRAME, path, resolution=12)


class Model(nn.Module):
    def __init__(self, extractor):
        super().__init__()
        self.extractor = extractor
        self.trained = nn.Linear(12, 4)


def test_frames_become_maps_of_features(extractor):
    assert extractor.spec == VideoSpec(channels=32, height=3, width=3)
    features = extractor(torch.rand(2, 5, 3, 10, 10))
    assert features.shape == (2, 5, 32, 3, 3)
    assert features.dtype == torch.float32


def test_how_many_frames_go_at_once_changes_nothing(path, extractor):
    frames = torch.rand(2, 3, 3, 10, 10)
    piecewise = ViTFeatures(FRAME, path, resolution=12, frames_at_once=4)
    torch.testing.assert_close(piecewise(frames), extractor(frames), atol=1e-5, rtol=1e-5)


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
