"""A checkpoint that is to be evaluated is read through first; one without weights is refused, others are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slotbench.errors import UserError
from slotbench.runs.checkpoint_choice import check_whole


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "previous.ckpt"
    torch.save({"state_dict": {"weight": torch.ones(3)}}, path)
    return path


def test_a_whole_checkpoint_passes(whole: Path) -> None:
    check_whole(whole, "test", None)


@pytest.mark.parametrize("content", [{"global_step": 3}, {"state_dict": {}}, {"state_dict": [1]}])
def test_a_file_without_weights_is_refused_and_the_whole_one_beside_it_is_named(
    whole: Path, tmp_path: Path, content: dict
) -> None:
    empty = tmp_path / "last.ckpt"
    torch.save(content, empty)
    with pytest.raises(UserError) as refused:
        check_whole(empty, "test", tmp_path)
    said = " ".join(str(refused.value).split())
    assert f"{empty} holds no weights: expected them under 'state_dict'" in said
    assert f"{whole} (whole)" in said
    assert f"slotbench test {tmp_path} --checkpoint {whole}" in said


def test_where_no_other_is_whole_there_is_nothing_to_type(tmp_path: Path) -> None:
    for name in ("last.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match="no other checkpoint that is whole") as refused:
        check_whole(tmp_path / "last.ckpt", "test", tmp_path)
    assert "--checkpoint" not in str(refused.value)
