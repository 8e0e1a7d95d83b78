"""The laws of tokenizers and of decoders that sample, as plain functions that raise AssertionError where one breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from slotbench.interfaces import AutoregressiveDecoder, SlotSpec, Tokenizer, VideoBatch, VideoSpec
from slotbench.testing.aids import like, module_snapshot, ready, scalar, unchanged
from slotbench.testing.frame_laws import INPUT, SLOTS, random_batch, random_slots

__all__ = ["CODES", "SAMPLING_LAWS", "TOKENIZER_LAWS"]

BuildTokenizer = Callable[[VideoSpec], Tokenizer]
BuildSampling = Callable[[SlotSpec, VideoSpec], AutoregressiveDecoder]

CODES = VideoSpec(channels=5, height=2, width=3)


def codes_are_as_announced(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """Codes have the shape of `code_spec` and are below its channels; they decode to frames in [0, 1]."""
    tokenizer, frames = ready(build(video)), frames_from_dark_to_bright(video)
    spec = tokenizer.code_spec
    with torch.no_grad():
        codes = tokenizer(frames).codes
    expected = (*frames.shape[:-3], spec.height, spec.width)
    assert tuple(codes.shape) == expected, f"codes of shape {tuple(codes.shape)} where {expected} was announced"
    low, high = int(codes.min()), int(codes.max())
    assert low >= 0, f"a code {low}"
    assert high < spec.channels, f"a code {high} where there are {spec.channels}"
    with torch.no_grad():
        painted = tokenizer.decode(codes)
    assert painted.shape == frames.shape, f"codes decode to frames of shape {tuple(painted.shape)}"
    assert painted.min() >= 0, "a decoded frame is below 0"
    assert painted.max() <= 1, "a decoded frame is above 1"


def frames_are_tokenized_alone(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """The codes of a frame are the same without the other steps and clips, and decode alone."""
    tokenizer, frames = ready(build(video)), frames_from_dark_to_bright(video)
    with torch.no_grad():
        codes = tokenizer(frames).codes
        alone = tokenizer(frames[:1, 2:3]).codes
        assert torch.equal(alone, codes[:1, 2:3]), "the codes of a frame depend on other frames"
        painted = tokenizer.decode(codes)[:1, 2:3]
        torch.testing.assert_close(tokenizer.decode(alone), painted, rtol=1e-9, atol=1e-9)


def tokenizer_keeps_nothing(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """A call in evaluation leaves the tokenizer as it was."""
    tokenizer = ready(build(video))
    before = module_snapshot(tokenizer)
    with torch.no_grad():
        tokenizer.decode(tokenizer(frames_from_dark_to_bright(video)).codes)
    unchanged(before, module_snapshot(tokenizer))


def tokenizer_gradients_reach_every_parameter(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """In training every trainable parameter has a part in the reconstruction or in a loss."""
    tokenizer, frames = ready(build(video)).train(), frames_from_dark_to_bright(video)
    trained = [(name, parameter) for name, parameter in tokenizer.named_parameters() if parameter.requires_grad]
    if not trained:
        return
    torch.manual_seed(0)
    found = tokenizer(frames)
    losses = [*found.losses.values(), *([] if found.reconstruction is None else [scalar(found.reconstruction)])]
    assert losses, "there are parameters to train, and neither a reconstruction nor a loss to train them by"
    torch.stack(losses).sum().backward()
    dead = [name for name, parameter in trained if parameter.grad is None or not parameter.grad.any()]
    assert not dead, f"no gradient reaches {', '.join(dead)}"


def encoding_is_the_codes_of_a_call(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """`encode` gives the codes that a call gives, and in evaluation its reconstruction is decoded from them."""
    tokenizer, frames = ready(build(video)), frames_from_dark_to_bright(video)
    with torch.no_grad():
        found = tokenizer(frames)
        assert torch.equal(tokenizer.encode(frames), found.codes), "encode gives other codes than a call"
        if found.reconstruction is not None:
            painted = found.reconstruction.clamp(0, 1)
            torch.testing.assert_close(painted, tokenizer.decode(found.codes), rtol=1e-9, atol=1e-9)


def tokenizer_reloads(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """A new tokenizer that loads the state dict has the same codes and frames, and is not to be fitted again."""
    tokenizer, frames = build(video).double().eval(), frames_from_dark_to_bright(video)
    tokenizer.fit(frames.flatten(0, -4))
    torch.manual_seed(1)
    fresh = build(video).double().eval()
    fresh.load_state_dict(tokenizer.state_dict())
    assert fresh.fit_frames == 0, "a tokenizer with the weights of a fitted one asks to be fitted"
    with torch.no_grad():
        codes = tokenizer(frames).codes
        assert torch.equal(fresh(frames).codes, codes), "a tokenizer that loads the checkpoint gives other codes"
        assert torch.equal(fresh.decode(codes), tokenizer.decode(codes)), "it decodes to other frames"


def embeddings_are_rows_of_the_decoded_table(build: BuildTokenizer, video: VideoSpec = INPUT) -> None:
    """The embedding of a code is its row of `codebook`, without a gradient, and decoding reads the same rows alone."""
    tokenizer = ready(build(video))
    if getattr(tokenizer, "codebook", None) is None:
        return
    spec, table = tokenizer.code_spec, tokenizer.codebook
    assert table.shape == (spec.channels, tokenizer.embedding_dim), f"a codebook of shape {tuple(table.shape)}"
    frames = frames_from_dark_to_bright(video)
    codes = (like(frames[..., 0, : spec.height, : spec.width]).abs() * 1000).long() % (spec.channels - 1)
    first, last = (0,) * codes.dim(), spec.channels - 1
    codes[first] = last
    embedded = tokenizer.embed(codes)
    assert not embedded.requires_grad, "embeddings have a gradient"
    rows = table.detach()[codes].movedim(-1, -3)
    assert torch.equal(embedded, rows), "an embedding is not its code's row of the codebook"
    other = codes.clone()
    other[first] = int((table - table[last]).square().sum(1).argmax())
    with torch.no_grad():
        before, expected = tokenizer.decode(codes), tokenizer.decode(other)
        table[last] = table[other[first]].clone()
        after = tokenizer.decode(codes)
    assert not torch.equal(after, before), "decode does not read the codebook"
    assert torch.equal(after, expected), "a row of the codebook changes what other codes decode to"


def later_cells_are_not_read(build: BuildSampling, slots: SlotSpec = SLOTS, codes: VideoSpec = CODES) -> None:
    """Teacher forcing: the logits of a cell depend on the true cells before it, in row-major order, and on no other."""
    decoder, given, batch = ready(build(slots, codes)), random_slots(slots), coded_batch(codes)
    true = batch.require("target")
    with torch.no_grad():
        before = decoder(given, batch).reconstruction.flatten(3)
        for cell in range(codes.height * codes.width):
            changed = true.clone()
            changed.flatten(2)[..., cell] = (changed.flatten(2)[..., cell] + 1) % codes.channels
            after = decoder(given, replace(batch, target=changed)).reconstruction.flatten(3)
            moved = (after - before).abs().amax(dim=(0, 1, 2)) > 1e-12
            early, late = moved[: cell + 1], moved[cell + 1 :]
            assert not early.any(), f"the true code of cell {cell} changes the logits of it or of earlier ones"
            assert late.any() or not late.numel(), f"no later cell depends on the true code of cell {cell}"


def samples_are_what_teacher_forcing_predicts(
    build: BuildSampling, slots: SlotSpec = SLOTS, codes: VideoSpec = CODES
) -> None:
    """Given its own samples as the true cells, a decoder has the logits that it sampled by; greedily, their argmax."""
    decoder, given, batch = ready(build(slots, codes)), random_slots(slots), coded_batch(codes)
    with torch.no_grad():
        for temperature in (0.0, 1.0):
            torch.manual_seed(0)
            sampled, decoded = decoder.sample(given, batch, temperature)
            forced = decoder(given, replace(batch, target=sampled)).reconstruction
            torch.testing.assert_close(decoded.reconstruction, forced, rtol=1e-9, atol=1e-9)
            if temperature == 0:
                assert torch.equal(sampled, forced.argmax(2)), "a greedy sample is not the most likely code"


def sampling_reads_no_target(build: BuildSampling, slots: SlotSpec = SLOTS, codes: VideoSpec = CODES) -> None:
    """What is sampled is the same with other true cells, and with none."""
    decoder, given, batch = ready(build(slots, codes)), random_slots(slots), coded_batch(codes)
    with torch.no_grad():
        sampled, _ = decoder.sample(given, batch)
        without, _ = decoder.sample(given, replace(batch, target=None, target_time=None))
    assert torch.equal(sampled, without), "what is sampled depends on the target"


TOKENIZER_LAWS: tuple[Callable[[BuildTokenizer], None], ...] = (
    codes_are_as_announced,
    frames_are_tokenized_alone,
    tokenizer_keeps_nothing,
    tokenizer_gradients_reach_every_parameter,
    encoding_is_the_codes_of_a_call,
    tokenizer_reloads,
    embeddings_are_rows_of_the_decoded_table,
)
SAMPLING_LAWS: tuple[Callable[[BuildSampling], None], ...] = (
    later_cells_are_not_read,
    samples_are_what_teacher_forcing_predicts,
    sampling_reads_no_target,
)
"""The laws of an `AutoregressiveDecoder`, in addition to those of every decoder."""


def frames_from_dark_to_bright(video: VideoSpec) -> Tensor:
    """Frames of noise of every brightness: black ones and white ones are among them."""
    noise = random_batch(video).frames
    brightness = torch.linspace(-0.2, 1.2, len(noise) * noise.shape[1]).view(*noise.shape[:2], *[1] * (noise.dim() - 2))
    return (noise / 2 - 0.25 + brightness).clamp(0, 1)


def coded_batch(codes: VideoSpec, batch: int = 2, time: int = 5) -> VideoBatch:
    """Clips whose target is a grid of codes for each step."""
    clips = random_batch(INPUT, batch, time)
    noise = like(torch.empty(batch, time, codes.height, codes.width).double())
    target = (noise.abs() * 1000).long() % codes.channels
    return replace(clips, target=target, target_time=clips.time)
