"""`slotbench score`: masks that another program has written, scored as scikit-learn and scipy score them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import linear_sum_assignment
from scored_arrays import means
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


def test_folders_of_png_score_as_arrays(written, scored, tmp_path):
    for number, (true, slots) in enumerate(clips(written)):
        for name, ids in (("masks", slots), ("truth", true)):
            folder = tmp_path / name / f"clip_{number}"
            folder.mkdir(parents=True)
            for frame, values in enumerate(ids):
                # frame 10 would come before frame 2 in the order of letters
                Image.fromarray(values.astype(np.uint8)).save(folder / f"frame{frame + 8}.png")
    assert means(record(tmp_path)) == pytest.approx(means(scored), abs=1e-12)


def test_one_file_may_hold_all_clips(written, scored, tmp_path):
    both = clips(written)
    np.savez(tmp_path / "masks.npz", **{str(number): slots for number, (_, slots) in enumerate(both)})
    np.save(tmp_path / "truth.npy", np.stack([true for true, _ in both]))
    found = record(tmp_path, masks="masks.npz", truth="truth.npy")
    assert means(found) == pytest.approx(means(scored), abs=1e-12)
    assert found["clips"]["scored"] == 4


def test_a_file_on_each_side_is_a_clip_whatever_its_name(written, capsys):
    score(written / "masks" / "clip_1.npz", "--truth", written / "truth" / "clip_1.npy", "--no-baselines")
    assert "1 clips scored of 1 there, 7 frames of 24 x 24 pixels; masks: ids" in " ".join(
        capsys.readouterr().out.split()
    )


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
    assert scores["half_life"]["ended"][0] == {"4": 2}


def test_baselines_stand_beside_the_masks(written, scored, capsys):
    found = record(written, "--frames", written / "frames")
    blind = ["one slot", "stripes", "grid", "first masks kept"]
    assert list(found["baselines"]) == [*blind, "k-means colour", "k-means colour + position", "colour tracker"]
    assert found["baselines"]["one slot"]["fg_ari_several/video"]["mean"] == 0
    assert found["baselines"]["one slot"]["miou/video"]["mean"] < found["baselines"]["grid"]["miou/video"]["mean"]
    # every object has a colour of its own in these frames
    assert found["baselines"]["k-means colour"]["fg_ari/video"]["mean"] == pytest.approx(1)
    assert found["baselines"]["colour tracker"]["mota"]["mean"] > 0.9
    assert list(scored["baselines"]) == blind
    printed = capsys.readouterr().out
    assert "colour tracker" in printed
    assert "4 clips scored of 4 there" in printed


def test_the_record_says_what_was_scored_and_how(written):
    given = ["--data", "discs", "--data-version", "3", "--split", "test", "--source", "decoder", "--skip", "1"]
    found = record(written, *given, "--void", "7", "--void", "3")
    assert found["data"] == {"name": "discs", "version": "3", "split": "test"}
    assert found["masks"] | {"path": ""} == {"source": "decoder", "path": "", "kinds": {"ids": 4}, "segments": [3, 4]}
    assert (found["rules"]["skip"], found["rules"]["void"], found["rules"]["empty"]) == (1, [3, 7], "one")
    assert (found["clips"]["scored"], found["clips"]["there"]) == (4, 4)
    assert found["frames"]["scored"] == 24
    # one of two is hidden for two frames, and the third of three is void
    assert found["frames"]["special"]["frames with one object"] == 4 * 2
    values = found["scores"]["miou/frame"]
    weighted = np.average(values["values"], weights=values["weights"])
    assert (values["mean"], sum(values["weights"])) == (pytest.approx(weighted), 24)


def test_the_hash_is_of_the_names_of_the_clips_that_were_scored(scored):
    names = "".join(f"clip_{number}\n" for number in range(4))
    assert scored["clips"]["hash"] == hashlib.sha256(names.encode()).hexdigest()


def test_missing_clips_are_an_error_unless_allowed_and_are_counted(written, tmp_path, capsys):
    masks = tmp_path / "masks"
    masks.mkdir()
    for number in (0, 2):
        (masks / f"clip_{number}.npz").write_bytes((written / "masks" / f"clip_{number}.npz").read_bytes())
    (masks / "clip_9.npz").write_bytes((written / "masks" / "clip_1.npz").read_bytes())
    score(masks, "--truth", written / "truth", code=2)
    said = capsys.readouterr().err
    assert "2 of 5 clips have masks and truth; give --allow-missing" in said
    assert "clip_1, clip_3" in said
    assert "clip_9" in said
    out = tmp_path / "record.json"
    score(masks, "--truth", written / "truth", "--allow-missing", "--out", out)
    assert "2 clips scored of 5 there" in capsys.readouterr().out
    found = json.loads(out.read_text())["clips"]
    assert (found["scored"], found["there"], found["without_masks"], found["without_truth"]) == (
        2,
        5,
        ["clip_1", "clip_3"],
        ["clip_9"],
    )


# --- mistakes


def saved(folder, masks, truth=None):
    for name, values in (("masks", masks), ("truth", truth)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / "a.npy", np.zeros((3, 8, 8), np.uint8) if values is None else values)
    return folder / "masks", "--truth", folder / "truth"


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (np.zeros((3, 8, 8), np.float32), "holds float32 values of shape (3, 8, 8) where ids belong"),
        (
            np.zeros((3, 8), np.uint8),
            "holds uint8 values of shape (3, 8); expected ids, integers (time, height, width)",
        ),
        (np.zeros((3, 2, 8, 8), np.int64), "holds int64 values of shape (3, 2, 8, 8); expected ids"),
        (np.zeros((3, 8, 8, 2), np.float32), "slots last; expected (time, slots, height, width): numpy.moveaxis"),
        (np.zeros((2, 8, 8), np.uint8), "has 2 frames, and"),
        (np.zeros((3, 4, 4), np.uint8), "ids are not blended, so give soft masks, --resize nearest, or --resolution"),
        (np.full((3, 2, 8, 8), np.nan), "holds values that are no numbers (nan or infinite) among its soft masks"),
        (np.zeros((0, 8, 8), np.uint8), "is empty: its shape is (0, 8, 8)"),
        (np.array(["a"]), "expected ids"),
        (np.arange(3 * 90 * 90).reshape(3, 90, 90), "are these colours, or ids that are new in every frame?"),
        (np.full((3, 8, 8), 2**63, np.uint64), "has an id of 9,223,372,036,854,775,808"),
    ],
)
def test_masks_that_are_none_are_refused_in_a_sentence(tmp_path, capsys, masks, said):
    side = masks.shape[-1] if masks.size == 3 * 90 * 90 else 8
    truth = np.zeros((3, side, side), np.int64) if side == 8 else np.arange(3 * 90 * 90).reshape(3, 90, 90) % 700
    score(*saved(tmp_path, masks, truth), code=2)
    printed = " ".join(capsys.readouterr().err.split())
    assert said in printed, printed
    assert "a.npy" in printed
    assert "Traceback" not in printed


def test_a_png_with_colours_is_refused(tmp_path, capsys):
    masks, *rest = saved(tmp_path, None)
    (masks / "a.npy").unlink()
    (masks / "a").mkdir()
    for frame in range(3):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(masks / "a" / f"{frame}.png")
    score(masks, *rest, code=2)
    assert "is an image in RGB; expected ids of objects, as grey values" in " ".join(capsys.readouterr().err.split())


def test_masks_and_truth_without_a_common_clip_are_refused(tmp_path, capsys):
    masks, *rest = saved(tmp_path, None)
    (masks / "a.npy").rename(masks / "b.npy")
    np.save(masks / "c.npy", np.zeros((3, 8, 8), np.uint8))
    score(masks, *rest, "--allow-missing", code=2)
    said = capsys.readouterr().err
    assert "masks and truth have no clip in common" in said
    assert "b, c" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--first", "9"], "has 3 frames, fewer than --first 9"),
        (["--window", "4"], "of which 3 are left to score; expected at least 4"),
        (["--first", "2", "--skip", "2"], "--first 2 with --skip 2 leaves no frame"),
        (["--skip", "-1"], "--skip is -1; expected 0 or more"),
        (["--background", "red"], "invalid int or none value: 'red'"),
        (["--void", "0"], "--void 0 is the background"),
        (["--match-iou", "0"], "--match-iou is 0.0; expected a number above 0 and up to 1"),
        (["--frames", "nowhere"], "--frames nowhere is not there"),
        (["--windows", "4"], "unrecognized arguments: --windows 4"),
    ],
)
def test_rules_that_cannot_be_are_refused_in_a_sentence(tmp_path, capsys, arguments, said):
    score(*saved(tmp_path, None), *arguments, code=2)
    assert said in " ".join(capsys.readouterr().err.split())


def test_nothing_to_score_is_said(tmp_path, capsys):
    score(tmp_path / "nowhere", "--truth", tmp_path, code=2)
    assert "is not there; expected a folder of npz files" in " ".join(capsys.readouterr().err.split())
    score(tmp_path, "--truth", tmp_path, code=2)
    assert "holds no masks" in " ".join(capsys.readouterr().err.split())
    score(tmp_path, code=2)
    assert "score needs the truth" in " ".join(capsys.readouterr().err.split())


def test_two_files_of_one_clip_are_refused(tmp_path, capsys):
    masks, *rest = saved(tmp_path, None)
    np.savez(masks / "a.npz", masks=np.zeros((3, 8, 8), np.uint8))
    score(masks, *rest, code=2)
    assert "are both clip a" in " ".join(capsys.readouterr().err.split())


def test_what_lies_beside_the_masks_is_not_looked_at_and_counted(tmp_path, capsys):
    masks, *rest = saved(tmp_path, None)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(masks / "a.png")
    (masks / "notes.txt").write_text("of a training")
    score(masks, *rest, "--no-baselines")
    assert "MASKS has 2 files and folders that hold no masks, which are not looked at" in capsys.readouterr().out


def test_hidden_files_are_no_frames(tmp_path, capsys):
    for name in ("masks", "truth"):
        (tmp_path / name / "a").mkdir(parents=True)
        (tmp_path / name / "b").mkdir()
        for frame in range(2):
            Image.fromarray(np.full((8, 8), frame, np.uint8)).save(tmp_path / name / "a" / f"{frame}.png")
            (tmp_path / name / "a" / f"._{frame}.png").write_bytes(b"resource")
            (tmp_path / name / "b" / f"._{frame}.png").write_bytes(b"resource")
    score(tmp_path / "masks", "--truth", tmp_path / "truth", "--no-baselines")
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 clips scored of 1 there, 2 frames" in printed
    assert "MASKS has 1 files and folders that hold no masks" in printed


@pytest.mark.parametrize(("ending", "refused"), [("bmp", False), ("tif", False), ("jpg", True)])
def test_images_without_losses_are_masks_and_others_are_refused_by_name(tmp_path, capsys, ending, refused):
    ids = np.kron(np.arange(4).reshape(2, 2), np.full((4, 4), 1)).astype(np.uint8)
    for name, kind in (("masks", ending), ("truth", "png")):
        (tmp_path / name / "a").mkdir(parents=True)
        for frame in range(2):
            Image.fromarray(ids).save(tmp_path / name / "a" / f"{frame}.{kind}")
    code = 2 if refused else 0
    score(tmp_path / "masks", "--truth", tmp_path / "truth", "--no-baselines", code=code)
    printed = " ".join("".join(capsys.readouterr()).split())

    assert ("0.jpg is a JPEG, whose compression changes numbers" if refused else "1 clips scored of 1 there") in printed


def test_names_of_foreign_files_do_not_reach_the_terminal_as_they_are(tmp_path, capsys):
    masks, *rest = saved(tmp_path, None)
    (masks / "a.npy").rename(masks / "\x1b[2Ja.npy")
    np.save(masks / "b.npy", np.zeros((3, 8, 8), np.uint8))
    np.save(tmp_path / "truth" / "b.npy", np.zeros((3, 8, 8), np.uint8))
    score(masks, *rest, "--allow-missing")
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "1 clips scored of 3 there" in out
