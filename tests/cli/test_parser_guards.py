"""jsonargparse calls the functions that are exchanged in it; if it stops, these fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentError, ArgumentParser
from torch.optim import SGD, Optimizer

from slotbench.commands.allowed_classes import WRITTEN_ARGUMENTS, named_classes
from slotbench.commands.parser_guards import last_refusal
from slotbench.commands.policy import allowed_paths, apply_policy, is_allowed


class Anything:
    def __init__(self, value: Any = None, table: dict[str, Any] | None = None) -> None:
        self.value = value


@pytest.fixture
def parser() -> ArgumentParser:
    apply_policy()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(Anything, "it", sub_configs=True)
    parser.add_argument("--optimizer", type=Callable[[list], Optimizer])
    parser.add_argument("--function", type=Callable)
    parser.add_argument("--kind", type=type)
    return parser


@pytest.mark.parametrize(
    "value",
    [
        "{class_path: torch.optim.SGD}",
        "[{class_path: torch.optim.SGD, init_args: {lr: 1}}]",
        "{a: {b: [{class_path: collections.Counter}]}}",
    ],
)
@pytest.mark.parametrize("where", ["value", "table"])
def test_a_value_of_any_type_holds_no_class(parser, value, where):
    if where == "table":
        value = f"{{x: {value}}}"
    with pytest.raises(ArgumentError):
        parser.parse_args([f"--it.{where}", value])
    refused = last_refusal()
    assert refused is not None
    assert refused.reason == "is named where no class is asked for"


def test_values_that_are_none_stay_what_they_are(parser):
    value = {"class": "torch.optim.SGD", "list": [1, {"init_args": 3}]}
    config = parser.parse_object({"it": {"value": value, "table": {"x": value}}})
    assert config.it.value == value
    assert parser.instantiate(config).it.value == value


@pytest.mark.parametrize("option", ["--function", "--optimizer", "--kind"])
@pytest.mark.parametrize("path", ["os.system", "torch.optim.SGD.step", "slotbench.errors.lines", "torch.load"])
def test_functions_are_not_taken(parser, option, path):
    with pytest.raises(ArgumentError):
        parser.parse_args([option, path])
    assert last_refusal() is not None


def test_functions_below_an_allowed_prefix_are_not_taken_either():
    apply_policy(["slotbench.errors"])
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--function", type=Callable)
    with pytest.raises(ArgumentError, match="is not a class"):
        parser.parse_args(["--function", "slotbench.errors.lines"])


def test_what_was_allowed_once_is_not_allowed_for_ever(parser):
    apply_policy(["collections"])
    assert parser.parse_args(["--kind", "collections.Counter"]).kind.__name__ == "Counter"
    apply_policy()
    with pytest.raises(ArgumentError):
        parser.parse_args(["--kind", "collections.Counter"])


def test_a_listed_class_is_taken_by_each_of_its_paths(parser):
    for path in ("torch.optim.SGD", "torch.optim.sgd.SGD"):
        config = parser.parse_args(["--optimizer", path])
        assert SGD in parser.instantiate(config).optimizer.args


def test_a_configuration_file_that_is_too_large_is_not_read(parser, tmp_path: Path):
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * (5 << 20))
    with pytest.raises((ArgumentError, ValueError), match="larger than"):
        parser.parse_args(["--config", str(file)])


def test_every_listed_class_is_there_and_its_paths_are_known():
    apply_policy()
    import importlib

    for path in named_classes():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, type), path
        if name in WRITTEN_ARGUMENTS:
            import inspect

            missing = set(WRITTEN_ARGUMENTS[name]) - set(inspect.signature(found).parameters)
            assert not missing, f"{path} has no {missing}"


def test_whatever_takes_a_path_is_known_to_write():
    """A class of the list with an argument that says where to write must be among those that are kept inside."""
    import importlib
    import inspect

    words = {"dir", "dirpath", "file", "filename", "path", "root", "folder"}
    for path in named_classes():
        module, _, name = path.rpartition(".")
        if not module.startswith("lightning"):
            continue
        found = getattr(importlib.import_module(module), name)
        for argument in inspect.signature(found).parameters:
            if words & set(argument.split("_")):
                assert argument in WRITTEN_ARGUMENTS.get(name, ()), f"{path} takes {argument}"


def test_a_prefix_allows_what_is_below_it_only():
    allowed = allowed_paths(["acme.models"])
    assert is_allowed("acme.models.Core", allowed)
    assert not is_allowed("acme.modelsx.Core", allowed)
    assert not is_allowed("acme.Core", allowed)
    assert is_allowed("torch.optim.Adam", allowed)
    assert not is_allowed("torch.optim.Adam.step", allowed)
    assert not is_allowed("slotbench.grids.worker.CommandProcess", allowed)
