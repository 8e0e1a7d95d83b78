"""Frames of masks and truth belong together by their numbers, where files say them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scored_arrays import scored

from slotbench.errors import UserError
from slotbench.evaluation.frame_numbers import FrameNumbers, matching_frames

PATHS = Path("masks"), Path("truth")


def named(*numbers):
    return FrameNumbers(len(numbers), np.array(numbers))


def placed(*numbers):
    return FrameNumbers(len(numbers), np.array(numbers), from_zero=True)


@pytest.mark.parametrize(
    ("masks", "truth", "expected"),
    [
        (FrameNumbers(5), FrameNumbers(5), None),
        (FrameNumbers(5), FrameNumbers(9), None),  # as many are asked for later
        (named(0, 1, 2), named(1, 2, 3), None),
        (named(1, 2, 3), named(0, 1, 2), None),
        (named(1, 2, 3), FrameNumbers(3), None),
        (named(7, 8, 9), named(*range(12)), [7, 8, 9]),
        (named(0, 5, 10), named(*range(12)), [0, 5, 10]),
        (placed(2, 4), FrameNumbers(6), [2, 4]),
        (placed(2, 4), named(*range(1, 7)), [2, 4]),
        (placed(2, 4), named(*range(6)), [2, 4]),
        (placed(2, 4), placed(0, 2, 4, 6), [1, 2]),
        (placed(5), named(0, 5, 10), [1]),
        (placed(0, 1), FrameNumbers(2), [0, 1]),
    ],
)
def test_frames_of_one_number_belong_together(masks, truth, expected):
    found = matching_frames(masks, truth, False, PATHS)
    assert (None if found is None else found[1].tolist()) == expected
    assert found is None or found[0].tolist() == list(range(masks.length))
    assert matching_frames(masks, truth, True, PATHS) is None


@pytest.mark.parametrize(
    ("masks", "truth", "said"),
    [
        (placed(24, 25), FrameNumbers(2), "masks has frames 24 to 25, and truth has 2 frames"),
        (placed(0, 2, 4), FrameNumbers(3), "frames 0, 2, 4"),
        (named(10, 11, 12), named(0, 1, 2), "frames 10 to 12, and truth has frames 0 to 2"),
        (named(*range(10)), named(*range(0, 50, 5)), "frames 0, 5, 10, ... 45"),
        (FrameNumbers(46), named(*range(0, 50, 5)), "masks has 46 frames, and truth has frames 0, 5, 10, ... 45"),
        (named(10, 11), FrameNumbers(50), "frames 10 to 11"),
    ],
)
def test_frames_without_a_truth_are_refused(masks, truth, said):
    with pytest.raises(UserError) as caught:
        matching_frames(masks, truth, False, PATHS)
    assert said in str(caught.value)
    assert "--frames-in-order" in str(caught.value)


def test_frames_without_a_truth_may_be_left_out(tmp_path, capsys):
    truth = ids(11)
    pictures(tmp_path / "truth" / "walk", truth[::5], range(0, 11, 5))
    pictures(tmp_path / "masks" / "walk", truth, range(11))
    assert scored(tmp_path, capsys)[0] == 2
    code, printed, _ = scored(tmp_path, capsys, "--allow-missing")
    assert code == 0
    assert "mIoU per video ↑ 1.000" in printed
    assert "3 frames of 8 x 8 pixels" in printed
    assert "not scored, without truth: 8 frames of the masks" in printed
    with pytest.raises(UserError):
        matching_frames(named(7, 9), named(1, 3), False, PATHS, allow_missing=True)


def ids(frames):
    rng = np.random.default_rng(0)
    return rng.integers(0, 3, (frames, 8, 8), dtype=np.uint8)


def pictures(folder, values, numbers):
    folder.mkdir(parents=True)
    for frame, number in zip(values, numbers, strict=True):
        Image.fromarray(frame).save(folder / f"frame{number:05d}.png")


def test_pictures_of_some_frames_are_compared_with_those_of_the_truth(tmp_path, capsys):
    truth = ids(12)
    pictures(tmp_path / "truth" / "walk", truth, range(12))
    pictures(tmp_path / "masks" / "walk", truth[4:8], range(4, 8))
    code, printed, _ = scored(tmp_path, capsys)
    assert code == 0
    assert "mIoU per video ↑ 1.000" in printed
    assert "4 frames of 8 x 8 pixels" in printed


def test_pictures_that_count_from_another_number_are_refused(tmp_path, capsys):
    truth = ids(4)
    pictures(tmp_path / "truth" / "walk", truth, range(4))
    pictures(tmp_path / "masks" / "walk", truth, range(10, 14))
    code, printed, _ = scored(tmp_path, capsys)
    assert code == 2
    assert "frames 10 to 13" in printed
    assert scored(tmp_path, capsys, "--frames-in-order")[0] == 0


def test_arrays_may_say_their_frames_and_their_video(tmp_path, capsys):
    truth = ids(12)
    (tmp_path / "truth").mkdir()
    (tmp_path / "masks").mkdir()
    for name in ("walk", "run"):
        np.save(tmp_path / "truth" / f"{name}.npy", truth if name == "walk" else truth[::-1])
    for start in (2, 6):
        np.savez(
            tmp_path / "masks" / f"clip{start}.npz",
            masks=truth[start : start + 4],
            frame=np.arange(start, start + 4),
            video=np.array("walk"),
        )
    code, printed, _ = scored(tmp_path, capsys, "--allow-missing")
    assert code == 0
    assert "2 clips scored of 3 there" in printed
    assert "mIoU per video ↑ 1.000" in printed


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"frame": np.arange(3)}, "has 4 masks, and its array frame 3 numbers"),
        ({"frame": np.array([0, 2, 1, 3])}, "has an array frame that is none; expected rising whole numbers"),
        ({"frame": np.arange(4.0)}, "has an array frame that is none"),
        ({"video": np.array([1, 2])}, "has an array video that is no name"),
        ({"view": np.array([8, 8, 0, 4, 8, 8])}, "has an array view that is none"),
    ],
)
def test_what_a_file_says_of_its_masks_is_checked(tmp_path, capsys, more, said):
    for side in ("masks", "truth"):
        (tmp_path / side).mkdir()
        np.savez(tmp_path / side / "a.npz", masks=ids(4), **(more if side == "masks" else {}))
        np.savez(tmp_path / side / "b.npz", masks=ids(4), **(more if side == "masks" else {}))
    (tmp_path / "truth" / "b.npz").rename(tmp_path / "truth" / "c.npz")
    code, printed, _ = scored(tmp_path, capsys, "--allow-missing")
    assert code == 2
    assert said in printed
