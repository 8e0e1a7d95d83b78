"""Frames become a map of features as in the tables of the papers."""

import pytest
import torch
from torch.nn import functional as F

from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.registry import load

CNNEncoder = load("encoders", "CNNEncoder")
FRAME = VideoSpec(channels=3, height=12, width=8)
LAYERS = {"channels": (6, 5, 7), "kernel_sizes": (5, 3, 5), "strides": (2, 1, 1)}


def clips(spec=FRAME, batch=2, time=3, dtype=torch.float64):
    frames = torch.rand(batch, time, spec.channels, spec.height, spec.width, dtype=dtype)
    return VideoBatch(frames, torch.arange(time).expand(batch, -1))


def layers_of(encoder):
    return [*encoder.convs, encoder.expand, encoder.contract, encoder.position.linear]


def reference(encoder, frame, last_activation, eps, ramps):
    """One frame, step by step; pixel by pixel where that is easy to read."""
    for index, conv in enumerate(encoder.convs):
        frame = F.conv2d(frame[None], conv.weight, conv.bias, conv.stride, (conv.weight.shape[-1] - 1) // 2)[0]
        if index < len(encoder.convs) - 1 or last_activation:
            frame = frame.clamp(min=0)
    rows, cols = frame.shape[1:]
    tokens = []
    for row in range(rows):
        for col in range(cols):
            if ramps:
                place = [row / (rows - 1), col / (cols - 1), 1 - row / (rows - 1), 1 - col / (cols - 1)]
            else:
                x, y = ((2 * k + 1) / n * 2**0.5 - 2**0.5 for k, n in ((col, cols), (row, rows)))
                place = [x, y, -x, -y]
            cell = frame[:, row, col] + encoder.position.linear(torch.tensor(place, dtype=frame.dtype))
            cell = (cell - cell.mean()) / (cell.var(correction=0) + eps).sqrt()
            cell = cell * encoder.norm.weight + encoder.norm.bias
            tokens.append(encoder.contract(encoder.expand(cell).clamp(min=0)))
    return torch.stack(tokens)


@pytest.mark.parametrize(
    ("arguments", "scale"),
    [
        ({"input_scale": "unit"}, lambda x: x),
        (
            {"input_scale": "signed", "positions": "ramps", "last_activation": True, "norm_eps": 1e-3},
            lambda x: 2 * x - 1,
        ),
        (
            {"input_scale": "imagenet", "hidden_dim": 9},
            lambda x: (
                (x - torch.tensor([0.485, 0.456, 0.406]).double()[:, None, None])
                / torch.tensor([0.229, 0.224, 0.225]).double()[:, None, None]
            ),
        ),
    ],
    ids=["unit", "CLEVR", "PSB"],
)
def test_values_and_gradients_are_those_of_the_plain_computation(arguments, scale):
    torch.manual_seed(0)
    encoder = CNNEncoder(FRAME, dim=4, **LAYERS, **arguments)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encoder.double()
    batch = clips()
    tokens = encoder(batch)
    options = (
        arguments.get("last_activation", False),
        arguments.get("norm_eps", 1e-5),
        arguments.get("positions") == "ramps",
    )
    frames = batch.frames.flatten(0, 1)
    expected = torch.stack([reference(encoder, scale(frame), *options) for frame in frames]).unflatten(0, (2, 3))
    # constants are held in float32
    torch.testing.assert_close(tokens, expected, rtol=1e-5, atol=1e-6)
    weights = torch.randn_like(tokens)
    parameters = list(encoder.parameters())
    found = torch.autograd.grad((tokens * weights).sum(), parameters)
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_side_that_the_stride_does_not_divide_is_rounded_up():
    frame = VideoSpec(3, 7, 10)
    encoder = CNNEncoder(frame, dim=4, channels=(5, 5), kernel_sizes=(5, 3), strides=(2, 2))
    assert encoder.token_spec.grid == (2, 3)
    assert encoder(clips(frame, dtype=torch.float32)).shape == (2, 3, 6, 4)


def test_kaiming_is_for_what_a_relu_follows_and_xavier_for_the_rest():
    torch.manual_seed(0)
    encoder = CNNEncoder(FRAME, dim=48, channels=(64, 64, 64), kernel_sizes=(3, 3, 3), strides=(1, 1, 1))
    fans = {conv: (conv.weight[0].numel(), conv.weight[:, 0].numel()) for conv in encoder.convs}
    fans |= {encoder.expand: (64, 64), encoder.contract: (64, 48), encoder.position.linear: (4, 64)}
    for layer, (fan_in, fan_out) in fans.items():
        followed = layer in (*encoder.convs[:-1], encoder.expand)
        bound = (6 / fan_in) ** 0.5 if followed else (6 / (fan_in + fan_out)) ** 0.5
        assert layer.weight.detach().abs().max() == pytest.approx(bound, rel=0.05)
        assert not layer.bias.any()


def test_with_a_last_activation_kaiming_is_for_the_last_convolution_too():
    torch.manual_seed(0)
    encoder = CNNEncoder(FRAME, channels=(64,), kernel_sizes=(3,), strides=(1,), last_activation=True)
    assert encoder.convs[0].weight.detach().abs().max() == pytest.approx((6 / 27) ** 0.5, rel=0.05)


def test_xavier_is_for_every_layer():
    torch.manual_seed(0)
    encoder = CNNEncoder(FRAME, dim=64, channels=(64, 64), kernel_sizes=(3, 3), strides=(1, 1), initialisation="xavier")
    assert encoder.convs[1].weight.detach().abs().max() == pytest.approx((6 / (2 * 64 * 9)) ** 0.5, rel=0.05)
    assert encoder.expand.weight.detach().abs().max() == pytest.approx((6 / 128) ** 0.5, rel=0.05)
    assert not any(layer.bias.any() for layer in layers_of(encoder))
