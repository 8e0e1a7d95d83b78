"""Records of masks that a run writes: of the last validation and of each test, for each kind of masks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny_discovery import tiny_discovery, train

from slotbench.cli import run
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.files import read_json
from slotbench.runs.evaluation_record import clip_list_hash

EXPERIMENT = tiny_discovery(clips=(6, 5), baseline_clips=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = train(EXPERIMENT, tmp_path_factory.mktemp("scored") / "runs" / "tiny")
    assert run(["test", str(path)]) == 0
    return path


def test_a_training_leaves_the_records_of_its_last_validation(trained):
    logged = json.loads((trained / "result.json").read_text())["metrics"]
    for source in ("decoder", "attention"):
        found = read_json(trained / f"val-{source}.json")
        assert found["masks"]["source"] == source
        assert found["scores"]["fg_ari/video"]["mean"] == pytest.approx(logged[f"val/fg_ari/video/{source}"])
        assert found["data"] == {"name": "BouncingBalls", "version": "unknown", "split": "val"}
        assert (found["clips"]["scored"], found["clips"]["there"], found["step"]) == (6, 6, 2)
        assert found["clips"]["hash"] == clip_list_hash(found["clips"]["names"])
        assert found["frames"]["lengths"] == {"3": 6}
        # the last validation has all clips, tracking among them
        assert len(found["scores"]["mota"]["values"]) == 6


def test_a_test_writes_records_beside_its_own(trained):
    (logged,) = (path for path in trained.glob("test-*.json") if path.stem.count("-") == 2)
    scores = json.loads(logged.read_text())["metrics"]
    for source in ("decoder", "attention"):
        found = read_json(trained / f"{logged.stem}-{source}.json")
        assert found["data"]["split"] == "test"
        assert (found["clips"]["scored"], found["run"], found["step"]) == (5, "tiny", 2)
        assert found["scores"]["miou/frame"]["mean"] == pytest.approx(scores[f"test/miou/frame/{source}"])
        assert len(found["scores"]["switches_per_100_frames"]["values"]) == 5
        assert found["baselines"]["one slot"]["miou/video"]["mean"] == pytest.approx(
            scores["test/baseline/miou/video/one slot"]
        )


def test_validations_before_the_last_keep_means_alone(trained, tmp_path):
    # step 2 is validated and step 3, the last, is not
    config = yaml.safe_load((trained / "config.yaml").read_text())
    config["trainer"] |= {"max_steps": 3, "val_check_interval": 2}
    (tmp_path / "longer.yaml").write_text(yaml.safe_dump(config))
    path = tmp_path / "run"
    arguments = ["fit", "--config", str(tmp_path / "longer.yaml"), "--run_dir", str(path), "--no_final_validation"]
    assert run(arguments) == 0
    found = read_json(path / "val-decoder.json")
    assert found["step"] == 2
    assert set(found["scores"]) == {
        f"{name}/{scope}"
        for name in ("fg_ari", "fg_ari_several", "ari", "miou", "miou_with_background", "mbo")
        for scope in ("video", "frame")
    }
    assert found["rules"]["empty"] == "one"


def test_a_test_against_pseudo_masks_says_so_in_record_and_headlines(trained, monkeypatch):
    monkeypatch.setattr(BouncingBalls, "pseudo_masks", True)
    earlier = set(trained.glob("test-*.json"))
    assert run(["test", str(trained)]) == 0
    (record,) = (path for path in set(trained.glob("test-*-decoder.json")) - earlier)
    assert read_json(record)["data"]["masks"] == "pseudo masks, found by a model"
    (headlines,) = [json.loads(record.with_name(record.name.replace("-decoder", "")).read_text())["headlines"]]
    labels = {headline["metric"]: headline["label"] for headline in headlines}
    assert labels["test/fg_ari/video/decoder"].endswith("(against pseudo masks)")
    assert "pseudo" not in labels["test/psnr/frame"]
