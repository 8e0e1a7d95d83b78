"""Files of another content than a reader expects: each is refused in one sentence that says what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from stored_readers import CATER_FILES, READERS

from slotbench.errors import DataFilesError

Spoil = Callable[[Path], Any]
ALL = READERS | {"CATER": CATER_FILES}


def in_json(pattern: str, change: Callable[[Any], Any]) -> Spoil:
    """Changes the content of a JSON file."""

    def spoil(folder: Path) -> None:
        (file,) = folder.rglob(pattern)
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return spoil


def in_hdf5(pattern: str, name: str, values: np.ndarray | None) -> Spoil:
    """Puts other values in the place of an array; None takes it away."""

    def spoil(folder: Path) -> None:
        (path,) = folder.rglob(pattern)
        with h5py.File(path, "r+") as file:
            del (file if name in file else file.attrs)[name]
            if values is not None:
                file[name] = values

    return spoil


def array(name: str, values: np.ndarray) -> Spoil:
    """Writes an npy file in the place of another."""
    return lambda folder: np.save(folder / name, values)


def npz(name: str, drop: str = "", **arrays: np.ndarray) -> Spoil:
    """Puts other arrays in the place of some of an npz file, or takes one away."""

    def spoil(folder: Path) -> None:
        with np.load(folder / name) as stored:
            content = {key: values for key, values in stored.items() if key != drop} | arrays
        np.savez(folder / name, **content)  # type: ignore[arg-type]

    return spoil


def annotated(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    return in_json("annotation_10000.json", change)


def moving(**entries: Any) -> Spoil:
    return annotated(lambda c: c["motion_trajectory"][5]["objects"][0].update(entries))


def proposed(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    return in_json("proposal_10000.json", change)


def told(change: Callable[[list[Any]], Any]) -> Spoil:
    return in_json("vmds_val.json", change)


def scene(name: str) -> Path:
    return Path("set/scenes") / f"CATER_new_00000{name}.json"


BYTES, FLOATS = np.uint8, np.float32
MAPS = (9, 8, 12)
CASES: dict[str, list[tuple[Spoil, str]]] = {
    "BallFile": [
        (
            in_hdf5("*.h5", "validation", None),
            "has no group validation of its own; expected .* balls4mass64.h5 of R-NEM",
        ),
        (in_hdf5("*.h5", "validation/features", None), "has no validation/features; .* balls4mass64.h5 of R-NEM"),
        *(
            (
                in_hdf5("*.h5", f"validation/{name}", np.zeros(shape, FLOATS)),
                f"{name} of shape .*balls4mass64.h5 of R-NEM",
            )
            for name, shape in [
                ("features", (51, 2, 16, 16)),
                ("features", (51, 2, 16, 16, 2)),
                ("features", (51, 0, 16, 16, 1)),
                ("groups", (51, 2, 8, 8, 1)),
            ]
        ),
    ],
    "FeatureFile": [
        *(
            (in_hdf5("val.h5", name, None), f"has no {name}; expected `features`")
            for name in ("features", "frames", "grid", "has_class_token")
        ),
        *(
            (in_hdf5("val.h5", name, values), f"has {name} of shape .* does not fit .* 2 x 4 without a class token")
            for name, values in [
                ("masks", np.zeros((5, 3, 8, 9), BYTES)),
                ("num_objects", np.zeros(6, np.int64)),
                ("frames", np.zeros((5, 3, 8, 8, 3), BYTES)),
                ("features", np.zeros((5, 3, 9, 6), np.float16)),
            ]
        ),
        (in_hdf5("val.h5", "frames", np.zeros((5, 3, 3, 8, 8), np.uint16)), "has frames of type uint16, not bytes"),
        (in_hdf5("val.h5", "masks", np.zeros((5, 3, 8, 8), FLOATS)), "has masks of type float32, not whole numbers"),
        (lambda folder: (folder / "val.h5").write_bytes(b"no HDF5"), "is no HDF5 file"),
        (
            lambda folder: (folder / "val.h5").unlink(),
            r"there is no file .*val\.h5; .*slotbench prepare NAME --features",
        ),
    ],
    "MultiObjectTracking": [
        (told(lambda told: told.pop()), "has 2 videos, and the file of the videos 3"),
        (told(lambda told: told[0][1].pop("ids")), "video 0, frame 1 is not as expected"),
        (told(lambda told: told[0][1]["ids"].pop()), "video 0, frame 1 is not as expected"),
        (told(lambda told: told[0][1].update(num_bg=9)), "video 0, frame 1 is not as expected"),
        (told(lambda told: told[0][1].update(masks=[1, 2, 3])), "video 0, frame 1 is not as expected"),
        (told(lambda told: told[0][1]["masks"].__setitem__(0, "48 2")), "frame 1: a mask is '48 2', a run of which"),
        (told(lambda told: told.__setitem__(0, [])), "vmds_val.json has a video without frames"),
        (told(lambda told: told.__setitem__(0, "x")), "vmds_val.json holds no list of lists"),
        (
            array("vmds_val.npy", np.zeros((3, 4, 6, 8, 3), BYTES)),
            "expected an npy file of bytes, videos x frames x 3 x",
        ),
        (
            array("vmds_val.npy", np.zeros((3, 4, 3, 6, 8), FLOATS)),
            "expected an npy file of bytes, videos x frames x 3",
        ),
        (array("vmds_val.npy", np.zeros((4, 3, 6, 8), BYTES)), "expected an npy file of bytes, videos x frames x 3 x"),
    ],
    "VideoFolder": [
        (array("val/masks/0.npy", np.zeros((8, 8, 12), BYTES)), r"has masks of 8 frames, and .*0.npy has 9 frames"),
        (
            array("val/masks/0.npy", np.zeros((9, 7, 12), BYTES)),
            "has masks of 7 x 12 pixels, and the video has frames of 8",
        ),
        (
            array("val/masks/0.npy", np.zeros(MAPS)),
            r"holds float64 values .*expected integers of shape \(time, height, wi",
        ),
        (array("val/masks/0.npy", np.full(MAPS, -1)), "holds ids below 0"),
        (array("val/0.npy", np.zeros((9, 8, 12))), r"holds float64 values of shape \(9, 8, 12\); expected uint8"),
    ],
    "DepthVideo": [
        (array("val/depth/0.npy", np.ones((8, 8, 12))), r"0.npy has depth of 8 frames, and .*0.npy has 9 frames"),
        (
            array("val/depth/0.npy", np.ones((9, 8, 13))),
            "0.npy has depth of 8 x 13 pixels, and the video has frames of 8 x",
        ),
        (array("val/depth/0.npy", np.ones((9, 8))), r"0.npy holds float64 values of shape \(9, 8\)"),
        (array("val/depth/0.npy", np.ones((*MAPS, 1))), r"expected numbers of shape \(time, height, width\)"),
        (lambda folder: (folder / "val/depth/0.npy").unlink(), r"no depth of .*0.npy; expected .*depth/NAME.npz"),
    ],
    "CLEVRER": [
        (lambda folder: shutil.rmtree(folder / "videos/val"), "no validation split of CLEVRER: .* has no such videos"),
        (
            lambda folder: shutil.rmtree(folder / "annotations/val"),
            "no annotations of the validation split; give annot",
        ),
        (lambda folder: shutil.rmtree(folder / "derender_proposals"), "no derender_proposals .* give masks: false"),
        (
            lambda folder: next(folder.rglob("annotation_10000.json")).unlink(),
            r"there is no annotation .*annotation_10000-11000.annotation_10000.json; give annotations: false",
        ),
        (lambda folder: next(folder.rglob("video_10000.mp4")).write_bytes(b"ftyp"), "cannot be read as a video"),
        (
            annotated(lambda c: c["object_property"].clear()),
            r"is no annotation of CLEVRER \(0 objects\); expected `obj",
        ),
        (annotated(lambda c: c["object_property"].append(c["object_property"][0])), "two objects are alike"),
        (
            annotated(lambda c: c["object_property"][0].update(color="\x1b[31mpink")),
            "an object that is .*pink., .metal. and .cube.",
        ),
        (annotated(lambda c: c["motion_trajectory"].pop()), "its frames are not 0 to 127"),
        (annotated(lambda c: c["motion_trajectory"][5].update(frame_id=4)), "its frames are not 0 to 127"),
        (moving(object_id=7), r"\(7\)"),
        (moving(location=[1, 2]), "not enough values"),
        (moving(velocity=[1, 2, 1e300]), "no number below 1,000,000"),
        (moving(location=[1, 2, float("nan")]), "no number below"),
        (annotated(lambda c: c["collision"].append({"frame_id": 128, "object_ids": [0, 1]})), "collision in frame 128"),
        (annotated(lambda c: c["collision"].append({"frame_id": 1 << 70, "object_ids": [0, 1]})), "collision in frame"),
        (proposed(lambda c: c.pop("frames")), "is no file of proposals of CLEVRER .'frames'.; expected `frames`"),
        (proposed(lambda c: c["frames"].pop(0)), "it has no frame 0"),
        (proposed(lambda c: c["frames"][0]["objects"][0]["mask"].update(size=[1 << 20, 1 << 20])), r"a mask of \[104"),
        (proposed(lambda c: c["frames"][0]["objects"][0]["mask"].update(counts="oooo")), "a mask that is cut off"),
        (proposed(lambda c: c["frames"][0]["objects"][0]["mask"].update(counts={"a": 1})), "neither a text nor"),
        (proposed(lambda c: c["frames"][1].update(objects=c["frames"][1]["objects"] * 600)), "1200 objects in frame 1"),
    ],
    "ActionVideos": [
        (
            npz("val/0/0.npz", "video"),
            r"0.npz has no video, and there is no movie beside it; expected uint8 .* or 0.mp4",
        ),
        (npz("val/0/0.npz", "actions"), "0.npz has no actions; expected an npz file with actions"),
        *(
            (
                npz("val/0/0.npz", video=values),
                r"\(video\) holds .*; expected uint8 of shape \(time, height, width, 3\)",
            )
            for values in (np.zeros((9, 8, 8, 3), FLOATS), np.zeros((9, 8, 8), BYTES), np.zeros((9, 0, 8, 3), BYTES))
        ),
        (npz("val/0/0.npz", video=np.zeros((8, 8, 8, 3), BYTES)), "has 8 frames, and video_frames is 9: set data.vid"),
        (
            npz("val/0/0.npz", actions=np.zeros(11, np.int64)),
            r"\(actions\) has 11 entries for 9 frames; expected 9 or 10 with action_offset 1: 0 where entry t is taken",
        ),
        (npz("val/0/0.npz", actions=np.zeros(8, np.int64)), "has 8 entries for 9 frames; expected 9 or 10"),
        (npz("val/0/0.npz", actions=np.full(9, 6)), r"\(actions\) has ids from 6 to 6; expected 0 to 5: set num_act"),
        (lambda folder: (folder / "val/0/0.npz").write_bytes(b"PK"), "0.npz is no npz file, or not a whole one"),
        (lambda folder: [shutil.rmtree(inner) for inner in folder.glob("val/*")], "there is no npz file in .*val"),
        (
            lambda folder: (folder / "val/0/9.mp4").touch(),
            "1 movies have no npz file of their actions beside them: .*9",
        ),
    ],
    "ActionVideos of movies": [
        (lambda folder: (folder / "val/0/0.mp4").unlink(), "has no video, and there is no movie beside it"),
        (lambda folder: (folder / "val/0/0.mp4").write_bytes(b"ftyp"), "0.mp4 cannot be read as a video"),
    ],
    "MemoryMaze": [
        (npz("val/0.npz", "agent_dir"), "0.npz has no agent_dir; expected an npz file with agent_pos, agent_dir, tar"),
        (npz("val/0.npz", agent_pos=np.full((9, 2), "x")), r"\(agent_pos\) holds <U1 values of shape \(9, 2\)"),
        (
            npz("val/0.npz", agent_pos=np.zeros((8, 2))),
            r"expected numbers of shape \(9, 2\), as many entries as frames",
        ),
        (npz("val/0.npz", action=np.ones((9, 6))), r"\(action\) has vectors that are not one-hot"),
    ],
    "CATER": [
        (
            lambda folder: (folder / "set/lists/localize/train_subsetV.txt").unlink(),
            r"there is no list .*train_subsetV.txt; expected what",
        ),
        (
            lambda folder: (folder / "set/lists/localize/train_subsetV.txt").write_text("CATER_new_000004.avi 36\n"),
            r"line 1 of .*V.txt is 'CATER_new_000004.avi 36'; expected .* a cell below 36",
        ),
        (
            lambda folder: (folder / "set/videos/CATER_new_000004.avi").unlink(),
            r"there is no video .*4.avi; expected what",
        ),
        (
            lambda folder: (folder / "set/videos/CATER_new_000004.avi").write_bytes(b"RIFF"),
            "cannot be read as an AVI file",
        ),
        (lambda folder: (folder / scene("4")).unlink(), "there is no scene of CATER .* give scenes: false"),
        (
            lambda folder: (folder / scene("4")).write_text('{"objects": []}'),
            r"is no scene of CATER \(0 objects\); expected `objects`",
        ),
        (
            in_json("CATER_new_000004.json", lambda c: c["objects"][0]["locations"].pop("7")),
            "an object has no place in some frame",
        ),
    ],
}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Files of a reader, written once."""
    places: dict[str, Path] = {}

    def files(name: str) -> Path:
        if name not in places:
            places[name] = tmp_path_factory.mktemp("written")
            ALL[name].write(places[name])
        return places[name]

    return files


@pytest.mark.parametrize(
    ("name", "spoil", "sentence"), [(name, *case) for name, cases in CASES.items() for case in cases]
)
def test_what_is_wrong_with_the_files_is_one_sentence(
    name: str, spoil: Spoil, sentence: str, written: Callable[[str], Path], tmp_path: Path
) -> None:
    files = tmp_path / "files"
    shutil.copytree(written(name), files)
    ALL[name].data(files).dataset("val").clips([0])
    spoil(files)
    with pytest.raises(DataFilesError, match=sentence) as refused:
        ALL[name].data(files).dataset("val").clips([0])
    assert str(refused.value).isprintable()
