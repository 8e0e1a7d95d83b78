"""The decoders of the RIM thesis: one image from all slots together, and one image per slot with its share of it."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load

ConcatenationDecoder = load("decoders", "ConcatenationDecoder")
ComponentDecoder = load("decoders", "ComponentDecoder")
SpatialBroadcastDecoder = load("decoders", "SpatialBroadcastDecoder")
MNIST, SPRITES, SMALL = VideoSpec(1, 64, 64), VideoSpec(3, 64, 64), VideoSpec(2, 16, 16)
MODULES = SlotSpec(num_slots=6, dim=100)
FEW = SlotSpec(num_slots=4, dim=6)

COMPONENT_WISE = {
    "BCD": partial(ComponentDecoder, channels=(4, 3, 2)),
    "SBD": partial(
        SpatialBroadcastDecoder,
        channels=(4, 3, 2),
        kernel_size=(5, 5, 3),
        layer_norm=True,
        output="sigmoid",
        positions="ramps",
    ),
}


def lively(decoder):
    """Weights so large that masks and colours are far from even."""
    torch.manual_seed(0)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder.double()


def norm(x):
    return (x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()


def linear_resize(image):
    """Each pixel of an image of twice the size is 3/4 of the nearest and 1/4 of the next, along both axes."""
    for axis in (1, 2):
        image = image.transpose(axis, 2)
        before, after = (
            torch.cat([image[..., :1], image[..., :-1]], -1),
            torch.cat([image[..., 1:], image[..., -1:]], -1),
        )
        image = torch.stack([0.75 * image + 0.25 * before, 0.75 * image + 0.25 * after], -1).flatten(-2)
        image = image.transpose(axis, 2)
    return image


def reference_image(layers, vector):
    """One vector, layer by layer."""
    x = norm(1 / (1 + (-vector).exp()))
    image = (layers.linear.weight @ x + layers.linear.bias).reshape(layers.map_shape)
    for conv, border in zip(layers.convs, (2, 1, 0), strict=True):
        image = linear_resize(norm(image.clamp(min=0)))
        rows, cols = (torch.arange(-border, side + border).clamp(0, side - 1) for side in image.shape[1:])
        image = F.conv2d(image[:, rows][:, :, cols][None], conv.weight, conv.bias)[0]
    return image


def reference_components(decoder, slots):
    """(image, masks, components) of the basic component-wise decoder, slot by slot."""
    images = torch.stack([reference_image(decoder.layers, slot) for slot in slots.flatten(0, 2)]).sigmoid()
    images = images.unflatten(0, slots.shape[:3])
    alpha = [images[:, :, k, -1] for k in range(slots.shape[2])]
    masks = torch.stack([a / sum(alpha).clamp(min=1e-8) for a in alpha], dim=2)
    components = images[:, :, :, :-1]
    return sum(masks[:, :, k, None] * components[:, :, k] for k in range(slots.shape[2])), masks, components


@settings(deadline=None, max_examples=5)
@given(rows=st.integers(1, 3), cols=st.integers(1, 3), slots=st.integers(1, 3), colours=st.integers(1, 3))
def test_component_decoder_is_each_slot_on_its_own_in_value_and_gradient(rows, cols, slots, colours):
    spec = VideoSpec(colours, 8 * rows, 8 * cols)
    decoder = lively(ComponentDecoder(SlotSpec(slots, 5), spec, channels=(4, 3, 2)))
    given_slots = torch.randn(2, 2, slots, 5, dtype=torch.float64, requires_grad=True)
    decoded, expected = decoder(given_slots), reference_components(decoder, given_slots)
    torch.testing.assert_close((decoded.reconstruction, decoded.masks, decoded.components), expected)
    weights, wanted_for = torch.randn_like(decoded.reconstruction), [given_slots, *decoder.parameters()]
    found = torch.autograd.grad((decoded.reconstruction * weights).sum(), wanted_for)
    torch.testing.assert_close(found, torch.autograd.grad((expected[0] * weights).sum(), wanted_for))


@settings(deadline=None, max_examples=5)
@given(rows=st.integers(1, 3), cols=st.integers(1, 3), slots=st.integers(1, 3), colours=st.integers(1, 3))
def test_concatenation_decoder_is_one_vector_of_all_slots_in_value_and_gradient(rows, cols, slots, colours):
    spec = VideoSpec(colours, 8 * rows, 8 * cols)
    decoder = lively(ConcatenationDecoder(SlotSpec(slots, 5), spec, channels=(4, 3, 2)))
    given_slots = torch.randn(2, 2, slots, 5, dtype=torch.float64, requires_grad=True)
    decoded = decoder(given_slots)
    vectors = torch.cat(given_slots.unbind(2), dim=-1)
    expected = torch.stack([torch.stack([reference_image(decoder.layers, v) for v in clip]) for clip in vectors])
    torch.testing.assert_close(decoded.reconstruction, expected.sigmoid())
    assert decoded.masks is None
    assert decoded.components is None
    weights, wanted_for = torch.randn_like(expected), [given_slots, *decoder.parameters()]
    found = torch.autograd.grad((decoded.reconstruction * weights).sum(), wanted_for)
    torch.testing.assert_close(found, torch.autograd.grad((expected.sigmoid() * weights).sum(), wanted_for))


@pytest.mark.parametrize(
    ("build", "slots", "spec", "parameters"),
    [
        (ConcatenationDecoder, MODULES, MNIST, 2_502_849),
        (ConcatenationDecoder, MODULES, SPRITES, 2_503_139),
        (ConcatenationDecoder, SlotSpec(1, 258), SPRITES, 1_102_307),
        (ComponentDecoder, MODULES, MNIST, 454_994),
        (ComponentDecoder, MODULES, SPRITES, 455_284),
        (SpatialBroadcastDecoder.moving_mnist, MODULES, MNIST, 221_622),
        (SpatialBroadcastDecoder.moving_sprites, MODULES, SPRITES, 282_648),
    ],
    ids=["CAT", "CAT sprites", "CAT of GRU-258", "BCD", "BCD sprites", "SBD", "SBD sprites"],
)
def test_the_decoders_of_the_thesis_have_its_parameters(build, slots, spec, parameters):
    assert trainable_parameters(build(slots, spec))["total"] == parameters


@pytest.mark.parametrize("build", COMPONENT_WISE.values(), ids=COMPONENT_WISE)
@pytest.mark.parametrize("disabled", [(0,), (1, 3), (0, 1, 2)])
def test_without_some_slots_the_rest_share_out_every_pixel(build, disabled):
    decoder, slots = lively(build(FEW, SMALL)), torch.randn(2, 3, 4, 6, dtype=torch.float64)
    kept = [slot for slot in range(4) if slot not in disabled]
    with torch.no_grad():
        whole, alone = decoder(slots), decoder(slots[:, :, kept])
        decoder.disabled_slots = disabled
        decoded = decoder(slots)
    torch.testing.assert_close(decoded.reconstruction, alone.reconstruction)
    torch.testing.assert_close(decoded.masks[:, :, kept], alone.masks)
    renormalised = whole.masks[:, :, kept] / whole.masks[:, :, kept].sum(2, keepdim=True)
    torch.testing.assert_close(decoded.masks[:, :, kept], renormalised)
    assert not decoded.masks[:, :, list(disabled)].any()
    torch.testing.assert_close(decoded.components, whole.components)
    built = lively(build(FEW, SMALL, disabled_slots=disabled))
    assert torch.equal(built(slots).reconstruction, decoded.reconstruction)


@pytest.mark.parametrize("build", COMPONENT_WISE.values(), ids=COMPONENT_WISE)
def test_without_any_slot_the_image_is_black_and_has_gradients(build):
    decoder = lively(build(FEW, SMALL, disabled_slots=(0, 1, 2, 3)))
    slots = torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    decoded = decoder(slots)
    assert not decoded.reconstruction.any()
    assert not decoded.masks.any()
    (gradient,) = torch.autograd.grad(decoded.reconstruction.sum(), slots)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("output", ["linear", "sigmoid"])
@pytest.mark.parametrize("make", [ConcatenationDecoder, partial(ComponentDecoder)], ids=["CAT", "BCD"])
def test_initial_rgb_moves_the_colours_and_no_mask_as_in_the_broadcast_decoder(make, output):
    def made(**arguments):
        torch.manual_seed(0)
        return make(FEW, SMALL, channels=(4, 3, 2), output=output, **arguments)

    slots = torch.randn(2, 1, FEW.num_slots, FEW.dim)
    with torch.no_grad():
        grey, dark = made()(slots), made(initial_rgb=-3.0)(slots)

    def logits(image):
        return image.logit() if output == "sigmoid" else image

    painted = [logits(x.reconstruction if x.components is None else x.components) for x in (grey, dark)]
    torch.testing.assert_close(painted[1], painted[0] - 3, rtol=1e-4, atol=1e-4)
    if grey.masks is not None:
        torch.testing.assert_close(dark.masks, grey.masks)
    for name, value in made(initial_rgb=0.0).state_dict().items():
        assert torch.equal(value, made().state_dict()[name])
