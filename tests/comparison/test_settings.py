"""Which settings make a row, which are shown, and what rows are called."""

from __future__ import annotations

import pytest
from made_up_runs import config, record

from slotbench.comparison.records import ComparisonError, UnknownNameError
from slotbench.comparison.settings import choose_keys, flat_settings, label, resolve_key


def run(core="SlotSSM", seed=0, **changed):
    return record("run", flat_settings(config(core, seed, **changed)), {})


def test_the_seed_is_no_key():
    keys = choose_keys([run(seed=0), run(seed=1)])
    assert keys.shown == []
    assert keys.seeds == ["seed_everything"]


def test_the_seed_of_the_data_counts_as_one_if_it_goes_with_the_seed():
    together = [run(seed=seed, data_seed=seed + 5) for seed in range(3)]
    assert choose_keys(together).seeds == ["seed_everything", "data.loader.seed"]
    assert choose_keys(together).shown == []
    crossed = [run(seed=seed, data_seed=data) for seed in range(2) for data in range(2)]
    assert choose_keys(crossed).seeds == ["seed_everything"]
    assert choose_keys(crossed).shown == ["data.loader.seed"]
    alone = [run(seed=0, data_seed=data) for data in range(2)]
    assert choose_keys(alone).shown == ["data.loader.seed"]


def test_arguments_of_a_core_follow_from_it():
    keys = choose_keys([run("SlotSSM", ssm="mamba", dim=64), run("RIM", top_k=4, dim=72)])
    assert keys.shown == ["model.core"]
    assert set(keys.folded["model.core"]) == {"model.core.ssm", "model.core.top_k", "model.core.dim"}
    assert set(keys.grouping) == {"model.core", *keys.folded["model.core"]}


def test_an_argument_that_differs_within_a_core_is_shown():
    keys = choose_keys([run("SlotSSM", num_slots=4), run("SlotSSM", num_slots=8), run("RIM", top_k=4)])
    assert keys.shown == ["model.core", "model.core.num_slots"]


def test_everything_folds_nothing_and_counts_the_execution():
    runs = [run("SlotSSM", dim=64), run("RIM", dim=72, data_num_workers=2)]
    assert "data.loader.num_workers" in choose_keys(runs).execution
    keys = choose_keys(runs, everything=True)
    assert keys.shown == ["model.core", "model.core.dim", "data.loader.num_workers"]
    assert not keys.execution


def test_arguments_of_the_execution_are_execution():
    runs = [record(n, {"trainer.strategy": "DDP", "trainer.strategy.static_graph": n == "a"}, {}) for n in "ab"]
    assert choose_keys(runs).execution == ["trainer.strategy.static_graph"]
    assert choose_keys(runs).grouping == []


def test_the_most_telling_come_first():
    first = record(
        "a",
        {
            "trainer.max_steps": 1,
            "model.optimizer.lr": 1,
            "data": "A",
            "data.x": 0,
            "model": "M",
            "model.core.n": 1,
            "model.loss": "a",
        },
        {},
    )
    second = record(
        "b",
        {
            "trainer.max_steps": 2,
            "model.optimizer.lr": 2,
            "data": "A",
            "data.x": 1,
            "model": "M",
            "model.core.n": 2,
            "model.loss": "b",
        },
        {},
    )
    assert choose_keys([first, second]).shown == [
        "model.core.n",
        "model.loss",
        "data.x",
        "model.optimizer.lr",
        "trainer.max_steps",
    ]


def test_absent_is_the_same_as_null_and_runs_without_configuration_say_nothing():
    runs = [record("a", {"x": None, "y": 1}, {}), record("b", {"y": 1}, {}), record("c", {}, {})]
    assert choose_keys(runs).shown == []


def test_lists_and_mappings_are_values():
    runs = [record("a", {"data.radii": [1, 2]}, {}), record("b", {"data.radii": [1, 3]}, {})]
    assert choose_keys(runs).shown == ["data.radii"]
    assert label(runs[1].settings, ["data.radii"]) == "radii=[1, 3]"


def test_labels_are_short_and_say_the_key_where_the_value_does_not():
    keys = ["model.core", "model.core.num_slots", "data.num_frames"]
    settings = {"model.core": "RIM", "model.core.num_slots": 4, "data.num_frames": None}
    assert label(settings, keys) == "RIM, num_slots=4"


def test_a_key_may_be_named_by_its_end():
    runs = [run("SlotSSM", dim=64), run("SlotSSM", dim=72)]
    assert resolve_key("model.core.dim", runs) == "model.core.dim"
    assert resolve_key("dim", runs) == "model.core.dim"
    assert resolve_key("num_balls", runs) == "data.num_balls"
    assert resolve_key("seed", runs) == "data.loader.seed"


def test_seed_is_that_of_the_runs_where_they_differ_by_it():
    def seeded(name, seed, data_seed):
        return record(name, {"seed_everything": seed, "data.loader.seed": data_seed}, {})

    assert resolve_key("seed", [seeded("x", 0, 7), seeded("y", 1, 7)]) == "seed_everything"
    assert resolve_key("seed", [seeded("x", 0, 7), seeded("y", 0, 8)]) == "data.loader.seed"
    with pytest.raises(ComparisonError, match=r"data\.loader\.seed or seed_everything: type one"):
        resolve_key("seed", [seeded("x", 0, 7), seeded("y", 1, 8)])


def test_a_key_that_is_not_there_or_could_be_several():
    with pytest.raises(UnknownNameError) as error:
        resolve_key("dimm", [run("SlotSSM", dim=64), run("SlotSSM", dim=72)])
    assert error.value.known == ("model.core.dim",)
    both = [record(name, {"a.dim": value, "b.dim": value}, {}) for name, value in (("x", 1), ("y", 2))]
    with pytest.raises(ComparisonError, match=r"a\.dim or b\.dim"):
        resolve_key("dim", both)
