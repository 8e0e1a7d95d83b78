"""Frames become one vector or a small map by strided convolutions, as in the tables of the RIM thesis."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

StridedCNNEncoder = load("encoders", "StridedCNNEncoder")
GREY, COLOUR = VideoSpec(1, 64, 64), VideoSpec(3, 64, 64)


def clips(spec, batch=2, time=3, dtype=torch.float64):
    frames = torch.rand(batch, time, spec.channels, spec.height, spec.width, dtype=dtype)
    return VideoBatch(frames, torch.arange(time).expand(batch, -1))


def whole_norm(x):
    """Over everything, no weights."""
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()


def reference(encoder, frame, padding, norm, output, head, last_norm):
    """One frame: a convolution, ELU and a norm at a time; then the head, cell by cell."""
    for index, conv in enumerate(encoder.convs):
        frame = F.conv2d(F.pad(frame, (padding,) * 4)[None], conv.weight, conv.bias, 2)[0]
        frame = torch.where(frame > 0, frame, frame.exp() - 1)
        if index < len(encoder.convs) - 1 or last_norm:
            if norm == "frame":
                frame = whole_norm(frame)
            else:
                layer = encoder.norms[index]
                mean, deviation = frame.mean(0), (frame.var(0, correction=0) + 1e-5).sqrt()
                frame = (frame - mean) / deviation * layer.weight[:, None, None] + layer.bias[:, None, None]
    rows, cols = frame.shape[1:]
    cells = [frame.flatten()] if output == "flat" else []
    for row in range(rows if output == "map" else 0):
        for col in range(cols):
            i, j = row / max(rows - 1, 1), col / max(cols - 1, 1)
            place = torch.tensor([i, j, 1 - i, 1 - j], dtype=frame.dtype)
            cells.append(frame[:, row, col] + encoder.position.linear(place))
    first, last = encoder.head[0], encoder.head[2]
    hidden = torch.stack([F.elu(first.weight @ cell + first.bias) for cell in cells])
    if head == "mlp":
        return hidden @ last.weight.T + last.bias
    if norm == "frame":
        return whole_norm(hidden)
    return torch.stack([whole_norm(token) * last.weight + last.bias for token in hidden])


@settings(deadline=None, max_examples=10)
@given(
    layers=st.integers(1, 3),
    rows=st.integers(22, 30),
    cols=st.integers(22, 30),
    padding=st.integers(0, 2),
    norm=st.sampled_from(["frame", "channels"]),
    output=st.sampled_from(["flat", "map"]),
    head=st.sampled_from(["linear", "mlp"]),
    last_norm=st.booleans(),
)
def test_values_and_gradients_are_those_of_the_plain_computation(
    layers, rows, cols, padding, norm, output, head, last_norm
):
    torch.manual_seed(0)
    spec, options = VideoSpec(2, rows, cols), {"norm": norm, "output": output, "head": head, "last_norm": last_norm}
    encoder = StridedCNNEncoder(spec, dim=3, channels=(3, 4, 5)[:layers], padding=padding, hidden_dim=6, **options)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encoder.double()
    batch = clips(spec, batch=1, time=2)
    tokens = encoder(batch)
    expected = torch.stack([reference(encoder, frame, padding, **options) for frame in batch.frames[0]])[None]
    # coordinates are held in float32
    torch.testing.assert_close(tokens, expected, rtol=1e-6, atol=1e-6)
    assert tokens.shape[2:] == (encoder.token_spec.num_tokens, encoder.token_spec.dim)
    weights, parameters = torch.randn_like(tokens), list(encoder.parameters())
    found = torch.autograd.grad((tokens * weights).sum(), parameters)
    wanted = torch.autograd.grad((expected * weights).sum(), parameters)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "spec", "output", "dim", "parameters"),
    [
        ("moving_mnist", GREY, "flat", 64, 188_848),
        ("moving_mnist", GREY, "map", 64, 49_968),
        ("moving_mnist", GREY, "map", 32, 47_888),
        ("moving_sprites", COLOUR, "flat", 64, 460_576),
        ("moving_sprites", COLOUR, "map", 64, 215_712),
    ],
)
def test_the_presets_have_the_parameters_of_the_thesis(preset, spec, output, dim, parameters):
    encoder = getattr(StridedCNNEncoder, preset)(spec, output, dim)
    assert trainable_parameters(encoder)["total"] == parameters
    tokens = encoder(clips(spec, 1, 2, torch.float32))
    assert tokens.shape == (1, 2, 36 if output == "map" else 1, dim)
    assert encoder.token_spec.grid == ((6, 6) if output == "map" else None)


def test_the_preset_of_cwvae_has_its_size_and_no_more_than_convolutions():
    torch.manual_seed(0)
    encoder = StridedCNNEncoder.cwvae(GREY)
    assert trainable_parameters(encoder)["total"] == 689_120
    assert encoder.token_spec == TokenSpec(1024, 1)
    assert not any(conv.bias.any() for conv in encoder.convs)
    batch = clips(GREY, 1, 2, torch.float32)
    images = batch.frames[0]
    for conv in encoder.convs:
        images = F.leaky_relu(F.conv2d(images, conv.weight, conv.bias, stride=2), 0.2)
    torch.testing.assert_close(encoder(batch)[0, :, 0], images.flatten(1))


@pytest.mark.parametrize("init", ["torch", "keras"])
def test_layers_start_as_torch_or_as_keras_makes_them(init):
    torch.manual_seed(0)
    encoder = StridedCNNEncoder(COLOUR, 40, (16, 32), init=init)
    for conv, (before, after) in zip(encoder.convs, [(3, 16), (16, 32)], strict=True):
        bound = (6 / (16 * (before + after)) if init == "keras" else 1 / (16 * before)) ** 0.5
        assert float(conv.weight.detach().abs().max()) == pytest.approx(bound, rel=0.02)
        assert bool(conv.bias.any()) == (init == "torch")


def test_64_pixels_become_31_14_and_6_cells():
    images, sides = torch.rand(1, 1, 64, 64), []
    for conv in StridedCNNEncoder.moving_mnist(GREY).convs:
        images = conv(images)
        sides.append(tuple(images.shape[2:]))
    assert sides == [(31, 31), (14, 14), (6, 6)]
