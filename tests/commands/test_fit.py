"""`fit` and its siblings end to end with the tiny components: what is recorded, overridden, shown and printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from slotbench import registry
from slotbench.cli import run
from slotbench.interfaces import DataSpec, VideoSpec

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "blinking_balls.yaml"
PARTS = {
    "encoder": {
        "class_path": "CNNEncoder",
        "init_args": {"dim": 8, "channels": [4], "kernel_sizes": [3], "strides": [2]},
    },
    "core": {"class_path": "SAVi", "init_args": {"dim": 8, "num_slots": 2}},
    "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
}


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


def test_fit_leaves_a_run_folder_and_nothing_else(command):
    command("fit")
    folder = only_run()
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert json.loads((folder / "run.json").read_text())["name"] == "tiny"
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "tiny.yaml"]


def test_run_options_decide_where_the_run_is_recorded_and_are_not_in_its_configuration(command):
    command("fit", "--name", "mine", "--runs_dir", "elsewhere", "--group", "grid1")
    folder = only_run("mine", "elsewhere")
    assert json.loads((folder / "run.json").read_text())["group"] == "grid1"
    assert not {"name", "runs_dir", "group", "wandb", "plugin"} & set(config_of(folder))


def test_saved_configuration_is_complete_and_gives_itself_again(command, capsys):
    command("fit", "--model.core.dim", "4", "--data.loader.batch_size", "1")
    saved = only_run() / "config.yaml"
    config = config_of(saved.parent)
    assert config["model"]["init_args"]["core"] == {
        "class_path": "TinyCore",
        "init_args": {"num_slots": 3, "dim": 4, "depth": 2},
    }
    assert config["model"]["init_args"]["decoder"]["init_args"] == {"gain": 1.0}
    assert config["data"]["init_args"]["loader"]["batch_size"] == 1
    assert config["trainer"]["max_epochs"] == 1
    assert config["seed_everything"] == 0
    capsys.readouterr()
    command("show", on=(str(saved),))
    assert capsys.readouterr().out == saved.read_text()


def test_show_prints_only_yaml_without_sizes_that_come_from_the_data(command, capsys):
    command("show", on=("tiny.yaml",))
    config = shown(capsys)
    assert config["model"]["class_path"] == "TinyTask"
    assert "data_spec" not in config["model"]["init_args"]
    assert not Path("runs").exists()


@pytest.mark.parametrize("spelling", ["short", "long", "init_args"])
def test_arguments_can_be_overridden(command, capsys, spelling):
    overrides = {
        "short": ["--model.core.num_slots", "5"],
        "long": ["--model.init_args.core.init_args.num_slots=5"],
        "init_args": ["--model.core.init_args.num_slots", "5"],
    }
    command("show", *overrides[spelling], on=("tiny.yaml",))
    assert shown(capsys)["model"]["init_args"]["core"]["init_args"] == {"num_slots": 5, "dim": 8, "depth": 2}


load = registry.load


def test_class_of_the_same_name_from_elsewhere_keeps_its_full_path(command, capsys, monkeypatch):
    command("show", on=("tiny.yaml",))
    assert shown(capsys)["model"]["init_args"]["optimizer"]["class_path"] == "AdamW"
    elsewhere = type("AdamW", (), {})
    monkeypatch.setattr(registry, "load", lambda kind, name: elsewhere if name == "AdamW" else load(kind, name))
    command("show", on=("tiny.yaml",))
    assert shown(capsys)["model"]["init_args"]["optimizer"]["class_path"] == "torch.optim.AdamW"


def test_size_of_the_data_reaches_every_part(command):
    command("fit", "--data.size", "6", "--model.encoder.dim", "5")
    weights = torch.load(only_run() / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert weights["encoder.linear.weight"].shape == (5, 3)
    assert weights["core.linear.weight"].shape == (8, 5)
    assert weights["decoder.linear.weight"].shape == (3, 8)


@pytest.mark.parametrize("evaluation", ["validate", "test", "predict"])
def test_run_folder_stands_for_its_configuration_and_last_checkpoint(command, capsys, evaluation):
    command("fit")
    folder = only_run()
    capsys.readouterr()
    command(evaluation, "--data.loader.batch_size", "1", on=(str(folder),))
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{evaluation} {folder}\n")
    assert sorted(Path("runs/tiny").iterdir()) == [folder], "an evaluation is no new run"


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


def test_the_opening_is_a_few_lines_that_matter(command, capsys):
    command("fit")
    captured = capsys.readouterr()
    opening = captured.out.splitlines()[:5]
    assert opening[0].startswith(f"fit {only_run()}")
    assert opening[1].endswith("TinyTask: TinyEncoder -> TinyCore -> TinyDecoder")
    assert opening[2].endswith(" encoder 16 + core 40 + decoder 27 = 83 trainable parameters")
    assert "TinyData" in opening[3]
    assert "CPU" in opening[4]
    for noise in ("Tip", "litlogger", "LeafSpec", "num_workers", "sys.argv", "GPU available", "Seed set"):
        assert noise not in captured.out + captured.err


def test_threads_option_sets_what_torch_uses(command):
    before = torch.get_num_threads()
    try:
        command("fit", "--threads", "2")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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


@pytest.fixture
def checkpoint(workspace, tiny_components) -> Path:
    options = ["--plugin", str(tiny_components), "--model.core", "OtherCore", "--model.core.heads", "4"]
    assert run(["fit", "--config", "tiny.yaml", *options]) == 0
    (path,) = Path("runs").rglob("last.ckpt")
    return path


def test_hyperparameters_are_plain_data(checkpoint):
    stored = torch.load(checkpoint, weights_only=True)["hyper_parameters"]
    assert stored["core"]["init_args"] == {"num_slots": 3, "heads": 4, "mode": "a"}
    assert stored["data_spec"]["input"]["channels"] == 3
    assert "optimizer_states" in torch.load(checkpoint, weights_only=True)


def test_task_is_rebuilt_with_its_parts_sizes_and_weights(checkpoint):
    import cli_components

    task = cli_components.TinyTask.load_from_checkpoint(checkpoint, weights_only=True)
    assert task.data_spec == DataSpec(VideoSpec(3, 4, 4), VideoSpec(3, 4, 4))
    assert type(task.core) is cli_components.OtherCore
    assert task.core.heads == 4
    stored = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert all(torch.equal(value, stored[name]) for name, value in task.state_dict().items())


def test_task_that_was_built_in_python_stores_nothing_unsafe(workspace, tiny_components, tmp_path):
    from lightning.pytorch import Trainer

    from slotbench import registry

    registry.load_file(tiny_components)
    import cli_components

    data = cli_components.TinyData()
    task = cli_components.TinyTask(data_spec=data.spec)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_steps=1, enable_checkpointing=False, **quiet)
    trainer.fit(task, data)
    trainer.save_checkpoint(tmp_path / "by_hand.ckpt", weights_only=False)
    torch.load(tmp_path / "by_hand.ckpt", weights_only=True)
