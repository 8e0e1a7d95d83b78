"""Canaries: each private name of jsonargparse is what we take it for, and what we exchange does what it is for.

A failure here after an update of jsonargparse says which promise no longer holds. Mend
`slotbench/config/jsonargparse_compat.py` before raising the bound in pyproject.toml.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonargparse import ArgumentParser, _common, _signatures, _typehints
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench import registry
from slotbench.config.jsonargparse_compat import EXCHANGED, parser_unchanged, still_taken
from slotbench.config.policy import apply_policy

ROOT = Path(__file__).parents[2]
VERSION = importlib.metadata.version("jsonargparse")

# owner, name, its parameters, and what no longer holds if they are others
PRIVATE = [
    (
        _typehints,
        "discard_init_args_on_class_path_change",
        ["parser_or_action", "prev_val", "value"],
        "an exchanged part would keep the old class's defaults, such as AdamW's decay",
    ),
    (
        _typehints,
        "adapt_partial_callable_class",
        ["callable_type", "subclass_spec"],
        "a schedule's second argument could not be set",
    ),
    (
        _signatures,
        "get_signature_parameters",
        ["function_or_class", "method_or_property", "logger"],
        "CosineAnnealingLR would ask for the length of the training",
    ),
]


@pytest.fixture(autouse=True)
def jsonargparse_as_it_was():
    with parser_unchanged():
        yield


@pytest.mark.parametrize(("owner", "name", "parameters", "broken"), PRIVATE, ids=[row[1] for row in PRIVATE])
def test_private_names_are_as_we_take_them(owner, name, parameters, broken):
    (original,) = (held for where, called, held, _ in EXCHANGED if (where, called) == (owner, name))
    now = list(inspect.signature(original).parameters)
    assert now == parameters, f"{owner.__name__}.{name} of jsonargparse {VERSION} takes {now}: {broken}"


def test_no_other_module_uses_private_names_of_jsonargparse():
    users = set()
    for file in (ROOT / "slotbench").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jsonargparse":
                private = [name for name in (*node.module.split("."), *(a.name for a in node.names)) if name[0] == "_"]
                users |= {file.name} if private else set()
    assert users == {"jsonargparse_compat.py"}


def test_settings_and_functions_are_put_back():
    before = dict(_common.parsing_settings), [getattr(owner, name) for owner, name, *_ in EXCHANGED]
    with parser_unchanged():
        apply_policy()
        assert all(getattr(owner, name) is ours for owner, name, _, ours in EXCHANGED)
        assert _common.parsing_settings["import_path_verdicts"]["*"] is False
    assert (dict(_common.parsing_settings), [getattr(owner, name) for owner, name, *_ in EXCHANGED]) == before


def test_what_was_allowed_once_is_not_allowed_for_ever():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--kind", type=type)
    apply_policy(["collections"])
    assert parser.parse_args(["--kind", "collections.Counter"]).kind.__name__ == "Counter"
    apply_policy()
    with pytest.raises(Exception, match="not allowed"):
        parser.parse_args(["--kind", "collections.Counter"])


@pytest.mark.parametrize("path", ["torch.optim.SGD", "torch.optim.sgd.SGD"])
def test_a_class_is_taken_by_each_of_its_paths(path):
    apply_policy()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--optimizer", type=Callable[[list], Optimizer])
    assert SGD in parser.instantiate(parser.parse_args(["--optimizer", path])).optimizer.args


@pytest.mark.parametrize(
    "path", ["os.system", "slotbench.cli.os.system", "slotbench.registry.importlib.import_module", "torch.load"]
)
def test_hiding_a_function_behind_an_allowed_module_does_not_help(path):
    apply_policy(["slotbench"])
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--function", type=Callable)
    with pytest.raises(Exception, match="not allowed"):
        parser.parse_args(["--function", path])


def test_the_length_of_a_schedule_is_optional_and_its_other_arguments_are_the_users():
    apply_policy()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--schedule", type=Callable[[Optimizer, int], LRScheduler])
    cosine = parser.parse_args(["--schedule", "CosineAnnealingLR", "--schedule.eta_min", "0.5"]).schedule
    assert (cosine.init_args.T_max, cosine.init_args.eta_min) == (None, 0.5)
    step = parser.parse_args(["--schedule", "StepLR", "--schedule.step_size", "3"]).schedule
    assert step.init_args.step_size == 3


def test_of_another_class_the_arguments_that_fit_are_taken():
    given = {"num_slots": 5, "ssm": "mamba", "dim": 48}
    assert still_taken(registry.load("cores", "SAVi"), given) == {"num_slots": 5, "dim": 48}
    loader = {"loader": {"batch_size": "3"}, "path": "x"}
    assert still_taken(registry.load("datasets", "BouncingBalls"), loader) == {"loader": {"batch_size": "3"}}
