"""`slotbench score`: masks that another program has written, scored as scikit-learn and scipy score them."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from slotbench import cli

SCRIPT = Path(__file__).parents[1] / "helpers" / "written_masks.py"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Masks from a process that knows nothing of slotbench."""
    folder = tmp_path_factory.mktemp("written")
    subprocess.run([sys.executable, "-I", str(SCRIPT), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def scored(written):
    """The record of the ids."""
    return record(written)


def score(*arguments, code=0):
    assert cli.run(["score", *map(str, arguments)]) == code


def record(folder, *arguments, masks="masks", truth="truth"):
    out = folder / "record.json"
    score(folder / masks, "--truth", folder / truth, "--out", out, *arguments)
    return json.loads(out.read_text())


def means(record, part="scores"):
    return {name: one["mean"] for name, one in record[part].items()}


def clips(folder):
    """True ids and slots of each clip, read back."""
    names = sorted(path.stem for path in (folder / "truth").iterdir())
    return [
        (np.load(folder / "truth" / f"{name}.npy"), np.load(folder / "masks" / f"{name}.npz")["masks"])
        for name in names
    ]


def matched(true, slots, first=1, best=False):
    """Mean IoU of the true ids from `first` on, by scipy's assignment or each with its best slot."""
    ids, tracks = [i for i in np.unique(true) if i >= first], np.unique(slots)
    if not ids:
        return None
    table = np.array(
        [[((true == i) & (slots == j)).sum() / ((true == i) | (slots == j)).sum() for j in tracks] for i in ids]
    )
    values = table.max(1) if best else table[linear_sum_assignment(table, maximize=True)]
    return values.sum() / len(ids)


def expected(folder):
    """Every segmentation score of the folder, from scikit-learn and scipy."""
    found = {}
    for scope in ("video", "frame"):
        samples = [
            (true, slots)
            for clip_true, clip_slots in clips(folder)
            for true, slots in (
                [(clip_true, clip_slots)] if scope == "video" else zip(clip_true, clip_slots, strict=True)
            )
        ]
        found[f"fg_ari/{scope}"] = [adjusted_rand_score(t[t > 0], s[t > 0]) for t, s in samples]
        found[f"fg_ari_several/{scope}"] = [
            adjusted_rand_score(t[t > 0], s[t > 0]) for t, s in samples if len(np.unique(t[t > 0])) > 1
        ]
        found[f"ari/{scope}"] = [adjusted_rand_score(t.ravel(), s.ravel()) for t, s in samples]
        found[f"miou/{scope}"] = [matched(t, s) for t, s in samples]
        found[f"miou_with_background/{scope}"] = [matched(t, s, first=0) for t, s in samples]
        found[f"mbo/{scope}"] = [matched(t, s, best=True) for t, s in samples]
    return {name: np.mean([value for value in values if value is not None]) for name, values in found.items()}


def test_scores_of_ids_are_those_of_scikit_learn_and_scipy(written, scored):
    found = means(scored)
    assert {name: found[name] for name in expected(written)} == pytest.approx(expected(written), abs=1e-12)
    assert 0 < found["fg_ari/video"] < found["fg_ari/frame"] < 1, "slots are swapped in the middle of the clips"


def test_soft_masks_score_as_the_ids_of_their_largest_shares(written, scored):
    assert means(record(written, masks="soft")) == pytest.approx(means(scored), abs=1e-12)


def test_folders_of_png_score_as_arrays_be_they_grey_or_of_a_palette(written, scored, tmp_path):
    for number, (true, slots) in enumerate(clips(written)):
        for name, ids in (("masks", slots), ("truth", true)):
            folder = tmp_path / name / f"clip_{number}"
            folder.mkdir(parents=True)
            for frame, values in enumerate(ids):
                image = Image.fromarray(values.astype(np.uint8))
                if name == "truth":
                    image.putpalette(np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes())
                # frame 10 would come before frame 2 in the order of letters
                image.save(folder / f"frame{frame + 8}.png")
    assert means(record(tmp_path)) == pytest.approx(means(scored), abs=1e-12)


@pytest.mark.parametrize(
    ("masks", "truth", "arguments", "said"),
    [
        ("0 1 2 3", "0000 0001 0002 0003", "", None),
        ("0 1 2 3", "1 2 3 4", "", None),
        ("a-1 a-2 a-3 a-4", "é1e-1 é1e-2 é1e-3 é1e-4", "", None),
        ("0 1 2 3 4 5", "0 1 2 3", "--first 4", None),
        ("0 1 2 4", "0 1 2 3", "", "has masks of number 4 where"),
        ("0 1 2 3", "0 5 10 15", "", "has masks of number 1 where"),
        ("0 1 2 3 4 5", "0 5 10", "--first 3", "has masks of number 1 where"),
        ("0_slots 0_edges 1_slots 1_edges", "0 1 2 3", "", "files of 2 kinds"),
    ],
)
def test_frames_of_folders_are_those_of_their_numbers(tmp_path, capsys, masks, truth, arguments, said):
    for side, names in (("masks", masks), ("truth", truth)):
        # accents of the clips' names are stored as Linux does, and as macOS does
        folder = tmp_path / side / unicodedata.normalize({"masks": "NFC", "truth": "NFD"}[side], "Übung")
        folder.mkdir(parents=True)
        for place, name in enumerate(names.split()):
            ids = np.zeros((8, 8), np.uint8)
            ids[2:4, place : place + 2], ids[6, place : place + 3] = 1, 2
            Image.fromarray(ids).save(folder / f"{name}.png")
        (folder / "._0.png").write_bytes(b"\0\5")
    # another clip, so that the two are matched by their names
    for side in ("masks", "truth"):
        np.save(tmp_path / side / "a.npy", np.tile(np.eye(8, dtype=np.uint8), (6, 1, 1)))
    score(tmp_path / "masks", "--truth", tmp_path / "truth", *arguments.split(), code=2 if said else 0)
    if said:
        assert said in " ".join(capsys.readouterr().err.split())
        return
    assert means(record(tmp_path, "--no-baselines", *arguments.split()))["miou/frame"] == 1


def test_tracking_is_scored_beside_segmentation(scored):
    scores = scored["scores"]
    # a swap in the middle, behind which one object is hidden for two frames
    assert scores["switches_per_100_frames"]["mean"] == pytest.approx(100 * 2 / 7)
    assert scores["found_again"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "values": [0.0] * 4, "weights": [1] * 4}
    objects = sum(scores["mota"]["weights"])
    assert scores["mota"]["mean"] == pytest.approx(
        1 - scores["misses"]["mean"] - scores["false_positives"]["mean"] - 8 / objects
    )
    assert scores["half_life"]["mean"] == 4


def test_baselines_stand_beside_the_masks_and_the_table_has_them(scored, written, capsys):
    baselines = scored["baselines"]
    assert list(baselines) == ["one slot", "stripes", "grid", "first masks kept"]
    assert baselines["one slot"]["fg_ari_several/video"]["mean"] == 0
    assert baselines["one slot"]["miou/video"]["mean"] < baselines["grid"]["miou/video"]["mean"]
    score(written / "masks", "--truth", written / "truth")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"FG-ARI per video ↑ {means(scored)['fg_ari/video']:.3f}" in printed
    assert "4 clips, 28 frames of 24 x 24 pixels, 3 to 4 slots a clip" in printed
    assert "first masks kept" in printed
    assert "not in FG-ARI, 2 objects or more: 4 of 28 frames" in printed


def test_the_record_says_what_was_scored_and_how(written):
    found = record(written, "--skip", "1", "--void", "7", "--void", "3")
    assert (found["rules"]["skip"], found["rules"]["void"], found["rules"]["empty"]) == (1, [3, 7], "one")
    assert len(found["clips"]) == 4
    assert found["frames"]["scored"] == 24
    # one of two is hidden for two frames, and the third of three is void
    assert found["frames"]["special"]["frames with one object"] == 4 * 2
    values = found["scores"]["miou/frame"]
    weighted = np.average(values["values"], weights=values["weights"])
    assert (values["mean"], sum(values["weights"])) == (pytest.approx(weighted), 24)


def test_missing_clips_are_an_error_unless_allowed(written, tmp_path, capsys):
    masks = tmp_path / "masks"
    masks.mkdir()
    for number, name in ((0, "clip_0"), (2, "clip_2"), (1, "clip_9")):
        (masks / f"{name}.npz").write_bytes((written / "masks" / f"clip_{number}.npz").read_bytes())
    score(masks, "--truth", written / "truth", code=2)
    said = capsys.readouterr().err
    assert all(word in said for word in ("--allow-missing", "clip_1, clip_3", "clip_9"))
    out = tmp_path / "record.json"
    score(masks, "--truth", written / "truth", "--allow-missing", "--out", out)
    assert json.loads(out.read_text())["clips"] == ["clip_0", "clip_2"]


def test_clips_of_several_cameras_have_scopes_over_them(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, (4, 2, 6, 6), np.uint8)
    swapped = truth.copy()
    swapped[:, 1] = (3 - truth[:, 1]) % 3
    for name, values in (("masks", swapped), ("truth", truth)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", values)
    found = means(record(tmp_path, "--no-baselines"))
    assert found["fg_ari/video"] == found["fg_ari/frame"] == 1
    assert max(found["fg_ari/scene"], found["fg_ari/step"]) < 0.6


# --- mistakes


def saved(folder, masks, truth=None):
    for name, values in (("masks", masks), ("truth", truth)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / "a.npy", np.zeros((3, 8, 8), np.uint8) if values is None else values)
    return folder / "masks", "--truth", folder / "truth"


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (np.zeros((3, 8, 8), np.float32), "holds float32 values of shape (3, 8, 8); expected ids, integers"),
        (np.zeros((3, 8, 8, 3), np.uint8), "holds uint8 values of shape (3, 8, 8, 3); expected ids, integers"),
        (np.zeros((8, 8, 4), np.uint8), "holds uint8 values of shape (8, 8, 4); expected ids, integers"),
        (np.zeros((2, 8, 8), np.uint8), "has 2 frames, and"),
        (np.zeros((3, 4, 4), np.uint8), "ids are not blended, so give soft masks, --resize nearest, or --resolution"),
        (np.full((3, 2, 8, 8), np.nan), "holds values that are no numbers (nan or infinite) among its soft masks"),
    ],
)
def test_masks_that_are_none_are_refused_in_a_sentence(tmp_path, capsys, masks, said):
    score(*saved(tmp_path, masks), code=2)
    printed = " ".join(capsys.readouterr().err.split())
    assert said in printed, printed
    assert "a.npy" in printed
