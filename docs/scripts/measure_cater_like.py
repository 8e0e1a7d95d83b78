"""Says in how many episodes of `CATERLike` something still moves at the end, and how near objects come to each other.

    python docs/scripts/measure_cater_like.py [--clips 1500] [--frames 301] [--objects 5 10] [--moves released]

Episodes are those of the validation split with the default seed. Something moves at the end if it does so from the last
frame but one to the last; a move is cut off there if an object is in the air or half turned. Two objects that nothing
covers are as far apart as balls of their sizes, in three dimensions, which is the measure of CATER's generator; a cone
and what it is put over or lifted from are left out in the frames of that move.
"""

from __future__ import annotations

import argparse
import sys
from typing import get_args

import numpy as np
from scipy.ndimage import binary_dilation

from slotbench.data.base import generator_for
from slotbench.data.cater_like.scenes import Episode, EpisodeLaw, Moves

LONGEST_MOVE = 31
GAP = 0.25


def still_moving(episode: Episode) -> np.ndarray:
    """Which objects move or turn in the last step "objects"."""
    moved = np.abs(np.diff(episode.places[-2:], axis=0)[0]).max(-1) > 1e-9
    return moved | (np.diff(episode.turns[-2:], axis=0)[0] != 0)


def cut_off(episode: Episode) -> bool:
    """Whether an object is in the air, or half turned, at the end."""
    quarters = (episode.turns[-1] - episode.turns[0]) / (0.5 * np.pi)
    return bool((episode.places[-1, :, 2] > 1e-9).any() or (np.abs(quarters - quarters.round()) > 1e-6).any())


def least_distance(episode: Episode) -> float:
    """The least distance of two objects that nothing covers, after the start, in units of the floor."""
    centres = episode.places.copy()
    centres[..., 2] += episode.halves
    least = np.inf
    for one in range(len(episode.shapes)):
        for other in range(one):
            apart = np.linalg.norm(centres[:, one] - centres[:, other], axis=-1)
            apart -= episode.halves[one] + episode.halves[other]
            joined = (episode.holders[:, one] == other) | (episode.holders[:, other] == one)
            around = binary_dilation(joined, iterations=LONGEST_MOVE)
            free = (episode.holders[:, [one, other]] < 0).all(1) & ~around
            least = min(least, apart[free].min(initial=np.inf))
    return float(least)


def measure(clips: int, frames: int, law: EpisodeLaw) -> dict[str, float]:
    """Shares of the episodes, by what is said of them."""
    found: dict[str, list[bool]] = {}
    for index in range(clips):
        episode = law.draw(generator_for(0, "val", index), frames)
        moving, least = still_moving(episode), least_distance(episode)
        facts = {
            "something moves at the end": bool(moving.any()),
            "the snitch moves at the end": bool(moving[0]),
            f"two objects are nearer than {GAP} at some time": least < GAP - 1e-9,
            "an object is in the air or half turned at the end": cut_off(episode),
        }
        for name, value in facts.items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> int:
    """Prints the measurements of one kind of moves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=1500, metavar="N", help="episodes")
    parser.add_argument("--frames", type=int, default=301, metavar="N", help="frames of an episode")
    parser.add_argument("--objects", type=int, nargs=2, default=(5, 10), metavar="N", help="fewest and most objects")
    parser.add_argument("--moves", choices=get_args(Moves), default="free", help="the rule of movements")
    options = parser.parse_args()
    law = EpisodeLaw((options.objects[0], options.objects[1]), moves=options.moves)
    for name, share in measure(options.clips, options.frames, law).items():
        print(f"{100 * share:5.1f} %  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
