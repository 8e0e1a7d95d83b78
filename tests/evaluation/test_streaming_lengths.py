"""Long clips streamed through a task: the same as whole, a state that is counted, and what cannot be streamed."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.errors import UserError
from slotbench.evaluation.lengths import _pieces, measure, numbers_in
from slotbench.interfaces import Segmenter
from slotbench.metrics.clip_scores import score_clips
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.frames import frame_mse
from slotbench.metrics.mask_rules import Rules
from slotbench.registry import load
from slotbench.tasks.long_context_reasoning import LongContextReasoning
from slotbench.tasks.slot_autoencoding import SlotAutoencoding
from slotbench.tasks.video_prediction import VideoPrediction

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

TRAINED = 3


def clips(frames: int = 36, **arguments) -> BouncingBalls:
    sizes = {"num_frames": TRAINED, "eval_frames": frames, "resolution": 16}
    return BouncingBalls(num_balls=2, **sizes, loader=LoaderOptions(val_batch_size=2, test_size=3), **arguments)


def batches(data):
    return [data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader()]


def parts(core, **arguments):
    torch.manual_seed(0)
    encoder = partial(load("encoders", "CNNEncoder"), dim=8, channels=(8,), kernel_sizes=(3,), strides=(4,))
    core = partial(load("cores", core), **{"num_slots": 3, "dim": 8} | arguments)
    return encoder, core, partial(load("decoders", "SpatialBroadcastDecoder"), channels=4)


def autoencoding(data, core, eval_window=None, **arguments):
    return SlotAutoencoding(*parts(core, **arguments), eval_window=eval_window, data_spec=data.spec).eval()


@pytest.mark.parametrize(
    ("core", "arguments", "window"),
    [("SAVi", {"slot_init": "gaussian"}, None), ("OCSlotSSM", {}, None), ("PSB", {}, None), ("PSB", {}, 3)],
)
def test_every_length_has_the_scores_of_clips_that_are_read_whole(core, arguments, window):
    data = clips()
    task = autoencoding(data, core, window, **arguments)
    found = measure(task, batches(data), TRAINED, [1, 4, 12], 99)
    assert [(one.multiple, one.frames, one.clips) for one in found] == [(1, 3, 3), (4, 12, 3), (12, 36, 3)]
    whole = []
    for number, batch in enumerate(batches(data)):
        with torch.no_grad(), task.deterministic_sampling(batch, number):
            out = task.evaluate(batch)
        whole.append((batch, out))
    for one in found:
        assert set(one.masks) == {"decoder", "attention"}
        for source, evaluation in one.masks.items():
            expected = []
            for batch, out in whole:
                masks = out.masks if source == "decoder" else task.attention_masks(out.attention, (16, 16))
                labels = masks_to_labels(masks, (16, 16))[:, : one.frames]
                tables = frame_tables(labels, batch.masks[:, : one.frames])[:, :, 0]
                expected += score_clips(tables, torch.arange(tables.shape[2]).numpy(), Rules())
            assert [clip.values for clip in evaluation.scores] == [
                {name: (pytest.approx(value, abs=1e-9), count) for name, (value, count) in clip.values.items()}
                for clip in expected
            ]


def test_lengths_are_the_first_frames_of_the_same_clips():
    data = clips()
    task = autoencoding(data, "SAVi")
    long, short = (measure(task, batches(data), TRAINED, multiples, 99) for multiples in ([2, 12], [2]))
    assert [clip.values for clip in long[0].masks["decoder"].scores] == [
        clip.values for clip in short[0].masks["decoder"].scores
    ]
    truth = [one.masks["decoder"].result("decoder").truth for one in (*long, *short)]
    assert truth[0] == truth[2] != truth[1]


def test_the_state_of_a_recurrence_stays_and_that_of_attention_to_all_frames_grows():
    data = clips()
    counted = {
        core: [one.state_numbers for one in measure(autoencoding(data, core), batches(data), TRAINED, [1, 4, 12], 2)]
        for core in ("SAVi", "PSB")
    }
    assert counted["SAVi"] == [3 * 8] * 3
    first, second, third = counted["PSB"]
    assert (third - second) * (12 - 3) == (second - first) * (36 - 12) > 0


def test_steps_are_timed_and_the_core_among_them():
    for one in measure(autoencoding(clips(), "SAVi"), batches(clips()), TRAINED, [1, 4], 2):
        assert 0 < one.core_seconds < one.seconds
    assert one.steps == 2 * (12 - 3)


def test_complex_numbers_of_a_state_are_two():
    assert numbers_in(({"a": torch.zeros(2, 3)}, [torch.zeros(4, dtype=torch.complex64)], None)) == 6 + 8


def test_no_more_clips_are_read_than_asked_for():
    (one,) = measure(autoencoding(clips(), "SAVi"), batches(clips()), TRAINED, [2], 1)
    assert (one.clips, len(one.masks["decoder"].scores)) == (1, 1)


def test_predicted_frames_are_scored_and_the_context_is_not():
    data = clips()
    task = VideoPrediction(*parts("SlotSSM"), context=4, horizon=2, data_spec=data.spec).eval()
    found = measure(task, batches(data), TRAINED, [2, 12], 2)
    (batch,) = batches(data)[:1]
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        rolled = task.rollout(batch, horizon=32)
    for one in found:
        predicted, true = rolled.reconstruction[:, : one.frames - 4], batch.frames[:, 4 : one.frames]
        assert one.error / one.clips == pytest.approx(frame_mse(predicted, true).mean().item(), rel=1e-5)
        labels = masks_to_labels(rolled.masks, (16, 16))[:, : one.frames - 4]
        tables = frame_tables(labels, batch.masks[:, 4 : one.frames])[:, :, 0]
        expected = score_clips(tables, torch.arange(tables.shape[2]).numpy(), Rules())
        assert [clip.values for clip in one.masks["decoder"].scores] == [clip.values for clip in expected]
        assert one.state_numbers > 0


@pytest.mark.parametrize(("core", "patches"), [("SlotSSM", 1), ("SlotSSM", 2), ("SlotTransformer", 2)])
def test_answers_are_those_of_clips_that_end_at_the_length(core, patches):
    episodes = {
        frames: BlinkingBalls(
            num_frames=frames,
            num_balls=2,
            resolution=16,
            patches_per_side=patches,
            loader=LoaderOptions(val_batch_size=2, test_size=3),
        )
        for frames in (TRAINED, 2 * TRAINED, 12 * TRAINED)
    }
    torch.manual_seed(0)
    task = LongContextReasoning(
        partial(load("encoders", "PatchEncoder"), dim=8, patch_size=8 // patches),
        partial(load("cores", core), num_slots=3, dim=8),
        partial(load("decoders", "TransformerDecoder"), dim=8, patch_size=4),
        data_spec=episodes[TRAINED].spec,
    ).eval()
    for weight in task.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # answers that are not all alike
    found = measure(task, batches(episodes[12 * TRAINED]), TRAINED, [1, 2, 12], 99)
    for one in found:
        scores = task.answer_scores()
        for batch in batches(episodes[one.frames]):
            with torch.no_grad():
                scores.update(task.eval()(batch).reconstruction.argmax(2), batch)
        expected = {name: value for name, value in scores.compute().items() if "/context_" not in name}
        assert one.answers == pytest.approx(expected, abs=1e-6)
        assert 0 < one.answers["ball_iou"] < 1
        assert (one.clips, one.state_numbers > 0, 0 < one.core_seconds < one.seconds) == (3, True, True)
    assert [one.steps for one in found] == [3 * 2, 3 * 3, 3 * 30]
    assert found[0].answers != found[2].answers


def test_a_core_that_looks_ahead_says_that_it_cannot_be_continued():
    data = clips()
    task = autoencoding(data, "PSB", causal=False)
    with pytest.raises(UserError, match="PSB with causal=False cannot be streamed"):
        measure(task, batches(data), TRAINED, [4], 2)


def test_a_core_that_ends_at_a_length_says_at_which(monkeypatch):
    data = clips()
    task = autoencoding(data, "SAVi")
    forward = type(task.core).forward

    def limited(core, tokens, state=None):
        if state is not None:
            raise ValueError("positions for 12 steps only")
        return forward(core, tokens, state)

    monkeypatch.setattr(task, "stream", stream_with(task, limited))
    with pytest.raises(UserError, match="SAVi cannot be streamed beyond 12 frames: positions for 12 steps only"):
        measure(task, batches(data), TRAINED, [4, 12], 2)


def test_a_task_that_reads_clips_whole_says_what_it_lacks(monkeypatch):
    data = clips()
    task = autoencoding(data, "SAVi")
    monkeypatch.setattr(SlotAutoencoding, "stream", Segmenter.stream)
    with pytest.raises(UserError, match=r"gives the masks of whole clips only, .* stream\(batch, state"):
        measure(task, batches(data), TRAINED, [4], 2)


def stream_with(task, forward):
    calls = []

    def stream(batch, state):
        # the first two calls warm up
        calls.append(batch.num_steps)
        read = task.encoder(batch)
        out = forward(task.core, read, state if len(calls) > 2 else None)
        return task.evaluate(batch), out.state

    return stream


def test_other_tasks_and_shorter_clips_are_refused():
    with pytest.raises(UserError, match="Linear gives neither masks of every frame nor predicted frames nor answers"):
        measure(nn.Linear(1, 1), [], TRAINED, [1], 1)
    with pytest.raises(UserError, match="the clips have 36 frames; expected 39"):
        measure(autoencoding(clips(), "SAVi"), batches(clips()), TRAINED, [13], 1)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=4, unique=True).map(sorted))
def test_pieces_end_at_every_length_and_are_of_16_frames_at_most(lengths):
    ends = _pieces(lengths)
    assert set(lengths) <= set(ends)
    assert ends[-1] == lengths[-1]
    assert all(0 < after - before <= 16 for before, after in pairwise([0, *ends]))
