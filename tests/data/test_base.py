import copy
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import (
    ClipDataset,
    LoaderOptions,
    SlotDataModule,
    Split,
    collate,
    generator_for,
    to_unit_range,
)
from slotbench.data.reading_order import InOrder
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

# newer Pythons warn of every fork of a process with threads, which torch's worker processes are
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


class Numbers(ClipDataset):
    """Clip i is one pixel of value i % 256; `objects` also says with how many threads torch ran."""

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        count = len(indices)
        return VideoBatch(
            frames=torch.tensor(indices, dtype=torch.uint8).reshape(count, 1, 1, 1, 1),
            time=torch.zeros(count, 1, dtype=torch.long),
            objects={"threads": torch.full((count,), torch.get_num_threads())},
        )


class NumberData(SlotDataModule):
    @property
    def spec(self) -> DataSpec:
        return DataSpec(VideoSpec(1, 1, 1), VideoSpec(1, 1, 1))

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        return Numbers(self.sizes[split])


def everything(batches: list[VideoBatch]) -> dict[str, Tensor]:
    batch = collate(batches)
    return {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects


@FORKS
@pytest.mark.parametrize("kind", [BlinkingBalls, BouncingBalls])
def test_the_bytes_are_the_same_for_any_number_of_workers(kind: type[SlotDataModule]) -> None:
    loads = []
    for workers in (0, 1, 2):
        data = kind(resolution=16, loader=LoaderOptions(num_workers=workers, train_size=22, batch_size=4))
        loads.append(everything(list(data.train_dataloader())))
    for other in loads[1:]:
        assert loads[0].keys() == other.keys()
        for name, value in loads[0].items():
            assert value.numpy().tobytes() == other[name].numpy().tobytes(), name


@FORKS
def test_workers_run_torch_on_one_thread_and_stay_between_epochs() -> None:
    loader = NumberData(LoaderOptions(num_workers=1, train_size=4, batch_size=2)).train_dataloader()
    assert loader.persistent_workers
    for _ in range(2):
        assert all((batch.objects["threads"] == 1).all() for batch in loader)


def test_a_generator_depends_on_seed_split_and_index_only() -> None:
    assert generator_for(1, "val", 5).integers(1 << 60) == generator_for(1, "val", 5).integers(1 << 60)
    draws = {int(generator_for(s, p, i).integers(1 << 60)) for s in (0, 1) for p in ("train", "val") for i in (0, 1)}
    assert len(draws) == 8


def test_every_clip_comes_once_and_in_order_and_none_is_dropped() -> None:
    data = NumberData(LoaderOptions(batch_size=4, val_batch_size=8, train_size=10, val_size=19, test_size=3))
    loaders = {
        "train": (data.train_dataloader(), [4, 4, 2]),
        "val": (data.val_dataloader(), [8, 8, 3]),
        "test": (data.test_dataloader(), [3]),
        "predict": (data.predict_dataloader(), [3]),
    }
    for loader, lengths in loaders.values():
        for _ in range(2):
            batches = list(loader)
            assert [len(batch) for batch in batches] == lengths
            assert everything(batches)["frames"].flatten().tolist() == list(range(sum(lengths)))


def test_bytes_become_floats_in_the_unit_range_and_floats_stay() -> None:
    data = BlinkingBalls()
    batch = next(iter(data.train_dataloader()))
    assert batch.frames.dtype == torch.uint8
    for scaled in (to_unit_range(batch), data.on_after_batch_transfer(batch, 0)):
        assert scaled.frames.dtype == torch.float32
        assert set(scaled.frames.unique().tolist()) == {0.0, 1.0}
        assert torch.equal(scaled.frames * 255, batch.frames)
        assert torch.equal(to_unit_range(scaled).frames, scaled.frames)
        assert scaled.target is batch.target
    grey = VideoBatch(torch.full((1, 1, 1, 1, 1), 51, dtype=torch.uint8), torch.zeros(1, 1, dtype=torch.long))
    assert to_unit_range(grey).frames.item() == pytest.approx(0.2)


@FORKS
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_with_the_batch_after_the_last_one_handed_out(workers: int) -> None:
    def loader() -> torch.utils.data.DataLoader:
        return NumberData(LoaderOptions(batch_size=4, train_size=20, num_workers=workers)).train_dataloader()

    stopped = loader()
    passing = iter(stopped)
    for _ in range(3):
        next(passing)
    state = copy.deepcopy(stopped.state_dict())
    resumed = loader()
    resumed.load_state_dict(state)
    assert everything(list(resumed))["frames"].flatten().tolist() == list(range(12, 20))
    assert resumed.state_dict() == {"batches": 5}
    # the pass after that is a whole one, and so is the one after a complete pass
    assert len(list(resumed)) == 5
    again = loader()
    again.load_state_dict({"batches": 5})
    assert len(list(again)) == 5


class Recorder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.seen: list[int] = []

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        assert batch.frames.is_floating_point()
        self.seen += (batch.frames * 255).round().int().flatten().tolist()
        return self.weight

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        assert batch.frames.is_floating_point()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder: Path, max_steps: int, checkpoint: Path | None = None) -> tuple[list[int], lightning.Trainer]:
    module = Recorder()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=max_steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(
        module,
        datamodule=NumberData(LoaderOptions(batch_size=2, train_size=10, val_size=4)),
        ckpt_path=checkpoint,
    )
    return module.seen, trainer


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*`training_step` returned.*")
@pytest.mark.parametrize("stop", [3, 5, 7])
def test_training_that_was_stopped_goes_on_with_the_next_clip(tmp_path: Path, stop: int) -> None:
    expected = [*range(10), *range(10)]
    before, trainer = fit(tmp_path, stop)
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    after, _ = fit(tmp_path, 10, tmp_path / "stopped.ckpt")
    assert before == expected[: 2 * stop]
    assert after == expected[2 * stop :]


@given(size=st.integers(1, 60), batch_size=st.integers(1, 5), processes=st.integers(1, 4))
def test_processes_share_each_batch_and_together_read_what_one_reads(
    size: int, batch_size: int, processes: int
) -> None:
    def parts(equal_shares: bool) -> list[list[list[int]]]:
        samplers = [InOrder(Numbers(size), batch_size, rank, processes, equal_shares) for rank in range(processes)]
        orders = [list(sampler) for sampler in samplers]
        assert [len(order) for order in orders] == [len(sampler) for sampler in samplers]
        return [[order[at : at + batch_size] for at in range(0, len(order), batch_size)] for order in orders]

    whole, rest = divmod(size, batch_size * processes)
    training = parts(equal_shares=True)
    together = [[*chain(*batch)] for batch in zip(*training, strict=True)]  # all have the same number of batches
    read = size - rest % processes
    assert [*chain(*together)] == list(range(read))
    assert [len(batch) for batch in together[:whole]] == [batch_size * processes] * whole
    assert len({len(part[-1]) for part in training if part}) <= 1
    evaluated = [[*chain(*part)] for part in parts(equal_shares=False)]
    assert sorted(chain(*evaluated)) == list(range(size))
    assert max(map(len, evaluated)) - min(map(len, evaluated)) <= 1


def test_clips_of_a_data_set_that_gives_them_one_by_one_say_which_they_are() -> None:
    class Single(Dataset[VideoBatch]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> VideoBatch:
            return Numbers(5).clips([index])

    class SingleData(NumberData):
        def dataset(self, split: Split) -> Dataset[VideoBatch]:
            return Single()

    batches = list(SingleData(LoaderOptions(val_batch_size=3)).val_dataloader())
    assert [batch.index.tolist() for batch in batches if batch.index is not None] == [[0, 1, 2], [3, 4]]
    assert [batch.frames.flatten().tolist() for batch in batches] == [[0, 1, 2], [3, 4]]


class Cameras(ClipDataset):
    """Three steps seen by three posed cameras: two are shown, the last is held out; pixels say clip, step and view."""

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        clip, step, view = np.meshgrid(indices, range(3), range(3), indexing="ij")
        pixels = torch.from_numpy(9 * clip + 3 * step + view).to(torch.uint8)[..., None, None, None]
        frames, time = pixels.expand(-1, -1, -1, 3, 4, 5), torch.arange(3).repeat(len(indices), 1)
        rays = frames[:, :, :, :1].float().expand(-1, -1, -1, 6, -1, -1)
        masks = frames[:, :, :, 0]
        held_out = VideoBatch(frames[:, :, 2:], time, masks[:, :, 2:], rays=rays[:, :, 2:])
        return VideoBatch(frames[:, :, :2], time, masks[:, :, :2], rays=rays[:, :, :2], held_out=held_out)


class CameraData(SlotDataModule):
    @property
    def spec(self) -> DataSpec:
        frame = VideoSpec(3, 4, 5, num_views=2)
        return DataSpec(frame, frame)

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        return Cameras(self.sizes[split])


def views(batch: VideoBatch) -> list:
    """The values of all pixels, rays and masks of a batch, which must agree: "batch time views"."""
    assert batch.rays is not None
    assert batch.masks is not None
    frames, rays, masks = batch.frames.float(), batch.rays, batch.masks[:, :, :, None]
    frames = frames * 255 if batch.frames.is_floating_point() else frames
    assert frames.shape[3:] == (3, 4, 5)
    assert rays.shape[3:] == (6, 4, 5)
    for values in (frames, rays, masks):
        assert torch.equal(values.round(), frames[:, :, :, :1, :1, :1].round().expand_as(values))
    return frames[:, :, :, 0, 0, 0].round().int().tolist()


@FORKS
@pytest.mark.parametrize("workers", [0, 1])
def test_several_posed_cameras_are_batched_moved_and_cut_with_the_views_that_are_held_out(workers: int) -> None:
    data = CameraData(LoaderOptions(batch_size=2, train_size=4, num_workers=workers))
    first, second = data.train_dataloader()
    assert views(first) == [[[0, 1], [3, 4], [6, 7]], [[9, 10], [12, 13], [15, 16]]]
    assert first.held_out is not None
    assert views(first.held_out) == [[[2], [5], [8]], [[11], [14], [17]]]
    both = collate([first, second])
    assert both.held_out is not None
    assert (len(both), len(both.held_out), both.num_views, both.held_out.num_views) == (4, 4, 2, 1)

    moved = data.transfer_batch_to_device(first, torch.device("meta"), 0)
    assert {value.device.type for part in (moved, moved.held_out) for value in everything([part]).values()} == {"meta"}
    batch = data.on_after_batch_transfer(first, 0)
    for part in (batch, batch.held_out):
        assert part.frames.dtype == torch.float32
        assert part.frames.max() <= 17 / 255
    cut = batch.slice_time(1, 3)
    assert views(cut) == [[[3, 4], [6, 7]], [[12, 13], [15, 16]]]
    assert views(cut.held_out) == [[[5], [8]], [[14], [17]]]
    assert cut.held_out.time.tolist() == cut.time.tolist() == [[1, 2], [1, 2]]
