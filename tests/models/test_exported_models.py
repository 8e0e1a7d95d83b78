"""An exported run is the run's model, everywhere; a folder from a third party that is anything else is one sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tiny_discovery import tiny_discovery, train

import slotbench
from slotbench.cli import run
from slotbench.errors import FileError, UserError
from slotbench.interfaces import VideoBatch
from slotbench.metric_info import score_text
from slotbench.models import shipped
from slotbench.models.export import export_run


def config_of(core: str) -> dict:
    config = tiny_discovery("SAVi", num_slots=2, baseline_clips=2)
    if core == "PSB":
        config["model"]["init_args"]["core"] = {"class_path": "PSB", "init_args": {"num_slots": 2, "dim": 8}}
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config_of("SAVi"), tmp_path_factory.mktemp("exported") / "runs" / "tiny")


@pytest.fixture(scope="module")
def exported(trained: Path) -> Path:
    out = trained.parent / "exported"
    assert run(["export", str(trained), "--out", str(out)]) == 0
    return out


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "model"))


def slots(task: torch.nn.Module) -> torch.Tensor:
    frames = torch.rand(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)  # PSB and SAVi may draw their first slots
    with torch.no_grad():
        return task(VideoBatch(frames, torch.arange(4).expand(2, 4))).slots


def check_same(run_dir: Path, folder: Path) -> None:
    task, _ = slotbench.load_run(run_dir)
    read = slotbench.from_pretrained(folder)
    assert type(read) is type(task)
    assert not read.training
    assert torch.equal(slots(read), slots(task))
    video = torch.rand(4, 16, 16, 1).numpy()
    assert read.predict(VideoBatch.from_numpy(video))


def test_the_exported_model_gives_the_slots_of_the_runs_checkpoint_to_the_bit(trained: Path, exported: Path) -> None:
    check_same(trained, exported)


def test_a_parallel_core_gives_the_same_slots_too(tmp_path: Path) -> None:
    run_dir = train(config_of("PSB"), tmp_path / "runs" / "tiny")
    assert run(["export", str(run_dir), "--out", str(tmp_path / "out")]) == 0
    check_same(run_dir, tmp_path / "out")


def test_weights_of_16_bits_are_half_as_large_and_nearly_the_same(trained: Path, tmp_path: Path) -> None:
    assert run(["export", str(trained), "--out", str(tmp_path / "half"), "--half"]) == 0
    stored = load_file(tmp_path / "half" / "model.safetensors")
    assert {value.dtype for value in stored.values() if value.is_floating_point()} == {torch.float16}
    read = slotbench.from_pretrained(tmp_path / "half")
    assert {value.dtype for value in read.parameters()} == {torch.float32}
    torch.testing.assert_close(slots(read), slots(slotbench.load_run(trained)[0]), rtol=0.05, atol=0.05)
    assert "before the weights were rounded" in (tmp_path / "half" / "README.md").read_text()


def test_a_test_of_rounded_weights_is_that_of_the_rounded_model(trained: Path, tmp_path: Path) -> None:
    tested = shutil.copytree(trained, tmp_path / "run")
    for more in ([], ["--half"], []):
        assert run(["test", str(tested), *more]) == 0
    (tmp_path / "half").mkdir()
    assert run(["export", str(tested), "--out", str(tmp_path / "half"), "--half"]) == 0
    assert run(["export", str(tested), "--out", str(tmp_path / "whole")]) == 0
    found = {}
    for name, weights in (("half", "float16"), ("whole", "float32")):
        record = json.loads((tmp_path / name / "record.json").read_text())
        assert record["evaluation"]["weights"] == record["weights"] == weights
        found[name] = record["evaluation"]["metrics"]["test/psnr/frame"]
        content = (tmp_path / name / "model.safetensors").read_bytes()
        assert record["sha256"] == {"model.safetensors": hashlib.sha256(content).hexdigest()}
    assert "with the weights rounded to 16 bits" in (tmp_path / "half" / "README.md").read_text()
    assert found["half"] != found["whole"]
    assert found["half"] == pytest.approx(found["whole"], rel=0.01)


def test_the_card_has_the_scores_of_the_run_beside_baselines_its_steps_and_its_command(
    trained: Path, exported: Path
) -> None:
    text = (exported / "README.md").read_text()
    info = json.loads((trained / "run.json").read_text())
    headline = next(one for one in info["headlines"] if one["metric"] == "val/fg_ari/video/decoder")
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {headline['label']}")]
    assert f"**{score_text(info['metrics'][headline['metric']])}**" in row
    assert all(name in row for name in headline["baselines"])
    assert "| steps | 2 (last.ckpt) |" in text
    command = info["command"].split()[0]
    assert any(line.startswith("| command |") and command in line for line in text.splitlines())
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["library_name"] == "slotbench"
    (result,) = front["model-index"][0]["results"]
    assert (result["dataset"]["name"], result["dataset"]["split"]) == ("BouncingBalls", "validation")
    assert len(result["metrics"]) == len(info["headlines"])
    assert (exported / "config.yaml").read_text() == (trained / "config.yaml").read_text()


def test_a_test_of_the_weights_is_preferred_to_the_validation(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    test = {"subcommand": "test", "created": "2100-01-01T00:00:00+00:00", "checkpoint": "elsewhere/last.ckpt"}
    test |= {
        "headlines": [{"metric": "test/mse", "label": "error", "higher_is_better": False}],
        "metrics": {"test/mse": 0.25},
    }
    (tmp_path / "run" / "test-21000101-000000.json").write_text(json.dumps(test))
    # a later one of longer clips is no score of the model as it was trained
    test |= {"created": "2100-01-02T00:00:00+00:00", "settings": {"data.eval_frames": "9"}, "metrics": {"test/mse": 9}}
    (tmp_path / "run" / "test-21000102-000000.json").write_text(json.dumps(test))
    assert run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "README.md").read_text()
    assert "On the test split of BouncingBalls, by `slotbench test`." in text
    assert "| error | **0.250** | - |" in text


def test_scores_of_an_earlier_checkpoint_are_those_of_its_line_in_the_history(trained: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(trained, tmp_path / "run")) / "run.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps(info | {"metrics_step": info["metrics_step"] + 1, "metrics": {}}))
    evaluation = export_run(tmp_path / "run", tmp_path / "out")["evaluation"]
    assert evaluation["split"] == "validation"
    assert evaluation["metrics"]["val/psnr/frame"] == pytest.approx(info["metrics"]["val/psnr/frame"])


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config["task"]["init_args"])
    (folder / "config.json").write_text(json.dumps(config))


def foreign_class(folder: Path) -> None:
    edit(folder, lambda given: given["core"].update(class_path="subprocess.Popen"))


def imported_class(folder: Path) -> None:
    edit(folder, lambda given: given["core"].update(class_path="torch.nn.Linear"))


def path_of_a_file(folder: Path) -> None:
    edit(folder, lambda given: given.update(metric_weights={"lpips": "/etc/passwd"}))


def other_sizes(folder: Path) -> None:
    edit(folder, lambda given: given["core"]["init_args"].update(dim=16))


def cut_off(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


DAMAGES = {
    foreign_class: r"subprocess\.Popen",
    imported_class: r"torch\.nn\.Linear",
    path_of_a_file: "/etc/passwd",
    other_sizes: "does not fit the model",
    cut_off: "holds no model",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_folder_that_is_not_as_it_should_be_is_refused_in_a_sentence(damage, copied: Path) -> None:
    damage(copied)
    with pytest.raises((FileError, UserError), match=DAMAGES[damage]) as refused:
        slotbench.from_pretrained(copied)
    assert len(str(refused.value).splitlines()) <= 3


def test_a_name_that_there_is_not_lists_those_that_there_are(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no model named nope, and no such folder"):
        slotbench.from_pretrained("nope")
    monkeypatch.setattr(shipped, "_HERE", exported.parent)
    assert torch.equal(slots(slotbench.from_pretrained("exported")), slots(slotbench.from_pretrained(exported)))
    with pytest.raises(UserError, match=r"did you mean exported\?\n  models: +exported"):
        slotbench.from_pretrained("exportde")


def test_a_run_folder_says_what_to_type(trained: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)slotbench\.load_run\(.*slotbench export"):
        slotbench.from_pretrained(trained)


def test_nothing_is_written_over(trained: Path, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(exported.parent.iterdir())
    assert run(["export", str(trained), "--out", str(exported)]) == 2
    assert "is there already" in " ".join(capsys.readouterr().err.split())
    assert sorted(exported.parent.iterdir()) == before


def test_a_failed_export_leaves_nothing(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained, tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "last.ckpt"
    held = torch.load(file, weights_only=True)
    held["hyper_parameters"]["encoder"] = {"class_path": "torch.nn.Linear", "init_args": {}}
    torch.save(held, file)
    with pytest.raises(
        UserError, match=r"encoder is torch\.nn\.modules\.linear\.Linear, which is no registered component"
    ):
        export_run(tmp_path / "run", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
