"""Scenes of `MOViLike`: objects, camera and light, and the motion that mujoco simulates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from slotbench.errors import DataFilesError

__all__ = ["COLORS", "FOCAL_LENGTH", "FRAME_RATE", "SENSOR_WIDTH", "Bodies", "Level", "Scene", "SceneLaw"]
__all__ += [
    "FLOOR_COLOR",
    "Surroundings",
    "Trajectory",
    "mujoco_version",
    "rotation_matrices",
    "simulate",
    "sliding_deceleration",
]

Level = Literal["a", "tex", "cam", "hard"]

# sorted by name, as the labels of MOVi-A: blue, brown, cyan, gray, green, purple, red, yellow
COLORS = (
    np.array(
        [
            (42, 75, 215),
            (129, 74, 25),
            (41, 208, 208),
            (87, 87, 87),
            (29, 105, 20),
            (129, 38, 192),
            (173, 35, 35),
            (255, 238, 51),
        ]
    )
    / 255
)
FRAME_RATE = 12
FOCAL_LENGTH, SENSOR_WIDTH = 35.0, 32.0

FLOOR_COLOR = (0.58, 0.58, 0.58)
# metal, rubber
_DENSITY = np.array([2.7, 1.1])
_FRICTION = np.array([0.4, 0.8])
_RESTITUTION = np.array([0.3, 0.7])
_FLOOR_FRICTION, _FLOOR_RESTITUTION = 0.3, 0.5

_NEAREST, _FARTHEST = 7.0, 9.0  # camera from the origin
_LOWEST = 30.0  # degrees of the camera above the floor, below which a wide one sees the horizon
_LONGEST_PATH = 4.0  # of a moving camera
_LAMP = (5.0, -5.0, 9.0)
_SIDE_LAMP = (9.0, 3.5)  # distance from the axis, and height

_GRAVITY = 10.0
_STEPS = 20  # of the physics per frame, 4.2 ms each
_STIFFNESS = 120.0  # of contacts: the frequency, per second, with which bodies spring back
_CONE_SIDES = 24
_TRIES, _RESTARTS = 200, 200


@dataclass(frozen=True)
class Bodies:
    """Objects at the start of a video; arrays are per object where no shape is given.

    Attributes:
        shapes: 0 cube, 1 cylinder, 2 sphere.
        sizes: 0 small, 1 large.
        materials: 0 metal, 1 rubber.
        color_labels: index into COLORS.
        scales: side of the cube, diameter of the sphere, diameter and height of the cylinder.
        positions: centres "objects 3".
        velocities: "objects 3", units per second.
        quaternions: "objects 4", w x y z.
    """

    shapes: np.ndarray
    sizes: np.ndarray
    materials: np.ndarray
    color_labels: np.ndarray
    scales: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    quaternions: np.ndarray

    @property
    def masses(self) -> np.ndarray:
        """Density times the cube of the size, for every shape, as in MOVi-A."""
        return _DENSITY[self.materials] * self.scales**3

    @property
    def frictions(self) -> np.ndarray:
        """Of the material."""
        return _FRICTION[self.materials]

    @property
    def restitutions(self) -> np.ndarray:
        """Of the material."""
        return _RESTITUTION[self.materials]


@dataclass(frozen=True)
class Scene(Bodies):
    """The start of a video.

    Attributes:
        cameras: camera centres in the first and in the last frame "2 3"; it moves in a line and looks at the origin.
        lamp: where the light is "3".
        colors: both colours of floor and objects "objects+1 2 3".
        textures: solid textures of floor and objects "objects+1 6", as `ray_caster.Stage` has them.
    """

    cameras: np.ndarray
    lamp: np.ndarray
    colors: np.ndarray
    textures: np.ndarray


@dataclass(frozen=True)
class Surroundings:
    """What objects run into beside each other: solids that stand still, and an upright body that keeps its heading.

    Attributes:
        shapes: 0 cube, 1 cylinder, 2 sphere, 3 cone, 4 box "solids".
        half_sides: half the sides; of all but boxes, thrice the same "solids 3".
        positions: centres "solids 3".
        quaternions: "solids 4", w x y z.
        ego: where the body starts "2".
        ego_velocity: "2".
        ego_size: radius and half the height of the body.
        ego_mass: its mass; it does not touch the floor.
    """

    shapes: np.ndarray
    half_sides: np.ndarray
    positions: np.ndarray
    quaternions: np.ndarray
    ego: np.ndarray
    ego_velocity: np.ndarray
    ego_size: tuple[float, float] = (0.35, 0.5)
    ego_mass: float = 2.0


@dataclass(frozen=True)
class Trajectory:
    """The motion: positions, velocities and angular velocities "time objects 3" in the world's axes, quaternions.

    `ego` is where the body of the surroundings is "time 2", or "time 0" without any.
    """

    positions: np.ndarray
    quaternions: np.ndarray
    velocities: np.ndarray
    angular_velocities: np.ndarray
    ego: np.ndarray


@dataclass(frozen=True)
class SceneLaw:
    """The distribution of scenes.

    Args:
        level: "a", "tex", "cam" or "hard".
        num_objects: fewest and most objects.
        object_sizes: the small and the large size.
        spread: half the side of the square above which objects start.
        lowest_camera: the least elevation of the camera above the floor, in degrees.

    Raises:
        ValueError: for arguments that cannot be.
    """

    level: Level = "a"
    num_objects: tuple[int, int] = (3, 10)
    object_sizes: tuple[float, float] = (0.7, 1.4)
    spread: float = 3.5
    lowest_camera: float = _LOWEST

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise ValueError(f"level is {self.level!r}; expected one of {', '.join(get_args(Level))}")
        fewest, most = self.num_objects
        if not 1 <= fewest <= most <= 255:
            raise ValueError(f"num_objects is {list(self.num_objects)}; expected the fewest and the most, 1 to 255")
        small, large = self.object_sizes
        if not 0 < small <= large:
            raise ValueError(f"object_sizes is {list(self.object_sizes)}; expected the small and the large, above 0")
        if not 0 < self.spread <= 5.0:
            raise ValueError(f"spread is {self.spread}; expected above 0 and at most 5, the camera being at 7 to 9")
        if not _LOWEST <= self.lowest_camera < 90:
            raise ValueError(
                f"lowest_camera is {self.lowest_camera}; expected degrees above the floor, from {_LOWEST:g} to below 90"
            )

    def draw(self, rng: np.random.Generator) -> Scene:
        """A scene.

        Raises:
            ValueError: the objects find no room to start in.
        """
        count = int(rng.integers(self.num_objects[0], self.num_objects[1] + 1))
        shapes, sizes, materials = rng.integers(0, 3, count), rng.integers(0, 2, count), rng.integers(0, 2, count)
        color_labels = rng.integers(0, len(COLORS), count)
        scales = np.array(self.object_sizes)[sizes]
        quaternions = rng.normal(size=(count, 4))
        quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
        positions = self._places(rng, scales, shapes)
        # towards somewhere near the centre, to be reached after a second
        velocities = rng.uniform(-0.8 * self.spread, 0.8 * self.spread, (count, 3)) - positions
        velocities[:, 2] = 0.0
        colors = np.concatenate([[FLOOR_COLOR], COLORS[color_labels]])[:, None].repeat(2, 1)
        textures = np.zeros((count + 1, 6))
        cameras = self._cameras(rng)
        lamp = np.array(_LAMP) + rng.uniform(-1.0, 1.0, 3)
        if self.level in ("tex", "hard"):
            self._paint(rng, colors, textures)
        if self.level == "hard":
            # one palette for floor and objects, so that a colour does not tell them apart
            colors[0] = COLORS[rng.integers(0, len(COLORS), 2)]
            colors[1:, 1] = COLORS[rng.integers(0, len(COLORS), count)]
            turn = rng.uniform(0.0, 2.0 * math.pi)
            lamp = np.array([_SIDE_LAMP[0] * math.cos(turn), _SIDE_LAMP[0] * math.sin(turn), _SIDE_LAMP[1]])
        return Scene(
            shapes, sizes, materials, color_labels, scales, positions, velocities, quaternions, cameras, lamp, colors,
            textures,
        )  # fmt: skip

    def _places(self, rng: np.random.Generator, scales: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Where objects start, none touching another, the largest placed first."""
        bounds = scales / 2 * np.sqrt(np.array([3.0, 2.0, 1.0]))[shapes]
        order = np.argsort(-bounds, kind="stable")
        highest = max(self.spread, 2.5 * float(bounds.max()))
        for _ in range(_RESTARTS):
            placed: list[int] = []
            positions = np.zeros((len(scales), 3))
            for index in order:
                low, high = np.full(3, -self.spread, float), np.full(3, self.spread, float)
                low[2], high[2] = bounds[index] + 0.02, highest
                candidates = rng.uniform(low, high, (_TRIES, 3))
                apart = np.linalg.norm(candidates[:, None] - positions[None, placed], axis=-1)
                free = np.flatnonzero((apart > bounds[index] + bounds[placed]).all(1))
                if not len(free):
                    break
                positions[index] = candidates[free[0]]
                placed.append(int(index))
            else:
                return positions
        raise ValueError(
            f"{len(scales)} objects of sizes {list(self.object_sizes)} find no room above a square of half side "
            f"{self.spread}: fewer num_objects, smaller object_sizes or a larger spread"
        )

    def _cameras(self, rng: np.random.Generator) -> np.ndarray:
        lowest = math.sin(math.radians(self.lowest_camera))

        def draw() -> np.ndarray:
            # evenly over the part of the sphere that is high enough: there the height is uniform
            height, turn = rng.uniform(lowest, 1.0), rng.uniform(0.0, 2.0 * math.pi)
            around = math.sqrt(1.0 - height * height)
            way = np.array([around * math.cos(turn), around * math.sin(turn), height])
            return way * rng.uniform(_NEAREST, _FARTHEST)

        start = draw()
        if self.level not in ("cam", "hard"):
            return np.stack([start, start])
        length = rng.uniform(0.0, _LONGEST_PATH)
        while True:
            way = rng.normal(size=3)
            end = start + way / np.linalg.norm(way) * length
            distance = float(np.linalg.norm(end))
            if _NEAREST <= distance <= _FARTHEST and end[2] >= lowest * distance:
                return np.stack([start, end])

    def _paint(self, rng: np.random.Generator, colors: np.ndarray, textures: np.ndarray) -> None:
        """Second colours and solid textures, in place."""
        count = len(textures) - 1
        colors[0] = rng.uniform(0.3, 0.75, (2, 3))
        colors[1:, 1] = rng.uniform(0.05, 0.95, (count, 3))
        ways = rng.normal(size=(count + 1, 3))
        ways[0, 2] = 0.0
        textures[:, 0] = rng.integers(1, 4, count + 1)
        textures[:, 1] = np.concatenate([rng.uniform(0.3, 0.8, 1), rng.uniform(0.8, 2.0, count)])
        textures[:, 2] = rng.uniform(0.0, 1.0, count + 1)
        textures[:, 3:] = ways / np.linalg.norm(ways, axis=1, keepdims=True)


def rotation_matrices(quaternions: np.ndarray) -> np.ndarray:
    """Of unit quaternions "... 4" (w x y z), matrices "... 3 3" that turn column vectors."""
    w, x, y, z = np.moveaxis(quaternions, -1, 0)
    entries = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return np.stack(entries, axis=-1).reshape(*quaternions.shape[:-1], 3, 3)


def mujoco_version() -> str:
    """The version of mujoco, which decides the bytes of a video.

    Raises:
        DataFilesError: it is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise DataFilesError("MOViLike needs mujoco; pip install 'slotbench[sim3d]'") from error
    return str(mujoco.__version__)


def sliding_deceleration(materials: np.ndarray) -> np.ndarray:
    """By how much what slides over the floor slows down, in units per second squared, by material."""
    return _GRAVITY * _FLOOR_FRICTION * _FRICTION[materials]


def simulate(scene: Bodies, num_frames: int, surroundings: Surroundings | None = None) -> Trajectory:
    """Lets the objects fall, roll and collide.

    A contact with the floor has the products of both materials' friction and restitution, as in MOVi's simulator;
    between two objects mujoco takes the larger friction and the mean of how they spring back.

    Args:
        scene: the objects at the start.
        num_frames: frames to simulate.
        surroundings: what else they may run into.

    Raises:
        DataFilesError: mujoco is not installed.
    """
    mujoco_version()
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.timestep = 1.0 / (FRAME_RATE * _STEPS)
    spec.option.gravity = [0.0, 0.0, -_GRAVITY]
    # the floor takes over the contact parameters of what lies on it
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[50, 50, 1], priority=0)
    for index in range(len(scene.shapes)):
        body = spec.worldbody.add_body(pos=scene.positions[index], quat=scene.quaternions[index])
        body.add_freejoint()
        bounce = math.log(scene.restitutions[index] * _FLOOR_RESTITUTION)
        damping = -bounce / math.sqrt(math.pi**2 + bounce**2)
        body.add_geom(
            **_geometry(spec, int(scene.shapes[index]), [scene.scales[index] / 2] * 3, f"object{index}"),
            mass=scene.masses[index],
            priority=1,
            friction=[scene.frictions[index] * _FLOOR_FRICTION, 0.005, 0.0001],
            solref=[1.0 / (_STIFFNESS * damping), damping],
            solimp=[0.95, 0.95, 0.001, 0.5, 2.0],
        )
    if surroundings is not None:
        _surround(spec, surroundings)
    model = spec.compile()
    data = mujoco.MjData(model)
    count = len(scene.shapes)
    data.qvel[: 6 * count].reshape(count, 6)[:, :3] = scene.velocities
    if surroundings is not None:
        data.qvel[6 * count :] = surroundings.ego_velocity
    places, motions = np.empty((num_frames, count, 7)), np.empty((num_frames, count, 6))
    ego = np.empty((num_frames, model.nq - 7 * count))
    for frame in range(num_frames):
        if frame:
            mujoco.mj_step(model, data, nstep=_STEPS)
        places[frame] = data.qpos[: 7 * count].reshape(count, 7)
        motions[frame], ego[frame] = data.qvel[: 6 * count].reshape(count, 6), data.qpos[7 * count :]
    quaternions = places[..., 3:] / np.linalg.norm(places[..., 3:], axis=-1, keepdims=True)
    # mujoco gives a free body's rotation in the body's own axes
    turning = np.einsum("tnij,tnj->tni", rotation_matrices(quaternions), motions[..., 3:])
    if surroundings is not None:
        ego += surroundings.ego
    return Trajectory(places[..., :3], quaternions, motions[..., :3], turning, ego)


def _geometry(spec: Any, shape: int, half_sides: Sequence[float], name: str) -> dict[str, Any]:
    """The arguments of a geom of a shape: cube, cylinder, sphere, cone, box."""
    import mujoco

    kinds = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_SPHERE)
    if shape != 3:
        return {"type": kinds[0 if shape == 4 else shape], "size": list(half_sides)}
    turns = np.arange(_CONE_SIDES) * (2.0 * math.pi / _CONE_SIDES)
    ring = np.stack([np.cos(turns), np.sin(turns), np.full(_CONE_SIDES, -1.0)], axis=-1)
    corners = np.concatenate([ring, [[0.0, 0.0, 1.0]]]) * half_sides[0]
    spec.add_mesh(name=name, uservert=corners.ravel())
    return {"type": mujoco.mjtGeom.mjGEOM_MESH, "meshname": name}


def _surround(spec: Any, surroundings: Surroundings) -> None:
    import mujoco

    for index, shape in enumerate(surroundings.shapes.tolist()):
        spec.worldbody.add_geom(
            **_geometry(spec, shape, surroundings.half_sides[index].tolist(), f"solid{index}"),
            pos=surroundings.positions[index],
            quat=surroundings.quaternions[index],
            priority=0,
        )
    radius, half_height = surroundings.ego_size
    body = spec.worldbody.add_body(pos=[*surroundings.ego, half_height + 0.05])
    for axis in ([1, 0, 0], [0, 1, 0]):
        body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    size = [radius, half_height, 0.0]
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=size, mass=surroundings.ego_mass, priority=0)
