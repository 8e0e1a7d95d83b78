"""What the conventions of the field make of one set of masks of real videos: the numbers of docs/metrics.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_files import write_youtube_vis
from scipy.ndimage import maximum_filter, minimum_filter
from sklearn.metrics import adjusted_rand_score

from slotbench.data.real.youtube_vis import YouTubeVIS
from slotbench.evaluation.alignment import align
from slotbench.evaluation.conventions import CONVENTIONS, under
from slotbench.evaluation.mask_files import MaskClip
from slotbench.metrics.clip_scores import score_clip, summaries
from slotbench.metrics.mask_rules import Rules

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
NAMED = {one.name: one for one in CONVENTIONS}
VIDEOSAUR, SLOTCONTRAST = NAMED["VideoSAUR, YouTube-VIS"], NAMED["SlotContrast, YouTube-VIS"]


def made(seed: int, length: int, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """True ids and slots of a video: two discs that move across it, whose slots are off, and once trade places."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    true = np.zeros((length, *size), np.uint8)
    slots = (columns * 3 // size[1]).astype(np.uint8)[None].repeat(length, 0) * 3
    for one in (0, 1):
        start, speed = rng.uniform(0.2, 0.8, 2) * size, rng.uniform(-2, 2, 2)
        for time in range(length if seed else 5):  # of the first video the rest is empty
            row, column = start + time * speed
            slot = 1 + (one + (time >= 8)) % 2
            true[time][(rows - row) ** 2 + (columns - column) ** 2 < 150] = one + 1
            slots[time][(rows - row - 3) ** 2 + (columns - column) ** 2 < 170] = slot
    return true, slots


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """A tree of three videos of two proportions and three lengths, and the slots of each."""
    folder = tmp_path_factory.mktemp("vis")
    pairs = [
        made(seed, length, size) for seed, (length, size) in enumerate([(12, (48, 84)), (20, (48, 84)), (9, (84, 48))])
    ]
    write_youtube_vis(folder, "valid", ids=[true for true, _ in pairs])
    return folder, [slots for _, slots in pairs]


def cut(videos: tuple[Path, list[np.ndarray]], **arguments: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Slots and truth of each clip that a convention scores."""
    data = YouTubeVIS(str(videos[0]), split_rule="release", num_frames=1, **arguments)
    dataset, found = data.dataset("val"), []
    for index in range(len(dataset)):
        clip, (video, first) = dataset.clips([index]), dataset.place(index)
        slots = data.fit.masks(videos[1][video][first : first + clip.num_steps])
        found.append((slots, clip.require("masks")[0].numpy()))
    return found


def scores(clips: list[tuple[np.ndarray, np.ndarray]], rules: Rules) -> dict[str, float]:
    found = []
    for pair in clips:
        aligned = align(*(MaskClip(Path("made"), ids) for ids in pair), rules)
        found.append(score_clip(aligned.tables(aligned.labels), aligned.true_ids, rules))
    return {name: one.mean for name, one in summaries(found).items()}


def shown(scope: str, found: dict[str, float]) -> str:
    return f"{found[f'fg_ari/{scope}']:.3f} | {found[f'mbo/{scope}']:.3f}"


def test_the_table_of_the_page_is_what_the_conventions_give(videos: tuple[Path, list[np.ndarray]]) -> None:
    few = {"first_videos": 2}
    both = [(one, cut(videos, **one.data | few), under(Rules(), one)) for one in (VIDEOSAUR, SLOTCONTRAST)]
    rows = {one.name: shown("video", scores(clips, rules)) for one, clips, rules in both}
    _, clips, rules = both[1]
    whole = SLOTCONTRAST.data | {"first_videos": None}
    rows["per frame"] = shown("frame", scores(clips, rules))
    rows["a frame without objects is 1"] = shown("frame", scores(clips, replace(rules, empty="one")))
    rows["all videos"] = shown("video", scores(cut(videos, **whole), rules))
    rows["stretched"] = shown("video", scores(cut(videos, **SLOTCONTRAST.data | few | {"fit": "stretch"}), rules))
    rows["at 37 x 37, the size of its features"] = shown(
        "video", scores(cut(videos, **SLOTCONTRAST.data | few | {"resolution": 37}), rules)
    )
    near = (1, 21, 21)
    void = [(slots, np.where(maximum_filter(t, near) == minimum_filter(t, near), t, -1)) for slots, t in clips]
    rows["borders ignored"] = shown("video", scores(void, replace(rules, void=(-1,))))
    table = dict(re.findall(r"^\| ([^|]+?) \|(?:[^|\n]*\|)* (0\.\d+ \| 0\.\d+) \|$", PAGE, re.MULTILINE))
    assert {name: table.get(name) for name in rows} == rows
    assert len(set(rows.values())) == len(rows)


@pytest.mark.parametrize("convention", [VIDEOSAUR, SLOTCONTRAST])
def test_scores_are_those_of_the_public_code(convention: Any, videos: tuple[Path, list[np.ndarray]]) -> None:
    """Pixels of no object are in no true mask: they count nowhere in ARI, and in IoUs as the slots' alone."""
    clips, ari, overlap = cut(videos, **convention.data), [], []
    for slots, true in clips:
        objects = [true == one for one in np.unique(true[true > 0])]
        if objects:
            ari.append(adjusted_rand_score(true[true > 0], slots[true > 0]))
            ious = [[(one & (slots == k)).sum() / (one | (slots == k)).sum() for k in range(7)] for one in objects]
            overlap.append(np.mean(np.max(ious, axis=1)))
    assert len(ari) < len(clips) or convention is SLOTCONTRAST
    found = scores(clips, under(Rules(), convention))
    assert found["fg_ari/video"] == pytest.approx(np.mean(ari), abs=1e-9)
    assert found["mbo/video"] == pytest.approx(np.mean(overlap), abs=1e-9)
