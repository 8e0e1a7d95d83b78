"""Files of masks that `slotbench score` reads, and the record that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from kinds import Kind, fingerprint, through_cli
from PIL import Image

SIDE = 8


def scored_file(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        rng = np.random.default_rng(0)
        ids = rng.integers(0, 3, (4, SIDE, SIDE), dtype=np.uint8)
        soft = rng.random((4, 3, SIDE, SIDE), dtype=np.float32)
        for side in ("masks", "truth"):
            (folder / side).mkdir()
        np.save(folder / "truth" / "a.npy", ids.astype(np.int64))
        if name == "a.npz":
            np.savez_compressed(folder / "masks" / name, masks=ids)
        elif name == "predicted.npz":
            said = {"frame": np.arange(4), "view": np.array([SIDE, SIDE, 0, 0, SIDE, SIDE]), "video": np.array("a")}
            np.savez_compressed(folder / "masks" / name, soft_masks=soft.astype(np.float16), **said)
        elif name == "a.npy":
            np.save(folder / "masks" / name, soft)
        else:
            (folder / "masks" / "a").mkdir()
            for frame, one in enumerate(ids):
                Image.fromarray(one).save(folder / "masks" / "a" / f"{frame}.png")
        return folder / "masks" / name

    return make


def read_scores(folder: Path) -> str:
    through_cli("score", folder / "masks", "--truth", folder / "truth", "--no-baselines", "--out", folder / "out.json")
    record = json.loads((folder / "out.json").read_text())
    return fingerprint([record["scores"], record["frames"]])


def scored_record(folder: Path) -> Path:
    scored_file("a.npy")(folder)
    read_scores(folder)
    return (folder / "out.json").rename(folder / "earlier.json")


def read_beside(folder: Path) -> str:
    paths = folder / "masks", "--truth", folder / "truth", "--beside", folder / "earlier.json"
    return through_cli("score", *paths, "--no-baselines").replace(str(folder), "")


KINDS: dict[str, Kind] = {
    "scored: record": Kind(scored_record, read_beside, named=False),
    "scored: npy": Kind(scored_file("a.npy"), read_scores, named=False),
    "scored: npz": Kind(scored_file("a.npz"), read_scores, exact=True, named=False),
    "scored: what is predicted": Kind(scored_file("predicted.npz"), read_scores, exact=True, named=False),
    "scored: png": Kind(scored_file("a/3.png"), read_scores, named=False),
}
