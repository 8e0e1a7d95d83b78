"""Completion in a shell: every word of a line, quickly, and never what a shell would run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slotbench import registry
from slotbench.cli import COMMANDS, run
from slotbench.commands.completion import candidates

BALLS = "experiments/blinking_balls.yaml"
CONFIG = """
model:
  class_path: LongContextReasoning
  init_args:
    core: {class_path: SlotSSM, init_args: {num_slots: 4}}
    optimizer: {class_path: torch.optim.AdamW}
data: {class_path: BlinkingBalls}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an experiment, a run, and files that are hard to quote."""
    monkeypatch.chdir(tmp_path)
    for folder in ("experiments/paper", "runs/balls/one"):
        Path(folder).mkdir(parents=True)
    Path(BALLS).write_text(CONFIG)
    Path("runs/balls/one/run.json").write_text("{}")
    Path("runs/balls/one/config.yaml").write_text(CONFIG)
    Path("experiments/$(touch x).yaml").touch()
    Path("experiments/notes.txt").touch()
    return tmp_path


def answers(*words: str) -> list[str]:
    return candidates(list(words))


def test_commands_and_their_actions() -> None:
    assert set(answers("")) == set(COMMANDS)
    assert answers("pl") == ["plugins"]
    assert answers("-") == ["--help", "--version"]
    assert answers("grid", "r") == ["retry", "run"]
    assert answers("bench", "sel") == ["selective_scan"]
    assert answers("nothing", "") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_those_of_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    found = answers(command, "--")
    assert "--help" in found
    named = [option for option in found if "." not in option and option not in ("--help", "--model", "--data")]
    assert all(option in text for option in named)
    assert len(named) > 2 or command in ("grid", "show", "push", "export", "new", "plugins", "prepare", "completion")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["fit", "--wandb", "o"], ["off", "offline", "online"]),
        (["fit", "--wandb=on"], ["online"]),
        (["fit", "--wandb", "=", "on"], ["online"]),
        (["fit", "--checkpoint", ""], ["best", "last"]),
        (["probe", "--head", ""], ["both", "linear", "mlp"]),
        (["grid", "run", "grid.yaml", "--engine", "s"], ["slurm"]),
        (["compare", "--select", ""], ["best", "last"]),
        (["compare", "--format", "j"], ["json"]),
        (["completion", ""], ["bash", "zsh"]),
        (["new", "co"], ["core"]),
        (["prepare", "MOVi"], ["MOVi", "MOViLike"]),
        (["plugins", "SlotS"], ["SlotSSM"]),
        (["bench", "cores", "SlotS"], ["SlotSSM"]),
        (["match", "--like", "PS"], ["PSB"]),
        (["fit", "experiments/b"], [BALLS]),
        # an option that takes nothing
        (["plugins", "--json", "SlotS"], ["SlotSSM"]),
        # what only the shell knows
        (["fit", "--name", ""], []),
        (["score", ""], []),
    ],
)
def test_words_and_values(line: list[str], found: list[str]) -> None:
    assert answers(*line) == found


def test_components_and_their_arguments_follow_from_the_configuration() -> None:
    fit = ("fit", "--config", BALLS)
    assert answers(*fit, "--model.core", "") == sorted(registry.names("cores"))
    assert answers(*fit, "--model.core", "=", "SlotS") == ["SlotSSM"]
    assert answers(*fit, "--model.core.help", "SlotS") == ["SlotSSM"]
    assert answers(*fit, "--model.cor") == ["--model.core", "--model.core."]
    assert answers(*fit, "--model.core.num_s") == ["--model.core.num_slots"]
    assert answers(*fit, "--model.core", "RIM", "--model.core.top") == ["--model.core.top_k"]
    assert answers(*fit, "--model.core.num_slots", "") == []
    assert answers(*fit, "--model.loss_reduction", "") == ["mean", "sum"]
    assert answers(*fit, "--model.dense_targets", "") == ["false", "true"]
    assert "--model.optimizer.lr" in answers(*fit, "--model.optimizer.")
    assert answers(*fit, "--data", "Blink") == ["BlinkingBalls"]
    assert answers(*fit, "--data.loader") == ["--data.loader."]
    assert answers(*fit, "--data.loader.b") == ["--data.loader.batch_size"]
    assert "--trainer.max_steps" in answers(*fit, "--trainer.max")
    # sizes come from the data
    assert "--model.data_spec" not in answers(*fit, "--model.d")
    assert "--model.core.token_spec" not in answers(*fit, "--model.core.")


def test_a_run_has_the_settings_of_its_configuration() -> None:
    assert answers("test", "runs/balls/one", "--model.core.num_s") == ["--model.core.num_slots"]
    assert answers("probe", "runs/balls/one", "--data.num_b") == ["--data.num_balls"]
    for command, what in (("show", BALLS), ("show", "runs/balls/one"), ("fit", BALLS)):
        assert answers(command, what, "--model.core.num_s") == ["--model.core.num_slots"]


def test_a_grid_has_the_settings_of_its_base() -> None:
    Path("experiments/grid.yaml").write_text(
        "base: blinking_balls.yaml\nsettings: {model.core: RIM}\nproduct: {data.num_balls: [1, 2]}\n"
    )
    for action in ("run", "retry", "check"):
        assert answers("grid", action, "experiments/grid.yaml", "--model.core.top") == ["--model.core.top_k"]
    run_it = ("grid", "run", "experiments/grid.yaml", "--jobs", "2")
    assert answers(*run_it, "--mi") == ["--minutes"]
    assert answers(*run_it, "--model.core", "SlotSSM", "--model.core.num_s") == ["--model.core.num_slots"]
    assert answers(*run_it, "--model.dense_targets", "") == ["false", "true"]
    assert answers("grid", "status", "experiments/grid.yaml", "--model.co") == []
    assert answers("grid", "run", "nothing.yaml", "--model.co") == []
    assert answers("grid", "run", "--model.co") == []


def test_without_a_configuration_or_with_a_broken_one_nothing_fails() -> None:
    assert answers("fit", "--model", "LongContextReasoning", "--model.cor") == ["--model.core"]
    assert answers("fit", "--model.core.num_s") == []
    assert answers("fit", "--model.core", "SlotS") == ["SlotSSM"]
    Path("broken.yaml").write_text("model: [")
    assert answers("fit", "--config", "broken.yaml", "--data", "Blink") == ["BlinkingBalls"]
    assert answers("fit", "--config", "missing.yaml", "--wandb", "on") == ["online"]


def test_files_are_experiments_and_folders_and_a_run_is_one_word() -> None:
    assert answers("fit", "--config", "")[:2] == ["experiments/", "experiments/$(touch x).yaml"]
    assert answers("fit", "--config", "")[2:] == [BALLS, "runs/"]
    assert answers("fit", "--config", "experiments/b") == [BALLS]
    assert answers("fit", "--config=experiments/p") == ["experiments/paper/"]
    assert answers("test", "runs/balls/") == ["runs/balls/one"]
    assert answers("compare", "r") == ["runs/"]
    assert answers("test", "nowhere/") == []


def test_a_name_that_a_shell_would_run_is_left_to_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "words", "fit", "--config", "experiments/"]) == 0
    assert capsys.readouterr().out.split("\n") == [BALLS, "experiments/paper/", ""]


def test_it_answers_without_torch() -> None:
    code = (
        "import sys; from slotbench.cli import run\n"
        f"run(['completion', 'words', 'fit', '--config', '{BALLS}', '--model.core', 'Slot'])\n"
        f"run(['completion', 'words', 'fit', '--config', '{BALLS}', '--trainer.max'])\n"
        "print('MODULES', *{'torch', 'lightning', 'jsonargparse', 'numpy', 'wandb'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "MODULES"
    assert "SlotSSM" in done.stdout


@pytest.mark.parametrize("arguments", [["fish"], ["bash", "zsh"]])
def test_an_unknown_shell_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", *arguments]) == 2
    assert "expected: one of bash, zsh" in capsys.readouterr().err


def test_the_scripts_ask_this_installation(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert run(["completion", shell]) == 0
        assert f"{sys.executable} -P -m slotbench completion words" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes() -> None:
    script = """
    eval "$("$0" -P -m slotbench completion bash)"
    ask() { COMP_WORDS=(slotbench "$@"); COMP_CWORD=$#; COMPREPLY=(); _slotbench 2>/dev/null; echo "${COMPREPLY[*]}"; }
    ask plu
    ask fit --config experiments/b
    ask fit --model.core = SlotS
    complete -p slotbench
    """
    done = subprocess.run(["bash", "-c", script, sys.executable], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["plugins", BALLS]
    assert done.stdout.splitlines()[-1] == "complete -o default -F _slotbench slotbench"
