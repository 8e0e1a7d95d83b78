"""Canaries: each private name of jsonargparse is what we take it for, and jsonargparse calls what we exchange for it.

A failure here after an update of jsonargparse says which of our promises no longer holds. Mend
`slotbench/config/jsonargparse_compat.py` before raising the bound in pyproject.toml.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonargparse
import pytest
from jsonargparse import (
    ActionConfigFile,
    ArgumentError,
    ArgumentParser,
    _common,
    _signatures,
    _typehints,
    _util,
)
from torch.optim import SGD, Optimizer

from slotbench import registry
from slotbench.config.jsonargparse_compat import (
    EXCHANGED,
    Refusal,
    import_path,
    is_importable,
    last_refusal,
    parser_unchanged,
    signature_of,
)
from slotbench.config.policy import apply_policy, listed_classes
from slotbench.config.written_paths import WRITTEN_ARGUMENTS

ROOT = Path(__file__).parents[2]
VERSION = importlib.metadata.version("jsonargparse")

# owner, name, its parameters, and what no longer holds if they are others
PRIVATE = [
    (_util, "check_import_path", ["path"], "a configuration could import any module"),
    (_typehints, "check_import_path", ["path"], "a configuration could import any module"),
    (
        _typehints,
        "adapt_classes_any",
        ["val", "typehint", "serialize", "instantiate_classes", "sub_add_kwargs", "logger"],
        "a value of any type could build a class",
    ),
    (jsonargparse.Path, "read_text", ["self"], "configuration files of any size would be read"),
    (
        _typehints,
        "discard_init_args_on_class_path_change",
        ["parser_or_action", "prev_val", "value"],
        "an exchanged part would keep the old class's defaults, such as AdamW's decay",
    ),
    (
        ActionConfigFile,
        "apply_config",
        ["parser", "cfg", "dest", "value"],
        "a part named in a second file would not start clean",
    ),
    (_util.NestedArg, "__new__", ["_cls", "key", "val"], "--model.core.ARGUMENT null would mean the word None"),
    (_util.ResolvedImportPaths, "get", ["self", "instance"], "configurations would have slotbench.tasks.TASK"),
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


def _original(called: str) -> Any:
    return next(original for _, name, original, _ in EXCHANGED if name == called)


@pytest.mark.parametrize(("owner", "name", "parameters", "broken"), PRIVATE, ids=[row[1] for row in PRIVATE])
def test_private_names_are_as_we_take_them(owner, name, parameters, broken):
    exchanged = {(where, called): original for where, called, original, _ in EXCHANGED}
    found = exchanged.get((owner, name), getattr(owner, name, None))
    assert found is not None, f"jsonargparse {VERSION} has no {owner.__name__}.{name} any more: {broken}"
    original = getattr(found, "__func__", found)
    now = list(inspect.signature(original).parameters)
    assert now == parameters, f"{owner.__name__}.{name} of jsonargparse {VERSION} takes {now}: {broken}"


def test_every_exchange_has_a_canary():
    known = {(owner, name) for owner, name, *_ in PRIVATE}
    assert {(owner, name) for owner, name, *_ in EXCHANGED} <= known


def test_no_other_module_uses_private_names_of_jsonargparse():
    users = set()
    for file in (ROOT / "slotbench").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jsonargparse":
                private = [name for name in (*node.module.split("."), *(a.name for a in node.names)) if name[0] == "_"]
                users |= {file.name} if private else set()
    assert users == {"jsonargparse_compat.py"}


def test_settings_and_loaders_can_be_put_back():
    why = f"in jsonargparse {VERSION}: load_run would leave its guards in a process with parsers of its own"
    assert isinstance(_common.parsing_settings, dict), why
    for owner, name, original, _ in EXCHANGED:
        setattr(owner, name, original)
    before = dict(_common.parsing_settings), [inspect.getattr_static(owner, name) for owner, name, *_ in EXCHANGED]
    with parser_unchanged():
        apply_policy()
        assert last_refusal() is None
        assert _util.check_import_path is not _original("check_import_path")
    after = dict(_common.parsing_settings), [inspect.getattr_static(owner, name) for owner, name, *_ in EXCHANGED]
    assert after == before, why


def test_arguments_have_types_defaults_and_fields():
    known = signature_of(registry.load("datasets", "BlinkingBalls"))
    why = f"`get_signature_parameters` of jsonargparse {VERSION}: refusals would not say what is expected"
    assert known["loader"].fields["batch_size"].hint is int, why
    assert known["num_balls"].hint is int, why
    assert not known["num_balls"].required, why


def test_a_class_is_written_by_its_shortest_path():
    assert import_path(SGD) == "torch.optim.SGD"
    apply_policy()
    for path in listed_classes():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        assert import_path(found) == _util.get_import_path(found), f"by jsonargparse {VERSION}"


def test_a_component_that_its_package_names_too_may_be_named_by_either_path(tmp_path, monkeypatch):
    package = tmp_path / "shop_of_cores"
    package.mkdir()
    (package / "__init__.py").write_text("from shop_of_cores.inner import ShopCore\n")
    (package / "inner.py").write_text(
        "from slotbench.registry import register, load\n\n"
        "@register('cores')\nclass ShopCore(load('cores', 'SlotRNN')):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    component = importlib.import_module("shop_of_cores").ShopCore
    apply_policy()
    assert import_path(component) == "shop_of_cores.ShopCore"
    for path in ("shop_of_cores.ShopCore", "shop_of_cores.inner.ShopCore"):
        _util.check_import_path(path)
    with pytest.raises(Refusal):
        _util.check_import_path("shop_of_cores.Other")


@pytest.mark.parametrize("core", ["RIM", "OCRIM", "GRU", "SCOFF", "ALTSCOFF"])
def test_cores_of_a_package_may_be_named(core):
    component = registry.load("cores", core)
    apply_policy()
    _util.check_import_path(import_path(component))


def test_null_for_an_argument_of_a_part_is_null():
    apply_policy()
    assert tuple(_util.NestedArg("core.dim", None)) == ("core.dim", "null")
    assert _util.NestedArg("core.dim", "3").val == "3"


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
    for path in listed_classes():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, type), path
        if name in WRITTEN_ARGUMENTS:
            missing = set(WRITTEN_ARGUMENTS[name]) - set(inspect.signature(found).parameters)
            assert not missing, f"{path} has no {missing}"


def test_whatever_takes_a_path_is_known_to_write():
    """A class of the list with an argument that says where to write must be among those that are kept inside."""
    words = {"dir", "dirpath", "file", "filename", "path", "root", "folder"}
    for path in listed_classes():
        module, _, name = path.rpartition(".")
        if not module.startswith("lightning"):
            continue
        found = getattr(importlib.import_module(module), name)
        for argument in inspect.signature(found).parameters:
            if words & set(argument.split("_")):
                assert argument in WRITTEN_ARGUMENTS.get(name, ()), f"{path} takes {argument}"


def test_a_prefix_allows_what_is_below_it_only():
    apply_policy(["acme.models"])
    for path in ("acme.models.Core", "torch.optim.Adam"):
        assert is_importable(path)
    for path in ("acme.modelsx.Core", "acme.Core", "torch.optim.Adam.step"):
        assert not is_importable(path)
    assert not is_importable("slotbench.grids.engines.CommandProcess")
