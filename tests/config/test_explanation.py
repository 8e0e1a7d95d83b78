"""Every kind of mistake in a command line or a configuration: a few lines that help, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny_configs import COMPONENTS

from slotbench.cli import run


@pytest.fixture
def refused(workspace, tiny_components, capsys):
    """Runs `fit` on tiny.yaml with these arguments, which must be refused, and returns what is said on stderr."""

    def call(*arguments: str, config: str = "tiny.yaml") -> str:
        code = run(["fit", "--config", config, "--plugin", str(tiny_components), *arguments])
        captured = capsys.readouterr()
        assert code == 2, captured.err
        assert captured.err.startswith("slotbench: ")
        assert "Traceback" not in captured.err
        assert len(captured.err.splitlines()) <= 7, captured.err
        assert all(len(line) <= 100 for line in captured.err.splitlines())
        assert not Path("runs").exists(), "what was refused must leave no run folder"
        return captured.err

    return call


def changed(path: str, value: object) -> str:
    """Writes tiny.yaml with one value changed into another file and returns the file's name."""
    config = yaml.safe_load(Path("tiny.yaml").read_text())
    node = config
    *parents, last = path.split(".")
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
    Path("changed.yaml").write_text(yaml.safe_dump(config))
    return "changed.yaml"


CORE = "model.init_args.core"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # names of classes
        (["--model.core", "TinyCor"], ["no core named TinyCor; did you mean TinyCore?", "--model.core TinyCor"]),
        (["--model.core=TinyCor"], ["no core named TinyCor; did you mean TinyCore?", "--model.core=TinyCor"]),
        (["--model", "TinyTsk"], ["no task named TinyTsk; did you mean TinyTask?", "LongContextReasoning"]),
        (["--data", "TinyDat"], ["no dataset named TinyDat; did you mean TinyData?", "BlinkingBalls"]),
        (["--model.core", "Qqq"], ["no core named Qqq\n", "available: "]),
        (["--model.encoder", "TinyCore"], ["no encoder named TinyCore (TinyCore is another kind: core)"]),
        (["--model.schedule", "WarmupCosin"], ["no schedule named WarmupCosin; did you mean WarmupCosine?"]),
        (["--model.schedule", "ReduceLROnPlateau"], ["ReduceLROnPlateau waits for a score", "WarmupCosine"]),
        (["--model.schedule.warmp", "0.1"], ["WarmupCosine has no argument warmp; did you mean warmup?"]),
        (["--model.optimizer", "Adm"], ["no optimizer named Adm; did you mean Adam?"]),
        (["--model.core", "cli_components.TinyData"], ["TinyData is not a core", "slotbench.interfaces.TemporalCore"]),
        (["--model.core", "slotbench.nn.nope.X"], ["slotbench.nn.nope.X may not be named"]),
        # names of arguments
        (["--model.core.num_slot", "3"], ["TinyCore has no argument num_slot; did you mean num_slots?"]),
        (["--model.core.init_args.num_slot", "3"], ["did you mean num_slots?", "arguments: num_slots, dim, depth"]),
        (["--data.loader.batchsize", "3"], ["has no argument loader.batchsize; did you mean loader.batch_size?"]),
        (["--data.batch_size", "3"], ["TinyData has no argument batch_size; did you mean loader.batch_size?"]),
        (["--trainer.max_epoch", "3"], ["the trainer has no argument max_epoch; did you mean max_epochs?"]),
        (["--model.optimizer.lrr", "3"], ["AdamW has no argument lrr; did you mean lr?"]),
        (["--modle.core", "X"], ["no argument --modle.core; did you mean --model.core?"]),
        (["--batch_size", "3"], ["no argument --batch_size; did you mean --data.loader.batch_size?"]),
        (["--core.dim", "3"], ["no argument --core.dim; did you mean --model.core.dim?"]),
        (["--max_epochs", "3"], ["did you mean --trainer.max_epochs?"]),
        (["--model.data_spec", "3"], ["model.data_spec is not for the configuration: it comes from the data"]),
        (["tiny.yaml"], ["tiny.yaml stands alone", "--config tiny.yaml"]),
        # values
        (["--model.core.num_slots", "many"], ["num_slots of TinyCore cannot be many", "a whole number  (default: 2)"]),
        (["--model.core", "OtherCore", "--model.core.mode", "c"], ["expected: one of a, b  (default: a)"]),
        (["--trainer.max_epochs", "x"], ["max_epochs of the trainer cannot be x", "a whole number or null"]),
        (["--data.loader.batch_size", "x"], ["batch_size of TinyData cannot be x", "a whole number  (default: 2)"]),
        (["--data.loader", "5"], ["loader of TinyData cannot be 5", "a mapping of batch_size, val_batch_size"]),
        (["--model.optimizer.lr", "high"], ["lr of AdamW cannot be high", "a number"]),
        (["--seed_everything", "abc"], ["seed_everything cannot be abc"]),
        (["--model.core"], ["--model.core needs a value"]),
        (["--wandb", "on"], ["--wandb cannot be on", "--wandb off|offline|online"]),
        (["--threads", "0"], ["--threads is 0; expected 1 or more"]),
        # values that optimisers and schedules refuse
        (["--model.optimizer.lr", "-1"], ["invalid arguments for AdamW: Invalid learning rate", "model.optimizer.lr"]),
        (["--model.optimizer.lr", ".nan"], ["lr", "key: model.optimizer.lr"]),
        (["--model.schedule.warmup", "-0.1"], ["invalid arguments for WarmupCosine", "key: model.schedule.warmup"]),
        (
            ["--trainer.max_epochs", "null", "--trainer.max_steps", "-1", "--trainer.max_time", "00:00:10:00"],
            ["the training has no end in steps, and WarmupCosine needs one", "--trainer.max_steps N"],
        ),
        # values that components refuse
        (["--data.loader.batch_size", "-3"], ["invalid arguments for TinyData: batch_size is -3", "key: data"]),
        (["--model.encoder.dim", "0"], ["invalid arguments for TinyEncoder: dim is 0", "key: model.encoder"]),
        (
            ["--trainer.accelerator", "gpux"],
            ["invalid arguments for the trainer", "expected: --trainer.accelerator auto"],
        ),
        # files
        (["--ckpt_path", "nope.ckpt"], ["no checkpoint nope.ckpt"]),
        (["--plugin", "nope.py"], ["no plugin file nope.py"]),
        (["--config", "tinny.yaml"], ["no file tinny.yaml; did you mean tiny.yaml?"]),
        (["--config", "no/such.yaml"], ["there is no directory no"]),
        (["--config", "."], [". is a directory"]),
        (["--config"], ["--config needs a file"]),
    ],
)
def test_mistake_on_the_command_line(refused, arguments, expected):
    said = refused(*arguments)
    for part in expected:
        assert part in said


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (f"{CORE}.class_path", "TinyCor", ["did you mean TinyCore?", "model.core: TinyCor  (changed.yaml, line "]),
        (f"{CORE}.init_args.num_slot", 3, ["did you mean num_slots?", "model.core.num_slot: 3  (changed.yaml, line "]),
        (f"{CORE}.init_args.num_slots", "many", ["num_slots of TinyCore cannot be many", "(changed.yaml, line "]),
        ("trainer.max_epoch", 3, ["did you mean max_epochs?"]),
        ("trainr.max_epochs", 3, ["no argument trainr.max_epochs; did you mean trainer.max_epochs?"]),
        (
            "trainer.callbacks",
            [{"class_path": "EarlyStoping"}],
            ["no Callback named EarlyStoping; did you mean EarlySt"],
        ),
        (
            "trainer.callbacks",
            [{"class_path": "EarlyStopping", "init_args": {"monitr": "x"}}],
            ["EarlyStopping has no argument monitr; did you mean monitor?"],
        ),
    ],
)
def test_mistake_in_a_file(refused, path, value, expected):
    said = refused(config=changed(path, value))
    for part in expected:
        assert part in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "model:\n  core: {class_path: [A\ndata: x\n",
            ["bad.yaml is not valid YAML: line 3, column 5: did not find expected"],
        ),
        ("model:\n\tcore: x\n", ["line 2, column 1: a tab; YAML is indented with spaces"]),
        ("- a\n", ["bad.yaml holds a list", "the keys model, data, trainer"]),
        ("", ["bad.yaml is empty"]),
        ("just words", ["bad.yaml holds one value"]),
        ("data: TinyData\nmodel: A\ndata: B\n", ["bad.yaml, line 3: the key data is given twice"]),
        ("data: TinyData\n", ["the configuration names no task"]),
        ("model: TinyTask\n", ["the configuration names no dataset"]),
        ("data: TinyData\nmodel: LongContextReasoning\n", ["LongContextReasoning needs encoder", "PatchEncoder"]),
    ],
)
def test_unreadable_or_incomplete_file(refused, text, expected):
    Path("bad.yaml").write_text(text)
    said = refused(config="bad.yaml")
    for part in expected:
        assert part in said


@pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", "numpy.ndarray", "builtins.exec", "torch.load"])
@pytest.mark.parametrize("where", ["command line", "file"])
def test_class_path_outside_the_registry_is_refused(refused, name, where):
    path = f"{CORE}.class_path"
    said = refused("--model.core", name) if where == "command line" else refused(config=changed(path, name))
    assert f"{name} may not be named here" in said
    assert f"--allow-import {name.rpartition('.')[0]}" in said


def test_refused_class_path_is_not_even_imported(refused, tmp_path, monkeypatch):
    (tmp_path / "booby_trap.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "may not be named" in refused("--model.core", "booby_trap.Core")


@pytest.mark.parametrize("path", ["slotbench.cli.os.system", "slotbench.registry.importlib.import_module"])
def test_hiding_a_function_behind_an_allowed_module_does_not_help(path):
    from collections.abc import Callable

    from jsonargparse import ArgumentError, ArgumentParser

    from slotbench.config.policy import apply_policy

    apply_policy()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--function", type=Callable)
    with pytest.raises(ArgumentError, match="may not be named"):
        parser.parse_args([f"--function={path}"])


def test_allowed_class_path_is_used(workspace, tiny_components, tmp_path, monkeypatch, capsys):
    (tmp_path / "acme_allowed.py").write_text(
        "from slotbench.interfaces import TemporalCore\n"
        "class Acme(TemporalCore):\n"
        "    def __init__(self, spec, width: int = 1):\n        super().__init__()\n"
        "    def forward(self, tokens, state=None):\n        return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["show", "tiny.yaml", "--plugin", str(tiny_components), "--model.core", "acme_allowed.Acme"]
    assert run(arguments) == 2
    assert run([*arguments, "--allow-import", "acme_allowed"]) == 0
    assert "class_path: acme_allowed.Acme" in capsys.readouterr().out


def test_broken_plugin_is_reported_only_when_it_is_named(refused, tmp_path, monkeypatch, capsys):
    from slotbench import registry

    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[slotbench.cores]\nAcme = acme_unusable:Acme\n")
    (tmp_path / "acme_unusable.py").write_text("import nonexistent_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_failures", {})

    said = refused("--model.core", "Acme")
    assert "the core Acme of acme cannot be imported" in said
    assert "nonexistent_thing" in said
    assert run(["show", "tiny.yaml", "--plugin", str(COMPONENTS)]) == 0


def test_issue_example(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    assert run(["fit", "--config", "experiments/blinking_balls.yaml", "--model.core", "SlotSSMM"]) == 2
    said = capsys.readouterr().err
    assert "no core named SlotSSMM; did you mean SlotSSM?" in said
    assert "--model.core SlotSSMM" in said
