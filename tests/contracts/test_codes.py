"""Discrete codes as targets: the laws of tokenizers and of decoders that sample, what breaks them, and a task.

A law raises AssertionError where a part breaks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from changed_parts import changed, mistakes, with_dead_parameter
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench import registry
from slotbench.interfaces import (
    AutoregressiveDecoder,
    DataSpec,
    Decoded,
    PartError,
    SlotSpec,
    Tokenized,
    Tokenizer,
    VideoBatch,
    VideoSpec,
)
from slotbench.tasks.slot_task import SlotTask
from slotbench.testing.code_laws import (
    CODES,
    SAMPLING_LAWS,
    TOKENIZER_LAWS,
    codes_are_as_announced,
    embeddings_are_rows_of_the_decoded_table,
    encoding_is_the_codes_of_a_call,
    frames_are_tokenized_alone,
    later_cells_are_not_read,
    samples_are_what_teacher_forcing_predicts,
    sampling_reads_no_target,
    tokenizer_gradients_reach_every_parameter,
    tokenizer_keeps_nothing,
    tokenizer_reloads,
)
from slotbench.testing.frame_laws import INPUT, VIEWS, random_batch

LEVELS = 4


class GreyLevels(Tokenizer):
    """The mean of each quarter of a frame, as one of four levels of grey."""

    def __init__(self, spec: VideoSpec) -> None:
        super().__init__()
        self.code_spec = VideoSpec(channels=LEVELS, height=2, width=2)
        self.spec = spec
        self.register_buffer("codebook", ((torch.arange(LEVELS).double() + 0.5) / LEVELS)[:, None])

    def forward(self, frames: Tensor) -> Tokenized:
        means = F.adaptive_avg_pool2d(frames.flatten(0, -4), (2, 2)).mean(1)
        return Tokenized((means * LEVELS).long().clamp(max=LEVELS - 1).unflatten(0, frames.shape[:-3]))

    def decode(self, codes: Tensor) -> Tensor:
        grey = self.codebook[codes, 0]
        rows, cols = self.spec.height // 2, self.spec.width // 2
        grey = grey.repeat_interleave(rows, -2).repeat_interleave(cols, -1)
        return grey[..., None, :, :].expand(*codes.shape[:-2], self.spec.channels, -1, -1)


class CellByCell(AutoregressiveDecoder):
    """The logits of a cell from the mean of the slots and the code of the cell before it."""

    def __init__(self, slots: SlotSpec, target: VideoSpec) -> None:
        super().__init__()
        self.target = target
        self.embedding = nn.Embedding(target.channels + 1, slots.dim)  # the last one: no cell before
        self.head = nn.Linear(slots.dim, target.channels)

    def before(self, codes: Tensor) -> Tensor:
        return F.pad(codes[..., :-1], (1, 0), value=self.target.channels)

    def logits(self, slots: Tensor, codes: Tensor) -> Tensor:
        return self.head(torch.tanh(slots.mean(2)[:, :, None] + self.embedding(self.before(codes))))

    def decoded(self, logits: Tensor) -> Decoded:
        return Decoded(logits.movedim(-1, 2).unflatten(-1, (self.target.height, self.target.width)))

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        assert batch is not None
        return self.decoded(self.logits(slots, batch.require("target").flatten(2)))

    def sample(
        self, slots: Tensor, batch: VideoBatch | None = None, temperature: float = 0.0
    ) -> tuple[Tensor, Decoded]:
        cells = self.target.height * self.target.width
        codes = torch.zeros(*slots.shape[:2], cells, dtype=torch.long, device=slots.device)
        for cell in range(cells):
            logits = self.logits(slots, codes)[:, :, cell]
            if temperature:
                codes[..., cell] = torch.distributions.Categorical(logits=logits / temperature).sample()
            else:
                codes[..., cell] = logits.argmax(-1)
        shape = (self.target.height, self.target.width)
        return codes.unflatten(-1, shape), self.decoded(self.logits(slots, codes))


def forgotten(decoder, found, slots, batch=None, temperature=0.0):
    nothing = torch.zeros(*slots.shape[:2], decoder.target.height * decoder.target.width, dtype=torch.long)
    logits = decoder.decoded(decoder.logits(slots, nothing))
    return logits.reconstruction.argmax(2), logits


def copied(decoder, found, slots, batch=None, temperature=0.0):
    return found if batch is None or batch.target is None else (batch.target, decoder(slots, batch))


def counted(tokenizer, found, frames):
    tokenizer.seen += len(frames)
    return found


SAMPLING = [
    name for name in registry.names("decoders") if issubclass(registry.load("decoders", name), AutoregressiveDecoder)
]
"""The registered decoders that sample."""


@pytest.mark.parametrize("video", [INPUT, VIEWS], ids=["one view", "several views"])
@pytest.mark.parametrize("law", TOKENIZER_LAWS, ids=lambda law: law.__name__)
def test_a_tokenizer_keeps_the_law(law, video):
    law(GreyLevels, video)


@pytest.mark.parametrize("law", TOKENIZER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", registry.names("tokenizers"))
def test_registered_tokenizers_keep_the_law(name, law):
    law(registry.load("tokenizers", name))


@pytest.mark.parametrize("name", registry.names("tokenizers"))
def test_registered_tokenizers_have_a_codebook(name):
    tokenizer = registry.load("tokenizers", name)(INPUT)
    assert tokenizer.codebook.shape == (tokenizer.code_spec.channels, tokenizer.embedding_dim)


def test_a_tokenizer_without_a_codebook_embeds_nothing():
    tokenizer = GreyLevels(INPUT)
    del tokenizer.codebook
    with pytest.raises(PartError, match="GreyLevels has no codebook"):
        tokenizer.embed(torch.zeros(1, 1, 2, 2, dtype=torch.long))


@pytest.mark.parametrize("law", SAMPLING_LAWS, ids=lambda law: law.__name__)
def test_a_decoder_that_samples_keeps_the_law(law):
    law(CellByCell)


@pytest.mark.parametrize("law", SAMPLING_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", SAMPLING)
def test_registered_decoders_that_sample_keep_the_law(name, law):
    law(registry.load("decoders", name))


BROKEN = {
    codes_are_as_announced: {
        "shifts its codes": (
            changed(GreyLevels, lambda part, found, _: Tokenized(found.codes + 1)),
            "where there are 4",
        ),
    },
    frames_are_tokenized_alone: {
        "has levels of the call": (
            changed(GreyLevels, given=lambda frames: (frames / frames.max(),)),
            "depend on other frames",
        ),
    },
    tokenizer_keeps_nothing: {
        "counts its frames": (changed(GreyLevels, counted, seen=0), "seen"),
    },
    tokenizer_gradients_reach_every_parameter: {
        "has nothing to learn by": (with_dead_parameter(GreyLevels), "neither a reconstruction nor a loss"),
    },
    encoding_is_the_codes_of_a_call: {
        "encodes in a way of its own": (
            changed(GreyLevels, lambda part, codes, _: LEVELS - 1 - codes, method="encode"),
            "other codes than a call",
        ),
    },
    tokenizer_reloads: {
        "forgets that it was fitted": (changed(GreyLevels, fit_frames=3), "asks to be fitted"),
    },
    embeddings_are_rows_of_the_decoded_table: {
        "embeds another code": (
            changed(GreyLevels, given=lambda codes: ((codes + 1) % LEVELS,), method="embed"),
            "not its code's row",
        ),
        "has a gradient": (
            changed(GreyLevels, lambda part, found, _: found.clone().requires_grad_(), method="embed"),
            "have a gradient",
        ),
        "decodes by no table": (
            changed(GreyLevels, lambda part, found, _: torch.zeros_like(found), method="decode"),
            "decode does not read the codebook",
        ),
        "decodes by the mean of its table": (
            changed(GreyLevels, lambda part, found, _: found * part.codebook.mean(), method="decode"),
            "what other codes decode to",
        ),
    },
    later_cells_are_not_read: {
        "reads its own cell": (
            changed(CellByCell, lambda part, found, codes: codes, method="before"),
            "changes the logits of it or of earlier ones",
        ),
    },
    samples_are_what_teacher_forcing_predicts: {
        "forgets its samples": (changed(CellByCell, forgotten, method="sample"), "not close"),
    },
    sampling_reads_no_target: {
        "copies the target": (changed(CellByCell, copied, method="sample"), "depends on the target"),
    },
}


@pytest.mark.parametrize(("law", "part", "message"), mistakes(BROKEN))
def test_what_breaks_a_law_is_found(law, part, message):
    with pytest.raises(AssertionError, match=message):
        law(part)


def test_every_law_has_something_that_breaks_it():
    assert set(BROKEN) == {*TOKENIZER_LAWS, *SAMPLING_LAWS}


class CodeForecast(SlotTask):
    """The codes of each frame from its slots: given the true ones in training, sampled in evaluation."""

    def __init__(self, tokenizer: Callable[[VideoSpec], Tokenizer], data_spec: DataSpec) -> None:
        built = tokenizer(data_spec.input)
        parts = (registry.load("encoders", "PatchEncoder"), registry.load("cores", "SlotSSM"), CellByCell)
        codes = DataSpec(data_spec.input, built.code_spec)
        super().__init__(*parts, data_spec=data_spec, parts_spec=codes)
        self.tokenizer = built.requires_grad_(False)

    def coded(self, batch: VideoBatch) -> VideoBatch:
        return replace(batch, target=self.tokenizer(batch.frames).codes, target_time=batch.time)

    def forward(self, batch: VideoBatch) -> Decoded:
        return self.decoder(self.core(self.encoder(batch)).slots, self.coded(batch))

    def loss(self, output: Decoded, batch: VideoBatch) -> Tensor:
        logits, codes = output.reconstruction.flatten(0, 1), self.coded(batch).require("target").flatten(0, 1)
        return output.add_losses(F.cross_entropy(logits, codes))

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        codes, _ = self.decoder.sample(self.core(self.encoder(batch)).slots, batch)
        return {"codes": codes, "frames": self.tokenizer.decode(codes)}


def test_a_task_is_taught_codes_and_samples_frames():
    torch.manual_seed(0)
    task = CodeForecast(GreyLevels, DataSpec(INPUT, INPUT))
    batch = random_batch(INPUT).map(lambda value: value.float() if value.is_floating_point() else value)
    decoded = task(batch)
    assert decoded.reconstruction.shape == (2, 5, LEVELS, 2, 2)
    task.loss(decoded, batch).backward()
    assert all(parameter.grad is not None for parameter in task.decoder.parameters())
    found = task.predict_step(batch, 0)
    assert found["codes"].shape == (2, 5, 2, 2)
    assert found["frames"].shape == batch.frames.shape


def test_codes_are_cut_with_their_steps():
    batch = random_batch(INPUT)
    codes = GreyLevels(INPUT)(batch.frames).codes
    piece = replace(batch, target=codes, target_time=batch.time).slice_time(1, 3)
    assert torch.equal(piece.target, codes[:, 1:3])
    assert CODES.channels == 5
