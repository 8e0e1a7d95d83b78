"""The thirty slips that people make most: each ends with its exit code and one clear sentence, without a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tiny_configs import COMPONENTS, components_in, tiny_config

from slotbench.callbacks.run_checkpoint import CheckpointFile
from slotbench.cli import run
from slotbench.runs.folder import LOCK

FIT = "fit --config tiny.yaml"

# what is typed after `slotbench` -> what the sentence says, in any order: the setting, what was given, what is meant
SLIPS = {
    # commands and options
    "fti --config tiny.yaml": ["no command named fti", "did you mean slotbench fit?"],
    "fit": ["fit needs", "slotbench fit --config"],
    "FIT --modle.core TinyCore": ["modle", "did you mean", "model"],
    "FIT --trainer.max_epoch 3": ["max_epoch", "did you mean", "max_epochs"],
    "FIT --wandb on": ["--wandb", "on", "offline"],
    "FIT --threads 0": ["--threads", "0", "1 or more"],
    # components and their arguments
    "FIT --model.core TinyCor": ["no core named TinyCor", "did you mean TinyCore?"],
    "FIT --model.core TinyEncoder": ["no core named TinyEncoder", "encoder"],
    "FIT --model.core.num_slot 3": ["num_slot", "TinyCore", "did you mean", "num_slots"],
    "FIT --model.core.num_slots many": ["num_slots", "many", "int|whole number"],
    "FIT --model.core OtherCore --model.core.mode c": ["mode", "c", "a, b|'a', 'b'"],
    "FIT --data.loader.batch_size 0": ["batch_size", "0", "1 or more"],
    "FIT --model.optimizer Adm": ["no optimizer named Adm", "did you mean Adam?"],
    "FIT --model.schedule WarmupCosin": ["no schedule named WarmupCosin", "did you mean WarmupCosine?"],
    "FIT --model.core os.system": ["os.system", "not allowed|may not be named", "--allow-import"],
    # files
    "fit --config tinny.yaml": ["no file tinny.yaml", "did you mean tiny.yaml?"],
    "fit --config broken.yaml": ["broken.yaml is not valid YAML", "line 3"],
    "fit --config folders.yaml": ["there is nothing at nowhere"],
    "FIT --model.init_from nowhere": ["no weights at nowhere"],
    "FIT --plugin missing.py": ["no plugin file missing.py"],
    "FIT --plugin fails.py": ["fails.py", "cannot be imported", "ZeroDivisionError"],
    "FIT --plugin flat.py --model.core FlatCore": [
        "FlatCore returned slots",
        "expected",
        "batch time slots dim",
    ],
    # devices
    "FIT --trainer.accelerator gpux": ["accelerator", "gpux"],
    "FIT --trainer.max_time 1:30:00 --trainer.max_steps 1": ["1:30:00", "DD:HH:MM:SS", "key: trainer.max_time"],
    "FIT --trainer.max_time {minute:2}": ["key: trainer.max_time"],
    "FIT --trainer.callbacks Timer --trainer.callbacks.duration 1:30": ["Timer(duration='1:30')", "DD:HH:MM:SS"],
    "FIT --trainer.devices 9999": ["9,999|9999", "devices"],
    # runs and checkpoints
    "fit --resume nowhere": ["no run folder at nowhere"],
    "fit --resume RUN --model.core.num_slots 4": ["model.core.num_slots", "3", "4", "--allow-changes"],
    "test RUN --checkpoint nope.ckpt": ["nope.ckpt", "no checkpoint|no file|nothing"],
    "test RUN --model.core.dim 5": ["the checkpoint does not fit the model", "[8, 4] there", "[5, 4] here"],
    # grids
    "grid check unknown_key.yaml": ["prodct", "product"],
    "grid check typo.yaml": ["num_slot", "did you mean", "num_slots"],
}

PLUGIN = '''
from torch import nn
from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.registry import register


@register("cores")
class FlatCore(TemporalCore):
    """Hands over the slots side by side."""

    def __init__(self, spec: TokenSpec, num_slots: int = 2):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots, 8)
        self.linear = nn.Linear(spec.dim, 8)

    def forward(self, tokens, state=None):
        output = CoreOutput(self.linear(tokens).expand(-1, -1, self.slot_spec.num_slots, -1), None, None)
        output.slots = output.slots.flatten(2)
        return output
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with an experiment, files that are wrong, and a finished run, `done`."""
    folder = tmp_path_factory.mktemp("slips")
    noise = {"model": {"class_path": "DrawingTask"}, "data": {"class_path": "NoiseData"}}
    grid = {"base": "tiny.yaml", "product": {"model.core.num_slot": [2, 3]}}
    for name, content in {
        "tiny.yaml": tiny_config(),
        "noise.yaml": noise | {"trainer": {"max_steps": 4, "accelerator": "cpu", "enable_progress_bar": False}},
        "folders.yaml": tiny_config() | {"data": {"class_path": "VideoFolder", "init_args": {"path": "nowhere"}}},
        "typo.yaml": grid,
        "unknown_key.yaml": {"base": "tiny.yaml", "prodct": grid["product"]},
    }.items():
        (folder / name).write_text(yaml.safe_dump(content))
    (folder / "broken.yaml").write_text("model: TinyTask\ndata: {class_path: [A\n")
    (folder / "fails.py").write_text("1 / 0\n")
    (folder / "flat.py").write_text(PLUGIN)
    with components_in(folder):
        assert run(["fit", "--config", "tiny.yaml", "--run_dir", "done", "--plugin", str(COMPONENTS)]) == 0
        yield folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    monkeypatch.delenv("SLOTBENCH_RUN_DIR")


def sentence(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """What a command line is answered with on stderr, on one line."""
    capsys.readouterr()
    assert run(arguments) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.startswith("slotbench:")]) == 1, said
    return " ".join(said.split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("typed", SLIPS)
def test_a_slip_is_one_sentence_with_what_was_given_and_what_is_meant(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "RUN" in typed:
        shutil.rmtree("copy", ignore_errors=True)
        shutil.copytree("done", "copy")
    words = typed.replace("FIT", FIT).replace("RUN", "copy").split()
    plugin = ["--plugin", str(COMPONENTS)] if words[0] in ("fit", "test", "grid") and len(words) > 1 else []
    said = sentence(capsys, *words, *plugin)
    for part in SLIPS[typed]:
        assert any(word in said for word in part.split("|")), said
    assert not list(Path().glob("runs/*/*/config.yaml"))


@pytest.mark.filterwarnings("ignore")
def test_a_loss_that_is_no_number_ends_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAN_AT", "2")
    said = sentence(capsys, "fit", "--config", "noise.yaml", "--run_dir", "nan", code=1)
    assert "nan" in said
    assert "step 3" in said or "step 2" in said


@pytest.mark.filterwarnings("ignore")
def test_an_interrupt_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setenv("SIGNAL_AT", f"2:{int(signal.SIGINT)}")
    try:
        assert run(["fit", "--config", "noise.yaml", "--run_dir", "stopped"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr()
    assert "slotbench fit --resume stopped" in said.out
    assert "Traceback" not in said.err


@pytest.mark.filterwarnings("ignore")
def test_a_full_disk_names_the_run_and_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: CheckpointFile, content: dict, path: Path, storage_options: object = None) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(CheckpointFile, "save_checkpoint", full)
    said = sentence(capsys, "fit", "--config", "noise.yaml", "--run_dir", "full", code=1)
    assert "full failed: No space left on device" in said
    assert "slotbench fit --resume full" in said


def test_a_run_that_another_process_trains_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("done", "busy")
    os.remove("busy/result.json")
    with locked(Path("busy") / LOCK):
        assert "busy is being trained by" in sentence(capsys, "fit", "--config", "tiny.yaml", "--run_dir", "busy")


@pytest.mark.filterwarnings("ignore")
def test_without_a_login_at_wandb_the_run_is_recorded_offline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert run(["fit", "--config", "tiny.yaml", "--wandb", "online", "--run_dir", "online"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "this run is recorded offline" in said
    assert "wandb login" in said


def locked(path: Path):
    """Another process's lock on a run."""
    from slotbench.io import lock

    return lock(path)
