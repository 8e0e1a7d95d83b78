"""The laws of encoders and decoders, as plain functions that raise AssertionError where a part breaks one."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, Encoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.testing.aids import Part, like, module_snapshot, ready, scalar, unchanged

BuildEncoder = Callable[[VideoSpec], Encoder]
BuildDecoder = Callable[[SlotSpec, VideoSpec], Decoder]

CODES = VideoSpec(channels=6, height=4, width=4)
INPUT = VideoSpec(channels=3, height=16, width=16, codes=CODES)
PATCHED = VideoSpec(channels=3, height=8, width=8, patches_per_side=2, codes=replace(CODES, patches_per_side=2))
SLOTS = SlotSpec(num_slots=3, dim=16)
CELLS = SlotSpec(num_slots=16, dim=16, grid=(4, 4))
TARGET = VideoSpec(channels=5, height=16, width=16)
VIEWS = VideoSpec(channels=3, height=16, width=16, num_views=3)
PAINTED = VideoSpec(channels=3, height=8, width=8, num_views=2)


def tokens_are_as_announced(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """The tokens have the shape of `token_spec`, and the grid holds all of them."""
    encoder = ready(build(video))
    spec = encoder.token_spec
    tokens = encoder(random_batch(video))
    assert tokens.shape == (2, 5, spec.num_tokens, spec.dim), f"tokens of shape {tuple(tokens.shape)}, but {spec}"
    assert tokens.isfinite().all(), "tokens are not finite"
    if spec.grid is not None:
        assert spec.grid[0] * spec.grid[1] == spec.num_tokens, f"a grid that does not hold the tokens: {spec}"


def steps_are_encoded_alone(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """Changing one step of one sample changes its tokens and no others."""
    encoder, batch = ready(build(video)), random_batch(video)
    with torch.no_grad():
        before = encoder(batch)
        batch.frames[1, 2] = 1 - batch.frames[1, 2]
        if batch.codes is not None and video.codes is not None:
            batch.codes[1, 2] = (batch.codes[1, 2] + 1) % video.codes.channels
        after = encoder(batch)
    _only_step_differs(before, after, "tokens")


def slices_know_their_time(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """The tokens of a slice of a clip are the slice of the tokens of the clip."""
    encoder, batch = ready(build(video)), random_batch(video)
    with torch.no_grad():
        whole, part = encoder(batch), encoder(batch.slice_time(2, 5))
    _assert_close(part, whole[:, 2:5], "tokens of steps 2 to 4, encoded alone and in their clip,")


def encoder_gradients_reach_every_parameter(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """The tokens of a clip depend on every trainable parameter."""
    encoder = ready(build(video))
    scalar(encoder(random_batch(video))).backward()
    _no_dead_parameter(encoder)


def encoder_keeps_nothing(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """A call leaves the encoder as it was."""
    encoder = build(video).double()
    before = module_snapshot(encoder)
    encoder(random_batch(video))
    unchanged(before, module_snapshot(encoder))


def encoder_reloads(build: BuildEncoder, video: VideoSpec = INPUT) -> None:
    """A new encoder that loads the state dict, read back with `weights_only`, gives the same tokens to the bit."""
    encoder, batch = ready(build(video)), random_batch(video)
    torch.manual_seed(1)
    fresh = _reload(encoder, build(video))
    assert torch.equal(fresh(batch), encoder(batch)), "an encoder that loads the checkpoint gives other tokens"


def image_is_as_announced(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET) -> None:
    """The reconstruction has the target's shape and is finite, at a clip and at the smallest of sizes."""
    decoder = ready(build(slots, video))
    for batch, time in ((2, 5), (1, 1)):
        decoded = decoder(random_slots(slots, batch, time), random_batch(video, batch, time))
        expected = (batch, time, video.channels, video.height, video.width)
        got = tuple(decoded.reconstruction.shape)
        assert got == expected, f"a reconstruction of shape {got} where {expected} was asked for"
        assert decoded.reconstruction.isfinite().all(), "the reconstruction is not finite"


def masks_share_out_every_pixel(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET) -> None:
    """Masks, where the decoder has them, are shares: never negative, and 1 in sum over the slots of a pixel."""
    masks = _decode(ready(build(slots, video)), random_slots(slots), video).masks
    if masks is None:
        return
    expected = (2, 5, slots.num_slots, video.height, video.width)
    assert tuple(masks.shape) == expected, f"masks of shape {tuple(masks.shape)} where {expected} was expected"
    assert masks.min() >= 0, f"a mask of {masks.min().item():.3g}"
    _assert_close(masks.sum(dim=2), torch.ones_like(masks[:, :, 0]), "sums of masks over slots, and 1,")


def steps_are_decoded_alone(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET) -> None:
    """Changing the slots of one step of one sample changes its image and no other."""
    decoder, given = ready(build(slots, video)), random_slots(slots)
    before = _decode(decoder, given, video).reconstruction
    given[1, 2] += 1.0
    _only_step_differs(before, _decode(decoder, given, video).reconstruction, "image")


def decoder_gradients_reach_every_parameter(
    build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET
) -> None:
    """The reconstruction depends on every trainable parameter, and on every slot."""
    decoder, given = ready(build(slots, video)), random_slots(slots).requires_grad_()
    scalar(decoder(given, random_batch(video)).reconstruction).backward()
    _no_dead_parameter(decoder)
    assert given.grad is not None, "the reconstruction does not depend on the slots"
    assert given.grad.abs().amax(dim=-1).min() > 0, "the reconstruction does not depend on some of the slots"


def decoder_keeps_nothing(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET) -> None:
    """A call leaves the decoder as it was."""
    decoder = build(slots, video).double()
    before = module_snapshot(decoder)
    decoder(random_slots(slots), random_batch(video))
    unchanged(before, module_snapshot(decoder))


def decoder_reloads(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = TARGET) -> None:
    """A new decoder that loads the state dict, read back with `weights_only`, gives the same image to the bit."""
    decoder, given = ready(build(slots, video)), random_slots(slots)
    torch.manual_seed(1)
    fresh = _reload(decoder, build(slots, video))
    same = torch.equal(_decode(fresh, given, video).reconstruction, _decode(decoder, given, video).reconstruction)
    assert same, "a decoder that loads the checkpoint gives another image"


def every_view_is_encoded(build: BuildEncoder, video: VideoSpec = VIEWS) -> None:
    """Several views: changing one view of a step changes its tokens and no others."""
    encoder, batch = ready(build(video)), random_batch(video)
    with torch.no_grad():
        before = encoder(batch)
        for view in range(video.num_views):
            frames = batch.frames.clone()
            frames[1, 2, view] = 1 - frames[1, 2, view]
            _only_step_differs(before, encoder(replace(batch, frames=frames)), f"tokens of view {view}")


def held_out_views_are_not_read(build: BuildEncoder, video: VideoSpec = VIEWS) -> None:
    """Several views: the tokens are the same without the views that are held out."""
    encoder, batch = ready(build(video)), random_batch(video)
    assert batch.held_out is not None
    with torch.no_grad():
        shown = encoder(replace(batch, held_out=None))
        assert torch.equal(encoder(batch), shown), "views that are held out change the tokens"


def views_follow_their_rays(build: BuildDecoder, slots: SlotSpec = SLOTS, video: VideoSpec = PAINTED) -> None:
    """Several views: each is painted by its own rays, so that their order is the order of the rays."""
    decoder, given, batch = ready(build(slots, video)), random_slots(slots), random_batch(video)
    order = [*range(1, video.num_views), 0]
    with torch.no_grad():
        painted = decoder(given, batch).reconstruction
        turned = decoder(given, replace(batch, rays=batch.require("rays")[:, :, order])).reconstruction
    expected = (*given.shape[:2], video.num_views, video.channels, video.height, video.width)
    assert painted.shape == expected, f"a reconstruction of shape {tuple(painted.shape)} where {expected} was asked for"
    assert (painted - turned).abs().max() > 0, "the reconstruction does not depend on the rays"
    _assert_close(turned, painted[:, :, order], "views painted by rays in another order, and views in that order,")


ENCODER_LAWS: tuple[Callable[[BuildEncoder], None], ...] = (
    tokens_are_as_announced,
    steps_are_encoded_alone,
    slices_know_their_time,
    encoder_gradients_reach_every_parameter,
    encoder_keeps_nothing,
    encoder_reloads,
)
DECODER_LAWS: tuple[Callable[[BuildDecoder], None], ...] = (
    image_is_as_announced,
    masks_share_out_every_pixel,
    steps_are_decoded_alone,
    decoder_gradients_reach_every_parameter,
    decoder_keeps_nothing,
    decoder_reloads,
)
VIEW_LAWS: tuple[Callable[[BuildEncoder], None], ...] = (every_view_is_encoded, held_out_views_are_not_read)
"""The laws of an encoder that `takes_views`, in addition to the others, which it keeps with `VIEWS` too."""


def random_batch(video: VideoSpec, batch: int = 2, time: int = 5, start: int = 3) -> VideoBatch:
    """Clips of noise with everything that a part may ask for, from step `start` on; of several views, two held out.

    The target is a class of every pixel of every step, as many classes as `video` has channels.
    """
    views = (video.num_views,) if video.num_views > 1 else ()
    lead, size, codes = (batch, time, *views), (video.height, video.width), video.codes
    clips = VideoBatch(
        frames=torch.rand(*lead, video.channels, *size, dtype=torch.float64, generator=_generator()),
        time=torch.arange(start, start + time).expand(batch, -1),
        masks=torch.randint(0, 3, (*lead, *size), generator=_generator()),
        target=torch.randint(0, video.channels, (*lead, *size), generator=_generator()),
        target_time=torch.arange(start, start + time).expand(batch, -1),
        actions=like(torch.empty(batch, time, video.num_actions).double()) if video.num_actions else None,
        rays=like(torch.empty(*lead, 6, *size).double()),
        codes=None if codes is None else _codes(codes, lead),
    )
    if not views:
        return clips
    frames, rays = (like(torch.empty(batch, time, 2, axes, *size).double()) for axes in (video.channels, 6))
    return replace(clips, held_out=replace(clips, frames=frames, rays=rays, masks=None, target=None, target_time=None))


def random_slots(slots: SlotSpec, batch: int = 2, time: int = 5) -> Tensor:
    """Slots of noise."""
    return torch.randn(batch, time, slots.num_slots, slots.dim, dtype=torch.float64, generator=_generator())


def _codes(codes: VideoSpec, lead: tuple[int, ...]) -> Tensor:
    return torch.randint(0, codes.channels, (*lead, codes.height, codes.width), generator=_generator())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _decode(decoder: Decoder, slots: Tensor, video: VideoSpec) -> Decoded:
    with torch.no_grad():
        return decoder(slots, random_batch(video, *slots.shape[:2]))


def _reload(part: Part, fresh: Part) -> Part:
    stream = io.BytesIO()
    torch.save(part.state_dict(), stream)
    stream.seek(0)
    fresh.double().eval().load_state_dict(torch.load(stream, weights_only=True))
    return fresh


def _only_step_differs(before: Tensor, after: Tensor, what: str) -> None:
    """Sample 1, step 2 has changed and nothing else has."""
    difference = (after - before).abs().flatten(2).amax(dim=-1)
    assert difference[1, 2] > 0, f"the {what} of a changed step stayed the same"
    difference[1, 2] = 0
    assert difference.max() <= 1e-9, f"changing one step changed the {what} of others by {difference.max().item():.2g}"


def _no_dead_parameter(part: nn.Module) -> None:
    trainable = [(name, p.grad) for name, p in part.named_parameters() if p.requires_grad]
    dead = [name for name, gradient in trainable if gradient is None or not gradient.any()]
    assert not dead, f"no gradient reaches {', '.join(dead)}"
    broken = [name for name, gradient in trainable if gradient is not None and not gradient.isfinite().all()]
    assert not broken, f"the gradient of {', '.join(broken)} is not finite"


def _assert_close(value: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9, msg=lambda message: f"{what} differ.\n{message}")
