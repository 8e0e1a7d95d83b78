"""Writes masks and their truth with numpy and the standard library alone, as a third party's program would.

    python written_masks.py FOLDER    # FOLDER/masks, FOLDER/truth, FOLDER/soft, FOLDER/frames

Nothing of slotbench is imported: what is scored must need none of it.
"""

import sys
from pathlib import Path

import numpy as np

CLIPS, TIME, SIDE, SLOTS = 4, 7, 24, 5


def clip(number):
    """True ids, slots and soft masks of a clip: discs that move, one of them hidden for a while, slots with errors."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    objects = 2 + number % 2
    true = np.zeros((TIME, SIDE, SIDE), np.uint8)
    slots = np.zeros((TIME, SIDE, SIDE), np.uint8)
    owner = 1 + rng.permutation(SLOTS - 1)
    for frame in range(TIME):
        if frame == 4:
            owner[:2] = owner[1::-1]
        for one in range(objects):
            if one == 0 and frame in (2, 3):
                continue
            row, column = 5 + 6 * one + frame // 2, 5 + 5 * one + frame
            true[frame][(rows - row) ** 2 + (columns - column) ** 2 < 12] = one + 1
            slots[frame][(rows - row - 1) ** 2 + (columns - column) ** 2 < 14] = owner[one]
    soft = rng.uniform(0, 0.2, (TIME, SLOTS, SIDE, SIDE)).astype(np.float32)
    np.put_along_axis(soft, slots[:, None].astype(np.int64), 0.7, 1)
    return true, slots, soft


def write(folder):
    """Writes all clips."""
    for name in ("masks", "truth", "soft", "frames"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    colours = np.random.default_rng(0).integers(0, 256, (8, 3), dtype=np.uint8)
    for number in range(CLIPS):
        true, slots, soft = clip(number)
        np.savez_compressed(folder / "masks" / f"clip_{number}.npz", masks=slots)
        np.save(folder / "truth" / f"clip_{number}.npy", true.astype(np.int64))
        np.save(folder / "soft" / f"clip_{number}.npy", soft)
        np.save(folder / "frames" / f"clip_{number}.npy", colours[true])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    assert not any(name.startswith(("slotbench", "torch")) for name in sys.modules)
