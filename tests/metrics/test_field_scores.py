"""The scores of the field's tables against loops over masks: void pixels, empty frames, objects that come late."""

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from slotbench.metrics.clip_scores import score_clips, summaries
from slotbench.metrics.contingency import counted, frame_tables
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.region_similarity import RegionSimilarity
from slotbench.metrics.segmentation import FGARI, MeanBestOverlap

CLIPS, TIME, SIDE, SLOTS = 4, 5, 7, 3


def masks_of(seed):
    """Predicted and true ids, about a half of which agree: object 3 comes late, 2 is gone for a while, -1 is void."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 4, (CLIPS, TIME, SIDE, SIDE))
    predicted = np.where(random.random(true.shape) < 0.5, true % SLOTS, random.integers(0, SLOTS, true.shape))
    true[:, :2][true[:, :2] == 3] = 0
    true[0, 1:3][true[0, 1:3] == 2] = 0
    predicted[2, 1:][predicted[2, 1:] == 1] = 0  # a slot that is empty where its object may be, too
    true[2, 3][true[2, 3] == 1] = 0
    true[1, 4] = 0  # nothing in sight
    true[3] = np.where(true[3] > 1, 0, true[3])
    true[random.random(true.shape) < 0.1] = -1
    true[2, 0] = -1  # a frame of which nothing counts
    return predicted, true


def jaccard(predicted, true):
    """Values of all objects of a clip: frames averaged, then the best assignment of all."""
    counts = [frame >= 0 for frame in true]
    frames = [t for t in range(len(true)) if counts[t].any()]
    slots = [slot for slot in np.unique(predicted) if any((predicted[t] == slot)[counts[t]].any() for t in frames)]
    objects = [one for one in np.unique(true) if one > 0]
    slots += [99] * max(0, len(objects) - len(slots))
    values = np.zeros((len(objects), len(slots)))
    for i, one in enumerate(objects):
        for j, slot in enumerate(slots):
            for t in frames:
                own, other = (true[t] == one)[counts[t]], (predicted[t] == slot)[counts[t]]
                union = (own | other).sum()
                values[i, j] += (1 if union == 0 else (own & other).sum() / union) / len(frames)
    ways = permutations(range(len(slots)), len(objects))
    return max(([values[i, j] for i, j in enumerate(way)] for way in ways), key=sum)


def best_overlap(predicted, true):
    """Mean over the objects of the best IoU; None without one."""
    counts, found = true >= 0, []
    for one in np.unique(true[true > 0]):
        own = (true == one)[counts]
        others = [(predicted == slot)[counts] for slot in range(SLOTS)]
        found.append(max((own & other).sum() / (own | other).sum() for other in others))
    return np.mean(found) if found else None


def fg_ari(predicted, true):
    """As scikit-learn has it; None where nothing counts."""
    if (true < 0).all():
        return None
    return adjusted_rand_score(true[true > 0], predicted[true > 0]) if (true > 0).any() else 1.0


def by_metric(metric, predicted, true):
    metric.update(torch.from_numpy(predicted), torch.from_numpy(true), counted(torch.from_numpy(true)))
    return float(metric.compute())


@pytest.mark.parametrize("scope", ["video", "frame"])
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_loops_over_masks(scope, seed):
    predicted, true = masks_of(seed)
    samples = [*zip(predicted, true, strict=True)]
    if scope == "frame":
        samples = [(p[None], t[None]) for clip in samples for p, t in zip(*clip, strict=True)]
    for metric, reference in ((MeanBestOverlap, best_overlap), (FGARI, fg_ari)):
        values = [value for sample in samples if (value := reference(*sample)) is not None]
        assert by_metric(metric(scope), predicted, true) == pytest.approx(np.mean(values), abs=1e-12)
    values = [value for sample in samples for value in jaccard(*sample)]
    assert by_metric(RegionSimilarity(scope), predicted, true) == pytest.approx(np.mean(values), abs=1e-12)


def test_j_counts_objects_and_not_videos_in_files_and_in_runs():
    predicted, true = masks_of(0)
    tables = frame_tables(*map(torch.from_numpy, (predicted, true)), counted(torch.from_numpy(true)))[:, :, 0]
    clips = score_clips(tables, np.arange(4), Rules())
    objects = [len(jaccard(*clip)) for clip in zip(predicted, true, strict=True)]
    assert [clip.values["jaccard/video"][1] for clip in clips] == objects == [3, 3, 3, 1]
    expected = by_metric(RegionSimilarity("video"), predicted, true)
    assert summaries(clips)["jaccard/video"].mean == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "true", "value"),
    [
        pytest.param([[1, 0], [0, 0]], [[5, 0], [0, 0]], 1.0, id="the slot lets go of a hidden object"),
        pytest.param([[1, 0], [1, 0]], [[5, 0], [0, 0]], 0.5, id="it does not"),
        pytest.param([[0, 0], [0, 0]], [[0, 0], [5, 0]], 0.25, id="all in one slot, an object that comes late"),
        pytest.param([[0, 0], [0, 0]], [[5, 6], [5, 6]], 0.25, id="two objects in one slot, one is without"),
        pytest.param([[0, 0], [0, 0]], [[5, 6], [5, 0]], 0.5, id="the one without is hidden for half of the frames"),
        pytest.param([[1, 0], [0, 1]], [[5, 0], [-1, -1]], 1.0, id="a frame that counts nowhere"),
        pytest.param([[1, 0], [0, 1]], [[5, 0], [5, 0]], 0.5, id="slots are exchanged"),
    ],
)
def test_cases_of_j(predicted, true, value):
    shaped = [np.array(ids)[None, :, None] for ids in (predicted, true)]
    assert by_metric(RegionSimilarity("video"), *shaped) == pytest.approx(value, abs=1e-12)
    # empty slots of other clips in the batch change nothing
    more = np.concatenate([shaped[0], np.arange(4).reshape(1, 2, 1, 2)])
    assert by_metric(RegionSimilarity("video"), more, np.concatenate([shaped[1], 0 * shaped[1]])) == pytest.approx(
        value
    )
