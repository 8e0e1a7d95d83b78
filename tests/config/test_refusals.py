"""What names and sources alone refuse: in the words of the parser's refusal, without torch, and never too much."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slotbench import registry
from slotbench.cli import run
from slotbench.config.arguments import parameters_of
from slotbench.config.options import RunOptions
from slotbench.config.refusals import configurable, refuse_early
from slotbench.config.settings import read_settings
from slotbench.errors import UserError
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.sources import arguments_from_source, spelled

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "experiments" / "blinking_balls.yaml"
EXPERIMENTS = sorted(
    path for path in (ROOT / "experiments").rglob("*.yaml") if not {"matched", "grids"} & {*path.parts}
)

# arguments that are sizes
SUPPLIED = {
    "encoders": 1,
    "cores": 1,
    "decoders": 2,
    "aggregations": 1,
    "tokenizers": 1,
    "optimizers": 1,
    "schedules": 2,
}

MISTAKES = [
    ["--model.core.num_slotz", "3"],
    ["--model.core.init_args.num_slotz=3"],
    ["--model.core", "Rimm"],
    ["--model.core", "TransformerDecoder"],
    ["--model", "VideoPredicton"],
    ["--data", "Qqq"],
    ["--data.num_bals", "3"],
    ["--data.batch_size", "3"],
    ["--data.loader.batch_sizes", "3"],
    ["--model.early_weight", "3"],
    ["--trainer.max_stepz", "3"],
    ["--modle.core", "RIM"],
    ["--batch_size", "3"],
    ["--max_steps", "3"],
    ["--chunk_steps", "3"],
    ["--verbose", "true"],
    ["more.yaml"],
    ["RIM"],
]


def early(*arguments: str, command: str = "fit", **options: list) -> None:
    refuse_early(command, read_settings([*arguments]), RunOptions(**options))


@pytest.mark.parametrize("mistake", MISTAKES, ids=" ".join)
def test_the_words_are_those_of_a_refusal_by_the_parser(mistake, monkeypatch, capsys):
    said = []
    for check in (refuse_early, lambda command, settings, options: None):
        monkeypatch.setattr("slotbench.config.command_line.refuse_early", check)
        assert run(["fit", "--config", str(EXPERIMENT), *mistake]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    with pytest.raises(UserError):
        early("--config", str(EXPERIMENT), *mistake)


def test_a_typo_is_refused_without_importing_torch():
    code = (
        "import sys\nfrom slotbench.cli import run\n"
        f"code = run(['fit', '--config', {str(EXPERIMENT)!r}, '--model.core.num_slotz', '3'])\n"
        "assert not {'torch', 'lightning', 'numpy', 'jsonargparse'} & set(sys.modules)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "did you mean num_slots?" in done.stderr


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_not_refused(path):
    early("--config", str(path))


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "grids").rglob("*.yaml")), ids=lambda path: path.stem)
def test_no_point_of_a_shipped_grid_is_refused(path):
    points = {point.alternatives: point for point in expand(read_grid_file(path)).points}
    for point in points.values():
        early(*point.arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model.core", "RIM", "--model.core.top_k", "2"],
        ["--model.core", '{"class_path": "RIM", "init_args": {"top_k": 2}}'],
        ["--model.core.class_path", "RIM"],
        ["--model.core.init_args.num_slots", "3"],
        ["--model.core", "slotbench_plugins.cores.rim.RIM"],
        ["--model.optimizer", "Adam", "--model.optimizer.fused", "true"],
        ["--model.schedule", "CosineAnnealingLR", "--model.schedule.T_max", "5"],
        ["--model.schedule", "slotbench.tasks.optimisation.ConstantRate"],
        ["--model.optimizer", "Muon"],
        ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "val/loss"],
        ["--trainer.logger.class_path", "CSVLogger"],
        ["--model.core.help", "Rimm"],
        ["--help"],
        ["--print_config"],
        ["--seed_everything", "3", "--ckpt_path", "x.ckpt", "--weights_only", "true"],
        ["--model.init_from", "null"],
    ],
    ids=" ".join,
)
def test_what_the_parser_may_take_is_left_to_it(arguments):
    early("--config", str(EXPERIMENT), *arguments)


def test_arguments_of_a_core_that_has_been_exchanged_are_left_to_the_parser():
    early("--config", str(EXPERIMENT), "--model.core.state_dim", "8", "--model.core", "RIM")


@pytest.mark.parametrize(
    "options", [{"plugin": [Path("mine.py")]}, {"allow_import": ["mine"]}], ids=["plugin", "import"]
)
def test_names_are_left_to_the_parser_where_components_may_come_from_elsewhere(options):
    early("--config", str(EXPERIMENT), "--model.core", "MyOwnCore", **options)
    with pytest.raises(UserError, match="no core named MyOwnCore"):
        early("--config", str(EXPERIMENT), "--model.core", "MyOwnCore")


@pytest.mark.parametrize("command", ["validate", "test"])
def test_each_command_has_keys_of_its_own(command):
    early("--config", str(EXPERIMENT), "--verbose", "false", command=command)


@pytest.mark.parametrize("kind", registry.KINDS)
def test_the_source_of_a_component_says_the_arguments_that_the_parser_knows(kind):
    for name in registry.names(kind):
        entry = registry.find(kind, name)
        if entry is None or not entry.target.startswith(("slotbench", "torch")):
            continue
        read = arguments_from_source(entry.target)
        if read is None and entry.target.startswith("torch"):
            continue
        assert read is not None, f"{name}: write its constructor so that it can be read"
        supplied = SUPPLIED.get(kind, 0)
        known = parameters_of(registry.load(kind, name), supplied)
        read = configurable(kind, read, supplied)
        assert spelled(read) == spelled(known), name


@pytest.mark.parametrize(
    "source",
    [
        "class Core(Base):\n    def __init__(self, spec, **kwargs): ...",
        "class Core(Base, Other): ...",
        "class Core(Base): ...",
        "@wrapped\nclass Core:\n    def __init__(self, spec, dim=3): ...",
        "class Core:\n    def __init__(self, spec, dim=3): ...\nCore = wrapped(Core)",
        "class Core:\n    def __init__(self, spec, dim=3): ...\n    __init__ = wrapped(__init__)",
        "class Core(metaclass=Meta):\n    def __init__(self, spec, dim=3): ...",
        "if fast:\n    class Core:\n        def __init__(self, spec, dim=3): ...",
        "Core = make()",
        "class Core(:",
    ],
)
def test_a_source_that_does_not_say_is_not_guessed(source, tmp_path, monkeypatch):
    (tmp_path / "odd_cores.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert arguments_from_source("odd_cores:Core") is None


def test_a_constructor_that_is_inherited_is_that_of_the_base(tmp_path, monkeypatch):
    (tmp_path / "base_cores.py").write_text("class Base:\n    def __init__(self, spec, dim=3, *, heads: int = 2): ...")
    (tmp_path / "own_cores.py").write_text("from base_cores import Base\nclass Core(Base):\n    pass")
    monkeypatch.syspath_prepend(tmp_path)
    found = arguments_from_source("own_cores:Core")
    assert [*(found or ())] == ["spec", "dim", "heads"]


def test_a_whole_configuration_that_a_run_has_kept_is_not_refused(tmp_path, capsys):
    assert run(["show", str(EXPERIMENT)]) == 0
    kept = tmp_path / "config.yaml"
    kept.write_text(capsys.readouterr().out)
    assert yaml.safe_load(kept.read_text())["trainer"]
    early("--config", str(kept))


def test_a_grid_given_to_fit_is_told_where_it_belongs(capsys):
    grid = ROOT / "experiments" / "grids" / "nightly.yaml"
    assert run(["fit", "--config", str(grid)]) == 2
    said = capsys.readouterr().err
    assert f"{grid} is a grid, not an experiment" in said
    assert f"slotbench grid run {grid}" in said


def test_an_experiment_given_to_grid_is_told_where_it_belongs(capsys):
    assert run(["grid", "run", str(EXPERIMENT)]) == 2
    said = capsys.readouterr().err
    assert "is an experiment, not a grid" in said
    assert f"slotbench fit --config {EXPERIMENT}" in said


@pytest.mark.parametrize(("name", "wrong"), [("größe", "öß"), ("a/b", "/"), ("two words", " "), (".hidden", ".")])
def test_a_name_that_no_folder_can_have_says_which_characters(name, wrong, capsys):
    assert run(["fit", "--config", str(EXPERIMENT), "--name", name]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"run name {name!r} cannot be a folder's name, because of {wrong!r}" in said


@pytest.mark.parametrize("key", ["x-core", "defaults"])
def test_a_key_that_holds_an_anchor_says_where_anchors_go(key, tmp_path, capsys):
    file = tmp_path / "anchored.yaml"
    text = EXPERIMENT.read_text()
    file.write_text(f"{key}: &mine\n  dim: 64\n{text}")
    assert run(["fit", "--config", str(file)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"no argument {key}" in said
    assert "write an anchor where it is first used" in said
    file.write_text(f"{key}:\n  dim: 64\n{text}")
    assert run(["fit", "--config", str(file)]) == 2
    assert "anchor" not in capsys.readouterr().err.replace(str(file), "")


def test_an_anchor_where_it_is_first_used_is_taken(tmp_path, capsys):
    file = tmp_path / "linked.yaml"
    file.write_text(
        "model:\n  class_path: LongContextReasoning\n  init_args:\n    encoder:\n      class_path: PatchEncoder\n"
        "      init_args: &size {dim: 32}\n    core: {class_path: SlotSSM, init_args: {<<: *size, num_slots: 3}}\n"
        "    decoder: {class_path: TransformerDecoder, init_args: *size}\ndata: {class_path: BlinkingBalls}\n"
    )
    assert run(["show", str(file)]) == 0
    parts = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]
    assert [parts[part]["init_args"]["dim"] for part in ("encoder", "core", "decoder")] == [32, 32, 32]
