"""Mazes: the walk keeps to the passages, frames show what is there, and what was in view is known exactly."""

import math

import numpy as np
import pytest
import torch

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.maze.kernels import CEILING, GROUND, HALF_VIEW, SIDE_SHADE, WALL_HEIGHT, carve
from slotbench.data.maze.maze import ACTIONS, PALETTE, Maze
from slotbench.interfaces import VideoBatch
from slotbench.nn.action_embedding import ActionEmbedding


def clips(count=3, **arguments) -> tuple[Maze, VideoBatch]:
    sizes = {"rooms": 3, "num_frames": 40, "eval_frames": 40, "resolution": 16}
    data = Maze(**sizes | arguments, loader=LoaderOptions(train_size=count))
    return data, data.dataset("train").clips(list(range(count)))


def test_every_room_is_reached_by_a_tree_and_loops_open_more() -> None:
    for rooms in (2, 3, 5):
        for loops, opened in ((0, 0), (1, 1), (99, (rooms - 1) ** 2)):
            walls = np.ones((2 * rooms + 1,) * 2, np.uint8)
            carve(walls, loops, np.random.default_rng(rooms))
            assert (walls == 0).sum() == rooms**2 + rooms**2 - 1 + opened
            assert walls[[0, -1]].all()
            assert walls[:, [0, -1]].all()
            reached, edge = {(1, 1)}, [(1, 1)]
            while edge:
                row, col = edge.pop()
                for cell in ((row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)):
                    if not walls[cell] and cell not in reached:
                        reached.add(cell)
                        edge.append(cell)
            assert len(reached) == (walls == 0).sum()


def test_the_agent_does_as_its_actions_say_and_crosses_no_wall() -> None:
    _, batch = clips(count=4, num_frames=300)
    for poses, walls, actions in zip(
        batch.objects["poses"].long().tolist(), batch.objects["walls"], batch.actions.argmax(-1).tolist(), strict=True
    ):
        for (x, y, heading), then, action in zip(poses, poses[1:], actions, strict=False):
            assert walls[y // 4, x // 4] == 0
            dx, dy = round(math.cos(heading * math.pi / 8)), round(math.sin(heading * math.pi / 8))
            expected = {
                "left": [x, y, (heading - 1) % 16],
                "right": [x, y, (heading + 1) % 16],
                "forward": [x + dx, y + dy, heading],
            }[ACTIONS[action]]
            assert then == expected
            if ACTIONS[action] != "forward":
                assert (x % 4, y % 4) == (2, 2)


def seen_by_a_ray(walls: np.ndarray, x: float, y: float, dx: float, dy: float) -> tuple[float, int, int, bool]:
    """(distance, row, column, whether its left or right side) of the nearest wall, by every cell's four sides."""
    best = (math.inf, 0, 0, True)
    for row, col in np.argwhere(walls):
        for side, (at, start, step, across, low, upper) in {
            "left": (col, x, dx, (y, dy), row, True),
            "right": (col + 1, x, dx, (y, dy), row, True),
            "top": (row, y, dy, (x, dx), col, False),
            "bottom": (row + 1, y, dy, (x, dx), col, False),
        }.items():
            if abs(step) < 1e-12:
                continue
            distance = (at - start) / step
            place = across[0] + distance * across[1]
            if distance > 0 and low <= place <= low + 1 and distance < best[0] - 1e-12:
                best = (distance, int(row), int(col), upper)
            assert side
    return best


def test_a_frame_is_what_rays_meet() -> None:
    _, batch = clips(count=2, num_frames=25)
    side, wrong, total = 16, 0, 0
    for clip in range(2):
        walls = batch.objects["walls"][clip].numpy()
        patterns, colours = (batch.objects[name][clip].numpy() for name in ("patterns", "colours"))
        for step in range(0, 25, 6):
            x4, y4, heading = batch.objects["poses"][clip, step].tolist()
            angle = heading * math.pi / 8
            for col in range(side):
                offset = (2 * (col + 0.5) / side - 1) * HALF_VIEW
                dx, dy = math.cos(angle) - offset * math.sin(angle), math.sin(angle) + offset * math.cos(angle)
                distance, row_of, col_of, faces_side = seen_by_a_ray(walls, x4 / 4, y4 / 4, dx, dy)
                place = (y4 / 4 + distance * dy) if faces_side else (x4 / 4 + distance * dx)
                height = WALL_HEIGHT * side / max(distance, 0.1)
                for row in range(side):
                    above = (row + 0.5 - side / 2) / height
                    surface, colour = -1, CEILING if above < -0.5 else GROUND
                    if -0.5 <= above < 0.5:
                        right, lower = place % 1 >= 0.5, above >= 0
                        which = int([False, lower, right, right != lower][patterns[row_of, col_of]])
                        shade = 1.0 if faces_side else SIDE_SHADE
                        colour = [int(c * shade) for c in PALETTE[colours[row_of, col_of, which]]]
                        surface = 2 * (len(walls) * row_of + col_of) + which
                    total += 1
                    same = batch.frames[clip, step, :, row, col].tolist() == list(colour)
                    wrong += not (same and int(batch.objects["surfaces"][clip, step, row, col]) == surface)
    assert wrong <= 0.005 * total  # rays that meet a corner


def test_when_a_surface_was_seen_last_is_exact() -> None:
    _, batch = clips(count=2, resolution=8)
    for surfaces, seen in zip(batch.objects["surfaces"], batch.objects["last_seen"], strict=True):
        for step in range(len(surfaces)):
            for row in range(0, 8, 3):
                for col in range(8):
                    surface = surfaces[step, row, col]
                    before = [t for t in range(step) if surface >= 0 and (surfaces[t] == surface).any()]
                    assert int(seen[step, row, col]) == max(before, default=-1)


def test_a_clip_depends_on_its_number_alone_and_resolutions_show_the_same_walk() -> None:
    _, batch = clips(count=3)
    _, again = clips(count=2)
    _, larger = clips(count=2, resolution=32)
    assert torch.equal(batch.frames[:2], again.frames)
    assert torch.equal(larger.objects["poses"], again.objects["poses"])
    assert not torch.equal(batch.frames[0], batch.frames[1])


def test_pose_vectors_are_the_poses_of_both_frames() -> None:
    data, batch = clips(count=2, conditioning="pose", rooms=2)
    assert data.spec.input.vector_actions
    assert batch.actions.shape[-1] == data.spec.input.num_actions == 2 * (4 * 25 + 4 + 4 + 16)
    here, then = batch.actions.chunk(2, dim=-1)
    assert torch.equal(then[:, :-1], here[:, 1:])
    assert torch.equal(here.sum(-1), torch.full(here.shape[:2], 4.0))
    place, sub_x, sub_y, heading = (part.argmax(-1) for part in here.split((100, 4, 4, 16), dim=-1))
    x, y, turn = batch.objects["poses"].long().unbind(-1)
    assert torch.equal(4 * (place // 4 % 5) + sub_x, x)
    assert torch.equal(4 * (place // 20) + sub_y, y)
    assert torch.equal(heading, turn)
    off = (turn - 4 * (place % 4) + 8) % 16 - 8
    assert off.abs().max() <= 2


def test_oracles_are_better_the_more_they_know() -> None:
    data, batch = clips(count=6, num_frames=160, rooms=2)
    batch = to_unit_range(batch)
    true = batch.frames[:, 100:150]
    simple = data.baseline_predictions(batch, 100, 50)
    nearest = simple.pop("frame of the nearest pose")
    assert (nearest - true).square().mean() < (simple["mean frame of the context"] - true).square().mean()
    found = data.oracle_predictions(batch, 100, 50) | simple
    errors = {name: float((frames - true).square().mean()) for name, frames in found.items()}
    order = ["mean frame of the context", "geometry alone"]
    order += [f"colours of the {name}" for name in ("last 8 frames", "last 32 frames", "context")]
    assert [name for name in sorted(errors, key=errors.get, reverse=True)] == order  # noqa: C416
    surfaces = batch.objects["surfaces"].long()
    known = found["colours of the last 32 frames"] == true
    for clip in range(6):
        seen = set(surfaces[clip, 68:100].unique().tolist())
        shown = torch.tensor(
            [[[s in seen or s < 0 for s in row] for row in frame] for frame in surfaces[clip, 100:103]]
        )
        assert known[clip, :3].all(1)[shown].all()


@pytest.mark.parametrize("conditioning", ["none", "action", "pose"])
def test_the_frame_of_the_nearest_pose_is_a_baseline_where_the_way_is_given(conditioning) -> None:
    data, batch = clips(count=2, rooms=2, conditioning=conditioning)
    found = data.baseline_predictions(batch, 24, 12)
    assert ("frame of the nearest pose" in found) == (conditioning != "none")
    if conditioning == "none":
        return
    for clip, poses in enumerate(batch.objects["poses"].tolist()):
        for step, (x, y, heading) in enumerate(poses[24:36]):
            away = [math.hypot(x - a, y - b) / 4 + 1 - math.cos((heading - c) * math.pi / 8) for a, b, c in poses[:24]]
            nearest = {i for i in range(24) if away[i] < min(away) + 1e-6}
            shown = found["frame of the nearest pose"][clip, step]
            assert any(torch.equal(shown, batch.pixels[clip, i]) for i in nearest)


def test_vectors_are_mapped_linearly_and_a_masked_one_has_a_row_of_its_own() -> None:
    torch.manual_seed(0)
    embedding = ActionEmbedding(5, 3, vectors=True)
    actions = torch.randn(2, 4, 5)
    actions[0, 1] = 0
    found = embedding(actions, 2, 4)
    torch.testing.assert_close(found[1], actions[1] @ embedding.table[:5])
    assert torch.equal(found[0, 1], embedding.table[5])
    one_hot = torch.eye(5)[None]
    torch.testing.assert_close(embedding(one_hot, 1, 5), ActionEmbedding.forward(embedding, one_hot, 1, 5))
