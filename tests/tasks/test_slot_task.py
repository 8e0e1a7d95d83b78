"""A task is its forward, its loss and its scores; everything else is SlotTask's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from prediction_tasks import PatchEncoder, SlotSSM, batch_of, quiet_trainer
from torch import Tensor, nn

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import DataSpec, Decoded, Decoder, PartError, SlotSpec, VideoBatch, VideoSpec
from slotbench.metric_info import Reference
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Score, Scores
from slotbench.tasks.slot_task import SlotTask


class LabelledBalls(BouncingBalls):
    """Clips with a label: a class image of one pixel that is due after the last step, here of two kinds."""

    @property
    def spec(self) -> DataSpec:
        return replace(super().spec, target=VideoSpec(channels=2, height=1, width=1))

    def on_after_batch_transfer(self, batch: VideoBatch, dataloader_idx: int) -> VideoBatch:
        batch = super().on_after_batch_transfer(batch, dataloader_idx)
        bright = batch.frames.mean(dim=(1, 2, 3, 4)) > 0.13
        return replace(batch, target=bright.long()[:, None, None, None], target_time=batch.time[:, -1:])


class Readout(Decoder):
    """Class logits from the mean of the slots."""

    def __init__(self, slots: SlotSpec, target: VideoSpec) -> None:
        super().__init__()
        self.linear = nn.Linear(slots.dim, target.channels)

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return Decoded(self.linear(slots.mean(dim=2))[..., None, None])


class Accuracy(Scores):
    """Share of clips with the right label, beside the share of the more frequent one."""

    def __init__(self) -> None:
        super().__init__()
        self.right, self.many = Mean(), Mean()

    def update(self, output: Decoded, batch: VideoBatch) -> None:
        target = batch.require("target")
        self.right.update((output.reconstruction.argmax(2) == target).float())
        if self.wants_references:
            self.many.update((target == 1).float())

    def compute(self) -> dict[str, float]:
        values = {"accuracy": float(self.right.compute())}
        if self.many.update_called:
            share = float(self.many.compute())
            values[Reference("baseline", "accuracy", "most frequent label")] = max(share, 1 - share)
            values[Reference("oracle", "accuracy", "the label")] = 1.0
        return values

    def reset(self) -> None:
        self.right.reset()
        self.many.reset()


class Classification(SlotTask):
    """The label of a clip from the slots of its last step."""

    monitor = ("val/accuracy", "max")
    reported = (Score("accuracy", "clips with the right label"), Score("loss", "cross-entropy", higher_is_better=False))

    def __init__(self, encoder, core, decoder, data_spec=None) -> None:
        super().__init__(encoder, core, decoder, data_spec=data_spec)
        self.declare_scores(Accuracy(), Accuracy())

    def forward(self, batch: VideoBatch) -> Decoded:
        return self.decoder(self.core(self.encoder(batch)).slots[:, -1:], batch)

    def loss(self, output: Decoded, batch: VideoBatch) -> Tensor:
        logits, labels = output.reconstruction.flatten(0, 1), batch.require("target").flatten(0, 1)
        return output.add_losses(nn.functional.cross_entropy(logits, labels))


@pytest.fixture
def data() -> LabelledBalls:
    sizes = LoaderOptions(batch_size=3, val_batch_size=4, val_size=6, test_size=5)
    return LabelledBalls(num_balls=2, num_frames=3, eval_frames=3, resolution=16, loader=sizes)


def make_task(data: BouncingBalls, kind: type[Classification] = Classification) -> Classification:
    torch.manual_seed(0)
    return kind(PatchEncoder, SlotSSM, Readout, data_spec=data.spec)


def logged_by(task: SlotTask) -> list[dict[str, float]]:
    logged: list[dict[str, float]] = []
    task.log_dict = lambda values: logged.append(dict(values))
    return logged


REFERENCES = {"val/baseline/accuracy/most frequent label", "val/oracle/accuracy/the label"}


def test_a_task_of_forward_loss_and_scores_trains_and_logs_its_references_once(data):
    task = make_task(data)
    logged = logged_by(task)
    before = [parameter.clone() for parameter in task.decoder.parameters()]
    trainer = quiet_trainer(max_steps=4, val_check_interval=2, check_val_every_n_epoch=None)
    trainer.fit(task, data)
    assert [set(values) - REFERENCES for values in logged] == [{"val/loss", "val/accuracy"}] * 2
    assert [REFERENCES & set(values) for values in logged] == [REFERENCES, set()]
    assert "train/loss" in trainer.callback_metrics
    assert all(not torch.equal(*pair) for pair in zip(before, task.decoder.parameters(), strict=True))


def test_scores_are_those_of_every_clip_and_headlines_stand_beside_their_references(data):
    task = make_task(data)
    logged = logged_by(task)
    quiet_trainer().validate(task, data, verbose=False)
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    assert [len(batch) for batch in batches] == [4, 2]
    labels = torch.cat([batch.target for batch in batches]).flatten()
    with torch.no_grad():
        logits = torch.cat([task.eval()(batch).reconstruction for batch in batches]).flatten(1)
    assert logged[0]["val/accuracy"] == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert logged[0]["val/loss"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    accuracy, loss = task.headlines()
    share = labels.double().mean().item()
    assert 0 < share < 1
    assert (accuracy.metric, accuracy.higher_is_better) == ("val/accuracy", True)
    assert accuracy.baselines == {"most frequent label": pytest.approx(max(share, 1 - share))}
    assert accuracy.oracles == {"the label": 1.0}
    assert (loss.metric, loss.baselines, loss.oracles) == ("val/loss", {}, {})
    quiet_trainer().test(task, data, verbose=False)
    assert [headline.metric for headline in task.headlines()] == ["test/accuracy", "test/loss"]


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_evaluation_draws_by_the_number_of_the_batch_and_leaves_the_random_state_of_the_run(data, stage):
    drawn = []

    class Drawing(Classification):
        def forward(self, batch: VideoBatch) -> Decoded:
            drawn.append(torch.rand(3))
            return super().forward(batch)

        def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
            return {"classes": self(batch).reconstruction}

    task, trainer = make_task(data, Drawing), quiet_trainer()
    before = torch.get_rng_state()
    for _ in range(2):
        trainer.predict(task, data) if stage == "predict" else getattr(trainer, stage)(task, data, verbose=False)
    assert torch.equal(torch.get_rng_state(), before)
    expected = [torch.rand(3, generator=torch.Generator().manual_seed(number)) for number in (0, 1)]
    assert len(drawn) == 4
    assert all(torch.equal(*pair) for pair in zip(drawn, 2 * expected, strict=True))


def test_the_sanity_check_before_a_training_counts_for_nothing(data):
    task = make_task(data)
    logged = logged_by(task)
    trainer = quiet_trainer(max_steps=1, val_check_interval=1, check_val_every_n_epoch=None)
    trainer.num_sanity_val_steps = 1
    trainer.fit(task, data)
    assert len(logged) == 1
    assert set(logged[0]) >= REFERENCES
    assert (
        task.headlines()[0].baselines["most frequent label"] == logged[0]["val/baseline/accuracy/most frequent label"]
    )


class Counted(Classification):
    """Counts how often references are scored."""

    def score(self, batch: VideoBatch, scores: Accuracy) -> Tensor:
        self.times += scores.wants_references
        return super().score(batch, scores)

    times = 0


def test_a_resumed_training_logs_its_references_without_scoring_them_again(data, tmp_path):
    settings = {"val_check_interval": 1, "check_val_every_n_epoch": None}
    task = make_task(data, Counted)
    first = logged_by(task)
    trainer = quiet_trainer(max_steps=1, **settings)
    trainer.fit(task, data)
    assert task.times == 2
    trainer.save_checkpoint(tmp_path / "it.ckpt")

    resumed = make_task(data, Counted)
    logged = logged_by(resumed)
    quiet_trainer(max_steps=3, **settings).fit(resumed, data, ckpt_path=tmp_path / "it.ckpt", weights_only=True)
    assert resumed.times == 0
    assert {name: logged[0][name] for name in REFERENCES} == {name: first[0][name] for name in REFERENCES}
    assert not REFERENCES & set(logged[1])
    assert resumed.headlines()[0].baselines == task.headlines()[0].baselines

    # the data may be others: an evaluation scores its own
    evaluated = make_task(data, Counted)
    quiet_trainer().validate(evaluated, data, ckpt_path=tmp_path / "it.ckpt", verbose=False)
    assert evaluated.times == 2


def test_a_task_without_scores_logs_its_loss(data):
    class Bare(Classification):
        def __init__(self, encoder, core, decoder, data_spec=None) -> None:
            SlotTask.__init__(self, encoder, core, decoder, data_spec=data_spec)

        reported = SlotTask.reported

    task = make_task(data, Bare)
    logged = logged_by(task)
    quiet_trainer().validate(task, data, verbose=False)
    assert [set(values) for values in logged] == [{"val/loss"}]
    assert [headline.metric for headline in task.headlines()] == ["val/loss"]
    assert task.predict_step(batch_of(data), 0) == {}


def test_a_score_reads_the_references_of_its_own_name_and_stage():
    known = {
        Reference("baseline", "a/b", "c"): 1.0,
        Reference("baseline", "a/b/step_1", "c"): 2.0,
        Reference("baseline", "a", "x"): 3.0,
        Reference("oracle", "a/b", "o"): 4.0,
    }
    headline = Score("a/b/decoder", "label", references="a/b").headline("val", known)
    assert (headline.metric, headline.baselines, headline.oracles) == ("val/a/b/decoder", {"c": 1.0}, {"o": 4.0})
    assert Score("a", "label", stage="test").headline("val", known).baselines == {}
    assert Score("a", "label", stage="test").headline("test", known).baselines == {"x": 3.0}


@pytest.mark.parametrize(("side", "name"), [("input", "encoder PatchEncoder"), ("target", "decoder Readout")])
def test_a_part_of_one_view_is_refused_where_there_are_several(data, side, name):
    spec = data.spec
    several = replace(spec, **{side: replace(getattr(spec, side), num_views=3)})
    with pytest.raises(PartError, match=rf"the {name} takes one view per step; the data has 3"):
        Classification(PatchEncoder, SlotSSM, Readout, data_spec=several)
