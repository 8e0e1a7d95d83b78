"""I3D pads as TensorFlow does, is the network of its paper, and reads the PyTorch port's naming."""

import numpy as np
import pytest
import torch

from slotbench.pretrained.i3d import I3D, pad_same, same_padding
from slotbench.pretrained.weights import WeightError


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "expected"),
    [
        (224, 7, 2, (2, 3)),
        (225, 7, 2, (3, 3)),
        (9, 7, 2, (3, 3)),
        (10, 7, 2, (2, 3)),
        (112, 3, 2, (0, 1)),
        (7, 3, 2, (1, 1)),
        (8, 2, 2, (0, 0)),
        (9, 2, 2, (0, 1)),
        (4, 3, 1, (1, 1)),
        (5, 1, 1, (0, 0)),
        (5, 1, 2, (0, 0)),
    ],
)
def test_same_padding_is_tensorflows(size, kernel, stride, expected):
    assert same_padding(size, kernel, stride) == expected


def test_a_video_is_padded_on_the_right_sides():
    padded = pad_same(torch.ones(1, 1, 2, 3, 4), (2, 3, 7), (2, 2, 2))
    assert padded.shape == (1, 1, 2, 5, 9)
    assert padded[0, 0, 0, 1].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert padded[0, 0, 0, :, 3].tolist() == [0, 1, 1, 1, 0]


def random_state():
    torch.manual_seed(5)
    state = I3D().state_dict()
    out = {}
    for name, value in state.items():
        if name.endswith("num_batches_tracked"):
            continue
        if "conv3d.weight" in name:
            out[name] = torch.randn_like(value) * (2 / value[0].numel()) ** 0.5
        elif name.endswith(("running_var", "bn.weight")):
            out[name] = torch.rand_like(value) + 0.5
        else:
            out[name] = torch.randn_like(value) * 0.2
    return out


class PlainI3D:
    """The network of the paper's Figure 3 in numpy: sums over windows."""

    def __init__(self, state):
        self.state = {name: value.double().numpy() for name, value in state.items()}

    @staticmethod
    def pad(x, kernel, stride):
        sides = []
        for size, k, s in zip(x.shape[1:], kernel, stride, strict=True):
            needed = max(k - s, 0) if size % s == 0 else max(k - size % s, 0)
            sides.append((needed // 2, needed - needed // 2))
        return np.pad(x, [(0, 0), *sides])

    def unit(self, name, x, stride=1):
        weight = self.state[f"{name}.conv3d.weight"]
        padded = self.pad(x, weight.shape[2:], (stride,) * 3)
        windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(1, 2, 3))
        y = np.tensordot(weight, windows[:, ::stride, ::stride, ::stride], axes=((1, 2, 3, 4), (0, 4, 5, 6)))
        mean, var, gain, bias = (
            self.state[f"{name}.bn.{part}"][:, None, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return np.maximum((y - mean) / np.sqrt(var + 1e-3) * gain + bias, 0)

    def pool(self, x, kernel, stride):
        x = self.pad(x, kernel, stride)
        steps = [(size - k) // s + 1 for size, k, s in zip(x.shape[1:], kernel, stride, strict=True)]
        out = np.empty((len(x), *steps))
        for at in np.ndindex(*steps):
            window = tuple(slice(i * s, i * s + k) for i, k, s in zip(at, kernel, stride, strict=True))
            out[(slice(None), *at)] = x[(slice(None), *window)].max(axis=(1, 2, 3))
        return out

    def mixed(self, name, x):
        return np.concatenate(
            [
                self.unit(f"{name}.b0", x),
                self.unit(f"{name}.b1b", self.unit(f"{name}.b1a", x)),
                self.unit(f"{name}.b2b", self.unit(f"{name}.b2a", x)),
                self.unit(f"{name}.b3b", self.pool(x, (3, 3, 3), (1, 1, 1))),
            ]
        )

    def __call__(self, x):
        x = self.pool(self.unit("Conv3d_1a_7x7", x, 2), (1, 3, 3), (1, 2, 2))
        x = self.pool(self.unit("Conv3d_2c_3x3", self.unit("Conv3d_2b_1x1", x)), (1, 3, 3), (1, 2, 2))
        x = self.pool(self.mixed("Mixed_3c", self.mixed("Mixed_3b", x)), (3, 3, 3), (2, 2, 2))
        for letter in "bcdef":
            x = self.mixed(f"Mixed_4{letter}", x)
        x = self.mixed("Mixed_5c", self.mixed("Mixed_5b", self.pool(x, (2, 2, 2), (2, 2, 2))))
        seen = np.stack([x[:, t : t + 2].mean(axis=(1, 2, 3)) for t in range(x.shape[1] - 1)])
        weight, bias = self.state["logits.conv3d.weight"][:, :, 0, 0, 0], self.state["logits.conv3d.bias"]
        return (seen @ weight.T + bias).mean(axis=0)


def test_the_logits_are_those_of_the_plain_network():
    state = random_state()
    video = torch.rand(1, 3, 17, 18, 33) * 2 - 1  # three steps of time are left at the end, and 1 x 2 positions
    with torch.no_grad():
        found = I3D.from_tensors(state)(video)
    expected = PlainI3D(state)(video[0].double().numpy())
    assert expected.std() > 0.05
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_the_size_is_that_of_the_port_with_400_classes():
    # 57 convolutions with four tensors of batch norm each, the classes' weight and bias
    assert len(random_state()) == 57 * 5 + 2
    assert sum(parameter.numel() for parameter in I3D().parameters()) == 12_697_264


def test_files_with_other_tensors_are_refused_by_name():
    state = random_state()
    counted = state | {"Conv3d_1a_7x7.bn.num_batches_tracked": torch.tensor(3)}
    assert not I3D.from_tensors(counted).training
    charades = state | {"logits.conv3d.weight": torch.zeros(157, 1024, 1, 1, 1)}
    with pytest.raises(WeightError, match=r"what is in x.pt is not I3D: logits.conv3d.weight is 157x.* has to be 400x"):
        I3D.from_tensors(charades, "x.pt")
    del state["Mixed_4d.b2a.bn.running_var"]
    with pytest.raises(WeightError, match=r"not all of I3D is in x.pt: .*PyTorch port.*Mixed_4d.b2a.bn.running_var"):
        I3D.from_tensors(state, "x.pt")


def test_short_videos_are_refused():
    with pytest.raises(ValueError, match="at least 9 frames, and these have 8"):
        I3D()(torch.zeros(1, 3, 8, 16, 16))
