"""Pictures, GIFs and movies hold what they were given."""

from __future__ import annotations

import numpy as np
import pytest
from lightning.pytorch import LightningModule
from PIL import Image

from slotbench.callbacks.media import file_name, made_by, write_gif, write_image, write_video
from slotbench.interfaces import Reporter


def video(length: int = 5, height: int = 6, width: int = 8) -> np.ndarray:
    colours = np.array([[200, 10, 10], [10, 200, 10], [10, 10, 200], [240, 240, 240]], dtype=np.uint8)
    return colours[np.random.default_rng(0).integers(0, 4, (length, height, width))]


def test_a_gif_has_every_frame_enlarged_in_its_colours(tmp_path):
    given = video()
    with Image.open(write_gif(tmp_path / "a.gif", given)) as gif:
        assert (gif.n_frames, gif.info["loop"], gif.info["duration"]) == (5, 0, 100)
        factor = gif.size[0] // 8
        assert min(gif.size) >= 256
        for number, frame in enumerate(given):
            gif.seek(number)
            shown = np.asarray(gif.convert("RGB"))[::factor, ::factor]
            assert np.abs(shown.astype(int) - frame).max() <= 8


def test_a_long_video_is_a_gif_of_at_most_300_frames(tmp_path):
    with Image.open(write_video(tmp_path / "long", iter(video(601)), 601)) as found:
        assert found.n_frames == 201
    assert [path.name for path in tmp_path.iterdir()] == ["long.gif"]


def test_an_image_comes_back_as_it_was(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    assert (np.asarray(Image.open(write_image(tmp_path / "step1.5", image))) == image).all()
    assert (tmp_path / "step1.5.png").is_file()


@pytest.mark.parametrize("given", [np.zeros((2, 2, 3)), np.zeros((2, 2), np.uint8), np.zeros((0, 2, 3), np.uint8), [1]])
def test_what_is_no_picture_is_refused(given):
    class Task(LightningModule, Reporter):
        def plots(self):
            return {"x": given}

    with pytest.raises(TypeError, match=r"plot 'x' is .*; expected a numpy array uint8"):
        made_by(Task(), "plots")


def test_names_become_file_names():
    assert file_name("a b/ü:c.png") == "a-b-c.png"
