"""`slotbench bench`: what it takes, what it writes, and how it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slotbench.bench import cores
from slotbench.cli import run
from slotbench.commands.bench import _Progress

CORES = Path(__file__).parents[1] / "bench" / "bench_cores.py"
SMALL = ["--batch", "1", "--slots", "2", "--dim", "4", "--tokens", "4", "--repeats", "1", "--plugin", str(CORES)]
STREAMING = {"steps": 4, "early_steps": 2, "early": [0.1], "late": [0.1], "ratio": [1.0], "curve": [(1, 0.1), (4, 0.1)]}


@pytest.fixture
def jobs(tiny_components, workspace, monkeypatch) -> list:
    """The jobs that the command has started; none is a process, and all succeed. (The registry is put back.)"""
    started = []

    def process(job):
        started.append(job)
        for stage in job.stages:
            result = {"noise": [0.001, 0.001], "parameters": 20, "memory_mb": 2.0}
            result |= (
                STREAMING | {"early_state_mb": 0.1, "late_state_mb": 0.1}
                if stage == "streaming"
                else {"seconds": [0.1]}
            )
            yield stage, result

    monkeypatch.setattr(cores, "run_job", process)
    return started


@pytest.mark.slow
def test_a_core_is_measured_in_processes_of_its_own(tiny_components, workspace, capsys):
    assert run(["bench", "cores", "Plain", "--lengths", "4", *SMALL]) == 0
    stored = json.loads(Path("bench/cores.json").read_text())
    assert [(point["measure"], point.get("problem")) for point in stored["points"]] == [
        ("inference", None),
        ("training", None),
        ("streaming", None),
    ]
    assert stored["environment"]["threads"] >= 1
    assert stored["environment"]["device"]
    assert {path.name for path in Path("bench").iterdir()} == {"cores.json", "cores.md", "cores.png"}
    out = capsys.readouterr().out
    assert "Training step, ms" in out
    assert "wrote bench/cores.json, bench/cores.md, bench/cores.png" in out


def test_all_cores_are_measured_unless_some_are_named(jobs):
    run(["bench", "cores", "--lengths", "4", *SMALL])
    assert {"SlotSSM", "Plain", "Greedy"} <= {job.core for job in jobs}
    jobs.clear()
    run(["bench", "cores", "--lengths", "4", "--out", "other", *SMALL, "Slow", "Plain"])
    assert {job.core for job in jobs} == {"Plain", "Slow"}


def test_options_reach_the_process(jobs):
    options = ["--lengths", "8", "4", "--timeout", "9", "--memory", "0.5", "--threads", "2"]
    assert run(["bench", "cores", "Plain", *options, *SMALL]) == 0
    assert [job.length for job in jobs] == [4, 8, 8]
    job = jobs[0]
    settings = job.settings
    assert (settings.batch, settings.slots, settings.dim, settings.tokens, settings.repeats) == (1, 2, 4, 4, 1)
    assert (settings.seconds, settings.memory, settings.threads, settings.device) == (9.0, 0.5, 2, "cpu")
    assert settings.plugins == (str(CORES),)


def test_quick_is_small_and_keeps_away_from_the_other_results(jobs):
    run(["bench", "cores", "Plain", "--plugin", str(CORES), "--quick"])
    assert {job.length for job in jobs} == {20, 40, 80}
    assert jobs[0].settings.batch == 2
    assert Path("bench/quick/cores.json").is_file()


def test_the_same_command_goes_on_where_it_was(jobs, capsys):
    command = ["bench", "cores", "Plain", "--lengths", "4", *SMALL]
    run(command)
    done = len(jobs)
    capsys.readouterr()
    assert run(command) == 0
    assert len(jobs) == done
    assert "holds 3 points already" in capsys.readouterr().out
    assert run([*command, "--restart"]) == 0
    assert len(jobs) == 2 * done


def test_other_settings_in_the_same_place_are_refused(jobs, capsys):
    run(["bench", "cores", "Plain", "--lengths", "4", *SMALL])
    assert run(["bench", "cores", "Plain", "--lengths", "4", *SMALL, "--dim", "8"]) == 2
    assert "was measured with dim 4 in place of 8" in " ".join(capsys.readouterr().err.split())


def test_progress_is_on_stderr_and_says_what_runs_of_how_many(jobs, capsys):
    command = ["bench", "cores", "Plain", "Slow", "--lengths", "4", "8", *SMALL]
    assert run(command) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "1 of 6  0:00:00  Plain, inference and training, T = 4",
        "2 of 6  0:00:00  Slow, inference and training, T = 4",
        "3 of 6  0:00:00  Plain, inference and training, T = 8",
        "4 of 6  0:00:00  Slow, inference and training, T = 8",
        "5 of 6  0:00:00  Plain, streaming, T = 8",
        "6 of 6  0:00:00  Slow, streaming, T = 8",
    ]
    assert " of 6 " not in said.out
    assert run(command) == 0
    # nothing is left to be measured
    assert not capsys.readouterr().err


def test_on_a_terminal_progress_is_one_line_that_makes_room_for_what_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    with _Progress() as progress:
        progress.begin("the first, with a name that is too long", 1, 2)
        progress.say("a result")
        progress.begin("the second", 2, 2)
    gone = "\r\x1b[2K"
    first = "1 of 2  0:00:00  the first, w"
    out, err = capsys.readouterr()
    assert out == "a result\n"
    assert err == f"{gone}{first}{gone}{first}{gone}2 of 2  0:00:00  the second{gone}"


def test_an_interrupt_says_that_the_rest_can_follow(jobs, monkeypatch, capsys):
    def interrupted(job):
        yield "inference", {"seconds": [0.1], "memory_mb": 1.0}
        raise KeyboardInterrupt

    monkeypatch.setattr(cores, "run_job", interrupted)
    assert run(["bench", "cores", "Plain", "--lengths", "4", *SMALL]) == 130
    assert "bench/cores.json holds 1 points, and the same command resumes from them" in capsys.readouterr().out
    assert len(json.loads(Path("bench/cores.json").read_text())["points"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corse"], "no subject named corse; did you mean cores?"),
        (["cores", "SlotSMM"], "no core named SlotSMM; did you mean SlotSSM?"),
        (["cores", "--lengths", "0"], "argument --lengths: 0 is too small; expected 1 or more"),
        (["cores", "--repeats", "two"], "argument --repeats: invalid int value: 'two'"),
        (["cores", "--lenghts", "4"], "unrecognized arguments: --lenghts"),
        (["cores", "--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
    ],
)
def test_mistakes_are_explained(arguments, message, capsys):
    assert run(["bench", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_help_names_every_option(capsys):
    assert run(["bench", "cores", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--lengths", "--memory", "--timeout", "--restart", "--quick", "--device"):
        assert f"  {option}" in out
