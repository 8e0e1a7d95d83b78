"""The checkpoint to go on from is the newest that is whole, and what is wrong with the others is said."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from slotbench.errors import UserError
from slotbench.runs.checkpoint_choice import check_whole
from slotbench.runs.checkpoints import find_good, link


def save(folder: Path, name: str, step: int, **more: object) -> Path:
    parts = {"loops": {}, "optimizer_states": [], "lr_schedulers": [], "callbacks": {}}
    content = {"state_dict": {"weight": torch.randn(1000)}, **parts, "global_step": step, **more}
    torch.save(content, folder / name)
    return folder / name


def flip(path: Path) -> None:
    """Another byte in the tensors, where nothing but a checksum notices."""
    with zipfile.ZipFile(path) as archive:
        (data,) = [info for info in archive.infolist() if info.filename.endswith("data/0")]
    content = bytearray(path.read_bytes())
    content[data.header_offset + 1000] ^= 255
    path.write_bytes(bytes(content))


def test_nothing_there_is_nothing_wrong(tmp_path: Path) -> None:
    assert find_good(tmp_path) == (None, {})


def test_the_last_is_taken_and_the_others_are_not_looked_at(tmp_path: Path) -> None:
    last = save(tmp_path, "last.ckpt", 7)
    (tmp_path / "previous.ckpt").write_bytes(b"")
    good, problems = find_good(tmp_path)
    assert good is not None
    assert (good.path, good.step, problems) == (last, 7, {})


@pytest.mark.parametrize(("previous", "best", "taken"), [(6, 4, "previous.ckpt"), (4, 6, "best.ckpt")])
def test_if_the_last_is_cut_off_the_newest_of_the_others_is_taken(
    tmp_path: Path, previous: int, best: int, taken: str
) -> None:
    last = save(tmp_path, "last.ckpt", 8)
    last.write_bytes(last.read_bytes()[:-50])
    save(tmp_path, "previous.ckpt", previous)
    save(tmp_path, "best.ckpt", best)
    good, problems = find_good(tmp_path)
    assert good is not None
    assert (good.path.name, good.step) == (taken, 6)
    assert list(problems) == [last]
    assert "damaged or cut off" in problems[last]


def test_one_wrong_byte_is_noticed(tmp_path: Path) -> None:
    flip(save(tmp_path, "last.ckpt", 8))
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 8  # torch would take it
    good, problems = find_good(tmp_path)
    assert good is None
    assert "damaged" in problems[tmp_path / "last.ckpt"]


class Harm:
    def __reduce__(self) -> tuple:
        return (print, ("harm",))


def test_what_could_run_code_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, "last.ckpt", 8, extra=Harm())
    good, problems = find_good(tmp_path)
    assert good is None
    assert "cannot be read as plain tensors" in problems[tmp_path / "last.ckpt"]
    assert capsys.readouterr().out == ""


def test_a_file_of_weights_alone_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "global_step": 3}, tmp_path / "last.ckpt")
    good, problems = find_good(tmp_path)
    assert good is None
    assert "lacks loops, optimizer_states" in problems[tmp_path / "last.ckpt"]


def test_a_link_is_the_same_file_also_where_there_was_another(tmp_path: Path) -> None:
    last, best = save(tmp_path, "last.ckpt", 1), save(tmp_path, "best.ckpt", 2)
    for _ in range(2):  # of two names of one file neither is lost
        link(last, best)
        assert best.samefile(last)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.ckpt", "last.ckpt"]


@pytest.mark.parametrize("content", [{"global_step": 3}, {"state_dict": {}}])
def test_a_file_without_weights_is_refused_and_the_one_beside_it_is_named(tmp_path: Path, content: dict) -> None:
    whole, empty = save(tmp_path, "previous.ckpt", 1), tmp_path / "last.ckpt"
    check_whole(whole, "test", None)
    torch.save(content, empty)
    with pytest.raises(UserError) as refused:
        check_whole(empty, "test", tmp_path)
    said = " ".join(str(refused.value).split())
    assert f"{empty} holds no weights" in said
    assert str(whole) in said
    assert f"slotbench test {tmp_path} --checkpoint" in said
