"""Weights are taken over where name and shape agree, and the rest is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from slotbench.pretrained.weights import WeightError, find_checkpoint, match_weights


class Old(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.core = nn.Linear(4, 4)
        self.gone = nn.Linear(2, 2, bias=False)


class New(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.core = nn.Linear(4, 6, bias=False)
        self.added = nn.Linear(2, 2, bias=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    torch.save({"state_dict": Old().state_dict(), "epoch": 3}, tmp_path / "run" / "checkpoints" / "last.ckpt")
    return tmp_path / "run"


def test_matching_tensors_are_copied_and_everything_else_is_named(run: Path) -> None:
    old = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    new = New()
    core, added = new.core.weight.clone(), new.added.weight.clone()
    report = match_weights(new, run)
    assert report.loaded == ("encoder.weight", "encoder.bias")
    assert report.missing == ("added.weight",)
    assert report.mismatched == {"core.weight": ((6, 4), (4, 4))}
    assert report.unused == ("core.bias", "gone.weight")
    assert (report.values, report.total) == (16, 16 + 24 + 4)
    torch.testing.assert_close(new.encoder.weight, old["encoder.weight"], rtol=0, atol=0)
    torch.testing.assert_close(new.core.weight, core, rtol=0, atol=0)
    torch.testing.assert_close(new.added.weight, added, rtol=0, atol=0)
    assert new.encoder.weight.requires_grad
    text = str(report)
    assert "2 of 4 tensors (16 of 44 values)" in text
    assert "core.weight 6x4, there 4x4" in text
    assert "added.weight" in text
    assert "gone.weight" in text


def test_a_file_and_a_bare_state_dict_will_do_too(tmp_path: Path) -> None:
    torch.save(Old().state_dict(), tmp_path / "weights.pt")
    assert find_checkpoint(tmp_path / "weights.pt") == tmp_path / "weights.pt"
    assert len(match_weights(Old(), tmp_path / "weights.pt").loaded) == 5


def test_a_buffer_is_taken_over(tmp_path: Path) -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean += 5
    torch.save(norm.state_dict(), tmp_path / "weights.pt")
    fresh = nn.BatchNorm1d(2)
    match_weights(fresh, tmp_path / "weights.pt")
    assert fresh.running_mean.tolist() == [5, 5]


def test_what_holds_no_weights_is_an_error_that_says_what_to_give(run: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="no such path"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(WeightError, match=r"there is .*last\.ckpt"):
        find_checkpoint(tmp_path)
    (run / "checkpoints" / "last.ckpt").rename(run / "checkpoints" / "best.ckpt")
    with pytest.raises(WeightError, match=r"there is .*best\.ckpt"):
        find_checkpoint(run)


def test_a_checkpoint_of_another_model_is_an_error(run: Path) -> None:
    with pytest.raises(WeightError, match=r"nothing in .* fits this model"):
        match_weights(nn.Linear(3, 4), run)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {"weight": Path("a")}}, tmp_path / "evil.ckpt")
    with pytest.raises(WeightError, match="cannot be read as plain tensors"):
        match_weights(nn.Linear(1, 1), tmp_path / "evil.ckpt")


def test_a_torn_checkpoint_is_refused(run: Path) -> None:
    path = run / "checkpoints" / "last.ckpt"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(WeightError, match=r"last\.ckpt"):
        match_weights(Old(), run)
    path.write_bytes(b"")
    with pytest.raises(WeightError, match=r"last\.ckpt"):
        match_weights(Old(), run)
