"""What `docs/scripts/measure_cater_like.py` says of episodes whose movements and distances are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from docs_scripts import docs_script

from slotbench.data.base import generator_for
from slotbench.data.cater_like.scenes import Episode, EpisodeLaw


@pytest.fixture
def script() -> Iterator[ModuleType]:
    with docs_script("measure_cater_like") as script:
        yield script


def still(frames: int = 80) -> Episode:
    """The snitch (radius 0.3) and a medium cone (0.5) that stand 1.5 apart."""
    places = np.zeros((frames, 2, 3))
    places[:, 1, 0] = 1.5
    zeros = np.zeros(2, int)
    return Episode(
        np.array([4, 3]),
        zeros,
        zeros,
        zeros,
        np.array([0.3, 0.5]),
        places,
        np.zeros((frames, 2)),
        np.full((frames, 2), -1),
    )


def test_what_moves_or_turns_in_the_last_step_is_still_moving(script: ModuleType) -> None:
    episode = still()
    assert not script.still_moving(episode).any()
    episode.turns[-1, 1] = 0.1
    assert script.still_moving(episode).tolist() == [False, True]
    episode.places[-1, 0, 2] = 0.5
    assert script.still_moving(episode).tolist() == [True, True]
    episode.places[-2] = episode.places[-1]
    episode.turns[-2] = episode.turns[-1]
    assert not script.still_moving(episode).any()


def test_an_object_in_the_air_or_half_turned_has_been_cut_off(script: ModuleType) -> None:
    episode = still()
    assert not script.cut_off(episode)
    episode.turns[-1, 0] = np.pi
    assert not script.cut_off(episode)
    episode.turns[-1, 0] = np.pi / 3
    assert script.cut_off(episode)
    episode.turns[-1, 0] = 0.0
    episode.places[-1, 0, 2] = 0.1
    assert script.cut_off(episode)


def test_distances_are_of_balls_and_leave_out_a_cone_and_what_it_covers(script: ModuleType) -> None:
    # centres at heights of 0.3 and 0.5
    assert script.least_distance(still()) == pytest.approx(np.hypot(1.5, 0.2) - 0.8)
    raised = still()
    raised.places[40, 1] = (0.6, 0.0, 0.8 - 0.2)
    assert script.least_distance(raised) == pytest.approx(0.2)
    holders = np.full((80, 2), -1)
    holders[60:, 0] = 1
    assert script.least_distance(replace(raised, holders=holders)) == pytest.approx(np.hypot(1.5, 0.2) - 0.8)


def test_shares_are_of_the_episodes_of_the_set(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    law = EpisodeLaw((4, 4))
    found = script.measure(30, 60, law)
    ends = [script.still_moving(law.draw(generator_for(0, "val", index), 60)) for index in range(30)]
    assert found["something moves at the end"] == np.mean([end.any() for end in ends])
    assert found["the snitch moves at the end"] == np.mean([end[0] for end in ends])
    assert found[f"two objects are nearer than {script.GAP} at some time"] > 0
    monkeypatch.setattr("sys.argv", ["measure", "--clips", "2", "--frames", "40", "--objects", "4", "4"])
    assert script.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
