from unittest import mock

import numpy as np
from ball_reference import simulate_reference
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.balls import physics
from slotbench.data.balls.physics import BOX, Balls, BallWorld, simulate


def draw(seed: int, world: BallWorld | None = None, clips: int = 1) -> Balls:
    return (world or BallWorld()).draw([np.random.default_rng([seed, clip]) for clip in range(clips)])


def two_balls(positions: list, velocities: list, masses: list, radius: float = 1.0) -> Balls:
    return Balls(np.array([positions]), np.array([velocities]), np.full((1, 2), radius), np.array([masses]))


def distances(positions: np.ndarray) -> np.ndarray:
    return np.linalg.norm(positions[:, :, :, None] - positions[:, :, None], axis=-1)


def off_diagonal(num_balls: int) -> np.ndarray:
    return ~np.eye(num_balls, dtype=bool)


@given(seed=st.integers(0, 10**6), num_balls=st.integers(1, 6), resolution=st.sampled_from([1, 5, 8, 33, 64]))
def test_compiled_and_readable_simulators_give_the_same_bytes(seed: int, num_balls: int, resolution: int) -> None:
    world = BallWorld(num_balls, radii=(0.7, 1.0, 1.31), masses=(1.0, 2.3, 6.0))
    balls = draw(seed, world, clips=2)
    fast = simulate(balls, 15, resolution)
    with mock.patch.object(physics, "compiled", return_value=simulate_reference):
        readable = simulate(balls, 15, resolution)
    assert fast.positions.tobytes() == readable.positions.tobytes()
    assert fast.velocities.tobytes() == readable.velocities.tobytes()
    assert fast.ids.tobytes() == readable.ids.tobytes()


@given(seed=st.integers(0, 10**6), num_balls=st.integers(1, 6))
def test_kinetic_energy_is_conserved(seed: int, num_balls: int) -> None:
    balls = draw(seed, BallWorld(num_balls))
    moved = simulate(balls, 60, 1)
    energy = (balls.masses[:, None] * (moved.velocities**2).sum(-1)).sum(-1)
    np.testing.assert_allclose(energy, np.broadcast_to(energy[:, :1], energy.shape), rtol=1e-9)


def test_momentum_is_conserved_away_from_walls() -> None:
    balls = two_balls([[3.0, 4.0], [6.0, 5.0]], [[0.4, 0.05], [-0.2, -0.1]], [1.0, 6.0])
    moved = simulate(balls, 6, 1)
    momentum = (balls.masses[:, None, :, None] * moved.velocities).sum(2)
    assert not np.allclose(moved.velocities[:, -1], moved.velocities[:, 0])  # they did meet
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[:, :1], momentum.shape), rtol=1e-9)


def test_equal_masses_that_meet_head_on_swap_velocities() -> None:
    moved = simulate(two_balls([[3.0, 5.0], [6.0, 5.0]], [[0.4, 0.0], [-0.2, 0.0]], [2.0, 2.0]), 6, 1)
    np.testing.assert_allclose(moved.velocities[0, -1], [[-0.2, 0.0], [0.4, 0.0]], atol=1e-12)


def test_balls_that_overlap_but_part_are_left_alone() -> None:
    moved = simulate(two_balls([[4.5, 5.0], [5.5, 5.0]], [[-0.3, 0.0], [0.3, 0.0]], [1.0, 6.0]), 3, 1)
    np.testing.assert_array_equal(moved.velocities[0, -1], moved.velocities[0, 0])


def test_a_wall_turns_the_velocity_across_it_only() -> None:
    balls = Balls(np.array([[[8.9, 5.0]]]), np.array([[[0.4, 0.1]]]), np.array([[1.0]]), np.array([[1.0]]))
    moved = simulate(balls, 3, 1)
    np.testing.assert_array_equal(moved.velocities[0, -1, 0], [-0.4, 0.1])
    np.testing.assert_allclose(moved.positions[0, 1, 0], [8.9 + 0.2 - 0.2, 5.1])


def test_a_frame_is_two_half_steps() -> None:
    balls = Balls(np.array([[[5.0, 5.0]]]), np.array([[[0.3, -0.2]]]), np.array([[1.0]]), np.array([[1.0]]))
    moved = simulate(balls, 2, 1)
    np.testing.assert_array_equal(moved.positions[0, 0, 0], [5.0, 5.0])
    np.testing.assert_allclose(moved.positions[0, 1, 0], [5.3, 4.8])


def test_no_ball_leaves_the_box_by_more_than_two_sub_steps() -> None:
    balls = draw(1, clips=200)
    moved = simulate(balls, 100, 1)
    speed = np.linalg.norm(moved.velocities, axis=-1).max(1)[:, None, :, None]
    radius = balls.radii[:, None, :, None]
    beyond = np.maximum(radius - moved.positions, moved.positions + radius - BOX)
    assert (beyond <= speed).all()
    assert (beyond > 0).any()  # the test would notice


def test_overlaps_are_shallow_and_pass() -> None:
    balls = draw(2, clips=200)
    moved = simulate(balls, 100, 1)
    reach = balls.radii[:, None, :, None] + balls.radii[:, None, None, :]
    overlap = np.maximum(0, reach - distances(moved.positions)) * off_diagonal(4)
    assert 0 < overlap.max() < 0.75
    touching = overlap > 1e-9
    assert touching.any(axis=(2, 3)).mean() < 0.25
    # a pair may be pushed together by a third ball or a wall, but not for long
    longest = np.zeros_like(touching[:, 0], dtype=int)
    for frame in range(100):
        longest = (longest + 1) * touching[:, frame]
        assert longest.max() < 10


def test_start_states_keep_to_the_specification() -> None:
    balls = draw(3, clips=300)
    assert (balls.positions - balls.radii[..., None] >= 0).all()
    assert (balls.positions + balls.radii[..., None] <= BOX).all()
    reach = balls.radii[:, :, None] + balls.radii[:, None]
    assert (distances(balls.positions[:, None])[:, 0] >= reach)[:, off_diagonal(4)].all()
    np.testing.assert_allclose(np.linalg.norm(balls.velocities, axis=(1, 2)), 0.5)
    assert set(np.unique(balls.radii)) == {1.2, 1.5}
    assert set(np.unique(balls.masses)) == {1.0, 6.0}
    # the box is used on all sides alike
    np.testing.assert_allclose(balls.positions.mean((0, 1)), [5, 5], atol=0.3)


def test_mass_can_be_tied_to_radius() -> None:
    tied = draw(4, BallWorld(mass_follows_radius=True), clips=50)
    np.testing.assert_array_equal(tied.masses == 6.0, tied.radii == 1.5)
    free = draw(4, clips=50)
    assert ((free.masses == 6.0) != (free.radii == 1.5)).any()


def test_discs_are_hard_and_measured_at_pixel_centres() -> None:
    balls = two_balls([[2.0, 7.0], [7.5, 3.5]], [[0.0, 0.0], [0.0, 0.0]], [1.0, 1.0], radius=1.5)
    ids = simulate(balls, 1, 20).ids[0, 0]
    for row in range(20):
        for column in range(20):
            x, y = (column + 0.5) / 2, (row + 0.5) / 2
            inside = [(x - bx) ** 2 + (y - by) ** 2 <= 1.5**2 for bx, by in balls.positions[0]]
            assert ids[row, column] == (1 if inside[0] else 2 if inside[1] else 0)
