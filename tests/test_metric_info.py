"""What a metric is, as runs write it and readers look it up: references beside scores, names with a length, records."""

from __future__ import annotations

import pickle

import pytest

from slotbench.metric_info import (
    MetricInfo,
    Reference,
    describe,
    info_of,
    infos_as_record,
    infos_from_record,
    references_of,
)

DECLARED = [MetricInfo("miou", "mIoU", True), MetricInfo("mse", "squared error", False)]
LOGGED = {
    "miou/video/decoder": 0.5,
    "mse/step_07": 0.1,
    Reference("baseline", "miou/video", "one slot"): 0.2,
    Reference("baseline", "mse/step_07", "black", "baseline/mse/black/step_07"): 0.3,
    Reference("baseline", "mse/first_10", "black", "baseline/mse/black/first_10"): 0.4,
    Reference("oracle", "mse/step_07", "simulator"): 0.0,
}
WRITTEN = describe([*LOGGED, "not/declared"], DECLARED)
VALIDATED = {f"val/{name}": value for name, value in LOGGED.items()}


def test_names_are_described_by_their_metric_and_their_parts():
    decoder = WRITTEN["miou/video/decoder"]
    assert (decoder.label, decoder.scope, decoder.masks) == ("mIoU per video, decoder", "video", "decoder")
    assert WRITTEN["mse/step_07"].label == "squared error, step 07"
    assert WRITTEN["baseline/mse/black/step_07"].higher_is_better is False
    baseline = describe([Reference("baseline", "miou/decoder", "grid")], DECLARED)["baseline/miou/decoder/grid"]
    assert (baseline.masks, baseline.without_masks) == ("", "baseline/miou/decoder/grid")
    assert WRITTEN.keys() == {str(name) for name in LOGGED}


@pytest.mark.parametrize(
    ("logged", "baselines", "oracles"),
    [
        ("val/miou/video/decoder", {"one slot": 0.2}, {}),
        ("test/miou/video/decoder", {"one slot": 0.2}, {}),
        ("val/mse/step_07", {"black": 0.3}, {"simulator": 0.0}),
        ("val/mse", {}, {}),
    ],
)
def test_references_belong_to_one_score(logged, baselines, oracles):
    assert references_of(logged, VALIDATED, WRITTEN) == (baselines, oracles)


def test_references_of_the_same_stage_come_first():
    tested = VALIDATED | {"test/baseline/miou/video/one slot": 0.7, "lengths/4T/baseline/miou/video/one slot": 0.8}
    assert references_of("test/miou/video/decoder", tested, WRITTEN).baselines == {"one slot": 0.7}
    assert references_of("lengths/4T/miou/video/decoder", tested, WRITTEN).baselines == {"one slot": 0.8}


def test_a_record_gives_back_what_was_written():
    assert infos_from_record(infos_as_record(WRITTEN)) == WRITTEN
    assert infos_from_record(None) == {}


def test_the_direction_of_an_undeclared_name_is_that_of_its_words():
    assert info_of("val/loss", {}).higher_is_better is False
    assert info_of("test/fg_ari/video", WRITTEN).higher_is_better is True
    assert info_of("val/accuracy_error", {}).higher_is_better is None


def test_references_survive_other_processes():
    name = next(name for name in LOGGED if isinstance(name, Reference))
    again = pickle.loads(pickle.dumps(name))
    assert (again, again.kind, again.of, again.by) == (name, "baseline", "miou/video", "one slot")
