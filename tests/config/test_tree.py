"""Configuration files laid over each other, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotbench.config.slips import nearest_option
from slotbench.config.tree import config_files, lay_over, read_tree, typed_settings
from slotbench.errors import FileError, UserError


def part(name: str, **arguments):
    return {"class_path": name, "init_args": arguments}


def test_a_file_fills_in_where_the_class_is_the_same_and_starts_clean_where_it_is_another():
    below = {"model": part("T", core=part("SlotSSM", dim=3, num_slots=2), anneal=1), "trainer": {"max_steps": 4}}
    same = lay_over(below, {"model": part("T", core=part("SlotSSM", dim=5)), "trainer": {"max_epochs": 1}})
    assert same["model"]["init_args"] == {"core": part("SlotSSM", dim=5, num_slots=2), "anneal": 1}
    assert same["trainer"] == {"max_steps": 4, "max_epochs": 1}
    other = lay_over(below, {"model": {"init_args": {"core": part("RIM", dim=5)}}})
    assert other["model"] == part("T", core=part("RIM", dim=5), anneal=1)
    assert lay_over(below, {"model": {"init_args": {"core": "SlotSSM"}}})["model"] == below["model"]
    assert lay_over(below, {"model": part("T"), "data": part("D")}) == {"model": part("T"), "data": part("D")}


def test_settings_of_a_command_line_have_keys_and_values():
    words = ["--model.core.init_args.dim", "3", "-c", "a.yaml", "--data.x=-1", "--flag", "--lr", "-1", "b"]
    found = [(one.key, one.value) for one in typed_settings(words)]
    assert found[:3] == [(("model", "core", "dim"), "3"), (("config",), "a.yaml"), (("data", "x"), "-1")]
    assert found[3:] == [(("flag",), None), (("lr",), "-1"), ((), "b")]


def test_settings_of_parts_that_are_there_go_into_the_tree_in_their_order(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("model: {class_path: SlotAutoencoding, init_args: {core: SAVi}}\n")
    given = read_tree(
        ["--config", str(file), "--model.core.num_slots", "3", "--model.core", "SlotAttention", "--trainer.max_steps=1"]
    )
    core = given.tree["model"]["init_args"]["core"]
    assert core == part("slotbench_plugins.cores.slot_attention.SlotAttention", num_slots="3")
    assert given.rest == ["--trainer.max_steps=1"]
    assert given.typed == {"model.core.num_slots": "3", "model.core": "SlotAttention", "trainer.max_steps": "1"}
    assert read_tree(["--config", str(file), "--model.core", "null"]).tree["model"]["init_args"]["core"] is None


def test_files_before_a_whole_experiment_are_not_in_use(tmp_path: Path):
    for name, text in (("a", "trainer: {}"), ("b", "{model: T, data: D}"), ("c", "model: {init_args: {}}")):
        (tmp_path / f"{name}.yaml").write_text(text)
    files = [word for name in "abc" for word in ("--config", str(tmp_path / f"{name}.yaml"))]
    assert [file.stem for file in config_files(files)] == ["b", "c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: [A\ndata: x\n", "not valid YAML"),
        ("- a\n", "expected: +a mapping"),
        ("", "expected: +a mapping"),
        ("base: x.yaml\n", "is a grid, not an experiment"),
        ("model: !!python/object/apply:os.system [exit]\n", "not valid YAML"),
    ],
)
def test_what_is_no_configuration_is_said(tmp_path: Path, text: str, expected: str):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises((UserError, FileError), match=expected):
        read_tree(["--config", str(file)])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("batch_size", "--data.loader.batch_size"),
        ("batch-size", "--data.loader.batch_size"),
        ("modle.core.dim", "--model.core.dim"),
        ("trainer.max_epoch", "--trainer.max_epochs"),
        ("runs-dir", "--runs_dir"),
        ("num_slot", "--model.core.num_slots"),
    ],
)
def test_the_nearest_option_is_named(typed: str, meant: str):
    known = ["model", "model.core.num_slots", "data.loader.batch_size", "trainer.max_epochs", "runs_dir"]
    assert f"did you mean {meant}?" in nearest_option(typed, known)
