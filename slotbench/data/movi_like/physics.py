"""Bodies that fall, roll and collide, as mujoco simulates them for `MOViLike` and `MultiCameraLike`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slotbench.errors import DataFilesError

__all__ = ["FRAME_RATE", "Bodies", "Solids", "Surroundings", "Trajectory", "mujoco_version", "rotation_matrices"]
__all__ += ["simulate", "sliding_deceleration"]

FRAME_RATE = 12
# metal, rubber
_DENSITY = np.array([2.7, 1.1])
_FRICTION = np.array([0.4, 0.8])
_RESTITUTION = np.array([0.3, 0.7])
_FLOOR_FRICTION, _FLOOR_RESTITUTION = 0.3, 0.5

_GRAVITY = 10.0
_STEPS = 20  # of the physics per frame, 4.2 ms each
_STIFFNESS = 120.0  # of contacts: the frequency, per second, with which bodies spring back
_CONE_SIDES = 24


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
class Solids:
    """What stands still.

    Attributes:
        shapes: 0 cube, 1 cylinder, 2 sphere, 3 cone, 4 box "solids".
        half_sides: half the sides; of all but boxes, thrice the same "solids 3".
        positions: centres "solids 3".
        quaternions: "solids 4", w x y z.
        colors: in 0..1 "solids 3".
    """

    shapes: np.ndarray
    half_sides: np.ndarray
    positions: np.ndarray
    quaternions: np.ndarray
    colors: np.ndarray


@dataclass(frozen=True)
class Surroundings:
    """What objects run into beside each other: solids, and an upright body that keeps its heading.

    Attributes:
        solids: what stands still.
        ego: where the body starts "2".
        ego_velocity: "2".
        ego_size: radius and half the height of the body.
        ego_mass: its mass; it does not touch the floor.
    """

    solids: Solids
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
    """The version of mujoco, which decides the bytes of a video."""
    try:
        import mujoco
    except ImportError as error:
        raise DataFilesError("simulated videos need mujoco; pip install 'slotbench[sim3d]'") from error
    return str(mujoco.__version__)


def sliding_deceleration(materials: np.ndarray) -> np.ndarray:
    """By how much what slides over the floor slows down, in units per second squared, by material."""
    return _GRAVITY * _FLOOR_FRICTION * _FRICTION[materials]


def simulate(scene: Bodies, num_frames: int, surroundings: Surroundings | None = None) -> Trajectory:
    """Lets the objects fall, roll and collide.

    A contact with the floor has the products of both materials' friction and restitution, as in MOVi's simulator;
    between two objects mujoco takes the larger friction and the mean of how they spring back.
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

    solids = surroundings.solids
    for index, shape in enumerate(solids.shapes.tolist()):
        spec.worldbody.add_geom(
            **_geometry(spec, shape, solids.half_sides[index].tolist(), f"solid{index}"),
            pos=solids.positions[index],
            quat=solids.quaternions[index],
            priority=0,
        )
    radius, half_height = surroundings.ego_size
    body = spec.worldbody.add_body(pos=[*surroundings.ego, half_height + 0.05])
    for axis in ([1, 0, 0], [0, 1, 0]):
        body.add_joint(type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    size = [radius, half_height, 0.0]
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=size, mass=surroundings.ego_mass, priority=0)
