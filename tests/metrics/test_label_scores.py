"""Scores of labels: ranks, ties, distances, groups, and baselines that a person can count."""

from __future__ import annotations

import pytest
import torch

from slotbench.interfaces import VideoBatch
from slotbench.metrics.label_scores import LabelScores, ranks_of

CELLS = 9


def batch_of(labels: list[int], **log: list) -> VideoBatch:
    count = len(labels)
    return VideoBatch(
        frames=torch.zeros(count, 2, 3, 4, 4),
        time=torch.arange(2).repeat(count, 1),
        target=torch.tensor(labels)[:, None, None, None],
        target_time=torch.ones(count, 1, dtype=torch.long),
        objects={name: torch.tensor(values) for name, values in log.items()},
        index=torch.arange(count),
    )


def logits_for(answers: list[int], classes: int = CELLS) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(answers), classes).float()


def test_ranks_are_those_of_sorting_where_nothing_ties() -> None:
    logits, labels = torch.randn(50, 7), torch.randint(0, 7, (50,))
    order = logits.argsort(dim=1, descending=True)
    expected = (order == labels[:, None]).float().argmax(1)
    assert torch.equal(ranks_of(logits, labels, torch.arange(50)), expected)


def test_ties_are_broken_evenly_and_by_the_clip_alone() -> None:
    count = 4000
    logits, labels, index = torch.zeros(count, 36), torch.arange(count) % 36, torch.arange(count)
    ranks = ranks_of(logits, labels, index)
    assert (ranks < 5).float().mean() == pytest.approx(5 / 36, abs=0.02)
    # no class is favoured, which sorting would do
    assert (ranks[labels == 0] < 5).float().mean() == pytest.approx(5 / 36, abs=0.1)
    assert (ranks[labels == 35] < 5).float().mean() == pytest.approx(5 / 36, abs=0.1)
    again = torch.cat([ranks_of(logits[i : i + 7], labels[i : i + 7], index[i : i + 7]) for i in range(0, 70, 7)])
    assert torch.equal(again, ranks[:70])


def test_top1_top5_and_l1_of_hand_made_clips() -> None:
    scores = LabelScores(CELLS, cells=True)
    # right; one to the side; from corner to corner
    scores.update(logits_for([4, 1, 8]), batch_of([4, 0, 0]))
    values = scores.close()
    assert values["top1"] == pytest.approx(1 / 3)
    assert values["l1"] == pytest.approx((0 + 1 + 4) / 3)
    assert values["top5"] >= values["top1"]
    # 0 is the answer twice of three times
    assert values["baseline/top1/best constant"] == pytest.approx(2 / 3)
    assert values["baseline/l1/best constant"] == pytest.approx(2 / 3)
    assert values["baseline/top1/uniform"] == pytest.approx(1 / 9)
    assert values["baseline/top5/uniform"] == pytest.approx(5 / 9)
    assert values["baseline/l1/uniform"] == pytest.approx((12 / 9 + 2 * 2) / 3)
    # references once, and the next evaluation begins anew
    scores.update(logits_for([4]), batch_of([4]))
    assert scores.close() == {"top1": 1.0, "top5": 1.0, "l1": 0.0}


def test_groups_and_the_rules_that_know_every_position() -> None:
    # free at 4; covered and still at 0; covered and moved from 0 to 8, where the first of two cones stands
    log = {
        "covered": [False, True, True],
        "moved_covered": [False, False, True],
        "frames_since_seen": [0, 30, 120],
        "last_uncovered": [4, 0, 0],
        "shape_label": [[4, 3, 3, 0]] * 3,
        "scale": [[0.6, 1.0, 1.5, 1.0]] * 3,
        "end_holders": [[-1, -1, -1, -1], [1, -1, -1, -1], [1, 2, -1, -1]],
        "end_cells": [[4, 1, 2, 3], [0, 0, 5, 3], [8, 5, 8, 3]],
    }
    scores = LabelScores(CELLS, cells=True)
    scores.update(logits_for([4, 0, 7]), batch_of([4, 0, 8], **log))
    values = scores.close()
    assert (values["top1/free"], values["top1/covered_still"], values["top1/covered_moved"]) == (1.0, 1.0, 0.0)
    assert (values["l1/covered_moved"], values["top1/seen"]) == (1.0, 1.0)
    assert (values["top1/unseen_25-48"], values["top1/unseen_97+"]) == (1.0, 0.0)
    assert "top1/unseen_1-24" not in values
    assert values["baseline/top1/last uncovered"] == pytest.approx(2 / 3)
    assert values["baseline/top1/covered_moved/last uncovered"] == 0.0
    assert values["baseline/l1/covered_moved/last uncovered"] == 4.0
    # bins without a clip have no point
    over = scores.over_absence()
    assert over["model"] == {0: 1.0, 25: 1.0, 97: 0.0}
    assert over["last uncovered"] == {0: 1.0, 25: 1.0, 97: 0.0}
    assert scores.over_absence("l1")["model"] == {0: 0.0, 25: 0.0, 97: 1.0}
    # baselines are scored once, and kept
    scores.update(logits_for([8]), batch_of([8], **{name: values[2:] for name, values in log.items()}))
    scores.close()
    assert scores.over_absence()["model"] == {97: 1.0}
    assert scores.over_absence()["last uncovered"] == {0: 1.0, 25: 1.0, 97: 0.0}
    # a cone that is itself covered is no choice, so that the other one is the only one
    assert values["baseline/top1/covered_moved/any cone"] == 1.0
    assert values["baseline/top1/covered_still/any cone"] == 0.5
    assert values["baseline/l1/covered_still/any cone"] == pytest.approx(3 / 2)
    assert values["baseline/top1/free/any cone"] == 0.0


def test_classes_have_no_distance_and_few_of_them_no_top5() -> None:
    scores = LabelScores(3)
    scores.update(logits_for([2, 0], 3), batch_of([2, 1]))
    values = scores.close()
    assert {name for name in values if not name.startswith("baseline")} == {"top1"}
    assert values["baseline/top1/best constant"] == 0.5
