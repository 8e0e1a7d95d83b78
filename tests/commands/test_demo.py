"""`slotbench demo`: pictures and GIFs of the models that come along."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from slotbench.cli import run
from slotbench.commands import demo
from slotbench.data.mnist import digits
from slotbench.errors import DataFilesError
from slotbench.models.shipped import shipped


def test_a_model_is_drawn_on_new_clips(tmp_path, capsys):
    assert run(["demo", "blinking_balls_slotssm", "--out", str(tmp_path), "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert "last colour seen" in shown
    (picture,), (movie,) = tmp_path.glob("*.png"), tmp_path.glob("*.gif")
    assert str(picture) in shown
    assert f"{movie}: a clip of each" in shown
    colours = {colour for _, colour in Image.open(picture).convert("RGB").getcolors(1 << 24) or ()}
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)} & colours


def test_without_the_simulators_extra_stored_clips_are_drawn(tmp_path, capsys, monkeypatch):
    def missing() -> None:
        raise DataFilesError("MovingMNIST needs digits; pip install 'slotbench[mnist]'")

    monkeypatch.setattr(digits, "_packaged", missing)
    assert run(["demo", "moving_mnist_convs5", "--out", str(tmp_path)]) == 0
    assert "on stored clips: MovingMNIST needs digits" in capsys.readouterr().out
    (movie,) = tmp_path.glob("*.gif")
    with Image.open(movie) as moving:
        assert getattr(moving, "n_frames", 1) > 10


@pytest.mark.parametrize("name", shipped())
def test_every_model_is_shown_with_a_score_beside_a_baseline(name):
    assert re.fullmatch(r"\S.* \d+\.\d+ \(.+: \d+\.\d+\)", demo._merits(shipped()[name])[0])


def test_an_unknown_model_is_refused_with_the_nearest(tmp_path, capsys):
    assert run(["demo", "movi_like_svai", "--out", str(tmp_path / "demo")]) == 2
    assert "did you mean movi_like_savi" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
