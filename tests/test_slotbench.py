"""The package itself: components built by name, and an import that costs nothing."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import slotbench
from slotbench import registry
from slotbench.errors import UserError
from slotbench.interfaces import TokenSpec, VideoSpec
from slotbench.registry import RegistryError


def test_importing_the_package_and_its_public_names_imports_no_torch():
    code = (
        "import sys, slotbench, slotbench.nn, slotbench.metrics, slotbench.data, slotbench.evaluation\n"
        "slotbench.build, slotbench.factory, slotbench.load_run\n"
        "print([name for name in ('torch', 'lightning', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["nn", "data", "metrics", "evaluation"])
def test_every_public_name_of_a_package_is_there(package):
    module = importlib.import_module(f"slotbench.{package}")
    assert set(module.__all__) <= set(dir(module))
    assert [name for name in module.__all__ if getattr(module, name).__name__ != name] == []


def test_a_layer_and_the_base_of_the_data_sets_are_where_people_look_for_them():
    from slotbench.data import SlotDataModule
    from slotbench.nn import InvertedAttention

    assert issubclass(registry.load("datasets", "BouncingBalls"), SlotDataModule)
    assert InvertedAttention.__module__.startswith("slotbench.nn.")


def test_a_component_is_built_by_its_name_from_sizes_and_arguments():
    core = slotbench.build("SlotSSM", TokenSpec(dim=16, num_tokens=4), num_slots=3)
    assert type(core) is registry.load("cores", "SlotSSM")
    assert core.slot_spec.num_slots == 3


def test_a_factory_leaves_the_sizes_to_the_task():
    make = slotbench.factory("PatchEncoder", kind="encoders", dim=16)
    assert make(VideoSpec(channels=3, height=16, width=16)).token_spec.dim == 16


def test_a_misspelt_name_is_an_error_with_the_name_that_is_near():
    with pytest.raises(RegistryError, match=r"no component named SlotSMM; did you mean SlotSSM\?"):
        slotbench.build("SlotSMM")


def test_a_name_without_a_near_one_is_an_error_that_says_where_the_names_are():
    with pytest.raises(RegistryError, match="no component named Qqqq; slotbench plugins lists"):
        slotbench.build("Qqqq")


def test_a_name_of_two_kinds_needs_its_kind(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("encoders")(type("SlotSSM", (registry.load("encoders", "PatchEncoder"),), {}))
    with pytest.raises(RegistryError, match="SlotSSM is the name of an encoder and a core: say which by kind="):
        slotbench.factory("SlotSSM")
    assert slotbench.factory("SlotSSM", kind="cores").func is registry.load("cores", "SlotSSM")


def test_a_run_that_is_not_there_is_an_error_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="absent"):
        slotbench.load_run(tmp_path / "absent")
