"""Scores of slots that follow objects through a clip: CLEAR-MOT, HOTA and identity, from tables of counts per frame.

A slot is a track, and its id in a frame is its mask there. Everything is computed from how many pixels each object and
each slot share in each frame (`slotbench.metrics.contingency.frame_tables`), so clips of any size cost the same.

Sources: Bernardin & Stiefelhagen, "Evaluating multiple object tracking performance: the CLEAR MOT metrics", 2008 (MOTA,
MOTP, the matching); Weis et al., "Benchmarking unsupervised object representations for video sequences", 2021 (masks
in the place of boxes, MOTP as an IoU, the thresholds); Kaplan & Meier, "Nonparametric estimation from incomplete
observations", 1958 (the half-life).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.optimize import linear_sum_assignment

from slotbench.metric_info import MetricInfo
from slotbench.metrics.hota import Hota, hota_counts

__all__ = ["TRACKING", "Tracking", "TrackingRule", "half_life", "track"]

Table = Integer[np.ndarray, "time true predicted"]
_HIDDEN, _NOBODY = -2, -1

TRACKING = (
    MetricInfo("mota", "MOTA", True),
    MetricInfo("motp", "MOTP (mean IoU)", True),
    MetricInfo("hota", "HOTA", True),
    MetricInfo("deta", "DetA, detection in HOTA", True),
    MetricInfo("assa", "AssA, association in HOTA", True),
    MetricInfo("misses", "misses per object", False),
    MetricInfo("false_positives", "false positives per object", False),
    MetricInfo("switches_per_100_frames", "switches per 100 frames", False),
    MetricInfo("switches_per_object", "switches per tracked object", False),
    MetricInfo("half_life", "half-life, frames", True, unit="frames"),
    MetricInfo("found_again", "found again after occlusion", True),
)
"""The scores of tracking, in the order of reports."""


@dataclass(frozen=True)
class TrackingRule:
    """What counts as an object, as a track, and as a match.

    Attributes:
        min_iou: the IoU that a slot must have with an object to be matched with it.
        min_pixels: an object or a slot with no more pixels in a frame is not there in it.
        background_iou: a slot whose IoU with the true background is larger is no track in that frame; None to count
            every slot, so that one on the background is a false positive.
    """

    min_iou: float = 0.5
    min_pixels: int = 5
    background_iou: float | None = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.min_iou <= 1:
            raise ValueError(f"min_iou is {self.min_iou}; expected a number above 0 and up to 1")
        if self.min_pixels < 0:
            raise ValueError(f"min_pixels is {self.min_pixels}; expected 0 or more")


@dataclass
class Tracking:
    """Counts of one clip or, added up, of several.

    Attributes:
        frames: that were scored.
        objects: true objects that are there, counted in each frame.
        matches: of them, those with a slot; switches are among them.
        misses: of them, those without.
        false_positives: slots that are there without an object, counted in each frame.
        switches: matches of an object with another slot than the one that it was matched with last, however long ago.
        fragments: times that an object which had a slot is there without one, and has one again later.
        iou: sum of the IoUs of the matches.
        occlusions: times that an object which had a slot before is not there for a frame or more, and is again later.
        found_again: of them, those after which the first slot that it is matched with, before it is hidden again, is
            the one that it was matched with last.
        ended: lives of (object, slot) that ended in a switch, by their length in frames: see `half_life`.
        held: lives that did not end within the clip, by the number of frames for which they are known to have lasted:
            one of each object that ever had a slot.
        hota: counts at the thresholds of HOTA, which matches by itself.
    """

    frames: int = 0
    objects: int = 0
    matches: int = 0
    misses: int = 0
    false_positives: int = 0
    switches: int = 0
    fragments: int = 0
    iou: float = 0.0
    occlusions: int = 0
    found_again: int = 0
    ended: Counter[int] = field(default_factory=Counter)
    held: Counter[int] = field(default_factory=Counter)
    hota: Hota = field(default_factory=Hota)

    def __add__(self, other: Tracking) -> Tracking:
        return Tracking(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def mota(self) -> float | None:
        """1 - (misses + false positives + switches) / objects; it has no lower end. None without objects."""
        errors = self.misses + self.false_positives + self.switches
        return 1 - errors / self.objects if self.objects else None

    @property
    def motp(self) -> float | None:
        """Mean IoU of the matches (not a distance, as where boxes are tracked); None without any."""
        return self.iou / self.matches if self.matches else None

    @property
    def switches_per_100_frames(self) -> float | None:
        """Switches in 100 frames of video, whatever the number of objects; None without frames."""
        return 100 * self.switches / self.frames if self.frames else None

    @property
    def tracked(self) -> int:
        """Objects that ever had a slot, counted in each clip."""
        return self.held.total()

    @property
    def switches_per_object(self) -> float | None:
        """Switches per object that ever had a slot; it grows with the clips. None without any."""
        return self.switches / self.tracked if self.tracked else None

    @property
    def found_again_share(self) -> float | None:
        """Share of the occlusions after which the same slot has the object; None without any."""
        return self.found_again / self.occlusions if self.occlusions else None

    @property
    def half_life(self) -> float | None:
        """See `half_life`."""
        return half_life(self.ended, self.held)

    def scores(self) -> dict[str, tuple[float, int]]:
        """Every score but the half-life by name, and of how many objects, matches, frames or occlusions it is the mean.

        HOTA, DetA and AssA count the clip as one. A score that has no value is left out.
        """
        objects = self.objects
        found = {
            "mota": (self.mota, objects),
            "motp": (self.motp, self.matches),
            "hota": (self.hota.score, 1),
            "deta": (self.hota.detection, 1),
            "assa": (self.hota.association, 1),
            "misses": (self.misses / objects if objects else None, objects),
            "false_positives": (self.false_positives / objects if objects else None, objects),
            "switches_per_100_frames": (self.switches_per_100_frames, self.frames),
            "switches_per_object": (self.switches_per_object, self.tracked),
            "found_again": (self.found_again_share, self.occlusions),
        }
        return {name: (value, weight) for name, (value, weight) in found.items() if value is not None}


def half_life(ended: Counter[int], held: Counter[int]) -> float | None:
    """Frames after which half of the slots have lost their object to another slot (median of Kaplan and Meier).

    A life begins in the frame in which an object is matched with a slot that it was not matched with last. It ends in
    the frame in which the object is matched with another slot, after d frames of the clip, in which the object may
    have been hidden or without a slot in between. A life that no switch ends is known to have lasted up to the last
    frame in which the object was matched with the slot, c frames after the first, and what comes then is unknown. With
    e(k) lives that end after k frames and r(k) that last k frames or longer, ended or not,

        S(d) = product over k <= d of (1 - e(k) / r(k)),        half-life = the smallest d with S(d) <= 1/2.

    Lives of which the end is not seen thus count for as long as they are seen, and long ones in short clips do not pull
    the value down.

    Returns:
        The frames; infinity where more than half last as long as clips show; None without a life.

    Example:
        >>> half_life(Counter({3: 2}), Counter({5: 2})), half_life(Counter({3: 1}), Counter({5: 2}))
        (3.0, inf)
    """
    if not ended and not held:
        return None
    survival = 1.0
    for length in sorted(ended):
        at_risk = sum(count for one in (ended, held) for other, count in one.items() if other >= length)
        survival *= 1 - ended[length] / at_risk
        if survival <= 0.5 + 1e-12:
            return float(length)
    return float("inf")


def track(table: Table, rule: TrackingRule = TrackingRule(), no_track: int | None = None) -> Tracking:
    """Follows the objects of one clip through its frames.

    In each frame an object keeps the slot that it was matched with last, if that is there and overlaps enough. The
    objects and slots that are left are matched one to one, as many as possible, and among these ways the one with the
    largest sum of IoUs (Hungarian).

    Example:
        >>> one, other = [[90, 0, 0], [0, 10, 0]], [[90, 0, 0], [0, 0, 10]]  # slot 1 has the object, then slot 2
        >>> counts = track(np.array([one, one, other]))
        >>> counts.switches, counts.mota, counts.half_life
        (1, 0.6666666666666667, 2.0)
    """
    objects, slots, iou = _present(np.asarray(table), rule)
    if no_track is not None:
        slots[:, no_track] = False
    found = Tracking(frames=len(iou), objects=int(objects.sum()), hota=hota_counts(objects, slots, iou))
    last = np.full(objects.shape[1], _NOBODY)
    # per frame and object: the slot, nobody, or that the object is hidden
    owners = np.where(objects, _NOBODY, _HIDDEN)
    for time, overlaps in enumerate(iou):
        pairs = _matched(overlaps, objects[time], slots[time], last, rule.min_iou)
        for one, slot in pairs:
            found.switches += last[one] not in (_NOBODY, slot)
            found.iou += float(overlaps[one, slot])
            owners[time, one] = last[one] = slot
        found.matches += len(pairs)
        found.false_positives += int(slots[time].sum()) - len(pairs)
    found.misses = found.objects - found.matches
    for history in owners.T:
        _add_history(history, found)
    return found


def _present(
    table: Table, rule: TrackingRule
) -> tuple[Bool[np.ndarray, "time objects"], Bool[np.ndarray, "time slots"], Float[np.ndarray, "time objects slots"]]:
    """Which objects and which slots are there in each frame, and their IoUs."""
    true, predicted = table.sum(2), table.sum(1)
    union = true[:, :, None] + predicted[:, None, :] - table
    iou = table / np.maximum(union, 1)
    slots = predicted > rule.min_pixels
    if rule.background_iou is not None:
        slots &= iou[:, 0] <= rule.background_iou
    return true[:, 1:] > rule.min_pixels, slots, iou[:, 1:]


def _matched(
    iou: Float[np.ndarray, "objects slots"],
    objects: Bool[np.ndarray, " objects"],
    slots: Bool[np.ndarray, " slots"],
    last: Integer[np.ndarray, " objects"],
    min_iou: float,
) -> list[tuple[int, int]]:
    """The pairs of one frame: earlier ones first, in the order of the objects, then the Hungarian algorithm."""
    possible = (iou >= min_iou) & objects[:, None] & slots[None, :]
    pairs = []
    for one in np.flatnonzero(last >= 0):
        if possible[one, last[one]]:
            pairs.append((int(one), int(last[one])))
            possible[one] = possible[:, last[one]] = False
    rows, columns = np.flatnonzero(possible.any(1)), np.flatnonzero(possible.any(0))
    if len(rows):
        # no sum of IoUs is worth an impossible pair, so that the number of pairs comes first
        worth = np.where(possible, iou, -1.0 - min(possible.shape))[np.ix_(rows, columns)]
        for row, column in zip(*linear_sum_assignment(worth, maximize=True), strict=True):
            if possible[rows[row], columns[column]]:
                pairs.append((int(rows[row]), int(columns[column])))
    return pairs


def _add_history(history: Integer[np.ndarray, " time"], found: Tracking) -> None:
    """Adds what one object's slots in the frames say of occlusions and lives."""
    there = np.flatnonzero(history >= 0)
    if not len(there):
        return
    slot, born = history[there[0]], there[0]
    for before, now in pairwise(there):
        found.fragments += bool((history[before + 1 : now] == _NOBODY).any())
        if history[now] != slot:
            found.ended[int(now - born)] += 1
            slot, born = history[now], now
    found.held[int(there[-1] - born)] += 1
    _add_occlusions(history, int(there[0]), found)


def _add_occlusions(history: Integer[np.ndarray, " time"], first: int, found: Tracking) -> None:
    """Each time that the object is hidden after its first match and seen again."""
    slot, waiting = history[first], False
    for time in range(first + 1, len(history)):
        if history[time] != _HIDDEN and history[time - 1] == _HIDDEN:
            found.occlusions += 1
            waiting = True
        if history[time] >= 0:
            found.found_again += bool(waiting and history[time] == slot)
            slot, waiting = history[time], False
