"""`fit` and its siblings end to end with the tiny components: what is recorded, overridden, shown and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from slotbench.cli import run
from slotbench.interfaces import DataSpec, VideoSpec

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "blinking_balls.yaml"


@pytest.fixture
def command(workspace, tiny_components):
    """Runs a command on tiny.yaml, or on what `on` says, which must succeed."""

    def call(name: str, *arguments: str, on: tuple[str, ...] = ("--config", "tiny.yaml")) -> None:
        assert run([name, *on, "--plugin", str(tiny_components), *arguments]) == 0

    return call


def only_run(name: str = "tiny", root: str = "runs") -> Path:
    (folder,) = Path(root, name).iterdir()
    return folder


def config_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def shown(capsys) -> dict:
    captured = capsys.readouterr()
    assert captured.err == ""
    return yaml.safe_load(captured.out)


def test_fit_records_a_complete_configuration_in_a_folder_of_its_own(command, capsys):
    sizes = ("--data.size", "6", "--model.encoder.dim", "5", "--model.core.dim", "4", "--data.loader.batch_size", "1")
    before = torch.get_num_threads()
    try:
        command("fit", "--name", "mine", "--runs_dir", "elsewhere", "--group", "grid1", "--threads", "2", *sizes)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    folder = only_run("mine", "elsewhere")
    assert sorted(path.name for path in Path().iterdir()) == ["elsewhere", "tiny.yaml"]
    opening = capsys.readouterr().out.splitlines()[:5]
    assert opening[0].startswith(f"fit {folder}")
    assert opening[1].endswith("TinyTask: TinyEncoder -> TinyCore -> TinyDecoder")
    info, config = json.loads((folder / "run.json").read_text()), config_of(folder)
    assert (info["name"], info["group"]) == ("mine", "grid1")
    assert not {"name", "runs_dir", "group", "wandb", "plugin"} & set(config)
    model = config["model"]["init_args"]
    assert model["core"] == {"class_path": "TinyCore", "init_args": {"num_slots": 3, "dim": 4, "depth": 2}}
    assert model["decoder"]["init_args"] == {"gain": 1.0}
    assert "data_spec" not in model
    assert (config["data"]["init_args"]["loader"]["batch_size"], config["seed_everything"]) == (1, 0)
    weights = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    shapes = [weights[f"{part}.linear.weight"].shape for part in ("encoder", "core", "decoder")]
    assert shapes == [(5, 3), (4, 5), (3, 4)]
    command("show", on=(str(folder / "config.yaml"),))
    assert capsys.readouterr().out == (folder / "config.yaml").read_text()


@pytest.mark.parametrize("spelling", ["short", "long", "init_args"])
def test_arguments_can_be_overridden(command, capsys, spelling):
    overrides = {
        "short": ["--model.core.num_slots", "5"],
        "long": ["--model.init_args.core.init_args.num_slots=5"],
        "init_args": ["--model.core.init_args.num_slots", "5"],
    }
    command("show", *overrides[spelling], on=("tiny.yaml",))
    assert shown(capsys)["model"]["init_args"]["core"]["init_args"] == {"num_slots": 5, "dim": 8, "depth": 2}


def test_callbacks_and_loggers_of_the_file_are_kept(command):
    Path("more.yaml").write_text(
        "trainer:\n"
        "  callbacks:\n"
        "  - class_path: lightning.pytorch.callbacks.LearningRateMonitor\n"
        "  - class_path: EarlyStopping\n"
        "    init_args: {monitor: val/loss}\n"
        "  logger:\n"
        "    class_path: lightning.pytorch.loggers.CSVLogger\n"
        "    init_args: {save_dir: csv}\n"
    )
    command("fit", "--config", "more.yaml", "--trainer.log_every_n_steps", "1")
    assert list(Path("csv").rglob("metrics.csv"))
    assert (only_run() / "metrics.jsonl").read_text() != ""
    callbacks = torch.load(only_run() / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]
    assert any("EarlyStopping" in name for name in callbacks)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_resumed_run_compiles_as_it_has_begun(command, monkeypatch):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda function, *, mode: modes.append(mode) or function)
    command("fit", "--compile", "graphs")
    folder = only_run()
    assert json.loads((folder / "run.json").read_text())["compile"] == "graphs"
    assert "compile" not in config_of(folder)
    assert modes
    assert set(modes) == {"reduce-overhead"}
    (folder / "result.json").unlink()
    again = ("--resume", str(folder), "--allow-changes")
    modes.clear()
    command("fit", "--trainer.max_steps", "8", on=again)
    assert set(modes) == {"reduce-overhead"}
    modes.clear()
    command("fit", "--trainer.max_steps", "12", "--compile", "off", on=again)
    assert not modes
    assert json.loads((folder / "run.json").read_text())["compile"] == "off"


def test_a_training_that_only_the_clock_ends(command):
    settings = {"max_steps": "-1", "max_epochs": "null", "max_time": "00:00:00:01"}
    command(
        "fit",
        *(word for name, value in settings.items() for word in (f"--trainer.{name}", value)),
        *("--model.schedule", "ConstantRate"),
    )
    result = json.loads((only_run() / "result.json").read_text())
    assert result["step"] > 0
    assert json.loads((only_run() / "run.json").read_text())["total_steps"] is None


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_a_callback_that_monitors_what_nobody_logs_is_a_sentence(callback, workspace, tiny_components, capsys):
    watching = {"class_path": callback, "init_args": {"monitor": "val/los"}}
    Path("watching.yaml").write_text(yaml.safe_dump({"trainer": {"callbacks": [watching]}}))
    files = ("--config", "tiny.yaml", "--config", "watching.yaml", "--plugin", str(tiny_components))
    assert run(["fit", *files]) == 2
    said = capsys.readouterr().err
    assert "val/los" in said
    assert "`val/loss`" in said or "'val/loss'" in said


def test_plugin_in_a_file_of_its_own(command):
    # straight from the interface: of a base that an earlier test module has imported too, the parser sees the old copy
    Path("wide_core.py").write_text(
        "from torch import nn\n"
        "from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec\n"
        "from slotbench.registry import register\n\n"
        "@register('cores')\nclass WideCore(TemporalCore):\n"
        "    def __init__(self, spec: TokenSpec, width: int = 6) -> None:\n"
        "        super().__init__()\n"
        "        self.slot_spec = SlotSpec(num_slots=1, dim=width)\n"
        "        self.linear = nn.Linear(spec.dim, width)\n\n"
        "    def forward(self, tokens, state=None):\n"
        "        return CoreOutput(self.linear(tokens), None, None)\n"
    )
    command("fit", "--plugin", "wide_core.py", "--model.core", "WideCore", "--model.core.width", "9")
    weights = torch.load(only_run() / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert weights["core.linear.weight"].shape[0] == 9
    assert config_of(only_run())["model"]["init_args"]["core"] == {"class_path": "WideCore", "init_args": {"width": 9}}


@pytest.mark.slow
def test_processes_of_one_run_share_a_folder(workspace, tiny_components):
    import subprocess
    import sys

    options = ["--trainer.devices", "2", "--trainer.strategy", "ddp", "--plugin", str(tiny_components)]
    arguments = [sys.executable, "-m", "slotbench", "fit", "--config", "tiny.yaml", *options]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n  task ") == 1
    assert json.loads((only_run() / "run.json").read_text())["state"] == "finished"


def test_a_named_kernel_that_cannot_run_here_says_why(tmp_path, capsys):
    arguments = ["fit", "--config", str(EXPERIMENT), "--runs_dir", str(tmp_path), "--trainer.accelerator", "cpu"]
    assert run([*arguments, "--data.loader.batch_size", "1", "--model.core.kernel", "mamba_ssm"]) == 2
    message = capsys.readouterr().err
    assert "kernel 'mamba_ssm' of selective_scan cannot run: it runs on CUDA" in " ".join(message.split())
    assert "Traceback" not in message


def test_a_task_is_rebuilt_from_the_plain_data_of_its_checkpoint(command):
    import cli_components

    command("fit", "--model.core", "OtherCore", "--model.core.heads", "4")
    path = only_run() / "checkpoints" / "last.ckpt"
    held = torch.load(path, weights_only=True)
    assert held["hyper_parameters"]["core"]["init_args"] == {"num_slots": 3, "heads": 4, "mode": "a"}
    task = cli_components.TinyTask.load_from_checkpoint(path, weights_only=True)
    assert task.data_spec == DataSpec(VideoSpec(3, 4, 4), VideoSpec(3, 4, 4))
    assert type(task.core) is cli_components.OtherCore
    assert all(torch.equal(value, held["state_dict"][name]) for name, value in task.state_dict().items())
