"""TECO: its loss and latents by a readable loop, its roll-out, causality, and which frames have a loss."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from code_tasks import PATCHES, balls, quiet_trainer
from torch.nn import functional as F

from slotbench.interfaces import DataSpec, PartError, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.registry import load
from slotbench.tasks.codes.chosen_tokenizer import frame_codes
from slotbench.tasks.codes.teco import TECO
from tests.helpers.rollout_options import grouped

FRAME = VideoSpec(1, 16, 16, num_actions=3)
CORES = {
    "ConvS5": {"dim": 32, "state_dim": 8, "num_layers": 1, "kernel": "reference"},
    "S5": {"dim": 16, "state_dim": 8, "num_layers": 1, "patch": 2, "output_dim": 8, "kernel": "reference"},
    "FrameTransformer": {"dim": 16, "num_layers": 1, "num_heads": 2, "output_dim": 8},
    "ConvLSTM": {"dim": 8, "num_layers": 1},
}
DRAWN = partial(load("tokenizers", "PatchKMeans"), num_codes=6, fit_frames=12, patch_size=4)


def teco(core="ConvS5", spec=FRAME, **arguments):
    torch.manual_seed(0)
    depths = (8, 16)
    given = {
        "tokenizer": DRAWN,
        "prior": partial(MaskGit, dim=16, num_layers=1, num_heads=2, code_dim=8),
        "latent_dim": 5,
        "num_latent_codes": 7,
        "latent_code_dim": 4,
        "action_dim": 3,
        "context": 3,
        "horizon": 3,
        "data_spec": DataSpec(spec, spec),
    }
    parts = {
        "encoder": partial(load("encoders", "ResNetEncoder"), depths=depths, rescale=False),
        "core": partial(load("cores", core), **CORES[core]) if isinstance(core, str) else core,
        "decoder": partial(load("decoders", "ResNetDecoder"), depths=depths),
    }
    task = TECO(**grouped(parts | given | arguments))
    task.tokenizer.codebook.copy_(torch.randn_like(task.tokenizer.codebook))
    return task.double()


def clip(steps=6, count=2, seed=1, actions=True):
    generator = torch.Generator().manual_seed(seed)
    frames = torch.rand(count, steps, 1, 16, 16, generator=generator, dtype=torch.float64)
    chosen = torch.randint(3, (count, steps), generator=generator)
    time = torch.arange(steps).expand(count, -1)
    return VideoBatch(frames, time, actions=F.one_hot(chosen, 3).double() if actions else None)


def latents_by_hand(task, codes):
    """(latents before they are quantised, quantised ones, their codes), of one clip, frame by frame."""
    found = []
    for time, now in enumerate(codes):
        given = task.tokenizer.codebook[now].permute(2, 0, 1)
        before = task.first_frame if time == 0 else task.tokenizer.codebook[codes[time - 1]].permute(2, 0, 1)
        pair = torch.cat([before, given])[None, None]
        found.append(task.latent_map(task.encoder(VideoBatch(pair, torch.zeros(1, 1, dtype=torch.long)))[0, 0]))
    latents = torch.stack(found)
    quantised = task.quantiser(latents)
    return latents, quantised.vectors, quantised.codes


def inputs_by_hand(task, latents, quantised, actions):
    read = torch.cat([latents[:1], quantised[1:]])
    rows = task.actions.table[actions.argmax(-1)] if actions.any() else task.actions.table[-1].expand(len(read), -1)
    return torch.cat([read, rows[:, None].expand(-1, read.shape[1], -1)], -1)


@pytest.mark.parametrize("core", CORES)
def test_logits_are_of_the_latents_of_a_frame_and_the_slots_before_it(core):
    task, batch = teco(core).eval(), clip()
    out = task(batch)
    codes = frame_codes(task.tokenizer, batch)
    assert torch.equal(out.codes, codes[:, 1:])
    for one in range(2):
        latents, quantised, _ = latents_by_hand(task, codes[one])
        tokens = inputs_by_hand(task, latents, quantised, batch.actions[one])[None]
        for time in range(1, 6):
            slots = task.core(tokens[:, :time]).slots[:, -1:]
            logits = task.decoder(torch.cat([slots, quantised[None, time : time + 1]], -1)).reconstruction
            torch.testing.assert_close(out.reconstruction[one, time - 1], logits[0, 0], rtol=0, atol=1e-8)


def test_the_loss_is_cross_entropy_of_codes_prior_and_the_two_terms_of_the_quantiser():
    task, batch = teco().eval(), clip()
    torch.manual_seed(4)
    value = task.loss(task(batch), batch)
    codes = frame_codes(task.tokenizer, batch)
    rebuilt, conditions, drawn, means = [], [], [], []
    for one in range(2):
        latents, quantised, latent_codes = latents_by_hand(task, codes[one])
        tokens = inputs_by_hand(task, latents, quantised, batch.actions[one])[None]
        slots = task.core(tokens).slots[:, :-1]
        logits = task.decoder(torch.cat([slots, quantised[None, 1:]], -1)).reconstruction[0]
        chances = logits.log_softmax(1)
        truth = [0.99 * F.one_hot(codes[one, t + 1], 6).movedim(-1, 0) + 0.01 / 6 for t in range(5)]
        rebuilt += [-(truth[t] * chances[t]).sum() for t in range(5)]
        conditions.append(slots[0])
        drawn.append(latent_codes[1:])
        means.append(task.quantiser(latents).losses)
    torch.manual_seed(4)
    prior = task.prior.loss(torch.cat(drawn), torch.cat(conditions))
    expected = torch.stack(rebuilt).mean() + prior
    for name in ("codebook", "commitment"):
        expected = expected + torch.stack([one[name] for one in means]).mean()
    torch.testing.assert_close(value, expected)


def test_the_sum_over_the_latents_width_is_a_weight_of_the_quantisers_terms():
    summed, batch = teco(quantiser_weight=4.0).eval(), clip()
    terms, means = summed(batch).losses, teco().eval()(batch).losses
    for name in ("codebook", "commitment"):
        torch.testing.assert_close(terms[name], 4 * means[name])


def test_gradients_reach_every_part_but_the_tokenizer():
    task, batch = teco(latent_dim=8).train(), clip()
    task.training_loss(batch).backward()
    without = {name for name, parameter in task.named_parameters() if parameter.grad is None}
    assert without == set()
    assert not any(parameter.requires_grad for parameter in task.tokenizer.parameters())


@pytest.mark.parametrize("core", CORES)
def test_a_later_frame_changes_no_earlier_prediction(core):
    task, batch = teco(core).eval(), clip()
    changed = replace(batch, frames=batch.frames.clone(), actions=batch.actions.clone())
    changed.frames[:, 4] = 1 - changed.frames[:, 4]
    changed.actions[:, 4] = changed.actions[:, 4].roll(1, -1)
    before, after = (task(given).reconstruction for given in (batch, changed))
    difference = (before - after).abs().amax((0, 2, 3, 4))
    # entry k is frame k + 1
    assert (difference[:3] < 1e-10).all()
    assert difference[4] > 1e-6


def forced_prior(monkeypatch, task):
    """Draws the most likely codes, cell by cell from all masked, so that draws need no random numbers."""
    seen = []

    def sample(self, condition):
        masked = torch.full(condition.shape[:2], self.mask_id)
        codes = self(masked, condition).argmax(-1)
        seen.append(codes)
        return codes

    monkeypatch.setattr(MaskGit, "sample", sample)
    return seen


@pytest.mark.parametrize("frame_mask", [None, 2])
@pytest.mark.parametrize("core", CORES)
def test_a_rollout_with_state_is_a_recomputation_from_the_start(core, frame_mask, monkeypatch):
    task, batch = teco(core, frame_mask=frame_mask).eval(), clip(8)
    seen = forced_prior(monkeypatch, task)
    monkeypatch.setattr("slotbench.tasks.codes.teco.PIECE", 2)
    with torch.no_grad():
        rolled = [step.reconstruction for step in task.rollout_steps(batch, 3, 5)]
        drawn = torch.stack(seen, 1)
        codes = frame_codes(task.tokenizer, batch)
        for one in range(2):
            latents, quantised, _ = latents_by_hand(task, codes[one, :3])
            known = torch.cat([latents[:1], quantised[1:]])
            for step in range(5):
                shown = known.clone()
                if frame_mask is not None:
                    shown[frame_mask:] = -2
                tokens = inputs_by_hand(task, shown, shown, batch.actions[one, : len(shown)])[None]
                slots = task.core(tokens).slots[:, -1:]
                likely = task.prior(torch.full((1, 4), 7), slots[:, 0]).argmax(-1)
                assert torch.equal(likely[0], drawn[one, step])
                vectors = task.quantiser.embed(likely)
                logits = task.decoder(torch.cat([slots, vectors[None]], -1)).reconstruction
                frame = task.tokenizer.decode(logits.argmax(2))
                torch.testing.assert_close(rolled[step][one], frame[0])
                known = torch.cat([known, vectors])


def test_a_rollout_reads_no_true_frame_after_the_context_and_encodes_none_that_it_predicts():
    task, batch = teco().eval(), clip(8)
    hidden = replace(batch, frames=batch.frames.clone())
    hidden.frames[:, 3:] = 0
    frames = []
    for given in (batch, hidden):
        torch.manual_seed(0)
        frames.append(task.rollout(given, 3, 5).reconstruction)
    assert torch.equal(*frames)
    calls = []
    steps = task.rollout_steps(batch, 3, 5)
    task.encoder.register_forward_hook(lambda *_: calls.append(1))
    assert len(list(steps)) == 5
    assert not calls


def test_actions_lead_from_frame_to_frame_and_future_ones_are_read():
    task, batch = teco().eval(), clip(8)
    other = replace(batch, actions=batch.actions.clone())
    other.actions[:, 5] = other.actions[:, 5].roll(1, -1)
    inputs = []
    for given in (batch, other):
        seen = []
        handle = task.core.register_forward_pre_hook(lambda _, arguments, seen=seen: seen.append(arguments[0]))
        task(given)
        handle.remove()
        inputs.append(seen[0])
    changed = (inputs[0] != inputs[1]).any(-1).any(-1)
    assert changed[0].nonzero().flatten().tolist() == [5]


def empty(clips, steps, hidden=None):
    """Clips without content, of which the first are hidden from step 3 on."""
    late = None if hidden is None else (torch.arange(clips)[:, None] < hidden) & (torch.arange(steps) >= 3)
    return VideoBatch(torch.zeros(clips, steps, 1, 1, 1), torch.arange(steps).expand(clips, -1), hidden=late)


@pytest.mark.parametrize(("steps", "drop", "expected"), [(300, 0.9, 29), (301, 0.9, 30), (6, 0.5, 2), (6, 0.9, 1)])
def test_so_many_frames_have_a_loss(steps, drop, expected):
    task = teco(drop_loss=drop).train()
    torch.manual_seed(0)
    frames, counted = task._chosen(empty(40, steps))
    assert frames.shape == (40, expected)
    assert counted.all()
    assert frames.min() >= 0
    assert frames.max() <= steps - 2


def test_dropped_losses_are_those_of_the_frames_that_were_drawn(monkeypatch):
    task, batch = teco(drop_loss=0.5).train(), clip()
    everything = teco().eval()(batch)
    frames = torch.tensor([[0, 3], [4, 4]])
    monkeypatch.setattr(TECO, "_chosen", lambda *_: (frames, torch.ones(2, 2, dtype=torch.bool)))
    some = task(batch)
    for one, chosen in enumerate(frames):
        torch.testing.assert_close(some.reconstruction[one], everything.reconstruction[one, chosen])
        assert torch.equal(some.codes[one], everything.codes[one, chosen])


def test_a_training_drops_actions_and_an_evaluation_may_mask_them():
    batch = clip()
    without = replace(batch, actions=torch.zeros_like(batch.actions))
    for arguments, call in (({"drop_actions": 1.0}, "training_loss"), ({"eval_actions": False}, "forced_loss")):
        task = teco(**arguments)
        task.train(call == "training_loss")
        found = []
        for given in (batch, without):
            torch.manual_seed(0)
            found.append(getattr(task, call)(given).item())
        assert found[0] == found[1]
        torch.manual_seed(0)
        assert getattr(teco().train(task.training), call)(batch).item() != found[0]


@pytest.mark.parametrize("masked_loss", ["all", "hidden"])
def test_a_frame_mask_hides_latents_from_there_on_and_these_frames_alone_may_have_a_loss(masked_loss):
    task, batch = teco(frame_mask=3, masked_loss=masked_loss).eval(), clip()
    changed = replace(batch, frames=batch.frames.clone())
    changed.frames[:, 3] = 1 - changed.frames[:, 3]
    before, after = (task(task.conditions.of_evaluation(given)) for given in (batch, changed))
    seen = masked_loss == "all"
    assert before.counted.tolist() == [[seen, seen, True, True, True]] * 2
    # the latents of frames 3 and 4 are of the changed frame, the slots of no frame are
    difference = (before.reconstruction - after.reconstruction).abs().amax((0, 2, 3, 4))
    assert (difference[[2, 3]] > 1e-6).any()
    assert (difference[[0, 1, 4]] < 1e-10).all()


def test_each_clip_has_the_mean_of_its_own_frames():
    task, batch = teco(frame_mask=3, masked_loss="hidden", label_smoothing=0.0).eval(), clip()
    mixed = replace(batch, hidden=empty(2, 6, hidden=1).hidden)
    out, free = task(mixed), teco().eval()(batch)
    assert out.counted.tolist() == [[False, False, True, True, True], [True] * 5]
    torch.testing.assert_close(out.reconstruction[1], free.reconstruction[1])
    error = F.cross_entropy(out.reconstruction.flatten(0, 1), out.codes.flatten(0, 1), reduction="none")
    error = error.sum((1, 2)).view(2, 5)
    expected = (error[0, 2:].mean() + error[1].mean()) / 2
    torch.testing.assert_close(task.loss(replace(out, losses={}), mixed), expected)


def test_the_prior_has_a_loss_of_the_same_frames(monkeypatch):
    task, batch = teco(frame_mask=3, masked_loss="hidden").eval(), clip()
    seen = []
    loss = task.prior.loss
    monkeypatch.setattr(task.prior, "loss", lambda *given: seen.append(given[2]) or loss(*given))
    task(replace(batch, hidden=empty(2, 6, hidden=1).hidden))
    assert seen[0].view(2, 5).tolist() == [[False, False, True, True, True], [True] * 5]


@pytest.mark.parametrize(("masked_loss", "drawn"), [("all", {0, 1, 2, 3, 4}), ("hidden", {2, 3, 4})])
def test_drawn_frames_of_a_masked_clip_lie_behind_the_mask_or_anywhere(masked_loss, drawn):
    task = teco(frame_mask=3, drop_loss=0.5, masked_loss=masked_loss).train()
    torch.manual_seed(0)
    frames, counted = task._chosen(empty(50, 6, hidden=25))
    assert counted.all()
    assert set(frames[:25].flatten().tolist()) == drawn
    assert set(frames[25:].flatten().tolist()) == {0, 1, 2, 3, 4}


def test_codes_that_the_data_set_stores_are_read_and_must_be_of_such_a_tokenizer():
    task, batch = teco().eval(), clip()
    stored = torch.randint(6, (2, 6, 4, 4))
    assert torch.equal(task(replace(batch, codes=stored)).codes, stored[:, 1:])
    with pytest.raises(PartError, match="6 codes on 4 x 4 cells, and the data set stores 9 codes on 4 x 4"):
        teco(spec=replace(FRAME, codes=VideoSpec(9, 4, 4)))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"tokenizer": None}, ValueError, "TECO takes its codes from one tokenizer"),
        ({"tokenizer": partial(load("tokenizers", "DVAE"), channels=4)}, PartError, "DVAE has to be trained"),
        ({"drop_loss": 1.0}, ValueError, "drop_loss is a share from 0 to below 1; got 1.0"),
        ({"label_smoothing": 1.0}, ValueError, "label_smoothing is a share from 0 to below 1; got 1.0"),
        ({"masked_loss": "some"}, ValueError, "masked_loss is 'some'; expected one of all, hidden"),
        ({"drop_actions": -0.1}, ValueError, "drop_actions is a probability"),
        ({"frame_mask": 0}, ValueError, "frame_mask is 0"),
    ],
)
def test_what_cannot_be_is_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        teco(**change)


def test_a_training_fits_the_tokenizer_scores_rollouts_and_is_rebuilt(tmp_path):
    data = balls(num_frames=4, eval_frames=6)
    task = teco(spec=data.spec.input, tokenizer=PATCHES, drop_loss=0.5, short_context=2).float()
    trainer = quiet_trainer(max_steps=2, val_check_interval=2)
    trainer.fit(task, datamodule=data)
    logged = trainer.callback_metrics
    for name in ("loss", "rollout_mse", "rollout_psnr", "rollout_mse_short_context", "baseline/rollout_mse/black"):
        assert f"val/{name}" in logged, name
    assert task.tokenizer.is_fitted
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    again = TECO.load_from_checkpoint(tmp_path / "run.ckpt").eval()
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    found = []
    for one in (task.eval(), again):
        torch.manual_seed(0)
        found.append(one.predict(batch)["frames"])
    assert torch.equal(*found)
