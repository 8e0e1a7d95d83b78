"""Scores of objects in roll-outs: perfect for the truth, by hand for the rest, and only where they are asked for."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import lightning
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.sprites.moving_sprites import MovingSprites
from slotbench.interfaces import Decoded, VideoBatch
from slotbench.metrics.objects.cell_identity import consistency, objects_of_cells
from slotbench.metrics.objects.foreground import soft_counts, soft_f1
from slotbench.metrics.objects.utilisation import cell_utilisation
from slotbench.metrics.usage import usage_entropy
from slotbench.registry import load
from slotbench.tasks.rollouts.objects import ObjectScores
from slotbench.tasks.video_prediction import VideoPrediction
from tests.helpers.rollout_options import grouped

CONTEXT, HORIZON = 6, 8


def sprites(batch_size: int = 5, **arguments) -> MovingSprites:
    loader = LoaderOptions(val_size=10, test_size=10, val_batch_size=batch_size)
    return MovingSprites(resolution=32, num_frames=6, eval_frames=CONTEXT + HORIZON, loader=loader, **arguments)


def clips(data: MovingSprites) -> VideoBatch:
    return to_unit_range(data.dataset("val").clips(range(10)))  # type: ignore[attr-defined]


def scored(batch: VideoBatch, steps: list[Decoded], layers: Tensor, shown: dict | None = None) -> dict[str, float]:
    """What `ObjectScores` has of these steps, fed in two pieces, as a task does it."""
    scores = ObjectScores(HORIZON)
    true = batch.frames[:, CONTEXT:]
    frames = torch.cat([step.reconstruction for step in scores.watch(iter(steps), layers)], dim=1)
    halves = (slice(0, 3), slice(3, HORIZON))
    pieces = (({"": frames[:, at]} | {k: v[:, at] for k, v in (shown or {}).items()}, true[:, at]) for at in halves)
    for _ in scores.look(pieces, batch.require("masks")[:, CONTEXT - 1 :].long(), beside=True):
        pass
    return scores.compute()


def true_steps(batch: VideoBatch, layers: Tensor, components: bool = True) -> list[Decoded]:
    """A roll-out that is the truth; slot 0 has the background, slot i sprite i."""
    masks = F.one_hot(batch.require("masks")[:, CONTEXT:].long(), 4).movedim(-1, 2).float()
    parts = torch.cat([torch.zeros_like(layers[:, :, :1]), layers], dim=2)
    frames = batch.frames[:, CONTEXT:]
    return [
        Decoded(frames[:, t : t + 1], masks[:, t : t + 1], parts[:, t : t + 1] if components else None)
        for t in range(HORIZON)
    ]


def test_the_truth_is_perfect() -> None:
    data = sprites()
    batch = clips(data)
    layers = data.layers(batch)[:, CONTEXT:]
    for components in (True, False):
        found = scored(batch, true_steps(batch, layers, components), layers)
        assert found["rollout_mse_sum"] == found["rollout_mse_sum/occupied"] == 0
        assert found["rollout_f1"] == pytest.approx(1)
        assert found["rollout_mota"] == found["rollout_motp"] == 1
        tracked = found["baseline/rollout_mota/tracker of true frames: patches"]
        assert found["rollout_mota_patches"] == tracked < 1
        assert found["baseline/rollout_mota/copy the last true masks"] < 0.6
        assert 0.3 < found["rollout_object_share"] < 0.75
        assert found["rollout_acl"] > found["rollout_acl_shuffled"]


def test_identity_is_of_what_a_slot_paints_times_its_share() -> None:
    data = sprites()
    batch = clips(data)
    layers = data.layers(batch)[:, CONTEXT:]
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(10, HORIZON, 3, 32, 32, generator=generator).softmax(2)
    parts = torch.rand(10, HORIZON, 3, 3, 32, 32, generator=generator)
    frames = (masks[:, :, :, None] * parts).sum(2)
    steps = [Decoded(frames[:, t : t + 1], masks[:, t : t + 1], parts[:, t : t + 1]) for t in range(HORIZON)]
    found = scored(batch, steps, layers)
    ids = objects_of_cells(masks[:, :, :, None] * parts, layers).movedim(1, 2).flatten(0, 1)
    assert found["rollout_acl"] == pytest.approx(consistency(ids)[0].mean().item())
    assert found["rollout_mcl"] == pytest.approx(consistency(ids)[1].mean().item())
    expected = (frames - batch.frames[:, CONTEXT:]).square().mean(2).sum((-1, -2))
    assert found["rollout_mse_sum"] == pytest.approx(expected.mean().item(), rel=1e-5)
    occupied = (batch.require("masks")[:, CONTEXT:] > 0).flatten(2).any(2).all(1)
    assert 0 < occupied.sum() < 10
    assert found["rollout_occupied"] == pytest.approx(occupied.double().mean().item())
    assert found["rollout_mse_sum/occupied"] == pytest.approx(expected[occupied].mean().item(), rel=1e-5)


def test_baselines_and_oracles_have_the_scores_of_frames() -> None:
    data = sprites()
    batch = clips(data)
    layers = data.layers(batch)[:, CONTEXT:]
    frames = batch.frames[:, CONTEXT:]
    shown = {"baseline|black": torch.zeros_like(frames), "oracle|all": frames}
    found = scored(batch, true_steps(batch, layers), layers, shown)
    black = frames.square().mean(2).sum((-1, -2)).mean().item()
    assert found["baseline/rollout_mse_sum/black"] == pytest.approx(black, rel=1e-5)
    assert found["baseline/rollout_f1/black"] == 0
    assert (found["oracle/rollout_mse_sum/all"], found["oracle/rollout_f1/all"]) == (0, pytest.approx(1))


SLOT_SSM = partial(
    load("cores", "SlotSSM"), num_slots=3, dim=8, num_layers=1, num_heads=2, encoder_layers=1, state_dim=4
)


def task(data: MovingSprites, decoder: str = "SpatialBroadcastDecoder", core=SLOT_SSM, **arguments) -> VideoPrediction:
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "PatchEncoder"), dim=8, patch_size=8),
        core,
        load("decoders", decoder),
        loss="mse",
        data_spec=data.spec,
        **grouped({"context": CONTEXT, "horizon": HORIZON} | arguments),
    )


def validated(data: MovingSprites, model: VideoPrediction) -> dict[str, float]:
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    return dict(trainer.validate(model, data, verbose=False)[0])


def test_a_task_has_them_where_asked_and_whatever_the_size_of_a_batch() -> None:
    data = sprites()
    model = task(data, object_scores=True)
    found = validated(data, model)
    plain = validated(data, task(data))
    new = {name for name in found if name not in plain}
    assert plain == {name: found[name] for name in plain}
    kinds = ("mse_sum", "occupied", "f1", "mota", "motp", "acl", "mcl", "object_share", "previous true frame")
    kinds += ("slot_utilisation",)
    assert all(any(kind in name for kind in kinds) for name in new)
    assert {f"val/rollout_{name}" for name in ("mse_sum", "f1", "mota", "acl", "mcl", "object_share")} <= new
    frames = clips(data).frames
    previous = (frames[:, CONTEXT - 1 : -1] - frames[:, CONTEXT:]).square().mean(2).sum((-1, -2)).mean().item()
    assert found["val/oracle/rollout_mse_sum/previous true frame"] == pytest.approx(previous, rel=1e-4)
    assert found["val/oracle/rollout_mse_sum/constant velocity"] == 0
    other = validated(sprites(batch_size=3), task(data, object_scores=True))
    same = {name for name in found if "shuffled" not in name and "loss" not in name}
    assert {name: other[name] for name in same} == {name: pytest.approx(found[name], abs=1e-5) for name in same}
    headlines = {headline.metric: headline.baselines for headline in model.headlines()}
    assert "black" in headlines["val/rollout_mse_sum"]
    assert "tracker of true frames: patches" in headlines["val/rollout_mota"]


def test_f1_of_all_steps_has_the_frames_of_the_context_each_predicted_from_the_true_ones_before() -> None:
    data = sprites()
    model = task(data, object_scores=True)
    found = validated(data, model)
    batch = clips(data)
    with torch.no_grad(), model.deterministic_sampling(batch, 0):
        opening = model.frames(model(batch.slice_time(0, CONTEXT)))
        followed = model.rollout(batch).reconstruction
    predicted = torch.cat([opening, followed], dim=1)
    assert predicted.shape[1] == CONTEXT + HORIZON - 1
    by_step = soft_f1(soft_counts(predicted, batch.frames[:, 1:]).sum(0))
    assert found["val/rollout_f1_all_steps"] == pytest.approx(by_step.mean().item(), rel=1e-5)
    assert found["val/rollout_f1"] == pytest.approx(by_step[CONTEXT - 1 :].mean().item(), rel=1e-5)
    held = batch.frames[:, CONTEXT - 1 : CONTEXT].expand(-1, HORIZON - 1, -1, -1, -1)
    last = torch.cat([batch.frames[:, :CONTEXT], held], dim=1)
    copied = soft_f1(soft_counts(last, batch.frames[:, 1:]).sum(0)).mean().item()
    assert found["val/baseline/rollout_f1_all_steps/copy the last frame"] == pytest.approx(copied, rel=1e-5)
    assert found["val/baseline/rollout_f1_all_steps/black"] == 0


def test_f1_of_all_steps_is_put_together_from_pieces_of_the_clip() -> None:
    batch, steps = clips(sprites()), CONTEXT + HORIZON - 1
    guess = torch.rand_like(batch.frames[:, 1:])

    def opened(*cuts: int) -> dict[str, float]:
        scores = ObjectScores(HORIZON, CONTEXT)
        for start, stop in pairwise((0, *cuts, steps)):
            scores.watch_context(guess[:, start:stop], batch.frames, start + 1, beside=True)
        pieces = [({"": guess[:, CONTEXT - 1 :]}, batch.frames[:, CONTEXT:])]
        list(scores.look(iter(pieces), batch.require("masks")[:, CONTEXT - 1 :].long(), beside=False))
        return scores.compute()

    assert opened() == opened(1, 4) == opened(2, CONTEXT - 1, CONTEXT, 9)


def test_utilisation_is_of_the_first_predicted_frame_and_of_slots_that_are_no_cells() -> None:
    data = sprites()
    model = task(data, object_scores=True)
    found = validated(data, model)
    batch = clips(data)
    slots = model.core(model.encoder(batch.slice_time(0, CONTEXT))).slots[:, -1:]
    shares = cell_utilisation(lambda slots: model.frames(model.decoder(slots)), slots)[:, 0]
    for slot in range(3):
        assert found[f"val/slot_utilisation/slot_{slot}"] == pytest.approx(shares[:, slot].mean().item(), rel=1e-4)
    assert found["val/slot_utilisation/largest"] == pytest.approx(shares.amax(1).mean().item(), rel=1e-4)
    # a module that is not painted is not used
    model.decoder.disabled_slots = (1,)
    assert validated(data, model)["val/slot_utilisation/slot_1"] == 0


def test_a_decoder_without_masks_has_those_of_frames_alone() -> None:
    class Maskless(load("decoders", "SpatialBroadcastDecoder")):  # type: ignore[misc]
        def forward(self, *arguments: object) -> Decoded:
            return Decoded(super().forward(*arguments).reconstruction)

    data = sprites()
    model = task(data, object_scores=True)
    model.decoder = Maskless(model.core.slot_spec, data.spec.target)
    found = validated(data, model)
    assert "val/rollout_mse_sum" in found
    assert not [name for name in found if "_mota" in name or "_acl" in name]


def test_how_evenly_schemata_are_taken_on_true_frames() -> None:
    data = sprites()
    scoff = partial(load("cores", "SCOFF"), num_slots=3, dim=8, num_schemata=2, num_inputs=2, slot_init="learned")
    model = task(data, core=scoff).eval()
    found = validated(data, model)["val/schemata_entropy"]
    batch = clips(data)
    with torch.no_grad(), model.deterministic_sampling(batch, 0):
        taken = model.core(model.encoder(batch.slice_time(0, batch.num_steps - 1))).details["schemata"]
    assert found == pytest.approx(usage_entropy(taken).item(), abs=1e-5)
    assert 0 < found < 1
    assert "val/schemata_entropy" not in validated(data, task(data))
