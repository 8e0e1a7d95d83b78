"""Whatever a user's videos are stored as, they become square clips of the frames that were asked for."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from media_files import write_maps, write_pictures
from media_files import write_video as write
from PIL import Image

from slotbench.data.base import Split
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

GREYS = range(10, 250, 8)
"""One value per frame, so that frames tell which they are: 30 of them."""


def video(rows: int = 12, columns: int = 20) -> np.ndarray:
    """The value of a frame in the square in its middle, and nothing beside it."""
    out = np.zeros((len(GREYS), rows, columns, 3), np.uint8)
    side = min(rows, columns)
    top, left = (rows - side) // 2, (columns - side) // 2
    out[:, top : top + side, left : left + side] = np.array(GREYS, np.uint8)[:, None, None, None]
    return out


def clips(path: Path, split: Split = "test", indices: tuple[int, ...] = (0,), **arguments: int | None) -> VideoBatch:
    data = VideoFolder(str(path), resolution=8, **arguments)  # type: ignore[arg-type]
    return data.dataset(split).clips(indices)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.gif", "frames", "a.mp4"])
def test_frames_are_found_cropped_and_resized(name: str, tmp_path: Path) -> None:
    # movies are compressed and want sides in blocks of 16
    rows, columns = (32, 64) if name == "a.mp4" else (12, 20)
    write(tmp_path / name, video(rows, columns))
    batch = clips(tmp_path, eval_frames=9, indices=(0, 1, 2))
    assert batch.frames.shape == (3, 9, 3, 8, 8)
    assert batch.frames.dtype == torch.uint8
    assert batch.masks is None
    assert batch.objects["first_frame"].tolist() == [0, 9, 18]
    middle = batch.frames[:, :, 1, 2:-2, 2:-2].double().mean((2, 3)).flatten()
    assert (middle - torch.tensor(GREYS[:27])).abs().max() < 4
    if name != "a.mp4":
        assert (batch.frames == batch.frames[..., :1, :1]).all()


def test_a_folder_of_everything_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("c.npz", "a.gif", "b"):
        write(tmp_path / name, video())
    (tmp_path / "notes.txt").write_text("no video")
    batch = clips(tmp_path, "train", tuple(range(9)), num_frames=4)
    assert (batch.objects["video"].reshape(3, 3).sort(1).values == torch.arange(3)).all()
    for clip in range(9):
        first = int(batch.objects["first_frame"][clip])
        expected = torch.tensor(GREYS)[first : first + 4]
        assert (batch.frames[clip, :, 0, 4, 4] - expected).abs().max() <= 2


def test_folders_of_the_splits_names_are_the_splits(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 1)):
        for number in range(count):
            (tmp_path / split).mkdir(exist_ok=True)
            write(tmp_path / split / f"{number}.npz", video())
    assert set(clips(tmp_path, "train", tuple(range(9))).objects["video"].tolist()) == {0, 1, 2}
    assert len(VideoFolder(str(tmp_path)).dataset("test")) == 1  # type: ignore[arg-type]
    with pytest.raises(DataFilesError, match=r"there is no video in .*val; expected"):
        VideoFolder(str(tmp_path)).dataset("val")


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_validation_that_is_the_training_set_is_said_aloud(tmp_path: Path, split: str) -> None:
    write(tmp_path / "a.npz", video())
    data = VideoFolder(str(tmp_path), resolution=8, eval_frames=6)
    with pytest.warns(UserWarning, match=r"training, validation and test have the same videos.*Move some videos to"):
        getattr(data, f"{split}_dataloader")()
    data.train_dataloader()
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    (tmp_path / "test").mkdir()
    write(tmp_path / split / "b.npz", video())
    getattr(VideoFolder(str(tmp_path), resolution=8, eval_frames=6), f"{split}_dataloader")()


def test_frames_can_be_read_in_grey(tmp_path: Path) -> None:
    colours = np.zeros((4, 8, 8, 3), np.uint8)
    colours[..., 1] = 200
    np.save(tmp_path / "a.npy", colours)
    data = VideoFolder(str(tmp_path), resolution=8, eval_frames=4, channels=1)
    assert data.spec.input.channels == 1
    frames = data.dataset("test").clips([0]).frames  # type: ignore[attr-defined]
    assert frames.shape == (1, 4, 1, 8, 8)
    assert set(frames.unique().tolist()) == {117}  # 0.587 of the green


def masks(rows: int = 12, columns: int = 20) -> np.ndarray:
    """Object 3 in the upper half, object 300 in the lower one, nothing in the frames of odd numbers."""
    out = np.zeros((len(GREYS), rows, columns), np.int32)
    out[::2, : rows // 2], out[::2, rows // 2 :] = 3, 300
    return out


@pytest.mark.parametrize(("rows", "columns"), [(12, 20), (20, 12), (9, 12), (12, 12)])
@pytest.mark.parametrize("fit", ["crop", "stretch", "letterbox"])
def test_frames_and_masks_become_square_as_asked(rows: int, columns: int, fit: str, tmp_path: Path) -> None:
    """Objects 1 to 4 are the quarters of the frame, brighter from one to the next, enlarged four times."""
    ids = (1 + 2 * (np.arange(rows) * 2 // rows)[:, None] + np.arange(columns) * 2 // columns)[None].repeat(2, 0)
    np.save(tmp_path / "a.npy", (60 * ids[..., None]).astype(np.uint8).repeat(3, -1))
    write_maps(tmp_path / "masks" / "a.npy", ids.astype(np.uint8))
    most, least = max(rows, columns), min(rows, columns)
    side = 4 * {"crop": least, "stretch": most, "letterbox": most}[fit]
    data = VideoFolder(str(tmp_path), resolution=side, eval_frames=2, fit=fit)  # type: ignore[arg-type]
    batch = data.dataset("test").clips([0])  # type: ignore[attr-defined]
    found = batch.masks[0, 0].numpy()
    # all of the frame but in a crop, in its own proportion but stretched, and bars on both sides but for half a pixel
    shown = [(found == one).mean() for one in range(5)]
    bars = (1 - least / most) * (fit == "letterbox")
    assert shown == pytest.approx([bars, *[(1 - bars) / 4] * 4], abs=0.75 / least)
    inside = np.argwhere(found)
    height, width = np.ptp(inside, axis=0) + 1
    ratio = rows / columns if fit == "letterbox" else 1
    assert height / width == pytest.approx(ratio)
    assert (abs(batch.frames[0, 0, 1].numpy() - 60.0 * found) < 1).mean() > 0.7
    view = data.dataset("test").view(0)  # type: ignore[attr-defined]
    assert view.frame == (rows, columns)
    assert inside.min(0).tolist() == [4 * max(-start, 0) for start in view.box[:2]]
    assert (view.cut(ids[0], fill=0).shape == (side // 4, side // 4)) == (fit != "stretch" or rows == columns)


@pytest.mark.parametrize("kind", ["walk.npz", "walk.npy", "walk/png"])
def test_masks_beside_the_videos_come_with_the_clips(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "walk.npz", video())
    write_maps(tmp_path / "masks" / kind, masks() if kind == "walk.npz" else masks().astype(np.uint16))
    batch = clips(tmp_path, eval_frames=4, stride=3)
    assert batch.masks is not None
    assert batch.masks.shape == (1, 4, 8, 8)
    # frames 0, 3, 6, 9
    assert batch.masks[0, :, 0, 0].tolist() == [3, 0, 3, 0]
    assert batch.masks[0, :, 7, 7].tolist() == [300, 0, 300, 0]
    (piece,) = VideoFolder(str(tmp_path), resolution=8).video_pieces("test", 64).__getitems__([0])
    assert piece.masks is not None
    assert piece.masks[0, :, 0, 0].tolist() == [3, 0] * 15


def test_every_video_has_masks_or_none_has(tmp_path: Path) -> None:
    for name in ("walk", "run"):
        write(tmp_path / f"{name}.npz", video())
    write_maps(tmp_path / "masks" / "walk.npz", masks())
    with pytest.raises(DataFilesError, match=r"no masks at .*run; expected masks of every video"):
        clips(tmp_path, eval_frames=4)
    (tmp_path / "masks" / "run").mkdir()
    Image.new("RGB", (20, 12)).save(tmp_path / "masks" / "run" / "0.png")
    with pytest.raises(DataFilesError, match="masks of 1 frames, and"):
        clips(tmp_path, eval_frames=4)
    write_pictures(tmp_path / "masks" / "run", video())
    with pytest.raises(DataFilesError, match="is an image in RGB; expected ids of objects"):
        clips(tmp_path, eval_frames=4)


def numbered(folder: Path, names: list[str], ids: bool) -> None:
    """A frame for each name, with a square at its number; or its mask."""
    folder.mkdir(parents=True)
    for place, name in enumerate(names):
        square = np.zeros((16, 16), np.uint8)
        square[4:8, 2 * place : 2 * place + 4] = 3 if ids else 255
        Image.fromarray(square).save(folder / f"{name}.png")


@pytest.mark.parametrize(
    ("frames", "maps", "said"),
    [
        ("0 1 2 3", "0000 0001 0002 0003", ""),
        ("0 1 2 3", "1 2 3 4", ""),
        ("f1 f2 f3", "0_mask 1_mask 2_mask", ""),
        ("cam2_8 cam2_9 cam2_10", "8 9 10", ""),
        ("0 5 10", "0 5 10", ""),
        ("0.25 0.5 1.0", "t0.25 t0.5 t1.0", ""),
        ("7", "3", ""),
        ("0 1 2 4", "0 1 2 3", "of number 3 where .*walk has frame 4: they are paired by the numbers"),
        ("1 2 3 5", "0 1 2 3", "of number 3 where .*walk has frame 5"),
        ("0 5 10", "0 1 2", "of number 1 where .*walk has frame 5"),
        ("10 11 12", "0 1 2", "of number 0 where .*walk has frame 10"),
        ("0.25 0.5 1.0", "0.25 0.5 1.5", "of number 1.5 where .*walk has frame 1.0"),
    ],
)
def test_masks_are_those_of_the_frames_of_their_numbers(frames: str, maps: str, said: str, tmp_path: Path) -> None:
    count = len(frames.split())
    numbered(tmp_path / "walk", frames.split(), ids=False)
    numbered(tmp_path / "masks" / "walk", maps.split(), ids=True)
    if said:
        with pytest.raises(DataFilesError, match=said):
            clips(tmp_path, eval_frames=count)
        return
    batch = clips(tmp_path, eval_frames=count)
    assert ((batch.frames[0, :, 0] > 127) == (batch.require("masks")[0] > 0)).all()


@pytest.mark.parametrize("kind", ["npz", "npy", "png"])
def test_masks_are_found_though_accents_are_stored_in_another_way(kind: str, tmp_path: Path) -> None:
    for stored, other, folder in (("NFC", "NFD", "a"), ("NFD", "NFC", "b")):
        name, its = (unicodedata.normalize(form, "Übung") for form in (stored, other))
        write(tmp_path / folder / f"{name}.npz", video())
        place = f"{its}/png" if kind == "png" else f"{its}.{kind}"
        write_maps(tmp_path / folder / "masks" / place, masks().astype(np.uint16))
        assert clips(tmp_path / folder, eval_frames=4).require("masks").max() == 300


@pytest.mark.parametrize("void", [[300], (300, 3), []])
def test_void_ids_count_nowhere(void: list[int], tmp_path: Path) -> None:
    write(tmp_path / "walk.npz", video())
    write_maps(tmp_path / "masks" / "walk.npz", masks())
    data = VideoFolder(str(tmp_path), resolution=8, eval_frames=2, void=void)
    found = data.dataset("test").clips([0]).require("masks")
    assert set(found.unique().tolist()) == {-1 if number in void else number for number in (0, 3, 300)}
    assert (found[0, 0, 4:] == (-1 if 300 in void else 300)).all()


@pytest.mark.parametrize(("void", "refused"), [([], True), ([-7], False)])
def test_ids_below_0_are_refused_but_for_void_ones(void: list[int], refused: bool, tmp_path: Path) -> None:
    write(tmp_path / "walk.npz", video())
    write_maps(tmp_path / "masks" / "walk.npz", np.where(masks() == 3, -7, masks()))
    dataset = VideoFolder(str(tmp_path), resolution=8, eval_frames=2, void=void).dataset("test")
    if refused:
        with pytest.raises(DataFilesError, match=r"ids below 0 or too large; expected 0, 1, 2, \.\.\., or void"):
            dataset.clips([0])
    else:
        assert dataset.clips([0]).require("masks").unique().tolist() == [-1, 0, 300]
