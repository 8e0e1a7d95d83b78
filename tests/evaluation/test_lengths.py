"""Long clips streamed through a task: the same as whole, a state that is counted, what is written, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny_discovery import tiny_discovery, train

from slotbench.cli import run
from slotbench.comparison.sources import read_sources
from slotbench.comparison.table import compare
from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.errors import UserError
from slotbench.evaluation.lengths import measure, numbers_in
from slotbench.metrics.clip_scores import score_clips
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.frames import frame_mse
from slotbench.metrics.mask_rules import Rules
from slotbench.registry import load
from slotbench.tasks.long_context_reasoning import LongContextReasoning
from slotbench.tasks.rollouts.conditions import RolloutOptions
from slotbench.tasks.slot_autoencoding import SlotAutoencoding
from slotbench.tasks.video_prediction import VideoPrediction

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

TRAINED = 3


def clips(frames: int = 36) -> BouncingBalls:
    sizes = {"num_frames": TRAINED, "eval_frames": frames, "resolution": 16}
    return BouncingBalls(num_balls=2, **sizes, loader=LoaderOptions(val_batch_size=2, test_size=3))


def batches(data):
    return [data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader()]


def parts(core, **arguments):
    torch.manual_seed(0)
    encoder = partial(load("encoders", "CNNEncoder"), dim=8, channels=(8,), kernel_sizes=(3,), strides=(4,))
    core = partial(load("cores", core), **{"num_slots": 3, "dim": 8} | arguments)
    return encoder, core, partial(load("decoders", "SpatialBroadcastDecoder"), channels=4)


def autoencoding(data, core, **arguments):
    return SlotAutoencoding(*parts(core, **arguments), data_spec=data.spec).eval()


def expected_scores(masks, true):
    tables = frame_tables(masks_to_labels(masks, (16, 16)), true)[:, :, 0]
    return [clip.values for clip in score_clips(tables, torch.arange(tables.shape[2]).numpy(), Rules())]


@pytest.mark.parametrize("core", ["SAVi", "PSB"])
def test_every_length_has_the_scores_of_clips_that_are_read_whole(core):
    data = clips()
    task = autoencoding(data, core, **({"slot_init": "gaussian"} if core == "SAVi" else {}))
    found = measure(task, batches(data), TRAINED, [1, 4, 12], 99)
    assert [(one.multiple, one.frames, one.clips) for one in found] == [(1, 3, 3), (4, 12, 3), (12, 36, 3)]
    whole = []
    for number, batch in enumerate(batches(data)):
        with torch.no_grad(), task.deterministic_sampling(batch, number):
            whole.append((batch, task.evaluate(batch)))
    for one in found:
        assert set(one.masks) == {"decoder", "attention"}
        for source, scored in one.masks.items():
            expected = []
            for batch, out in whole:
                masks = out.masks if source == "decoder" else task.attention_masks(out.attention, (16, 16))
                expected += expected_scores(masks[:, : one.frames], batch.masks[:, : one.frames])
            assert [clip.values for clip in scored] == [
                {name: (pytest.approx(value, abs=1e-9), count) for name, (value, count) in values.items()}
                for values in expected
            ]


def test_pixels_that_count_nowhere_are_in_no_score():
    data = clips()
    read, marked = batches(data), []
    for batch in read:
        void = torch.rand(batch.masks.shape, generator=torch.Generator().manual_seed(1)) < 0.3
        marked.append(replace(batch, masks=batch.masks.long().masked_fill(void, -1)))
    task = autoencoding(data, "SAVi", slot_init="gaussian")
    (found,) = measure(task, marked, TRAINED, [1], 99)
    expected = []
    for number, batch in enumerate(marked):
        with torch.no_grad(), task.deterministic_sampling(batch, number):
            labels = masks_to_labels(task.evaluate(batch).masks[:, :TRAINED], (16, 16))
        true = batch.masks[:, :TRAINED]
        tables = frame_tables(labels, true.clamp(min=0), true >= 0)[:, :, 0]
        expected += [clip.values for clip in score_clips(tables, torch.arange(tables.shape[2]).numpy(), Rules())]
    for one, values in zip(found.masks["decoder"], expected, strict=True):
        assert one.values["fg_ari/video"] == pytest.approx(values["fg_ari/video"])
        assert one.values["miou/frame"] == pytest.approx(values["miou/frame"])


def test_the_state_of_a_recurrence_stays_and_that_of_attention_to_all_frames_grows():
    data = clips()
    counted = {
        core: [one.state_numbers for one in measure(autoencoding(data, core), batches(data), TRAINED, [1, 4, 12], 2)]
        for core in ("SAVi", "PSB")
    }
    assert counted["SAVi"] == [3 * 8] * 3
    first, second, third = counted["PSB"]
    assert (third - second) * (12 - 3) == (second - first) * (36 - 12) > 0


def test_complex_numbers_of_a_state_are_two():
    assert numbers_in(({"a": torch.zeros(2, 3)}, [torch.zeros(4, dtype=torch.complex64)], None)) == 6 + 8


def test_no_more_clips_are_read_than_asked_for_and_steps_are_timed():
    first, last = measure(autoencoding(clips(), "SAVi"), batches(clips()), TRAINED, [1, 4], 1)
    assert (last.clips, len(last.masks["decoder"]), last.steps) == (1, 1, 12 - 3)
    assert min(first.seconds, last.seconds) > 0


def test_predicted_frames_are_scored_and_the_context_is_not():
    data = clips()
    task = VideoPrediction(*parts("SlotSSM"), rollout=RolloutOptions(4, 2), data_spec=data.spec).eval()
    found = measure(task, batches(data), TRAINED, [2, 12], 2)
    (batch,) = batches(data)[:1]
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        rolled = task.rollout(batch, horizon=32)
    for one in found:
        predicted, true = rolled.reconstruction[:, : one.frames - 4], batch.frames[:, 4 : one.frames]
        assert one.error / one.clips == pytest.approx(frame_mse(predicted, true).mean().item(), rel=1e-5)
        expected = expected_scores(rolled.masks[:, : one.frames - 4], batch.masks[:, 4 : one.frames])
        assert [clip.values for clip in one.masks["decoder"]] == expected


def test_answers_are_those_of_clips_that_end_at_the_length():
    loader = LoaderOptions(val_batch_size=2, test_size=3)
    sizes = {"num_balls": 2, "resolution": 16, "patches_per_side": 2, "loader": loader}
    episodes = {frames: BlinkingBalls(num_frames=frames, **sizes) for frames in (3, 6, 36)}
    torch.manual_seed(0)
    task = LongContextReasoning(
        partial(load("encoders", "PatchEncoder"), dim=8, patch_size=4),
        partial(load("cores", "SlotSSM"), num_slots=3, dim=8),
        partial(load("decoders", "TransformerDecoder"), dim=8, patch_size=4),
        data_spec=episodes[3].spec,
    ).eval()
    for weight in task.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # answers that are not all alike
    found = measure(task, batches(episodes[36]), TRAINED, [1, 2, 12], 99)
    for one in found:
        scores = task.answer_scores()
        for batch in batches(episodes[one.frames]):
            with torch.no_grad():
                scores.update(task.eval()(batch).reconstruction.argmax(2), batch)
        expected = {name: value for name, value in scores.compute().items() if "/context_" not in name}
        assert one.answers == pytest.approx(expected, abs=1e-6)
        assert 0 < one.answers["ball_iou"] < 1
    assert [one.steps for one in found] == [3 * 2, 3 * 3, 3 * 30]
    assert found[0].answers != found[2].answers


def test_what_cannot_be_streamed_is_refused():
    data = clips()
    with pytest.raises(UserError, match="cannot be continued from a state"):
        measure(autoencoding(data, "PSB", causal=False), batches(data), TRAINED, [4], 2)
    with pytest.raises(UserError, match="the clips have 36 frames; expected 39"):
        measure(autoencoding(data, "SAVi"), batches(data), TRAINED, [13], 1)


def test_the_command_prints_and_writes_every_length_and_compare_reads_it(tmp_path, capsys, monkeypatch):
    path = train(tiny_discovery(steps=1, clips=(2, 5)), tmp_path / "runs" / "tiny")
    assert run(["test", str(path), "--lengths", "4,1", "--clips", "3"]) == 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("1 T = 2", "4 T = 8", "MOTA, decoder ↑"))
    (file,) = path.glob("lengths-*.json")
    written = json.loads(file.read_text())
    assert [(one["multiple"], one["frames"], one["state_numbers"]) for one in written["lengths"]] == [
        (1, 2, 24),
        (4, 8, 24),
    ]
    assert (written["clips"], written["training_frames"]) == (3, 2)
    found = compare(read_sources([str(path)]), metrics=["lengths/*/mota/decoder", "lengths/4T/state_numbers"])
    means = {name: cell.mean for name, cell in found.rows[0].cells.items()}
    assert means == {name: written["metrics"][name] for name in means}
    assert len(means) == 3

    monkeypatch.setattr(BouncingBalls, "max_eval_frames", lambda data, split: 5)
    assert run(["validate", str(path), "--lengths", "1,2,4", "--clips", "1"]) == 0
    printed = capsys.readouterr().out
    assert "left out: 4 T; T is 2 frames, clips have 5" in printed
    assert "4 T = 8" not in printed
