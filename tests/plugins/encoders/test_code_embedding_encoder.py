"""CodeEmbeddingEncoder: what a token is made of, and that it reads by the vectors of the decoder."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from code_tasks import PATCHES, TINY_DVAE, balls, quiet_trainer
from torch.nn import functional as F

from slotbench.config.running import _opening
from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.parameters import trainable_parameters
from slotbench.registry import load
from slotbench.tasks.codes.code_autoencoding import CodeAutoencoding

Encoder, Decoder = load("encoders", "CodeEmbeddingEncoder"), load("decoders", "AutoregressiveTransformer")
FRAME = VideoSpec(channels=3, height=8, width=12, codes=VideoSpec(channels=5, height=2, width=3))


def clips(codes):
    time = torch.arange(codes.shape[1]).expand(len(codes), -1)
    return VideoBatch(torch.rand(*codes.shape[:2], 3, 8, 12), time, codes=codes)


def slate(data, tokenizer=PATCHES):
    torch.manual_seed(0)
    return CodeAutoencoding(
        partial(Encoder, dim=16),
        partial(load("cores", "SlotAttention"), num_slots=3, dim=16),
        partial(Decoder, dim=16, num_layers=1, init="slate"),
        tokenizer=tokenizer,
        optimizer=partial(torch.optim.Adam, lr=1e-2),
        data_spec=data.spec,
    )


def test_a_token_is_of_its_cells_code_and_place_through_a_norm_and_an_mlp():
    torch.manual_seed(0)
    encoder, codes = Encoder(FRAME, dim=8, hidden_dim=6), torch.randint(5, (2, 4, 2, 3))
    assert encoder.token_spec == TokenSpec(8, 6, (2, 3))
    tokens = encoder(clips(codes))
    vector = encoder.codes.weight[codes[1, 2, 1, 0]] + encoder.positions[1 + 3]
    normed = (vector - vector.mean()) / (vector.var(unbiased=False) + 1e-5).sqrt()
    hidden = F.relu(encoder.expand.weight @ normed + encoder.expand.bias)
    torch.testing.assert_close(tokens[1, 2, 3], encoder.contract.weight @ hidden + encoder.contract.bias)


def test_vectors_that_are_shared_are_counted_once_and_trained_through_both_parts():
    data = balls()
    task = slate(data)
    assert task.encoder.codes is task.decoder.codes
    assert task.encoder.positions is task.decoder.positions
    counts = trainable_parameters(task)
    shared = 6 * 16 + 17 * 16
    assert counts["total"] == counts["encoder"] + counts["core"] + counts["decoder"] - shared
    said = _opening("fit", task, data, quiet_trainer(), None)
    assert f" - {shared} shared = {counts['total']:,} trainable parameters" in said
    batch = task.read(data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0))
    tokens = task.encoder(batch)
    of_encoder = torch.autograd.grad(tokens.square().sum(), task.encoder.codes.weight)[0]
    slots = task.core(tokens.detach()).slots.detach()
    of_decoder = torch.autograd.grad(
        task.decoder(slots, batch).reconstruction.square().sum(), task.decoder.codes.weight
    )[0]
    assert of_encoder.any()
    assert of_decoder.any()
    slots = task.core(task.encoder(batch)).slots
    (both,) = torch.autograd.grad(
        task.decoder(slots, batch).reconstruction.square().sum(), task.decoder.codes.weight, retain_graph=True
    )
    assert not torch.allclose(both, of_decoder)


@pytest.mark.parametrize("tokenizer", [PATCHES, TINY_DVAE], ids=["fitted", "trained"])
def test_a_training_moves_the_shared_vectors_once_a_step_and_its_checkpoint_rebuilds_them(tokenizer, tmp_path):
    data = balls()
    task = slate(data, tokenizer=tokenizer)
    before = task.decoder.codes.weight.detach().clone()
    trainer = quiet_trainer(max_steps=1)
    trainer.fit(task, datamodule=data)
    moved = (task.decoder.codes.weight.detach() - before).abs()
    assert 0 < moved.max() <= 1.01e-2  # one step of Adam at 1e-2
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = type(task).load_from_checkpoint(tmp_path / "run.ckpt")
    assert again.encoder.codes is again.decoder.codes
    assert torch.equal(again.decoder.codes.weight, task.decoder.codes.weight)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        expected = task.eval().evaluate(batch).decoded.reconstruction
    with torch.no_grad(), again.deterministic_sampling(batch, 0):
        torch.testing.assert_close(again.eval().evaluate(batch).decoded.reconstruction, expected)


def test_with_a_decoder_that_gives_no_vectors_the_encoder_keeps_its_own():
    class Silent(Decoder):
        tables = None

    data = balls()
    task = CodeAutoencoding(
        partial(Encoder, dim=8), partial(load("cores", "SlotAttention"), num_slots=3, dim=16),
        partial(Silent, dim=16, num_layers=1), tokenizer=PATCHES, data_spec=data.spec,
    )  # fmt: skip
    assert task.encoder.codes is not task.decoder.codes
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    task.training_loss(batch).backward()
    assert task.encoder.codes.weight.grad.any()
