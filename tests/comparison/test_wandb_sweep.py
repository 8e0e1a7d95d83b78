"""The sweep that a grid is exported as, taken apart by wandb's own agent code."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

from slotbench.commands.settings import command_line_settings
from slotbench.grids.expansion import Grid, expand
from slotbench.grids.exports import reason_for_points, wandb_sweep
from slotbench.grids.grid_file import read_grid_file

GRIDS = Path(__file__).parents[2] / "experiments" / "grids"
# what wandb's documentation of a sweep's YAML allows at the top
KEYS = {"name", "description", "project", "entity", "program", "method", "command", "parameters", "metric", "run_cap"}


def grid(name: str) -> Grid:
    return expand(read_grid_file(GRIDS / f"{name}.yaml"))


def commands(sweep: dict[str, Any]) -> list[list[str]]:
    """The command line of every run, as an agent composes it."""
    parameters = sweep["parameters"]
    found = []
    for values in itertools.product(*(parameter["values"] for parameter in parameters.values())):
        given = {name: {"value": value} for name, value in zip(parameters, values, strict=True)}
        args = create_sweep_command_args({"args": given})["args"]
        macros = {"${env}": ["/usr/bin/env"], "${program}": [sweep["program"]], "${args}": args}
        found.append([word for part in create_sweep_command(sweep["command"]) for word in macros.get(part, [part])])
    return found


def settings(arguments: list[str] | tuple[str, ...]) -> list[tuple[str, str | None]]:
    return sorted((".".join(setting.key), setting.value) for setting in command_line_settings(list(arguments)))


def written_and_read(of: Grid) -> dict[str, Any]:
    sweep: dict[str, Any] = yaml.safe_load(yaml.safe_dump(wandb_sweep(of, "bench")))
    return sweep


@pytest.mark.parametrize("name", ["bouncing_balls_slots", "bouncing_balls_rim"])
def test_a_plain_grid_becomes_one_parameter_per_axis_and_the_same_runs(name: str) -> None:
    of = grid(name)
    assert reason_for_points(of) is None
    sweep = written_and_read(of)
    assert set(sweep) <= KEYS
    assert sweep["method"] == "grid"
    made = commands(sweep)
    assert len(made) == len(of.points)
    mirrored = ["--wandb", "online", "--wandb_project", "bench", "--group", of.name]
    expected = sorted(settings([*point.arguments, *mirrored]) for point in of.points)
    assert sorted(settings(command[3:]) for command in made) == expected
    assert all(command[:3] == ["/usr/bin/env", "slotbench", "fit"] for command in made)


def test_a_grid_that_is_no_product_becomes_a_list_of_its_points() -> None:
    of = grid("bouncing_balls_cores")
    assert reason_for_points(of) is not None
    made = commands(written_and_read(of))
    assert [command[-1] for command in made] == [f"--point={point.id}" for point in of.points]
    assert all(command[:4] == ["/usr/bin/env", "slotbench", "grid", "point"] for command in made)


def test_every_shipped_laptop_grid_is_a_sweep_that_wandb_takes() -> None:
    sweeps = pytest.importorskip("wandb.apis.public.sweeps")
    for path in sorted(GRIDS.glob("*.yaml")):
        sweep = written_and_read(expand(read_grid_file(path)))
        assert set(sweep) <= KEYS, path
        # the check that wandb makes before it sends a sweep to the server; not public, so only where it is there
        if check := getattr(sweeps, "_validate_config_and_fill_distribution", None):
            assert check(sweep) == sweep
        for name, parameter in sweep["parameters"].items():
            assert set(parameter) == {"values"}, (path, name)
            assert len(parameter["values"]) == len({repr(value) for value in parameter["values"]}) > 0
