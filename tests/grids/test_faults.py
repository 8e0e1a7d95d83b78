"""A grid in which everything goes wrong that can, and which ends with all results all the same.

Twelve points: one raises, one is killed, one has a full disk, and the driver itself is killed while two are running.
"""

from __future__ import annotations

import os
import signal

import stand_in_grid

from slotbench.grids.expansion import Grid, Point
from slotbench.grids.ledger import PointFolder

WIDTHS = (1, 2, 3, 4, 5, 6)


def point_of(grid: Grid, width: int, seed: int) -> Point:
    (point,) = (p for p in grid.points if p.labels == {"dim": str(width), "seed": str(seed)})
    return point


def test_twelve_points_end_with_twelve_results_whatever_goes_wrong(tmp_path):
    grid = stand_in_grid.write_grid(tmp_path, WIDTHS, seeds=2)
    runs = tmp_path / "runs" / "widths"
    folder = {(width, seed): PointFolder(runs / point_of(grid, width, seed).id) for width in WIDTHS for seed in (0, 1)}
    raising = stand_in_grid.fault(tmp_path, 1, 0, "raise")
    stand_in_grid.fault(tmp_path, 2, 0, "kill")
    waiting = [stand_in_grid.fault(tmp_path, width, 1, "wait") for width in (1, 2)]

    full = folder[3, 0].path / "last.ckpt"
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")

    # the driver is killed while two points run
    driver = stand_in_grid.driver(tmp_path, "grid", "run", "widths.yaml", "--jobs", "2")
    stand_in_grid.wait_until(lambda: folder[1, 1].record() and folder[2, 1].record())
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    first = {key: one.state() for key, one in folder.items()}
    assert [first[key] for key in ((1, 0), (2, 0), (4, 0))] == ["failed", "killed", "done"]
    assert first[1, 1] == first[2, 1] == "running"
    assert first[3, 0] != "done"
    done_before = {key for key, state in first.items() if state == "done"}

    # the next one waits for them, resumes what was killed, and leaves alone what has failed
    driver = stand_in_grid.driver(tmp_path, "grid", "run", "widths.yaml", "--jobs", "3")
    stand_in_grid.wait_until(lambda: folder[6, 1].state() == "done" or driver.poll() is not None)
    for path in waiting:
        path.unlink()
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 1, said
    second = {key: one.state() for key, one in folder.items()}
    assert [key for key, state in second.items() if state != "done"] == [(1, 0), (3, 0)], said
    assert "the loss is not finite" in said
    assert "No space left on device" in said

    # what was wrong is mended
    raising.unlink()
    full.unlink()
    driver = stand_in_grid.driver(tmp_path, "grid", "run", "widths.yaml", "--retry-failed", "--jobs", "2")
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, said

    assert stand_in_grid.losses(runs) == {
        f"dim={width},seed={seed}": width + seed / 10 for width in WIDTHS for seed in (0, 1)
    }
    for key, one in folder.items():
        # never started again after it was done: the attempt that did it is the last one
        codes = [attempt.get("exit_code") for attempt in one.attempts()]
        assert [code for code in codes if code == 0] in ([], codes[-1:]), key
    trained = {key: stand_in_grid.starts(runs)[one.path.name] for key, one in folder.items()}
    assert all(trained[key] == 1 for key in done_before)
    assert trained[1, 1] == trained[2, 1] == 1  # those that had lost their driver
    assert [trained[1, 0], trained[2, 0]] == [2, 2]
