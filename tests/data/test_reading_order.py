"""Epochs of fewer batches than there are read on: every clip is seen, resumed or not, by one process or several."""

from __future__ import annotations

import lightning
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prediction_tasks import quiet_trainer
from unlisted_parts import Grey, TinyData, TinyTask

from slotbench.data.base import LoaderOptions
from slotbench.data.reading_order import InOrder

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*", "ignore:.*smaller than the logging interval.*"
)


class FiveClips(TinyData):
    def dataset(self, split):
        clips = Grey(self.size)
        clips.__class__ = _Five
        return clips


class _Five(Grey):
    def __len__(self):
        return 5


class Read(lightning.Callback):
    """The clips of each batch, with a checkpoint of each step."""

    def __init__(self, folder=None):
        self.folder, self.clips = folder, []

    def on_train_batch_start(self, trainer, module, batch, number):
        self.clips.append(batch.index.tolist())

    def on_train_batch_end(self, trainer, *_):
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


def clips_read(folder=None, start=None, size=2, **trainer):
    data = FiveClips(LoaderOptions(batch_size=size))
    seen = Read(folder)
    run = quiet_trainer(callbacks=[seen], **({"max_epochs": 3, "limit_val_batches": 0} | trainer))
    run.fit(TinyTask(data_spec=data.spec), datamodule=data, ckpt_path=start, weights_only=True)
    # a pass that is no training's is of all clips, whatever an epoch is
    assert [batch.index.tolist() for batch in data.train_dataloader()] == whole_epoch(size)
    return seen.clips


def whole_epoch(size):
    return [list(range(start, min(5, start + size))) for start in range(0, 5, size)]


@pytest.mark.parametrize("limit", [2, 0.67])
def test_the_next_epoch_reads_on_and_begins_again_after_the_last_clip(limit):
    found = clips_read(limit_train_batches=limit)
    assert found == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 1]]


@pytest.mark.parametrize("validation", [{}, {"limit_val_batches": 1, "val_check_interval": 1}])
@pytest.mark.parametrize("resumed_after", range(1, 6))
def test_a_resumed_training_reads_what_it_would_have_read(resumed_after, validation, tmp_path):
    trainer = {"limit_train_batches": 2, **validation}
    whole = clips_read(tmp_path, **trainer)
    rest = clips_read(start=tmp_path / f"{resumed_after}.ckpt", **trainer)
    assert rest == whole[resumed_after:]


@given(
    clips=st.integers(1, 30),
    size=st.integers(1, 4),
    processes=st.integers(1, 3),
    limit=st.integers(1, 5),
    data=st.data(),
)
def test_processes_share_what_one_reads_and_every_clip_comes_equally_often(clips, size, processes, limit, data):
    epochs = data.draw(st.integers(1, 6))
    batches = {}
    for rank in range(processes):
        sampler = InOrder(range(clips), size, rank, processes)
        sampler.batches, read = limit, []
        if limit * size >= len(sampler):
            return  # whole epochs, which other tests look at
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            read += list(sampler)
        batches[rank] = torch.tensor(read).view(epochs * limit, size)
    together = torch.cat([batches[rank] for rank in range(processes)], dim=1).flatten().tolist()
    assert together == [place % clips for place in range(epochs * limit * size * processes)]


def test_a_pass_can_begin_within_an_epoch():
    sampler = InOrder(range(5), 2)
    sampler.batches, sampler.start = 2, 2
    sampler.set_epoch(1)
    assert list(sampler) == [1, 2]
    assert list(sampler) == [4, 0, 1, 2]
