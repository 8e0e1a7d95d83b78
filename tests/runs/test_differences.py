"""Configurations differ where what comes out of a run would."""

from __future__ import annotations

from typing import Any

from slotbench.runs.differences import configuration_differences


def configuration(core: str = "SlotSSM", slots: int = 4, **trainer: Any) -> dict:
    return {
        "seed_everything": 0,
        "model": {
            "class_path": "LongContextReasoning",
            "init_args": {"core": {"class_path": core, "init_args": {"num_slots": slots}}, "encoder": None},
        },
        "data": {"class_path": "BlinkingBalls", "init_args": {"loader": {"batch_size": 8, "num_workers": 0}}},
        "trainer": {"max_steps": 100, "devices": 1, **trainer},
        "ckpt_path": None,
    }


def said(before: dict, now: dict) -> list[str]:
    return [str(difference) for difference in configuration_differences(before, now)]


def test_equal_ones_do_not_differ() -> None:
    assert said(configuration(), configuration()) == []


def test_keys_are_those_of_the_command_line_with_both_values() -> None:
    assert said(configuration(), configuration("RIM", 6, gradient_clip_val=1.0)) == [
        "model.core: SlotSSM in the run, RIM now",
        "model.core.num_slots: 4 in the run, 6 now",
        "trainer.gradient_clip_val: absent in the run, 1.0 now",
    ]


def test_what_is_gone_is_named_too() -> None:
    before, now = configuration(deterministic=True), configuration()
    now["model"]["init_args"]["encoder"] = {"class_path": "CNNEncoder", "init_args": {}}
    assert said(before, now) == [
        "model.encoder: null in the run, CNNEncoder now",
        "trainer.deterministic: true in the run, absent now",
    ]


def test_where_and_how_it_is_run_is_no_difference() -> None:
    now = configuration(accelerator="gpu", strategy={"class_path": "DDPStrategy"}, num_nodes=2, logger=False)
    now["trainer"]["devices"] = 4
    now["data"]["init_args"]["loader"]["num_workers"] = 3
    now["ckpt_path"] = "elsewhere.ckpt"
    assert said(configuration(), now) == []
    now["data"]["init_args"]["loader"]["batch_size"] = 4
    assert said(configuration(), now) == ["data.loader.batch_size: 8 in the run, 4 now"]


def test_arguments_that_are_absent_or_empty_are_the_same() -> None:
    before, now = configuration(), configuration()
    before["data"] = {"class_path": "Plain"}
    now["data"] = {"class_path": "Plain", "init_args": {}}
    assert said(before, now) == []


def test_an_argument_that_is_new_and_null_is_no_difference() -> None:
    before, now = configuration(), configuration()
    now["model"]["init_args"]["objectives"] = None
    assert said(before, now) == []
    now["model"]["init_args"]["objectives"] = []
    assert said(before, now) == ["model.objectives: absent in the run, [] now"]
