"""What a metric is, as runs write it and readers look it up: references beside scores, names with a length, records."""

from __future__ import annotations

import pytest

from slotbench.metric_info import (
    MetricInfo,
    describe,
    infos_as_record,
    infos_from_record,
    reference_of,
    score_beside,
)

DECLARED = [MetricInfo("miou", "mIoU", True), MetricInfo("mse", "squared error", False)]
LOGGED = (
    "miou/video/decoder",
    "mse/step_07",
    "mse/first_10",
    "baseline/miou/video/one slot",
    "baseline/mse/step_07/black",
    "baseline/mse/first_10/black",
    "oracle/mse/step_07/simulator",
)
WRITTEN = describe(LOGGED, DECLARED)


@pytest.mark.parametrize("known", [WRITTEN, {}], ids=["by the record", "by the names"])
@pytest.mark.parametrize(
    ("logged", "score", "expected"),
    [
        ("val/baseline/miou/video/one slot", "val/miou/video/decoder", ("baseline", "one slot")),
        ("val/baseline/mse/step_07/black", "val/mse/step_07", ("baseline", "black")),
        ("val/oracle/mse/step_07/simulator", "val/mse/step_07", ("oracle", "simulator")),
        ("val/baseline/mse/first_10/black", "val/mse/step_07", None),
        ("val/baseline/mse/step_07/black", "val/miou/video/decoder", None),
        ("val/mse/step_07", "val/mse/step_07", None),
    ],
)
def test_a_reference_belongs_to_one_score(known, logged, score, expected):
    assert reference_of(logged, score_beside(score, known), known) == expected


def test_the_record_of_a_run_counts_and_not_the_name():
    renamed = {"baseline/mse/step_07/black": MetricInfo("", reference="oracle", of="miou/video", by="all")}
    assert reference_of("val/baseline/mse/step_07/black", "miou/video", renamed) == ("oracle", "all")
    assert reference_of("val/baseline/mse/step_07/black", "mse/step_07", renamed) is None


def test_scores_of_long_clips_keep_their_length_beside_baselines():
    assert score_beside("lengths/4T/miou/video/decoder", WRITTEN) == "lengths/4T/miou/video"
    assert score_beside("test/miou/video/decoder", WRITTEN) == "miou/video"


def test_a_record_gives_back_what_was_written_and_leaves_out_the_rest():
    record = infos_as_record(WRITTEN)
    assert infos_from_record(record) == WRITTEN
    damaged = record | {"mse/step_07": {"higher_is_better": "no"}, "mse/first_10": 3}
    assert infos_from_record(damaged).keys() == WRITTEN.keys() - {"mse/step_07", "mse/first_10"}
