"""AlexNet's features are what its layers say, and are read from a file in torchvision's naming or refused."""

import numpy as np
import pytest
import torch
from scipy.signal import correlate

from slotbench.pretrained.alexnet import AlexNetFeatures
from slotbench.pretrained.weights import WeightError

# kernel, stride, padding of each convolution, and whether a pooling follows
LAYERS = {0: (11, 4, 2, True), 3: (5, 1, 2, True), 6: (3, 1, 1, False), 8: (3, 1, 1, False), 10: (3, 1, 1, False)}


def random_state(scale=1.0):
    torch.manual_seed(3)
    state = AlexNetFeatures().double().state_dict()
    return {name: scale * torch.randn_like(value) / value[0].numel() ** 0.5 for name, value in state.items()}


def pooled(maps):
    """Maximum over 3 x 3 windows at every second position."""
    rows, cols = ((side - 3) // 2 + 1 for side in maps.shape[1:])
    out = np.empty((len(maps), rows, cols))
    for i in range(rows):
        for j in range(cols):
            out[:, i, j] = maps[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(1, 2))
    return out


def activations(image, state):
    """By scipy's correlation, one output channel after the other."""
    found = []
    for index, (_, stride, padding, pool) in LAYERS.items():
        weight, bias = (state[f"features.{index}.{part}"].numpy() for part in ("weight", "bias"))
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        maps = [correlate(padded, kernel, mode="valid")[0][::stride, ::stride] for kernel in weight]
        image = np.maximum(np.stack(maps) + bias[:, None, None], 0)
        found.append(image)
        image = pooled(image) if pool else image
    return found


def test_the_five_activations_are_those_of_plain_correlations():
    state = random_state()
    network = AlexNetFeatures.from_tensors(state).double()
    network.load_state_dict(state)  # float64 again
    image = torch.randn(1, 3, 37, 33, dtype=torch.float64)
    found, expected = network(image), activations(image[0].numpy(), state)
    assert [maps.shape[1] for maps in found] == [64, 192, 384, 256, 256]
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs.std() > 1e-3
        np.testing.assert_allclose(ours[0].numpy(), theirs, atol=1e-10)


def test_what_is_missing_or_of_another_shape_is_named():
    state = random_state()
    state["classifier.1.weight"] = torch.zeros(4, 4)  # is not read
    network = AlexNetFeatures.from_tensors(state)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    wrong = state | {"features.3.weight": torch.zeros(192, 64, 3, 3)}
    with pytest.raises(
        WeightError,
        match=r"what is in a.pth is not .*: features.3.weight is 192x64x3x3 and has to be 192x64x5x5",
    ):
        AlexNetFeatures.from_tensors(wrong, "a.pth")
    del state["features.8.bias"]
    with pytest.raises(
        WeightError, match=r"not all of the features of AlexNet is in a.pth: .*torchvision.*features.8.bias"
    ):
        AlexNetFeatures.from_tensors(state, "a.pth")


def test_images_that_pooling_leaves_nothing_of_are_refused():
    network = AlexNetFeatures()
    assert network(torch.zeros(1, 3, 31, 31))[-1].shape == (1, 256, 1, 1)
    with pytest.raises(ValueError, match="at least 31 x 31 pixels, and these have 31 x 30"):
        network(torch.zeros(1, 3, 31, 30))
