"""The law of CATERLike's episodes, and what is given of them: labels, states of the snitch, images and tables."""

from __future__ import annotations

import itertools
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.data.cater_like import law_kernel
from slotbench.data.cater_like.cater_like import CATERLike
from slotbench.data.cater_like.scenes import Episode, EpisodeLaw, Moves, SnitchState, cells_of
from slotbench.data.cater_like.views import TABLE_WIDTH, camera_path
from slotbench.interfaces import VideoBatch

SNITCH, CONE, LONGEST = 4, 3, 30
FRAMES = 300


def small(**arguments: object) -> CATERLike:
    few = {"num_objects": (4, 6), "resolution": 16, "samples_per_side": 1, "video_frames": 120, "num_frames": 12}
    return CATERLike(**(few | arguments))  # type: ignore[arg-type]


def clips(data: CATERLike, count: int, split: str = "val") -> VideoBatch:
    return data.dataset(split).clips(range(count))  # type: ignore[attr-defined, arg-type]


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    law = EpisodeLaw()
    return [law.draw(np.random.default_rng(seed), FRAMES) for seed in range(150)]


@pytest.fixture(scope="module")
def seen() -> VideoBatch:
    return clips(small(depth=True, resolution=32), 12)


def outermost(holders: np.ndarray, i: int) -> int:
    while holders[i] >= 0:
        i = holders[i]
    return i


@pytest.mark.parametrize("moves", ["free", "released"])
def test_compiled_law_is_the_readable_one(monkeypatch: pytest.MonkeyPatch, moves: Moves) -> None:
    law = EpisodeLaw(num_objects=(4, 6), moves=moves)
    fast = [law.draw(np.random.default_rng(seed), 150) for seed in range(4)]
    for name, function in vars(law_kernel).copy().items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(law_kernel, name, function.py_func)
    for seed, episode in enumerate(fast):
        readable = law.draw(np.random.default_rng(seed), 150)
        for name in ("places", "turns", "holders"):
            np.testing.assert_array_equal(getattr(episode, name), getattr(readable, name))


def test_a_cone_covers_what_is_narrower_and_takes_it_along_and_leaves_it_where_it_uncovers_it(
    episodes: list[Episode],
) -> None:
    covered_frames = 0
    for episode in episodes:
        times, objects = np.nonzero(episode.holders >= 0)
        cones = episode.holders[times, objects]
        covered_frames += len(times)
        assert (episode.shapes[cones] == CONE).all()
        assert np.isin(episode.shapes[objects], [2, CONE, SNITCH]).all()
        assert (episode.radii[cones] > episode.radii[objects]).all()
        np.testing.assert_allclose(episode.places[times, cones, :2], episode.places[times, objects, :2])
        # one cone holds one thing
        for time in range(0, FRAMES, 7):
            held = episode.holders[time][episode.holders[time] >= 0]
            assert len(set(held)) == len(held)
        freed = (episode.holders[:-1] >= 0) & (episode.holders[1:] < 0)
        still = np.abs(np.diff(episode.places, axis=0)).max(-1) < 1e-9
        assert still[freed].all()
    assert covered_frames > 1000


def test_nothing_runs_into_anything_but_a_cone_into_what_it_covers(episodes: list[Episode]) -> None:
    met = 0
    for episode in episodes:
        heights = 2 * episode.halves
        for i, j in combinations(range(len(episode.shapes)), 2):
            apart = np.linalg.norm(episode.places[:, i, :2] - episode.places[:, j, :2], axis=-1)
            low, high = episode.places[:, [i, j], 2], episode.places[:, [i, j], 2] + heights[[i, j]]
            touch = apart < episode.radii[i] + episode.radii[j] - 1e-9
            touch &= (low[:, 0] < high[:, 1]) & (low[:, 1] < high[:, 0])
            touch &= (episode.holders[:, [i, j]] < 0).all(1)
            holds = (episode.holders[:, i] == j) | (episode.holders[:, j] == i)
            for time in np.flatnonzero(touch):
                met += 1
                # a cone that is being put over it, or lifted off
                assert holds[max(0, time - LONGEST // 3) : time + LONGEST // 3].any()
    assert met > 50


def test_shares_of_the_law_are_those_of_the_note(episodes: list[Episode]) -> None:
    # 1,500 episodes of an independent simulation: covered at the end 35 % of clips, 52 % of them moved since
    covered = np.array([episode.holders[-1, 0] >= 0 for episode in episodes])
    moved = np.array([episode.was_moved for episode in episodes])
    assert 0.25 < covered.mean() < 0.5
    assert 0.35 < moved[covered].mean() < 0.7
    assert not moved[~covered].any()
    assert all((abs(episode.places[..., :2]) <= 3).all() for episode in episodes)
    assert max(episode.places[..., 2].max() for episode in episodes) == pytest.approx(law_kernel.LIFT, abs=1e-9)


def test_released_moves_keep_a_distance_of_balls_begin_in_time_and_have_ended_by_the_last_frame() -> None:
    cut = {"free": 0, "released": 0}
    for moves, seed in itertools.product(("free", "released"), range(40)):
        episode = EpisodeLaw(num_objects=(5, 8), moves=moves).draw(np.random.default_rng(seed), 150)
        quarters = (episode.turns[-1] - episode.turns[0]) / (np.pi / 2)
        cut[moves] += bool((episode.places[-1, :, 2] > 1e-9).any() or np.abs(quarters - quarters.round()).max() > 1e-6)
        if moves == "free":
            continue
        # a round begins at frame 119 at the latest, and its moves at most 11 frames after: from frame 129 to 130
        steps = np.abs(np.diff(episode.places, axis=0)).max(-1) + np.abs(np.diff(episode.turns, axis=0))
        begins = (steps[1:] > 1e-9) & (steps[:-1] <= 1e-9)
        assert not begins[129:].any()
        centres = episode.places + np.stack([0 * episode.halves, 0 * episode.halves, episode.halves], axis=-1)
        for i, j in combinations(range(len(episode.shapes)), 2):
            apart = np.linalg.norm(centres[:, i] - centres[:, j], axis=-1) - episode.halves[i] - episode.halves[j]
            holds = (episode.holders[:, i] == j) | (episode.holders[:, j] == i)
            near = (apart < 0.25 - 1e-9) & (episode.holders[:, [i, j]] < 0).all(1)
            for time in np.flatnonzero(near):
                assert holds[max(0, time - LONGEST) : time + LONGEST].any()
    assert cut["free"] > 2
    assert cut["released"] == 0


def test_free_moves_are_what_they_were() -> None:
    episode = EpisodeLaw(num_objects=(5, 8)).draw(np.random.default_rng(7), 120)
    found = episode.places[-1].sum(), episode.turns.sum(), episode.holders.sum(), episode.places.std()
    # of the release whose records are committed
    assert found == pytest.approx((-4.904664798254578, 2315.1578758411856, -842, 1.6569379510872637), abs=1e-9)


def test_in_max2_two_objects_move_at_a_time_at_most() -> None:
    law = EpisodeLaw(num_objects=(7, 7), actions="max2")
    busiest = 0
    for seed in range(20):
        episode = law.draw(np.random.default_rng(seed), FRAMES)
        moving = (np.abs(np.diff(episode.places, axis=0)).max(-1) > 1e-9) | (np.diff(episode.turns, axis=0) != 0)
        movers = [len({outermost(episode.holders[t + 1], i) for i in np.flatnonzero(moving[t])}) for t in range(299)]
        busiest = max(busiest, *movers)
    assert busiest == 2


@settings(max_examples=8)
@given(grid=st.sampled_from([3, 6]), split=st.sampled_from(["train", "val"]), frames=st.integers(1, 12))
def test_labels_are_the_cells_of_the_snitch_and_the_last_that_of_the_videos_end(
    grid: int, split: str, frames: int
) -> None:
    data = small(observation="objects", grid=grid, num_frames=frames, video_frames=13)
    batch = clips(data, 2, split)
    log, target = batch.objects, batch.require("target")
    assert data.spec.target.channels == grid**2
    assert target.shape == (2, frames, 1, 1)
    cells = cells_of(log["positions"][:, :, 0].double().numpy(), grid)
    np.testing.assert_array_equal(target[:, :-1, 0, 0], cells[:, :-1])
    np.testing.assert_array_equal(target[:, -1, 0, 0], log["end_cells"][:, 0])
    edges = np.arange(frames + 1) * 13 // frames
    shown = log["frame"].numpy()
    assert (shown >= edges[:-1]).all()
    assert (shown < edges[1:]).all()
    if split == "val":
        np.testing.assert_array_equal(cells[:, -1], log["end_cells"][:, 0])
        np.testing.assert_array_equal(shown, np.tile(edges[1:] - 1, (2, 1)))


def test_the_snitchs_states_are_those_of_masks_and_cones(seen: VideoBatch) -> None:
    state, log = seen.objects["snitch_state"], seen.objects
    pixels = (seen.require("masks") == 1).sum((2, 3))
    assert torch.equal(pixels, log["visibility"][..., 0])
    assert torch.equal(state == SnitchState.VISIBLE, pixels > 0)
    contained = log["holders"][..., 0] >= 0
    assert torch.equal(state >= SnitchState.CONTAINED, contained)
    assert (state == SnitchState.CARRIED).any()
    assert torch.equal(log["covered"], log["end_holders"][:, 0] >= 0)
    assert torch.equal(log["covered"], contained[:, -1])
    for clip in range(len(seen)):
        visible = torch.nonzero(state[clip] == SnitchState.VISIBLE)
        last = int(log["frame"][clip, int(visible[-1])])
        assert log["frames_since_seen"][clip] == 119 - last
        free = torch.nonzero(~contained[clip]).flatten()
        way = (log["positions"][clip, int(free[-1]) :, 0, :2].diff(dim=0).abs() > 1e-6).any()
        if log["moved_covered"][clip]:
            assert way
        elif log["covered"][clip]:
            assert (state[clip] != SnitchState.CARRIED)[-1]


def test_no_mask_has_a_covered_object_and_depth_is_where_the_objects_are(seen: VideoBatch) -> None:
    log, masks = seen.objects, seen.require("masks")
    count = log["positions"].shape[2]
    for i in range(count):
        covered = log["holders"][..., i] >= 0
        assert not (masks == i + 1)[covered].any()
    apart = torch.linalg.norm(log["positions"] - log["camera_positions"][:, :, None], dim=-1)
    for clip, time, i in torch.nonzero(log["visibility"] > 0).tolist():
        depths = log["depth"][clip, time][masks[clip, time] == i + 1]
        assert (abs(depths - apart[clip, time, i]) < 1.1).all()
    assert masks.max() <= count
    assert torch.equal(log["present"].sum(1), log["num_objects"])


def test_a_table_has_a_row_for_what_nothing_covers_and_says_where_it_is() -> None:
    data = small(observation="objects", num_frames=60)
    batch = clips(data, 8)
    table, log = batch.require("features")[..., 0].transpose(2, 3), batch.objects
    features = data.spec.features
    assert features is not None
    assert (features.channels, features.height, features.width) == (TABLE_WIDTH, 6, 1)
    there = log["present"][:, None] & (log["holders"] < 0)
    assert (~there & log["present"][:, None]).any()
    assert torch.equal(table[..., 0] == 1, there)
    assert (table[~there] == 0).all()
    assert torch.equal(log["snitch_state"] == SnitchState.VISIBLE, there[..., 0])
    torch.testing.assert_close(table[..., 1:3][there] * 3, log["positions"][..., :2][there])
    labels = log["shape_label"][:, None].expand(there.shape)
    assert torch.equal(table[..., 5:10].argmax(-1)[there], labels[there])
    assert torch.equal(table[there][:, 5:10].sum(1), torch.ones(int(there.sum())))
    # the plan shows no covered object either, and is seen from above: y upwards
    shown = torch.stack([(batch.require("masks") == i + 1).any(-1).any(-1) for i in range(6)], dim=-1)
    assert not (shown & ~there).any()
    clip, time = 0, 0
    rows, cols = torch.nonzero(batch.require("masks")[clip, time] == 1, as_tuple=True)
    x, y = log["positions"][clip, time, 0, :2]
    assert abs((cols.float().mean() + 0.5) / 16 * 6 - 3 - x) < 0.4
    assert abs(3 - (rows.float().mean() + 0.5) / 16 * 6 - y) < 0.4


def test_a_moving_camera_goes_around_and_looks_from_far_enough() -> None:
    path = camera_path("moving", np.random.default_rng(1), FRAMES)
    assert path.shape == (FRAMES, 3)
    assert np.linalg.norm(path[:, :2], axis=1).min() > 9.9
    assert np.abs(np.diff(path, axis=0)).max() < 1
    assert len(np.unique(np.sign(path[::30, :2]), axis=0)) > 2
    fixed = camera_path("fixed", np.random.default_rng(1), 3)
    assert (fixed == fixed[0]).all()
    both = [clips(small(camera=camera, num_frames=2), 1) for camera in ("fixed", "moving")]
    assert not torch.equal(both[0].frames, both[1].frames)
    assert torch.equal(both[0].objects["end_cells"], both[1].objects["end_cells"])
