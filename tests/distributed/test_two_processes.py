"""Two processes train and score as one: the same clips, the same weights, the same numbers."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import pytest
import torch
from forked import Forked
from two_processes import (
    PROCESSES,
    autoencoding,
    blinking_balls,
    bouncing_balls,
    evaluate,
    long_context,
    prediction,
    train_and_test,
    work,
)

Found = list[dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*does not have many workers.*")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each of the two processes has written down."""
    folder = tmp_path_factory.mktemp("processes")
    both = [Forked(work, rank, str(folder)) for rank in range(PROCESSES)]
    for process in both:
        process.output(timeout=600)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(PROCESSES)]


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """The same by one process, whose batches are as large as those of the two together."""
    drawn = partial(bouncing_balls, frames=2)
    return {
        "long_context": train_and_test(1, long_context, blinking_balls),
        "prediction": train_and_test(1, prediction, bouncing_balls),
        "autoencoding": evaluate(1, autoencoding(drawn(4)), drawn),
    }


TRAINED = pytest.mark.parametrize("task", ["long_context", "prediction"])
ALL = pytest.mark.parametrize("task", ["long_context", "prediction", "autoencoding"])


@TRAINED
def test_each_step_is_trained_on_the_same_clips(found: Found, alone: dict[str, Any], task: str) -> None:
    parts = [process[task]["clips"]["train"] for process in found]
    together = [[*first, *second] for first, second in zip(*parts, strict=True)]
    assert together == alone[task]["clips"]["train"]
    assert [len(batch) for batch in together] == [4, 4, 4, 4, 4, 2]


@ALL
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_evaluation_reads_every_clip_once(found: Found, task: str, stage: str) -> None:
    parts = [[*chain(*process[task]["clips"][stage])] for process in found]
    assert sorted(chain(*parts)) == list(range(7))
    assert [len(part) for part in parts] == [4, 3]


@TRAINED
def test_the_weights_after_training_are_those_of_one_process(found: Found, alone: dict[str, Any], task: str) -> None:
    first, second = (process[task]["weights"] for process in found)
    for name, expected in alone[task]["weights"].items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], expected, rtol=0, atol=1e-5, msg=name)


@TRAINED
def test_the_training_loss_that_is_logged_is_that_of_all_clips(found: Found, alone: dict[str, Any], task: str) -> None:
    for process in found:
        assert process[task]["train"] == pytest.approx(alone[task]["train"], rel=1e-5)


@ALL
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_every_score_is_that_of_one_process(found: Found, alone: dict[str, Any], task: str, stage: str) -> None:
    expected = alone[task][stage]
    assert {name.rpartition("/")[2] for name in expected} >= {"loss"}
    # training adds up in another order, and a roll-out carries on what that makes of the weights
    tolerance = 1e-6 if task == "autoencoding" else 2e-5
    for process in found:
        assert process[task][stage].keys() == expected.keys()
        for name, value in expected.items():
            assert process[task][stage][name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


@ALL
def test_headlines_and_baselines_are_those_of_one_process(found: Found, alone: dict[str, Any], task: str) -> None:
    assert any(baselines for _, baselines in alone[task]["headlines"])
    for process in found:
        for (metric, baselines), (name, expected) in zip(
            process[task]["headlines"], alone[task]["headlines"], strict=True
        ):
            assert metric == name
            assert baselines == pytest.approx(expected, rel=1e-6)


def test_a_resumed_training_reads_draws_and_learns_as_one_that_was_never_stopped(found: Found) -> None:
    for process in found:
        whole, resumed = process["resume"]["at once"], process["resume"]["in two"]
        assert whole["clips"] == resumed["clips"]
        assert torch.equal(whole["draws"], resumed["draws"])
        assert all(torch.equal(value, resumed["weights"][name]) for name, value in whole["weights"].items())


def test_processes_draw_different_numbers_and_have_the_same_weights(found: Found) -> None:
    first, second = (process["resume"]["at once"] for process in found)
    assert not torch.isclose(first["draws"], second["draws"]).all(-1).any()
    assert all(torch.equal(value, second["weights"][name]) for name, value in first["weights"].items())


def test_every_parameter_of_other_cores_gets_a_gradient(found: Found) -> None:
    assert [process["every parameter"] for process in found] == [
        {"RIM": True, "SlotTransformer": True, "PSB": True}
    ] * 2


def test_a_split_with_fewer_clips_than_processes_is_refused(found: Found) -> None:
    for process in found:
        assert "the val split has 1 clip(s) and there are 2 processes" in process["too few"]
        assert "raise data.loader.val_size, or lower trainer.devices" in process["too few"]
