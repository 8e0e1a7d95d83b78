"""The front door: commands, help, exit codes, and what must not be imported on the way."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slotbench.cli import COMMANDS, run
from slotbench.errors import did_you_mean, lines, wrapped

ANSWERS = [[], ["--help"], ["--version"], ["plugins", "cores"], ["fit", "--help"], ["match", "--help"]]
MISTAKES = [
    ["fit"],
    ["fti"],
    ["fit", "--config", "missing.yaml"],
    ["fit", "--config", "core.yaml"],
    ["plugins", "corse"],
]


def test_help_unknown_commands_files_and_components_are_answered_without_importing_torch(tmp_path):
    """In one process: whoever imports torch first is named."""
    (tmp_path / "core.yaml").write_text("model: {class_path: VideoPrediction, init_args: {core: RIMM}}\n")
    code = f"""
import sys
from slotbench.cli import run

for arguments in {ANSWERS!r} + {MISTAKES!r}:
    code = run(arguments)
    assert code == (0 if arguments in {ANSWERS!r} else 2), (arguments, code)
    assert not {{"torch", "lightning", "wandb", "matplotlib"}} & set(sys.modules), arguments
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no core named RIMM; did you mean RIM?" in " ".join(done.stderr.split())


def test_no_argument_prints_the_commands_with_examples(capsys):
    assert run([]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert "slotbench fit --config experiments/blinking_balls.yaml" in out
    assert all(len(line) <= 120 for line in out.splitlines())


def test_debug_adds_the_traceback_of_an_error(capsys):
    assert run(["fti", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "\nslotbench: no command named fti" in err


def test_interrupt_is_quiet(monkeypatch, capsys):
    def interrupt(command, arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("slotbench.commands.plugins.main", interrupt)
    assert run(["plugins"]) == 130
    assert capsys.readouterr() == ("", "")


def test_failure_of_the_program_itself_keeps_its_traceback(monkeypatch):
    def fail(command, arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr("slotbench.commands.plugins.main", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        run(["plugins"])


def test_lines_labels_and_wraps():
    text = lines("Wrong.", given="x", missing=None, available=", ".join(f"Component{i}" for i in range(20)))
    first, *rest = text.splitlines()
    assert first == "Wrong."
    assert rest[0] == "  given:     x"
    assert rest[1].startswith("  available: Component0, ")
    assert rest[2].startswith("             Component")
    assert all(len(line) <= 100 for line in rest)
    assert "missing" not in text


@pytest.mark.parametrize(("columns", "longest"), [(80, 80), (140, 100)])
def test_messages_fit_a_terminal(columns, longest, monkeypatch):
    monkeypatch.setattr("sys.stderr", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setenv("COLUMNS", str(columns))
    text = wrapped(lines("head " + "word " * 40, available=", ".join(f"Component{i}" for i in range(20))))
    headline, _, detail = text.partition("\n  available: ")
    assert longest - 12 < max(map(len, headline.splitlines())) <= longest
    assert longest - 12 < max(map(len, detail.splitlines())) <= longest


def test_suggestions_ignore_case_and_need_likeness():
    assert did_you_mean("slotssm", ["RIM", "SlotSSM"]) == "; did you mean SlotSSM?"
    assert did_you_mean("qqq", ["RIM", "SlotSSM"]) == ""


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("compare x --metrcs a", "--metrics"), ("plugins --jsn=1", "--json"), ("fit --cofnig x.yaml", "--config")],
)
def test_the_nearest_argument_of_a_command_is_named(typed, meant, capsys):
    assert run(typed.split()) == 2
    assert f"did you mean {meant}?" in " ".join(capsys.readouterr().err.split())
